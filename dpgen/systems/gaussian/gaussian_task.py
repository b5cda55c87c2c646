"""One Gaussian fit before it runs: the records as streams, and every choice that is public."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpgen.systems.gaussian.codecs import CODECS, Codec, EncodedStream
from dpgen.systems.gaussian.fit_rule import Sizes, default_shares, sizes
from dpgen.systems.gaussian.gaussian_options import GaussianOptions
from dpgen.systems.gaussian.record_stream import Batches, RecordStream, checked
from dpgen.systems.gaussian.spending import require_shares
from dpgen.systems.gaussian.warps import Warp
from dpgen.systems.private_data import PrivateRecords

PAIR_FEATURES = 128
"""Tables of at most this many features have their pairs calibrated by default."""

_MOST_PAIRS = 256
_WARP = 0.8  # on images of classes, where the option leaves it open


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is fitted.

    Arguments:
        values: records to model, in [0, 1]^d, with labels if these make the clusters.
        bits: the same records as bits.
        d: features of a record.
        options: public choices.
        n_classes: classes, 0 when labels are not used.
        k: Gaussians that k-means is asked for; None: by the rule (1 with clusters="none").
        grey: whether `values` are grey.
        threshold: value above which a bit is 1.
        image_shape: (height, width) of images.
        columns: names of the features.
        seed: of public randomness.
        public_n: number of records, if it is declared public (latent form); None: a noisy number is used.
    """

    values: Batches
    bits: Batches
    d: int
    options: GaussianOptions
    n_classes: int = 0
    k: int | None = None
    grey: bool = False
    threshold: float = 0.5
    image_shape: tuple[int, int] | None = None
    columns: Sequence[str] | None = None
    seed: int = 0
    public_n: int | None = None

    @classmethod
    def of(
        cls,
        records: PrivateRecords,
        options: GaussianOptions,
        *,
        clusters: str,
        k: int | None,
        seed: int,
        device: str = "cpu",
        public_n: int | None = None,
    ) -> "Task":
        """The task of fitting records in memory.

        Arguments:
            clusters: "labels", "kmeans" or "none".
            k: number of Gaussians with "kmeans", None for the rule.
            device: where sums are computed.
            public_n: number of records, if it is declared public.

        Raises:
            ValueError: records out of range; they are checked here, before anything is declared or paid for.
        """
        labels = records.labels if clusters == "labels" else None
        for _ in checked([(records.x, labels)], records.x.shape[1], records.n_classes if labels is not None else 0):
            pass
        grey = records.grey if options.grey else None
        bits = RecordStream(records.x, labels, device=device)
        values = bits if grey is None else RecordStream(grey, labels, top=255.0, device=device)
        return cls(
            values=values,
            bits=bits,
            d=records.x.shape[1],
            options=options,
            n_classes=records.n_classes if labels is not None else 0,
            k=1 if clusters == "none" else k if clusters == "kmeans" else None,
            grey=grey is not None,
            threshold=0.5 if grey is None else (records.grey_threshold + 0.5) / 255.0,
            image_shape=records.image_shape,
            columns=records.columns,
            seed=seed,
            public_n=public_n,
        )

    @property
    def groups(self) -> int:
        """Disjoint groups with Gaussians of their own: classes, or one."""
        return max(1, self.n_classes)

    @property
    def form(self) -> str:
        """The form that "auto" stands for."""
        if self.options.form != "auto":
            return self.options.form
        return "sizes" if not (self.n_classes or self.image_shape) and self.d > 2 * PAIR_FEATURES else "latent"

    @property
    def calibration(self) -> str:
        """The calibration that "auto" stands for.

        Raises:
            ValueError: pairs of too many features.
        """
        chosen = self.options.calibration
        if chosen == "auto":
            return "thresholds" if self.image_shape is not None or self.d > PAIR_FEATURES else "pairs"
        if chosen == "pairs" and self.d > _MOST_PAIRS:
            raise ValueError(f"calibration='pairs' needs at most {_MOST_PAIRS} features, got {self.d}; use 'thresholds'")
        return chosen

    @property
    def warp(self) -> Warp | None:
        """The warp of samples."""
        strength = self.options.warp
        if strength is None:
            strength = _WARP if self.n_classes else 0.0
        return Warp.of_strength(strength, self.image_shape) if strength and self.image_shape is not None else None

    @property
    def codec(self) -> Codec | None:
        """The codec of the images.

        Raises:
            ValueError: the records are not images.
        """
        if self.options.codec == "none":
            return None
        if self.image_shape is None:
            raise ValueError(f"codec={self.options.codec!r} needs images, and image_shape is None")
        return CODECS[self.options.codec](self.image_shape)

    @property
    def codes(self) -> Batches:
        """What the Gaussians model: the values or their codes."""
        return self.values if self.codec is None else EncodedStream(self.values, self.codec)

    @property
    def first_codes(self) -> Batches:
        """The same for the first pass, which also checks every record."""
        stream = Checked(self.values, self.d, self.n_classes)
        return stream if self.codec is None else EncodedStream(stream, self.codec)

    @property
    def width(self) -> int:
        """Features of a code."""
        return self.d if self.codec is None else self.codec.code_size

    def sizes(self, mu: float, count: float) -> Sizes:
        """Axes and Gaussians per class, from the options or by the rule."""
        ruled = sizes(mu, count, d=self.width, k=self.groups)
        return Sizes(self.options.axes or ruled.axes, self.options.subclusters or self.k or ruled.subclusters)

    def shares(self, subclusters: int) -> dict[str, float]:
        """Shares of mu^2 of a latent fit with that many Gaussians per class.

        Raises:
            ValueError: the given shares are not those of the releases.
        """
        separate = self.calibration == "thresholds" and (self.grey or self.codec is not None)
        extra = [name for name, wanted in (("pairs", self.calibration == "pairs"), ("marginals", separate)) if wanted]
        if self.options.clip == "quantile":
            extra.append("radius")
        ruled = default_shares(subclusters=subclusters, covariance=self.options.covariance, extra=tuple(extra))
        if self.calibration == "thresholds" and not separate:  # the mean of bits is their marginals, and must be good
            ruled["mean"] += default_shares(subclusters=1, covariance="full", extra=("marginals",))["marginals"]
        given = self.options.shares
        if given is None:
            return require_shares(ruled)
        if set(given) != set(ruled):
            raise ValueError(f"shares has {sorted(given)}; this fit releases {sorted(ruled)}")
        return require_shares(given)

    def ways(self) -> dict[bool, dict[str, float]]:
        """Shares for one and for several Gaussians per class; only one of them where the number is public already."""
        fixed = self.options.subclusters or self.k
        return {several: self.shares(2 if several else 1) for several in (False, True) if not fixed or several == (fixed > 1)}

    def require_sound(self) -> None:
        """Refuse options that contradict each other or the width of the records, before anything is paid for.

        Raises:
            ValueError: naming the option, its value and what is allowed.
        """
        self.options.require_gaussian()
        if self.form != "latent":
            if self.public_n is not None:
                raise ValueError(f"public_n is {self.public_n}; only form='latent' uses it, and the form is {self.form!r}")
            return
        self.ways()
        if self.options.axes is not None and self.options.axes > self.width:
            raise ValueError(f"axes must be at most {self.width}, the features of a record, got {self.options.axes}")


@dataclass(frozen=True)
class Checked:
    """A stream whose batches are checked each time they are read."""

    batches: Batches
    d: int
    n_classes: int

    def __iter__(self) -> Any:
        return checked(self.batches, self.d, self.n_classes)
