"""Privacy plan and configuration of DPGM."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal, Self

from dpgen.privacy.ledger import Planned
from dpgen.privacy.mechanisms import gaussian_event
from dpgen.systems.dp_sgd.plan import NOT_CALIBRATED, DPSGDConfig, DPSGDPlan, chosen_frequencies, require_frequencies
from dpgen.systems.plan import CALIBRATED, ClusterOptions

if TYPE_CHECKING:
    from dpgen.nets import ModelBank
    from dpgen.systems.kmeans.plan import KMeansPlan


BANKS = {
    "vae": "dpgen.nets.vae:VAEBank",
    "conv_vae": "dpgen.nets.conv:ConvVAEBank",
    "rbm": "dpgen.nets.rbm:RBMBank",
    "own": "dpgen.nets.own:OwnBank",
}
"""Banks that a released model can hold, by the name of its component."""

_LABEL_WEIGHT = 10.0  # among hundreds of pixels a label that counts once is hardly learned
_OF_PACKAGE = ("component", "hidden", "latent", "centred", "frequencies", "off_below")
"""Options of the package's networks, which a network of your own replaces."""


@dataclass(frozen=True, kw_only=True)
class DPGMConfig(DPSGDConfig, ClusterOptions):
    """The networks, their training, and the k-means that finds their clusters; public choices, none of them private.

    Arguments:
        component: the network of each cluster: "vae", "conv_vae" (two convolutions each way, of images with sides divisible by
            4; `hidden` counts as 8 channels for 64 units), or "rbm".
        network: import path `package.module:Class` of a network of your own, in place of `component`; see `dpgen.nets.Network`.
        network_options: what its class is built with, beside d.
        grey: a network of your own sees grey values where images have them; False, and other networks: bits.
        hidden: hidden units.
        latent: latent dimension of autoencoders.
        centred: records are centred at released means of their clusters, and outputs begin at the log-odds of these;
            `means_share` of the budget pays for them. False: as published.
        frequencies: of images and with `centred`: networks see and write so many of the lowest frequencies of each channel in
            place of pixels, and have as many fewer parameters that noise is added to. None: 100 for images of at least 400
            pixels; 0: pixels, which "conv_vae" sees.
        off_below: of "rbm": columns whose mean over all released machines is less are never on, in [0, 1). For images with
            pixels that are always empty: training leaves them a small share.
        gamma: RBF kernel exp(-gamma |x - y|^2) of k-means.
        n_features: random Fourier features of k-means.
    """

    component: Literal["vae", "conv_vae", "rbm"] = "vae"
    network: str | None = None
    network_options: Mapping[str, Any] | None = None
    grey: bool = True
    hidden: int = 200
    latent: int = 10
    centred: bool = True
    frequencies: int | None = None
    off_below: float = 0.0
    gamma: float = 0.01
    n_features: int = 200

    def __post_init__(self) -> None:
        ClusterOptions.__post_init__(self)
        given = {option.name for option in fields(DPGMConfig) if getattr(self, option.name) != option.default}
        self._require_component(given)
        self._require_network(given)
        require_frequencies(self.frequencies)
        if self.frequencies and not (self.centred and self.component != "conv_vae"):
            pixels = "component='conv_vae'" if self.centred else "centred=False"
            raise ValueError(f"frequencies is {self.frequencies}; it must be 0 with {pixels}, whose networks see pixels")
        DPSGDConfig.__post_init__(self)

    def _require_component(self, given: Collection[str]) -> None:
        """Refuse options that other components than this one have."""
        if self.component not in ("vae", "conv_vae", "rbm"):
            raise ValueError(
                f"component is {self.component!r}; it must be vae, conv_vae or rbm (Gaussians are the system 'gaussian')"
            )
        if self.component == "rbm" and "latent" in given:
            raise ValueError(f"latent is {self.latent}, which only autoencoders have; component is 'rbm'")
        if not 0.0 <= self.off_below < 1.0 or (self.off_below and self.component != "rbm"):
            raise ValueError(f"off_below is {self.off_below}; it must be in [0, 1), and 0 where component is not 'rbm'")

    def _require_network(self, given: Collection[str]) -> None:
        """Refuse options of a network that the other `given` ones do not have."""
        if self.network is None and self.network_options is not None:
            raise ValueError(f"network_options is {self.network_options}, and network is not given: it names the class")
        if self.network is not None and (of_package := [name for name in _OF_PACKAGE if name in given]):
            name = of_package[0]
            raise ValueError(
                f"{name} is {getattr(self, name)} and network is {self.network!r}, which takes network_options alone"
            )

    def prepare(self) -> None:
        """Import the network of your own, if there is one."""
        if self.network is not None:
            from dpgen.nets.own import NETWORK, imported

            imported(self.network, NETWORK[:1])

    @property
    def classifies(self) -> bool:
        """Whether the network of your own is a classifier, which has no method `sample`."""
        if self.network is None:
            return False
        from dpgen.nets.own import NETWORK, imported

        return not hasattr(imported(self.network, NETWORK[:1]), NETWORK[1])

    def resolved(self, *, n_classes: int) -> Self:
        if self.classifies and (n_classes < 2 or self.clusters not in ("auto", "none")):
            raise ValueError(
                f"network is {self.network!r}, a classifier (it has no method sample), which needs clusters='none' and labels "
                f"of 2 classes or more, not clusters={self.clusters!r} and {n_classes}"
            )
        own = replace(self, clusters="none") if self.classifies else self
        return super(DPGMConfig, own).resolved(n_classes=n_classes)

    def require_images(self) -> None:
        """Refuse what networks of images cannot be: Boltzmann machines, which are of bits, or of other clusters."""
        if self.component == "rbm" and self.network is None:
            raise ValueError("component is 'rbm'; it must be 'vae' or 'conv_vae' for images: its units are bits")
        if self.clusters not in ("auto", "labels") and not self.classifies:
            raise ValueError(f"clusters is {self.clusters!r}; it must be 'auto' or 'labels' for images: a model for each class")

    @property
    def kmeans(self) -> bool:
        """Whether k-means finds the clusters; of a resolved configuration."""
        return self.clusters == "kmeans"

    @property
    def releases_means(self) -> bool:
        """Whether the means of the clusters are released before training."""
        return self.centred and self.network is None

    def bank(self, d: int, categories: int, image_shape: tuple[int, ...] | None = None) -> "ModelBank":
        """k untrained component models for records of d columns, the last `categories` of them a one-hot label."""
        assert self.k is not None
        if self.network is not None:
            from dpgen.nets.own import OwnBank, OwnClassifierBank, imported

            kind = imported(self.network)
            if self.classifies:
                return OwnClassifierBank(d, categories, network=kind, network_options=self.network_options)
            return OwnBank(self.k, d, network=kind, network_options=self.network_options)
        options: dict[str, Any] = {"hidden": self.hidden, "categories": categories, "centred": self.centred}
        if self.component != "rbm":
            options |= {"latent": self.latent, "label_weight": _LABEL_WEIGHT}
        if self.component != "conv_vae":
            options["frequencies"] = chosen_frequencies(self.frequencies, image_shape if self.centred else None)
        elif image_shape is None:
            raise ValueError("component='conv_vae' needs images: records of this data have no image_shape; use 'vae'")
        make: Callable[..., ModelBank] = resolve_name(BANKS[self.component])
        return make(self.k, d, image_shape=image_shape, **options)


