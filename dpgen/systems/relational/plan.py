r"""Privacy plan and configuration of a fit to people and their rows, and the public rule that chooses its sizes.

The rule knows epsilon and released numbers, never the people. With :math:`\mu` the Gaussian-DP parameter of the budget, n the
noisy number of people, r of those who have rows, and a, b the columns of people and of rows:

| what is measured | where |
|---|---|
| tables within people, within rows, and across | mu r >= 100 (a + 2 b) |
| tables within people (the number of rows among their columns) and within rows; rows do not depend on their person | below |
| single columns alone | mu n < 20 (a + b) |

So a small population gets two tables fitted apart, linked by how many rows a person has: across tables it would be told noise.
It spends 2.5 times the share on domains, too, as a value that is not bought is lost. That is decided by the columns of the
drafts, those that are left out later among them. The other constants were set on simulated patients (`dpgen.data.toy`), this
one on planes and their flights.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from dpgen.facts import Fact, Said
from dpgen.privacy.accountants import epsilon
from dpgen.privacy.mechanisms import Relation, gaussian_event, require_whole
from dpgen.systems.plan import Plan
from dpgen.systems.tables.plan import Rules, require_rules

Method = Literal["auto", "linked", "apart", "independent"]

LINKED, ALONE, RULED = 100.0, 20.0, 400.0
"""Signal for each column from which on tables across are measured, below which single columns alone are, and from which on the
columns of rows are searched for rules, too: below it the few classes of rows would pay for what rules exclude."""
DOMAINS: Mapping[Method, float] = {"linked": 1.0, "apart": 2.5, "independent": 2.5}
"""Times the usual share of the budget for domains that are bought."""


def measured(mu: float, n: float, with_rows: float, columns: tuple[int, int]) -> Method:
    """The method that a budget of Gaussian-DP parameter `mu` allows for n people, of whom `with_rows` have rows.

    >>> measured(0.27, 20_000, 16_000, (7, 6)), measured(0.27, 2_000, 1_600, (7, 6)), measured(0.27, 500, 400, (7, 6))
    ('linked', 'apart', 'independent')
    """
    if mu * n < ALONE * sum(columns):
        return "independent"
    return "linked" if signal(mu, with_rows, columns) >= LINKED else "apart"


def signal(mu: float, with_rows: float, columns: tuple[int, int]) -> float:
    """The signal of people who have rows for each column of people, and twice for each of rows."""
    return mu * with_rows / (columns[0] + 2 * columns[1])


def epsilon_of(mu: float, delta: float) -> str:
    """The epsilon, in two digits, at this delta of a Gaussian-DP parameter.

    >>> epsilon_of(0.27, 1e-5), epsilon_of(20.0, 1e-5)
    ('1', '280')
    """
    return f"{float(f'{epsilon(gaussian_event(1.0 / mu), delta):.2g}'):g}"


@dataclass(frozen=True)
class Sizes:
    """Sizes of a fit: classes of people and of rows, tables that are chosen, groups of columns in them, strength of
    independence.
    """

    classes: tuple[int, int]
    picks: int
    groups: tuple[int, ...]
    information: float


def sizes(mu: float, n: float) -> Sizes:
    """The public rule for a budget of Gaussian-DP parameter `mu` and n people.

    >>> sizes(0.268, 20_000)
    Sizes(classes=(128, 64), picks=96, groups=(4, 8, 16), information=...)
    """
    signal = mu * max(n, 1.0)
    generous = signal > 20_000 and mu > 1
    return Sizes(
        classes=(192, 96) if generous else (128, 64),
        picks=16 * round(min(12.0, max(2.0, 6.0 * (signal / 5_000.0) ** 0.5))),
        groups=(8, 16, 64) if generous else (4, 8, 16),
        information=(0.1 if generous else 0.33) * signal**0.7,
    )


@dataclass(frozen=True, kw_only=True)
class RelationalPlan(Plan):
    """Privacy budget of a fit to people with all of their rows.

    Arguments:
        epsilon: budget in nats.
        delta: of the (epsilon, delta) guarantee, in (0, 1).
        relation: neighbouring relation of the budget, "add_remove" or "replace_one", of a person with all rows.
    """

    epsilon: float = 1.0
    delta: float = 1e-5
    relation: Relation = "add_remove"
    gaussian: ClassVar[bool] = True

    @property
    def protected(self) -> str:
        return "one person with all of their rows"

    @property
    def of_people(self) -> bool:
        return True

    @property
    def facts(self) -> tuple[Said, ...]:
        """Facts of a statement on whose rows are used."""
        return (Fact.ONE_PERSON_LINKED(),)

    @property
    def paid(self) -> dict[str, Any]:
        """The price, as a schema whose domains it bought states it."""
        unit = {"unit": "person", "max_contributions": 1}
        return {"epsilon": self.epsilon, "delta": self.resolved_delta, "relation": self.relation, **unit}


@dataclass(frozen=True, kw_only=True)
class RelationalConfig:
    """Model of people and their rows; public choices, none of them private.

    Arguments:
        method: "linked" tables, tables "apart" but for the number of rows, "independent" columns, or "auto": the public rule.
        classes: K, classes of people; None: the public rule.
        row_classes: W, classes of rows; None: the public rule.
        rounds: how often the model is fitted before the next tables are chosen.
        picks: tables that are chosen in all rounds together; None: the public rule.
        steps: of the fit at the end; three twentieths of them after each round, three eighths at first.
        rules: "auto": rules between people and their rows, and between the columns of a table, are looked for and kept, "off":
            they are not; a list of columns, as TABLE.COLUMN: between these alone.
        target: a column of people that others will predict from their rows, as TABLE.COLUMN, or {"table": TABLE, "column":
            COLUMN}. Tables with it are measured first, for 15 % of mu^2, and in samples it is drawn last, see `target`.

    Raises:
        ValueError: unknown method, or a number out of its range.
    """

    method: Method = "auto"
    classes: int | None = None
    row_classes: int | None = None
    rounds: int = 16
    picks: int | None = None
    steps: int = 160
    rules: Rules = "auto"
    target: str | dict[str, str] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.target, dict):
            if set(self.target) != {"table", "column"}:
                raise ValueError(f"target is {self.target!r}; it must be TABLE.COLUMN, or have the keys table and column")
            object.__setattr__(self, "target", f"{self.target['table']}.{self.target['column']}")
        if self.method not in get_args(Method):
            raise ValueError(f"method is {self.method!r}; choose one of {', '.join(get_args(Method))}")
        require_rules(self.rules)
        for name in ("classes", "row_classes"):
            if (value := getattr(self, name)) is not None:
                require_whole(name, value, 1, 1024)
        require_whole("rounds", self.rounds, 1, 1000)
        require_whole("steps", self.steps, 1, 100_000)
        if self.picks is not None:
            require_whole("picks", self.picks, 1, 10_000)
