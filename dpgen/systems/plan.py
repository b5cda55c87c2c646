"""Shared by all systems: budgets, checked before any data are read."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args

from dpgen.facts import Fact, Said
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.mechanisms import Relation, require_positive, require_whole
from dpgen.statement import person

if TYPE_CHECKING:
    from dpgen.privacy.shared_budget import Payer, Share

# -- budgets ----------------------------------------------------------------------------------------------------------


CALIBRATED = {"calibrated": True}
"""Metadata of fields of a plan that follow from its options and are none themselves."""

MOST_EPSILON = 1e6
"""Far beyond any protection; above it arithmetic of prices loses its meaning."""


class Plan:
    """Privacy budget of a run: a frozen dataclass whose fields are options of the command line and reach the ledger.

    Attributes:
        epsilon: budget in nats, in (0, 10^6]; None: the statement reports what was spent.
        delta: of the guarantee, in [0, 1); None: see `resolved_delta`.
        relation: neighbouring relation, "add_remove" or "replace_one".
        protected: what neighbouring data sets differ in.
    """

    epsilon: float | None
    delta: float | None = 0.0
    relation: Relation = "replace_one"
    gaussian: ClassVar[bool] = False
    """Whether the noise is Gaussian, which has no guarantee at delta 0."""
    reports: ClassVar[bool] = False
    """Whether epsilon may be None: the noise is given, and the statement reports what was spent."""

    def __post_init__(self) -> None:
        if not (self.epsilon is None and self.reports) and require_positive("epsilon", self.epsilon) > MOST_EPSILON:
            raise ValueError(f"epsilon is {self.epsilon!r}; it must be at most {MOST_EPSILON:g}")
        Budget(1.0, self.resolved_delta)  # which refuses a delta outside [0, 1)
        if self.gaussian and not self.resolved_delta:
            raise ValueError("delta is 0; it must lie in (0, 1): Gaussian noise has no guarantee at delta 0")
        if self.relation not in get_args(Relation):
            raise ValueError(f"relation is {self.relation!r}; choose one of {', '.join(get_args(Relation))}")

    @property
    def protected(self) -> str:
        """The unit that neighbouring data sets differ in."""
        return "one record"

    @property
    def rows(self) -> int:
        """The most rows of a unit, which sensitivities speak of one of."""
        return 1

    @property
    def of_people(self) -> bool:
        """Whether the unit is a person, who has some rows among the data or none."""
        return False

    @property
    def resolved_delta(self) -> float:
        """The delta that is used."""
        return self.delta or 0.0

    @property
    def budget(self) -> Budget | None:
        """The budget that the ledger enforces; None: report only."""
        return None if self.epsilon is None else Budget(self.epsilon, self.resolved_delta)

    def sharing(self, share: Share, given: Container[str]) -> Self:
        """The plan of a run that pays from a shared budget: what is not among the options that were given is its share.

        Its own delta stays where it is smaller.
        """
        plan: Any = self
        if "delta" not in given and 0 < share.delta < plan.resolved_delta:
            plan = replace(plan, delta=share.delta)
        if "epsilon" not in given and plan.epsilon is not None and share.runs is not None:
            plan = replace(plan, epsilon=share.epsilon if plan.resolved_delta else share.pure)
        return plan

    def open_ledger(self, path: Path | None = None, *, payer: Payer | None = None, gaps: bool = False) -> Ledger:
        """A new ledger that enforces the budget, or only reports at the delta; kept in the file `path` if given.

        Arguments:
            payer: the run in a shared budget, which pays there as well.
            gaps: whether rows with gaps are left out: of a replaced unit then, too.
        """
        return Ledger(
            self.budget,
            delta=self.resolved_delta if self.budget is None else None,
            relation=self.relation,
            unit=self.protected,
            rows=self.rows,
            always_used=not (gaps or self.of_people),
            path=path,
            payer=payer,
        )


@dataclass(frozen=True, kw_only=True)
class RowPlan(Plan):
    """Budget of a system whose data have rows: the unit is a row, or a person with several of them.

    Arguments:
        unit: column that names the person of each row; it is no data. None: every row is a person of its own.
        max_contributions: most rows m of a person that are used, those with the smallest keyed hashes of their contents.
    """

    unit: str | None = None
    max_contributions: int = 1
    several_rows: ClassVar[bool] = False
    """Whether all releases of the system are proved for people with several rows, under both relations."""

    def __post_init__(self) -> None:
        super().__post_init__()
        most = require_whole("max_contributions", self.max_contributions)
        if most > 1 and self.unit is None:
            raise ValueError(f"max_contributions is {most}; it must be 1 without unit, the column that names people")
        if most > 1 and not self.several_rows:
            raise ValueError(f"max_contributions is {most}; it must be 1 for this model: more is not proved for it")

    @property
    def protected(self) -> str:
        return person(self.unit, self.max_contributions)

    @property
    def facts(self) -> tuple[Said, ...]:
        """Facts of a statement on whose rows are used."""
        return () if self.unit is None else (Fact.ONE_PERSON(unit=self.unit, rows=self.max_contributions),)

    @property
    def rows(self) -> int:
        return self.max_contributions

    @property
    def of_people(self) -> bool:
        return self.unit is not None


@dataclass(frozen=True, kw_only=True)
class SumsPlan(RowPlan):
    """Budget of a system whose releases are sums with Gaussian noise.

    Arguments:
        epsilon: budget in nats.
        delta: of the (epsilon, delta) guarantee, in (0, 1).
        relation: neighbouring relation of the budget, "add_remove" or "replace_one".
    """

    epsilon: float = 1.0
    delta: float = 1e-5
    relation: Relation = "add_remove"
    gaussian: ClassVar[bool] = True
    several_rows: ClassVar[bool] = True

    @property
    def paid(self) -> dict[str, Any]:
        """The price, as a schema whose domains it bought states it."""
        unit = {"unit": self.unit, "max_contributions": self.max_contributions}
        return {"epsilon": self.epsilon, "delta": self.resolved_delta, "relation": self.relation, **unit}


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    """Public choices of a system that has none."""


# -- clusters ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """Clusters of a mixture.

    Arguments:
        clusters: "labels", "kmeans" (private k-means), "none" (one model), or "auto": labels if there are any, else k-means.
            Labels that are no clusters are columns of the record (networks) or left out (Gaussians, whose samples have none).
        k: number of clusters; None: the number of labels with clusters="labels", 1 with "none"; with "kmeans" 10 networks, or
            Gaussians by the public rule.
    """

    clusters: Literal["auto", "labels", "kmeans", "none"] = "auto"
    k: int | None = None

    def __post_init__(self) -> None:
        if self.k is not None and self.k < 1:
            raise ValueError(f"k must be at least 1, got {self.k}")

    def resolved(self, *, n_classes: int) -> Self:
        """The configuration with `k` and `clusters` decided for records of `n_classes` labels."""
        clusters = self.clusters if self.clusters != "auto" else "labels" if n_classes else "kmeans"
        if clusters == "labels" and not n_classes:
            raise ValueError("clusters='labels' needs labelled records; use 'kmeans' or 'none'")
        forced = {"labels": n_classes, "none": 1}.get(clusters)
        if forced is not None and self.k not in (None, forced):
            raise ValueError(f"k must be {forced} with clusters={clusters!r}, got {self.k}")
        return replace(self, k=forced or self.k or 10, clusters=clusters)


# -- images ------------------------------------------------------------------------------------------------------------

_LARGE = 400


def large(image_shape: tuple[int, ...] | None) -> bool:
    """Whether records are images of at least 20 x 20 pixels, which models know by their lowest frequencies.

    >>> large((28, 28)), large((3, 32, 32)), large((8, 8)), large(None)
    (True, True, False, False)
    """
    return image_shape is not None and prod(image_shape[-2:]) >= _LARGE