# -- plan --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DPGMPlan(DPSGDPlan[DPGMConfig]):
    """Public, data-independent numbers of a run; noise multipliers are std / add-remove sensitivity.

    A k-means round releases (counts, sums) of the clusters.

    Arguments:
        kmeans_rounds: rounds T_K of k-means; the noise of their sums, `sigma_sum`, follows from `partition_share`.

    Source: Acs et al. 2017, Algorithm 1, with the corrected joint schedule.
    """

    kmeans_rounds: int = 5
    sigma_sum: float | None = field(default=None, metadata=CALIBRATED)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kmeans_rounds < 1:
            raise ValueError(f"kmeans_rounds must be at least 1, got {self.kmeans_rounds}")

    def kmeans_plan(self) -> "KMeansPlan":
        """Rounds and noise of k-means."""
        from dpgen.systems.kmeans.plan import KMeansPlan  # of a rare choice of clusters, as below

        if self.sigma_count is None or self.sigma_sum is None:
            raise ValueError(NOT_CALIBRATED)
        return KMeansPlan(noise_count=self.sigma_count, noise_sum=self.sigma_sum, rounds=self.kmeans_rounds)

    def clusters(self, config: DPGMConfig) -> tuple[Planned, ...]:
        """Noisy sizes, with k-means its rounds."""
        return self.kmeans_plan().planned(self.relation) if config.kmeans else super().clusters(config)

    def _with_cluster_noise(self, config: DPGMConfig) -> Self:
        if not config.kmeans:
            return super()._with_cluster_noise(config)
        if None not in (self.sigma_count, self.sigma_sum):
            return self
        from dpgen.systems.kmeans.plan import KMeansPlan

        whole = self._cluster_noise(gaussian_event)
        rounds, features = self.kmeans_rounds, config.n_features
        split = KMeansPlan.from_multiplier(whole, rounds=rounds, n_features=features, relation=self.relation)
        return replace(self, sigma_count=self.sigma_count or split.noise_count, sigma_sum=self.sigma_sum or split.noise_sum)
