"""Privacy plan and configuration of DPGAN."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from dpgen.privacy.mechanisms import require_positive, require_whole
from dpgen.systems.dp_sgd.plan import DPSGDConfig, DPSGDPlan, chosen_frequencies, require_frequencies

if TYPE_CHECKING:
    from dpgen.nets.gan import CriticBank, Generator
    from dpgen.nets.own import OwnCriticBank, OwnGenerator

_OF_GENERATOR = ("latent", "frequencies", "centred")
"""Options that a generator of your own replaces."""
_OF_CRITIC = ("hidden",)
"""Options that a critic of your own replaces as well."""
_LARGEST_CRITIC = 128  # hidden units: parameters of critics get noise
_DEPTH = 2  # hidden layers of a generator, and of a critic of all records


@dataclass(frozen=True, kw_only=True)
class DPGANPlan(DPSGDPlan[DPSGDConfig]):
    """The plan of critics with a fixed way of clipping: no norm histograms are paid for."""

    sigma_norm: float = field(default=DPSGDPlan.sigma_norm, init=False)


@dataclass(frozen=True, kw_only=True)
class DPGANConfig(DPSGDConfig):
    """The two networks and their training; public choices, none of them private.

    Arguments:
        network: "mlp"; or the import path `package.module:Class` of a generator of your own, see `dpgen.nets.GeneratorNetwork`,
            or of a generator and a critic, see `dpgen.nets.CriticNetwork`.
        generator_options: what the class of the generator is built with, beside d and the number of labels.
        critic_options: what the class of the critic is built with.
        frequencies: with "mlp" on images: the generator writes so many of the lowest frequencies of each channel in place of
            pixels, and the critic sees them, so that noise is added to fewer parameters. None: 100 for images of at
            least 400 pixels; 0: pixels.
        centred: with "mlp", of bits and images: a critic of one hidden layer for each class (or one without labels), which sees
            records minus released means of its class, and the generator begins at the log-odds of these; `means_share` of the
            budget pays for them. A record still moves only one critic. False: one critic, from which a label selects an output.
        hidden: units per hidden layer, at most 128 in critics.
        latent: dimension of the generator's noise.
        critic_steps: steps of the critic per step of the generator, each of them paid. With much noise tens are better
            (Bie, Kamath, Zhang 2023); with a fixed number of paid steps the generator then learns less often.
        generator_steps: steps of the generator each time; they are free.
        fakes: generated records per step of either network.
        diversity: weight in the generator's loss of `dpgen.nets.gan.sameness` of records of one label, against generators
            that know one record per label; 0: none.
        lr: learning rate of the critic, falling linearly to zero.
        generator_lr: learning rate of the generator, falling as well: a slow critic is not to be overrun.
        average: share of the old value in the running average of generator weights that is released, in [0, 1).
        clip_bound: bound of a record's gradient; normalised ones would hide how sure the critic is, which training needs.
        micro_batch: most records whose activations are in memory at once.

    Source: Xie, Lin, Wang, Wang, Zhou 2018, Algorithm 1; Mao et al. 2019 (diversity).
    """

    network: tuple[str, str] | str = "mlp"
    generator_options: Mapping[str, Any] | None = None
    critic_options: Mapping[str, Any] | None = None
    frequencies: int | None = None
    centred: bool = False
    hidden: int = 128
    latent: int = 16
    critic_steps: int = 5
    generator_steps: int = 1
    fakes: int = 256
    diversity: float = 0.0
    lr: float = 5e-2
    generator_lr: float = 2e-3
    average: float = 0.9
    clip_bound: float = 1.0
    optimizer: Literal["auto", "adam", "sgd"] = field(default="auto", init=False)
    clipping: Literal["auto", "fixed", "dpnorm"] = field(default="fixed", init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("hidden", "latent", "critic_steps", "generator_steps", "fakes"):
            require_whole(name, getattr(self, name))
        require_positive("generator_lr", self.generator_lr)
        if not 0 <= self.diversity < float("inf"):
            raise ValueError(f"diversity must be at least 0 and finite, got {self.diversity}")
        if self.diversity and self.fakes < 2:
            raise ValueError(f"fakes must be at least 2 with diversity {self.diversity:g}, got {self.fakes}")
        if not 0 <= self.average < 1:
            raise ValueError(f"average must be in [0, 1), got {self.average}")
        require_frequencies(self.frequencies)
        self._require_own_networks()

    def _require_own_networks(self) -> None:
        """Refuse options of networks that a run does not have."""
        own = self.own_networks
        if not own and self.network != "mlp":
            raise ValueError(
                f"network is {self.network!r}; it must be mlp, or import paths package.module:Class of a generator of "
                "your own, or of a generator and a critic"
            )
        for name, needed in (("generator_options", 1), ("critic_options", 2)):
            if getattr(self, name) is not None and len(own) < needed:
                what = "generator" if needed == 1 else "generator and critic"
                raise ValueError(f"{name} is {getattr(self, name)}; network must name the class of a {what} of your own")
        replaced = (*_OF_GENERATOR, *_OF_CRITIC)[: (0, len(_OF_GENERATOR), None)[len(own)]]
        for option in fields(self):
            value = getattr(self, option.name)
            if option.name in replaced and value != option.default:
                raise ValueError(f"{option.name} is {value} and network is {self.network!r}, which it does not change")

    @property
    def own_networks(self) -> tuple[str, ...]:
        """Import paths of networks of your own: none, a generator, or a generator and a critic."""
        paths = (self.network,) if isinstance(self.network, str) else tuple(self.network)
        return paths if len(paths) <= 2 and all(":" in path for path in paths) else ()

    def prepare(self) -> None:
        """Import the networks of your own, if there are any."""
        if self.own_networks:
            from dpgen.nets.own import CRITIC, GENERATOR, imported

            for path, methods in zip(self.own_networks, (GENERATOR, CRITIC)):
                imported(path, methods)

    @property
    def releases_means(self) -> bool:
        return self.centred

    def generator(
        self, d: int, categories: int, image_shape: tuple[int, ...] | None, *, bounded: bool = True
    ) -> "Generator | OwnGenerator":
        """An untrained generator of d columns, in [0, 1] if they are bounded."""
        from dpgen.nets.gan import Generator
        from dpgen.nets.own import OwnGenerator, imported

        output: Literal["sigmoid", "identity"] = "sigmoid" if bounded else "identity"
        if self.own_networks:
            shape: dict[str, Any] = {"categories": categories, "image_shape": image_shape}
            own = imported(self.own_networks[0])
            made = OwnGenerator(d, network=own, network_options=self.generator_options, output=output, **shape)
            made.settle()
            return made
        frequencies = chosen_frequencies(self.frequencies, image_shape)
        return Generator(
            d,
            latent=self.latent,
            categories=categories,
            hidden=self.hidden,
            depth=_DEPTH,
            image_shape=image_shape if frequencies else None,
            output=output,
            frequencies=frequencies,
            centred=self.centred,
        )

    def critic_bank(self, d: int, categories: int, image_shape: tuple[int, ...] | None) -> "CriticBank | OwnCriticBank":
        """Untrained critics of d columns: one that has a one-hot label beside them, or one for each label."""
        from dpgen.nets.gan import CriticBank
        from dpgen.nets.own import OwnCriticBank, imported

        if len(self.own_networks) == 2:
            network, options = imported(self.own_networks[1]), self.critic_options
            return OwnCriticBank(d, network=network, network_options=options, categories=categories)
        k = max(categories, 1) if self.centred else 1
        if k > 1 and self.fakes < 2 * k:
            raise ValueError(f"fakes is {self.fakes}; it must be at least {2 * k}, two for each of {k} critics")
        return CriticBank(
            d,
            k=k,
            categories=categories if k == 1 else 0,
            hidden=min(self.hidden, _LARGEST_CRITIC),
            depth=1 if self.centred else _DEPTH,
            image_shape=image_shape,
            frequencies=chosen_frequencies(self.frequencies, image_shape) if self.network == "mlp" else None,
            centred=self.centred,
        )
