"""Public choices of DP-MERF."""

from dataclasses import dataclass

from dpgen.privacy.mechanisms import require_positive, require_whole


@dataclass(frozen=True, kw_only=True)
class MERFConfig:
    """The features, the generator and its training; public choices.

    Arguments:
        n_features: random features of a record, an even number: pairs of a cosine and a sine.
        gamma: of the kernel exp(-gamma |x - y|^2) of values in [0, 1], > 0. None: 8 / d for records of d values.
        hidden: units of a hidden layer of the generator.
        depth: its hidden layers.
        latent: its noise.
        steps: of its training, which costs nothing.
        batch: generated records of a step.
        lr: learning rate of Adam, falling linearly to zero.

    Source: Harder, Adamczewski, Park 2021, Section 4.
    """

    n_features: int = 4000
    gamma: float | None = None
    hidden: int = 256
    depth: int = 2
    latent: int = 5
    steps: int = 1000
    batch: int = 500
    lr: float = 0.003

    def __post_init__(self) -> None:
        for name in ("n_features", "hidden", "depth", "latent", "steps", "batch"):
            require_whole(name, getattr(self, name))
        if self.n_features % 2:
            raise ValueError(f"n_features is {self.n_features}; it must be an even number")
        for name in ("gamma", "lr"):
            if getattr(self, name) is not None:
                require_positive(name, getattr(self, name))
