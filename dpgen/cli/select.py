r"""`dpgen train --select "epsilon=0.5,1"`: the best of a secret number of runs, and the price of choosing it.

Each run is of a combination drawn at random. All of it is charged before the first one; whatever is not chosen never leaves the
directory `unreleased-...`, which is for the holder of the data alone and removed at the end.

The score of a run is paid for: how far counts of its released records are from those of the private ones, with noise. A query
asks whether a record has a one in both of two columns, perhaps the same. With
:math:`q_j(x) \in \{0, 1\}` the answers of a record x to m queries and :math:`p_j` the share of released records that satisfy
query j, rounded to whole 1024ths,

.. math:: S = \sum_j \Bigl| \sum_x (q_j(x) - p_j) \Bigr|

is exact in int64 on the grid 1/1024. A record moves each term by at most 1, added, removed or replaced, so S by at most m: the
mean error of a count, S / m, by one record. Comparisons do not round, so an answer depends on its record alone, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
import yaml
from torch import Tensor
from torch.nn.functional import one_hot

from dpgen.config import RunConfig, SelectOptions
from dpgen.data.kinds import KINDS
from dpgen.facts import Fact
from dpgen.files import write_atomically
from dpgen.options import typed
from dpgen.privacy.accountants import epsilon
from dpgen.privacy.curator import Curator, gaussian_price
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Budget, Ledger, Planned
from dpgen.privacy.mechanisms import Relation, require_positive
from dpgen.privacy.noise import PublicRandomness
from dpgen.privacy.selection import SELECTION, selection_event
from dpgen.privacy.shared_budget import Payer
from dpgen.release import PublicModel, Release
from dpgen.runtime import Runtime
from dpgen.samples import RecordSamples
from dpgen.statement import UNPROTECTED, PrivacyStatement


@dataclass(frozen=True)
class Selection:
    """Runs by name, of the same data, relation, unit and delta, the best of a secret number of which is released."""

    choices: tuple[tuple[str, RunConfig], ...]
    options: SelectOptions

    @classmethod
    def of(cls, own: Mapping[str, str], fixed: Mapping[str, str], parse: Callable[[Mapping[str, str]], RunConfig]) -> Selection:
        """From options of the selection, and those that all of its runs have."""
        if "select" not in own:
            raise ValueError(f"{next(iter(own))} needs --select")
        options = SelectOptions(**typed(SelectOptions, own))
        choices: list[tuple[str, RunConfig]] = []
        for name, given in options.combinations(fixed):
            try:
                job = parse(given)
                first = choices[0][1] if choices else job
                _require_selectable(job, first)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
            choices.append((name, job))
        return cls(tuple(choices), options)

    title = SELECTION
    resumable = False

    @property
    def first(self) -> RunConfig:
        """The run whose data, runtime, relation, unit and delta all of them have."""
        return self.choices[0][1]

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.choices]

    def difference(self, stored: Mapping[str, Mapping[str, Any]]) -> str:
        """Empty where the stored settings are those of a choice: the one that was released."""
        found = [job.difference(stored) for _, job in self.choices]
        return "" if "" in found else found[0]

    def open_ledger(self, path: Path | None = None, *, payer: Payer | None = None) -> Ledger:
        """A ledger of the whole selection."""
        limit, delta = self.options.select_epsilon, self.first.privacy.resolved_delta
        budget = None if limit is None else Budget(limit, delta)
        given = delta if budget is None else None
        return Ledger(budget, delta=given, path=path, payer=payer, **self.first.open_ledger().terms)

    @property
    def priced(self) -> tuple[Planned, ...]:
        """The charge of one score."""
        return price(self.options.select_noise, self.first.privacy.relation)

    def trials(self, data: Any) -> list[Sequence[Planned]]:
        """Plans of the choices, which they declare before they look at a record."""
        return [job.declared(data) for _, job in self.choices]

    def planned(self, trials: Sequence[Sequence[Planned]]) -> Planned:
        """Price of the whole selection, which must be finite."""
        privacy = self.first.privacy
        event = selection_event(trials, self.priced, self.options.select_runs)
        if epsilon(event, privacy.resolved_delta, relation=privacy.relation) == float("inf"):
            raise ValueError(
                f"delta is {privacy.resolved_delta:g}; a selection of these has no finite epsilon: delta must be > 0, "
                "and mechanisms that are known by an (epsilon, delta) guarantee alone cannot be selected from"
            )
        return Planned(event, SELECTION)

    def declared(self, data: Any) -> Sequence[Planned]:
        """The plan of the selection, if its budget has room for it; nothing is spent."""
        plan = [self.planned(self.trials(data))]
        self.open_ledger().declare(plan)
        return plan

    def fit(self, data: Any, curator: Curator, runtime: Runtime) -> Release:
        """The best release of a secret number of fits, with the statement of the selection."""
        trials, noise = self.trials(data), self.options.select_noise
        curator.declare(self.planned(trials))
        with TemporaryDirectory(prefix="unreleased-", dir=runtime.directory) as scratch:  # of mode 0700
            write_atomically(Path(scratch) / "NOT_FOR_PUBLICATION", f"{UNPROTECTED}: runs that were not released\n")

            def run(number: int, inner: Curator) -> tuple[int, Release]:
                with TemporaryDirectory(dir=scratch) as place:
                    return number, self.choices[number][1].fit(data, inner, replace(runtime, run_dir=Path(place)))

            best = curator.select(
                SELECTION,
                trials,
                self.options.select_runs,
                run=run,
                score=lambda found, inner: score(found[1], data, inner, noise=noise, seed=runtime.seed),
                priced=self.priced,
            )
        if best is None:
            raise ValueError(
                "the secret number of runs that was drawn is 0: nothing is released, and what was charged stays charged; "
                f"that happens once in e^{self.options.select_runs:g} selections"
            )
        number, release = best
        write_atomically(runtime.directory / "config.yaml", yaml.safe_dump(self.choices[number][1].settings, sort_keys=False))
        rule = {"noise": self.options.select_noise, "runs": self.options.select_runs}
        facts = (Fact.EXACT_INTEGERS, Fact.SELECTED(name=self.names[number], names=", ".join(self.names), **rule))
        release.statement = PrivacyStatement.from_ledger(curator.ledger, facts=(*release.statement.facts, *facts))
        return release


def _require_selectable(job: RunConfig, first: RunConfig) -> None:
    """Refuse a run that a paid score cannot rank beside the first one."""
    if job.loader != KINDS["records"].loaders.get(job.data.name):
        raise ValueError(f"data are {job.data.name!r}; they must be 0/1 records, which a paid score counts")
    if (job.data, job.runtime) != (first.data, first.runtime):
        raise ValueError("a selection is among options of model and privacy, on the same data in every run")
    for term in ("relation", "protected", "resolved_delta"):
        if (own := getattr(job.privacy, term)) != (wanted := getattr(first.privacy, term)):
            raise ValueError(f"{term.removeprefix('resolved_')} is {own!r}; it must be {wanted!r} in every run")
    if job.privacy.protected != "one record":
        raise ValueError(f"unit is {job.privacy.protected!r}; a paid score knows the unit 'one record' only")
    if job.runtime.processes > 1:
        raise ValueError("devices and num_nodes must be 1 in a selection")


# -- the score ---------------------------------------------------------------------------------------------------------


SCORE = "score of a run"
"""Note of the score in a ledger."""

MOST_QUERIES = 1000
_GRID = 1024
_SAMPLES = 20_000


class Queries(NamedTuple):
    """m queries: two columns of each (m, 2), and the released shares of records that have ones in both (m,)."""

    columns: Tensor
    shares: Tensor

    def counts(self, values: Tensor) -> Tensor:
        """Numbers (m,) int64 of the records (n, d), 0 and 1, that satisfy each query."""
        rows = values.T.bool().contiguous()
        return torch.tensor([int((rows[a] & rows[b]).sum()) for a, b in self.columns.tolist()], dtype=torch.int64)

    def errors(self, values: Tensor) -> BoundedSum:
        """S of the module, (1,), of private records (n, d)."""
        wanted = len(values) * (self.shares * _GRID).round().to(torch.int64)
        total = (_GRID * self.counts(values) - wanted).abs().sum()[None]
        m = float(len(self.shares))
        return BoundedSum(total, m, "errors of counts", replaced=m, step=1 / _GRID)


def queries(release: Release, data: Any, *, seed: int) -> tuple[Queries, Tensor]:
    """Queries on a release, chosen by public randomness and the release alone, and the private values (n, d).

    They are of every column and every class, and of random pairs of them.
    """
    samples = release.samples(_SAMPLES, random_state=seed) if isinstance(release, PublicModel) else release
    if not isinstance(samples, RecordSamples):
        raise ValueError(f"the release has {type(samples).__name__}; a paid score counts the records of a released model")
    generator = PublicRandomness(seed).spawn("queries of a paid score").generator
    released = _joined(samples.x, samples.labels if data.labels is not None else None, data.n_classes)
    columns = _pairs(released.shape[1], generator)
    plain = Queries(columns, torch.zeros(len(columns)))
    asked = plain._replace(shares=plain.counts(released).double() / max(1, len(released)))
    return asked, _joined(data.x, data.labels if samples.labels is not None else None, data.n_classes)


def _pairs(d: int, generator: torch.Generator) -> Tensor:
    """Each of d columns by itself, then random pairs of two, (m, 2)."""
    alone = torch.arange(d)[:, None].expand(d, 2)[:MOST_QUERIES]
    every = torch.combinations(torch.arange(d)) if d <= 100 else torch.randint(d, (2 * MOST_QUERIES, 2), generator=generator)
    every = every[every[:, 0] != every[:, 1]]
    chosen = every[torch.randperm(len(every), generator=generator)[: max(0, MOST_QUERIES - d)]]
    return torch.cat([alone, chosen])


def _joined(x: Tensor, labels: Tensor | None, n_classes: int) -> Tensor:
    return x if labels is None else torch.cat([x, one_hot(labels.long(), n_classes).to(x.dtype)], 1)


def price(noise: float, relation: Relation) -> tuple[Planned, ...]:
    """The charge of one score with noise of this standard deviation, in records: the same for every m."""
    any_sum = Queries(torch.zeros(1, 2).long(), torch.zeros(1)).errors(torch.zeros(0, 1))
    return (Planned(gaussian_price(any_sum, require_positive("noise", noise), relation), SCORE),)


def score(release: Release, data: Any, curator: Curator, *, noise: float, seed: int) -> float:
    """Minus the mean error of a count, in records, with noise of this standard deviation, which is charged."""
    asked, values = queries(release, data, seed=seed)
    return -float(curator.gaussian(SCORE, asked.errors(values), noise)) / len(asked.shares)
