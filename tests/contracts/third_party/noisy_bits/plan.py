"""Privacy budget and public choices."""

from dataclasses import dataclass

from dpgen.systems.plan import Plan


@dataclass(frozen=True, kw_only=True)
class BitsPlan(Plan):
    """One Laplace release.

    Arguments:
        epsilon: in nats, pure.
    """

    epsilon: float = 1.0


@dataclass(frozen=True, kw_only=True)
class BitsConfig:
    """Public choices.

    Arguments:
        margin: least distance of a probability from 0 and 1.
    """

    margin: float = 0.01
