"""Options of an audit: what its command line may say, read without torch and without a fit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpgen.config import DEFAULT_MODEL
from dpgen.options import Sources, by_block, choose, keys, require_writable, split_options, typed
from dpgen.systems.dp_sgd.plan import DPSGDPlan
from dpgen.systems.registry import systems

TRAINED = {"sampling_rate": "0.01", "steps": "800"}
"""Options of private training, unless others are given: enough for faults to show."""

SIGMA = "1.2"
"""Noise of private training where neither it nor epsilon is given."""

NOISY = {"delta": "0.2"}
"""Options of Gaussian releases: at a small delta two worst cases are told apart too rarely for the few fits of an audit."""

QUICK: dict[str, dict[str, str]] = {
    "dpgm": TRAINED,
    "dpgan": TRAINED,
    "gaussian": NOISY | {"epsilon": "1", "trainings": "500"},
    "marginals": NOISY,
    "merf": NOISY | {"n_features": "16", "hidden": "4", "steps": "1", "batch": "4"},
    "merr": NOISY,
    "relational": NOISY | {"method": "linked", "rounds": "1", "picks": "8", "classes": "1", "row_classes": "1", "steps": "1"},
    "mwem": {"rounds": "1", "total_share": "0.98", "delta": "0"},
    "mbde": {"steps": "100", "codebook": "64"},
    "bernstein": {"degree": "4", "bandwidth": "0.05"},
    "grid_response": {"cells": "4"},
}
"""Options of small fits, taken where the command line gives no others."""


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """Options of an audit.

    Arguments:
        trainings: fits of each of the two data sets, or draws from each where a fit makes many; with canaries, runs in
            which a coin decides about each of them. None: 1 run with canaries, else 600 fits or 20,000 draws.
        canaries: records whose presence in a private training is guessed. None: 1000.
        confidence: of the lower bound, in (0, 1): an honest system is flagged with probability at most 1 - confidence.
        workers: processes; None: one for each CPU where there are hundreds of trainings, else 1.
        seed: of public randomness and of the canaries' coins.
        progress_bar: show one.
        out: JSON file for the finding.
    """

    trainings: int | None = None
    canaries: int | None = None
    confidence: float = 0.95
    workers: int | None = None
    seed: int = 0
    progress_bar: bool = True
    out: Path | None = None

    def __post_init__(self) -> None:
        for name in ("trainings", "canaries", "workers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if not 0 < self.confidence < 1:
            raise ValueError(f"confidence must be in (0, 1), got {self.confidence}")
        if self.seed < 0:
            raise ValueError(f"seed must be at least 0, got {self.seed}")
        if self.out is not None:
            require_writable(self.out, "out")


@dataclass(frozen=True)
class AuditJob:
    """A system with its options, and how to try them."""

    model: str
    plan: Any
    config: Any
    options: AuditOptions

    @property
    def trained(self) -> bool:
        """Whether the claim is that of the DP-SGD engine, which can be looked into."""
        return isinstance(self.plan, DPSGDPlan)


def parse_audit(arguments: Sequence[str] | Mapping[str, str]) -> AuditJob:
    """An audit from command-line arguments, or their values by name: `model`, and options of privacy, model and the audit."""
    given = dict(arguments) if isinstance(arguments, Mapping) else split_options(arguments)
    model = choose("model", given.pop("model", DEFAULT_MODEL), list(systems()))
    sources = sources_of(model)
    known = {name for source in sources.values() for name in keys(source)}
    quick = {name: value for name, value in quick_options(model, given).items() if name in known}
    own = by_block(sources, quick | given)
    job = AuditJob(model, *(source(**typed(source, own[block])) for block, source in sources.items()))
    if job.options.canaries is not None and not job.trained:
        raise ValueError(f"canaries is {job.options.canaries}: only systems that DP-SGD trains have them")
    return job


def sources_of(model: str) -> Sources:
    """By block, what the options of an audit of a system belong to."""
    return {"privacy": systems()[model].plan, "model": systems()[model].config, "audit": AuditOptions}


def quick_options(model: str, given: Mapping[str, str]) -> dict[str, str]:
    """Options of small fits of a system, beside the given ones."""
    quick = QUICK.get(model, {})
    priced = {"epsilon", "noise_multiplier"} & set(given)
    return quick | ({"noise_multiplier": SIGMA} if quick is TRAINED and not priced else {})
