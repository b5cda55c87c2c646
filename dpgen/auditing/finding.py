"""What an audit found: claim and bound side by side, for a terminal and for programs."""

import json
from dataclasses import asdict, dataclass
from typing import Any

from dpgen.statement import rounded_up


@dataclass(frozen=True, kw_only=True)
class Finding:
    """An empirical lower bound on epsilon beside the epsilon that was claimed.

    Arguments:
        audited: system and configuration, in words.
        neighbours: in what the two data sets differ.
        claimed: epsilon in nats.
        claimed_by: "ledger", or whose accounting it was.
        delta: of both.
        relation: neighbouring relation.
        unit: what is protected.
        lower_bound: epsilon is at least this, with probability `confidence`.
        confidence: in (0, 1).
        method: "one run", "many runs" or "many draws".
        attack: statistic that the bound comes from.
        trainings: how often the system was fitted, over all data sets.
        trials: values that the bound was computed from.
        seconds: of wall clock.
    """

    audited: str
    neighbours: str
    claimed: float
    claimed_by: str
    delta: float
    relation: str
    unit: str
    lower_bound: float
    confidence: float
    method: str
    attack: str
    trainings: int
    trials: int
    seconds: float

    @property
    def violated(self) -> bool:
        """Whether the bound refutes the claim."""
        return self.lower_bound > self.claimed

    @property
    def verdict(self) -> str:
        """ "VIOLATED" or "consistent"; the latter proves nothing."""
        return "VIOLATED" if self.violated else "consistent"

    def rows(self) -> list[tuple[str, str]]:
        """Name and value of each line of the table."""
        return [
            ("audited", self.audited),
            ("neighbours", f"{self.neighbours} ({self.relation}, {self.unit})"),
            ("claimed", f"epsilon {rounded_up(self.claimed)} at delta {rounded_up(self.delta)}, by {self.claimed_by}"),
            (
                "lower bound",
                f"epsilon {self.lower_bound:.4f} at delta {rounded_up(self.delta)}, with confidence {self.confidence:.10g}",
            ),
            ("evidence", f"{self.method}: {self.trainings} trainings, {self.trials} trials, by the {self.attack}"),
            ("time", f"{self.seconds:.1f} s"),
            ("verdict", self.verdict + ("" if self.violated else " (no audit can prove a claim)")),
        ]

    def to_text(self) -> str:
        """For a terminal."""
        return "\n".join(f"{name:<12} {value}" for name, value in self.rows())

    def to_json(self) -> str:
        """For programs."""
        record: dict[str, Any] = {**asdict(self), "verdict": self.verdict}
        return json.dumps(record, indent=2, allow_nan=False) + "\n"
