r"""Privacy plan and configuration of a fit to mixed tables, and the public rule that chooses its sizes.

The rule knows epsilon and a released number of records, never the records. With :math:`\mu` the Gaussian-DP parameter of the
budget and n the noisy number of records, the signal of a count against its noise grows with :math:`\mu n`:

| choice | rule | Adult, eps .1 | eps 1 | eps 10 |
|---|---|---|---|---|
| signal | mu n | 980 | 8,700 | 62,000 |
| marginals that are chosen, T | 100 (mu n / 8,700)^(1/2), 20 to 200 | 33 | 100 | 200 |
| groups of a column in pairs | 8, 16, all; below 3,000 also 4 | 4, 8, 16, all | 8, 16, all | 8, 16, all |
| groups of a column in triples | 4 below 3,000, 8 from 25,000 on, else 6 | 4 | 6 | 8 |
| strength of independence, beta | 2.2 (mu n)^.7 | 270 | 1,260 | 5,000 |
| columns that are measured together again | no | yes (from 6,000 on) | yes |
| fits aim beyond what independence holds back | yes | yes (below 20,000) | no |
| single columns only | mu n < 20 d | | | |
| all columns in one table | cells <= .4 mu n, cells / largest size <= 4,096 | 390 | 3,500 | 25,000 |

The constants were set on Adult, and looked at on HIGGS, whose records no budget of ours covers; for any other table they are
public.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self, get_args

from dpgen.privacy.mechanisms import require_whole

Method = Literal["auto", "mixture", "independent"]
Rules = tuple[str, ...] | str

COUNTING = 0.01
"""Share of mu^2 for the number of records."""
LEAST_COLUMNS = 0.1
"""Share of mu^2 for marginals of columns where most has been bought before: it pairs columns with the target."""
LEAST_SIGNAL = 20.0
"""Signal mu n for each column below which pairs are not worth their noise."""
MOST_CELLS = 0.4
"""Cells by the signal mu n, at most, of a table that is released whole: noise is then .16 in total variation at most."""
DEEP = 4
"""Columns of a question, from which on products of the mixture are put into its cells."""
MOST_CLASSES_OF_QUESTION = 256
"""Cells of all columns but the largest of such a question."""
MOST_CLASSES_OF_CELLS = 4096
"""Classes of the model of such a table, at most."""
MOST_ASKED = 6
"""Columns of a question of the workload."""
_MOST_AXES = 32


@dataclass(frozen=True)
class Sizes:
    """Sizes of a fit: products, marginals that are chosen, groups of columns in them, and the strength of independence.

    `again`: whether columns can be measured together once more. `corrected`: whether fits aim beyond measurements that the
    strength of independence holds them back from; where the signal is great, aiming beyond loses (TV of pairs .0104 for .0095,
    Adult).
    """

    components: int
    picks: int
    pair_groups: tuple[int, ...]
    triple_groups: int
    information: float
    again: bool
    corrected: bool


def sizes(mu: float, n: float) -> Sizes:
    """The public rule for a budget of Gaussian-DP parameter `mu` and n records.

    >>> sizes(0.268, 32_561)
    Sizes(components=256, picks=100, pair_groups=(8, 16), triple_groups=6, information=1261.8..., again=True, corrected=True)
    >>> sizes(2.0, 32_561).components, sizes(0.268, 1_000_000).components
    (512, 256)
    """
    signal = mu * max(n, 1.0)
    generous = signal > 40_000 and mu > 1  # twice the time is for those who have spent much, not for those with many rows
    return Sizes(
        components=512 if generous else 256,
        picks=round(min(200.0, max(20.0, 100.0 * (signal / 8_700.0) ** 0.5))),
        pair_groups=(4, 8, 16) if signal < 3_000 else (8, 16),
        triple_groups=4 if signal < 3_000 else 6 if signal < 25_000 else 8,
        information=(1.1 if generous else 2.2) * signal**0.7,
        again=signal >= 6_000,
        corrected=signal < 20_000,
    )


def few_cells(sizes: Sequence[int], signal: float) -> bool:
    """The public rule: whether all cells of columns of these sizes are few beside the signal mu n.

    >>> few_cells((2,) * 9, 0.268 * 20_000), few_cells((2,) * 12, 0.268 * 20_000)
    (True, False)
    """
    cells = math.prod(sizes)
    return len(sizes) <= _MOST_AXES and cells <= min(MOST_CELLS * signal, MOST_CLASSES_OF_CELLS * max(sizes))


def require_rules(rules: Rules) -> None:
    """Refuse what is neither auto, off nor two columns."""
    if rules not in ("auto", "off") and (isinstance(rules, str) or len(set(rules)) < 2):
        given = rules if isinstance(rules, str) else ", ".join(rules)
        raise ValueError(f"rules is {given!r}; it must be auto, off, or a list of two columns or more")


@dataclass(frozen=True)
class Question:
    """The table of some columns, or the mean of a number by the other ones.

    >>> Question.of(["ward", "diagnosis"]).columns, str(Question.of({"mean": "cost", "by": ["ward"]}))
    (('ward', 'diagnosis'), 'mean of cost by ward')
    """

    columns: tuple[str, ...]
    mean: str | None = None

    @classmethod
    def of(cls, given: Any) -> Self:
        """A question as `workload` lists it; another one is refused."""
        mean, names = _mean_and_by(given) if isinstance(given, Mapping) else (None, given)
        listed = isinstance(names, list | tuple) and len(names) > 0 and all(isinstance(name, str) for name in names)
        if not listed or not isinstance(mean, str | None):
            raise ValueError(f"workload has {given!r}; a question is a list of columns, or {{'mean': COLUMN, 'by': [COLUMNS]}}")
        columns = (*names, mean) if mean is not None else tuple(names)
        if len(set(columns)) < len(columns) or len(columns) > MOST_ASKED:
            raise ValueError(f"workload has {given!r}; a question must be of 1 to {MOST_ASKED} columns, each once")
        return cls(columns, mean)

    @property
    def given(self) -> list[str] | dict[str, Any]:
        """The question as `of` takes it."""
        return list(self.columns) if self.mean is None else {"mean": self.mean, "by": list(self.columns[:-1])}

    def __str__(self) -> str:
        *by, last = self.columns
        return " x ".join(self.columns) if self.mean is None else f"mean of {last} by {' x '.join(by)}"


def _mean_and_by(given: Mapping[str, Any]) -> tuple[Any, Any]:
    if set(given) != {"mean", "by"}:
        raise ValueError(f"workload has {dict(given)!r}; it must be {{'mean': COLUMN, 'by': [COLUMNS]}}")
    return given["mean"], [given["by"]] if isinstance(given["by"], str) else given["by"]


@dataclass(frozen=True, kw_only=True)
class TablesConfig:
    """Model of a mixed table; public choices, none of them private.

    Arguments:
        method: "mixture" of products, "independent" columns, or "auto": all columns in one table where its cells are few, the
            mixture where the budget can see pairs.
        components: K, products of the mixture; None: the public rule.
        rounds: how often the mixture is fitted before the next marginals are chosen.
        picks: marginals that are chosen in all rounds together; None: the public rule.
        rules: "auto": rules between columns whose domains are bought are looked for and kept, "off": they are not; a list of
            columns: between these alone.
        workload: questions that are measured before any marginal is chosen: lists of one to six columns (`[ward,diagnosis]`),
            and means (`{mean: cost, by: [ward]}`).
        prior: a public table of the same columns (a file, or a DataFrame in Python), or an earlier release of them (the
            directory of its run or model): the fit leaves it where noisy counts say so.
    """

    method: Method = "auto"
    components: int | None = None
    rounds: int = 20
    picks: int | None = None
    rules: Rules = "auto"
    workload: list[Any] | dict[str, Any] | None = None
    prior: str | None = None

    @cached_property
    def questions(self) -> tuple[Question, ...]:
        """The workload, each question once."""
        listed = [self.workload] if isinstance(self.workload, Mapping) else self.workload or []
        return tuple(dict.fromkeys(Question.of(given) for given in listed))

    def __post_init__(self) -> None:
        if self.method not in get_args(Method):
            raise ValueError(f"method is {self.method!r}; choose one of {', '.join(get_args(Method))}")
        require_rules(self.rules)
        if self.questions and self.method == "independent":
            raise ValueError("method is 'independent'; it must be another one with a workload, which is of several columns")
        if self.components is not None:
            require_whole("components", self.components, 1, 4096)
        require_whole("rounds", self.rounds, 1, 1000)
        if self.picks is not None:
            require_whole("picks", self.picks, 1, 10_000)
