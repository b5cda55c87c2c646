"""The Gaussian component from records to release: location, axes, moments, clean-up, calibration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from dpgen.cosines import lowest_frequencies
from dpgen.facts import Fact, Said
from dpgen.privacy.curator import Curator
from dpgen.privacy.exact_sums import MOST_RECORDS, clipped
from dpgen.privacy.ledger import Budget
from dpgen.privacy.noise import PublicRandomness
from dpgen.release import ImageModel, RecordModel
from dpgen.statement import PrivacyStatement
from dpgen.systems.gaussian.calibration import fit_tilt, release_marginals, release_pairs
from dpgen.systems.gaussian.components import Components, release_components
from dpgen.systems.gaussian.image_fit import fit_images
from dpgen.systems.gaussian.model import Calibration, GaussianMixtureModel, PostProcessing
from dpgen.systems.gaussian.plan import MARGINALS, GaussianConfig, GaussianOptions, GaussianPlan, Sizes, default_shares, sizes
from dpgen.systems.gaussian.sets import SHARES, release_sets
from dpgen.systems.gaussian.subspace import Location, Subspace, release_location, release_subspace
from dpgen.systems.gaussian.sums import Batches, Encode, RecordStream, Spending, checked
from dpgen.systems.gaussian.warps import Warp, calibrated_thresholds
from dpgen.systems.marginals.model import ProductMixture
from dpgen.systems.plan import (
    PrivateImages,
    PrivateRecords,
    PrivateStream,
    large,
)

if TYPE_CHECKING:
    from dpgen.runtime import Runtime

PAIR_FEATURES = 128
"""Tables of at most this many features have their pairs calibrated by default."""

_MOST_PAIRS = 256
_WARP = 0.8  # on images of classes, where the option leaves it open


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Private records as streams, and all that is public about them and their fit.

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
        records: PrivateRecords | PrivateStream,
        options: GaussianOptions,
        *,
        clusters: str,
        k: int | None,
        seed: int,
        device: str = "cpu",
        public_n: int | None = None,
    ) -> Inputs:
        """Those of records.

        Arguments:
            clusters: "labels", "kmeans" or "none".
            k: number of Gaussians with "kmeans", None for the rule.
            device: where sums are computed.
            public_n: number of records, if it is declared public.

        Raises:
            ValueError: records out of range; they are checked here, before anything is declared or paid for.
        """
        source = records if isinstance(records, PrivateStream) else _InMemory(records, device)
        labelled = clusters == "labels"
        if labelled and not source.n_classes:
            raise ValueError(f"clusters='labels' needs labels, and the records of n_classes={records.n_classes} have none")
        if source.n > MOST_RECORDS:
            raise ValueError(f"there are more than {MOST_RECORDS} records, whose sums would not fit int64")
        bits, threshold = source.stream(labelled=labelled), source.grey_threshold if options.grey else None
        return cls(
            values=bits if threshold is None else source.stream(labelled=labelled, grey=True),
            bits=bits,
            d=source.d,
            options=options,
            n_classes=source.n_classes if labelled else 0,
            k=1 if clusters == "none" else k if clusters == "kmeans" else None,
            grey=threshold is not None,
            threshold=0.5 if threshold is None else (threshold + 0.5) / 255.0,
            image_shape=source.image_shape,
            columns=source.columns,
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

    def frequencies(self, axes: int) -> Tensor | None:
        """Rows (r, d) that principal axes of large images are found in: twice as many of the lowest frequencies."""
        if self.image_shape is None or not large(self.image_shape):
            return None
        return lowest_frequencies(self.image_shape, min(2 * axes, self.d)).double()

    def sizes(self, mu: float, count: float) -> Sizes:
        """Axes and Gaussians per class, from the options or by the rule."""
        ruled = sizes(mu, count, d=self.d, k=self.groups)
        return Sizes(self.options.axes or ruled.axes, self.options.subclusters or self.k or ruled.subclusters)

    def shares(self, subclusters: int) -> dict[str, float]:
        """Shares of mu^2 of a latent fit with that many Gaussians per class."""
        separate = self.calibration == "thresholds" and self.grey
        extra = [name for name, wanted in (("pairs", self.calibration == "pairs"), ("marginals", separate)) if wanted]
        ruled = default_shares(subclusters=subclusters, extra=tuple(extra))
        if self.calibration == "thresholds" and not separate:  # the mean of bits is their marginals, and must be good
            ruled["mean"] += MARGINALS
        return ruled

    def require_sound(self) -> None:
        """Refuse options that contradict each other or the width of the records, before anything is paid for.

        Raises:
            ValueError: naming the option, its value and what is allowed.
        """
        if self.form != "latent":
            if self.public_n is not None:
                raise ValueError(f"public_n is {self.public_n}; only form='latent' uses it, and the form is {self.form!r}")
            return
        _ = self.calibration
        if self.options.axes is not None and self.options.axes > self.d:
            raise ValueError(f"axes must be at most {self.d}, the features of a record, got {self.options.axes}")


@dataclass(frozen=True)
class _InMemory:
    """Records in memory as a `PrivateStream`."""

    records: PrivateRecords
    device: str

    @property
    def n(self) -> int:
        return len(self.records.x)

    @property
    def d(self) -> int:
        return self.records.x.shape[1]

    @property
    def n_classes(self) -> int:
        return 0 if self.records.labels is None else self.records.n_classes

    @property
    def image_shape(self) -> tuple[int, int] | None:
        return self.records.image_shape

    @property
    def columns(self) -> Sequence[str] | None:
        return self.records.columns

    @property
    def grey_threshold(self) -> int | None:
        return None if self.records.grey is None else self.records.grey_threshold

    def stream(self, *, labelled: bool = False, grey: bool = False) -> RecordStream:
        """Bits, which are checked here, or grey values.

        Raises:
            ValueError: records out of range.
        """
        labels = self.records.labels if labelled else None
        if grey and self.records.grey is not None:
            return RecordStream(self.records.grey, labels, top=255.0, device=self.device)
        whole = isinstance(self.records.x, Tensor)
        slices = [(self.records.x, labels)] if whole else RecordStream(self.records.x, labels)
        for _ in checked(slices, self.d, self.n_classes if labelled else 0):
            pass
        return RecordStream(self.records.x, labels, device=self.device)


# -- fit ---------------------------------------------------------------------------------------------------------------

FACTS = (
    Fact.ONE_RECORD,
    Fact.CHOSEN_BLIND,
    Fact.SECURE_NOISE,
    Fact.EXACT_SUMS(record="record"),
    Fact.EXACT_INTEGERS,
)
"""Facts of the statement of a Gaussian fit."""


def fit(
    data: PrivateRecords | PrivateStream | PrivateImages,
    *,
    plan: GaussianPlan,
    config: GaussianConfig,
    curator: Curator,
    runtime: Runtime,
) -> RecordModel | ImageModel:
    """Fit Gaussians to records or images and release them; no training, one to eight passes over the data.

    Raises:
        ValueError: options that contradict the data, records out of range, or a ledger of another relation than the plan's.
        BudgetExceeded: the ledger does not allow what the plan asks.
    """
    assert plan.budget is not None
    device = "cuda" if runtime.accelerator == "gpu" else "cpu"
    if curator.relation != plan.relation:
        raise ValueError(f"the ledger's relation must be the plan's {plan.relation!r}, got {curator.relation!r}")
    if not isinstance(data, PrivateStream) and data.x.ndim == 4:
        config.require_for("images")
        if plan.public_n is not None:
            raise ValueError(f"public_n is {plan.public_n}; it must be left out, for the data are images")
        return fit_images(cast(PrivateImages, data), config, budget=plan.budget, curator=curator, device=device)
    data = cast(PrivateRecords | PrivateStream, data)
    config.require_for("records")
    resolved = config.resolved(n_classes=data.n_classes)
    inputs = Inputs.of(
        data,
        config,
        clusters=resolved.clusters,
        k=config.k,
        seed=runtime.seed,
        device=device,
        public_n=plan.public_n,
    )
    return fit_inputs(inputs, budget=plan.budget, curator=curator)


def fit_inputs(inputs: Inputs, *, budget: Budget, curator: Curator) -> RecordModel:
    """Spend the budget, under the ledger's relation, and release a model; for streams that are not in memory, too.

    Raises:
        ValueError: options that contradict the data, or records out of range.
        BudgetExceeded: the ledger does not allow what the budget promised.
    """
    inputs.require_sound()
    latent = inputs.form == "latent"
    shares = inputs.shares(1) if latent else SHARES  # the mean has one share in all
    run = _Run(inputs, curator, Spending(curator, budget, shares))
    return _fit_latent(run) if latent else _fit_sizes(run)


@dataclass(frozen=True)
class _Run:
    """Inputs with the means to pay for their fit."""

    inputs: Inputs
    curator: Curator
    spending: Spending

    def statement(self) -> PrivacyStatement:
        n = self.inputs.public_n
        declared = () if n is None else (Fact.PUBLIC_SIZE(n=n),)
        return PrivacyStatement.from_ledger(self.curator.ledger, facts=(*FACTS, *declared))


def _fit_sizes(run: _Run) -> RecordModel:
    inputs = run.inputs
    bits = checked(inputs.bits, inputs.d, 0)
    generator = PublicRandomness(inputs.seed).spawn("classes").generator
    mixture = release_sets(bits, inputs.d, spending=run.spending, generator=generator)
    return ProductMixture(
        mixture.probabilities,
        mixture.weights * mixture.count,
        statement=run.statement(),
        columns=inputs.columns,
        declared=(
            f"conjunctions of the {len(mixture.frequent)} items that were counted most are fitted; other items are independent "
            "given how many a set holds, rare ones shrunk towards their common prior",
        ),
    )


def _fit_independent(run: _Run, why: str) -> RecordModel:
    inputs = run.inputs
    bits = checked(inputs.bits, inputs.d, inputs.n_classes)
    counts, frequencies = release_marginals(bits, inputs.d, k=inputs.groups, spending=run.spending)
    declared = Fact.INDEPENDENT_BITS(why=why)
    return ProductMixture(
        frequencies,
        counts,
        statement=run.statement().extended((declared,)),
        n_classes=inputs.n_classes,
        columns=inputs.columns,
        declared=(declared.sentence,),
    )


def _fit_latent(run: _Run) -> RecordModel:
    inputs, spending = run.inputs, run.spending
    location = release_location(checked(inputs.values, inputs.d, inputs.n_classes), inputs.d, spending=spending)
    if inputs.public_n is not None:
        location = replace(location, count=float(inputs.public_n))
    chosen = inputs.sizes(spending.mu, location.count)
    spending.share({name: share for name, share in inputs.shares(chosen.subclusters).items() if name != "mean"})
    subspace = _subspace(run, location, chosen)
    if float(subspace.eigenvalues[0]) <= subspace.edge:
        spending.share({"marginals": 1.0})
        return _fit_independent(run, _no_signal(spending.mu, location, subspace))
    return _fit_components(run, location, subspace, chosen)


def _no_signal(mu: float, location: Location, subspace: Subspace) -> str:
    share = subspace.edge / location.spread
    if share < 1.0:
        reason = f"a principal axis would have to carry {share:.0%} of the variance to stand out from the noise"
    else:
        reason = f"the noise of principal axes is {share:.3g} times the whole variance"
    return (
        f"{reason} at {location.count:.0f} noisy records; an axis that carries 10 % needs "
        f"{share / 0.1:.3g} times the records or the mu = {mu:.3g} of this budget"
    )


def _subspace(run: _Run, location: Location, chosen: Sizes) -> Subspace:
    inputs = run.inputs
    return release_subspace(
        inputs.values,
        location,
        axes=chosen.axes,
        radius=inputs.options.radius,
        clip=math.sqrt(location.spread),
        spending=run.spending,
        within=inputs.frequencies(chosen.axes),
    )


def _fit_components(run: _Run, location: Location, subspace: Subspace, chosen: Sizes) -> RecordModel:
    inputs = run.inputs

    def encode(x: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        return subspace.project(x), torch.zeros(len(x), dtype=torch.int64, device=x.device) if labels is None else labels

    batches: Batches = inputs.values
    coordinates: Encode = encode
    if chosen.subclusters > 1 and isinstance(inputs.values, RecordStream) and isinstance(inputs.values.x, Tensor):
        batches, coordinates = _coordinates(batches, encode), _as_they_are
    components = release_components(
        batches,
        coordinates,
        k=inputs.groups,
        m=chosen.axes,
        subclusters=chosen.subclusters,
        cut=inputs.options.cut,
        spending=run.spending,
        generator=PublicRandomness(inputs.seed).spawn("centres").generator,
    )
    m, width = chosen.axes, inputs.d
    left = (location.spread - float(subspace.eigenvalues.clamp_min(0.0).sum())) / max(1, width - m)
    model = _model(run, subspace, components, residual=max(left, 1e-4 * location.spread / width))
    model = _calibrated(run, model, location)
    model.statement = run.statement().extended(_declared(components))
    return model


def _coordinates(batches: Batches, encode: Encode) -> Batches:
    """Clipped coordinates and classes of records that are in memory, for the six passes of sub-clusters.

    They lie on the grid of `clipped`, which float32 holds exactly.
    """
    coded = (encode(x, labels) for x, labels in batches)
    return [(clipped(u).float(), classes) for u, classes in coded]


def _as_they_are(u: Tensor, classes: Tensor | None) -> tuple[Tensor, Tensor]:
    assert classes is not None
    return u, classes


def _declared(components: Components) -> tuple[Said, ...]:
    names = ", ".join(map(str, components.pooled))
    return (Fact.POOLED_CLASSES(classes=names, records="records"),) if names else ()


def _model(run: _Run, subspace: Subspace, components: Components, residual: float) -> GaussianMixtureModel:
    inputs = run.inputs
    post = PostProcessing(
        warp=inputs.warp,
        grey=inputs.grey,
        threshold=inputs.threshold,
    )
    return GaussianMixtureModel(
        subspace,
        components.mixture,
        density=components.density,
        classes=components.classes,
        counts=components.counts,
        statement=run.statement(),
        n_classes=inputs.n_classes,
        residual=residual,
        post=post,
        image_shape=inputs.image_shape,
        columns=inputs.columns,
        declared=tuple(fact.sentence for fact in _declared(components)),
    )


def _calibrated(run: _Run, model: GaussianMixtureModel, location: Location) -> GaussianMixtureModel:
    """The model with bits that follow released marginals; a pilot of its own samples serves, so only releases cost."""
    inputs, pairs = run.inputs, None
    bits = checked(inputs.bits, inputs.d, inputs.n_classes)
    if inputs.calibration == "none":
        return model
    if inputs.calibration == "pairs":
        pairs, noise_std = release_pairs(bits, inputs.d, spending=run.spending)
        marginals = pairs.diagonal().clone()
    elif inputs.grey:
        marginals = release_marginals(bits, inputs.d, k=1, spending=run.spending)[1][0]
    else:
        marginals = location.mean
    generator = PublicRandomness(inputs.seed).spawn("pilot").generator
    values = model.pilot(generator)
    jitter = None
    if inputs.image_shape is None:  # bits of tables vary beyond the axes; strokes of images are kept sharp
        jitter = (marginals * (1.0 - marginals) - values.double().var(0)).clamp_min(1e-6).sqrt()
        values = values + jitter.float() * torch.randn(values.shape, generator=generator)
    thresholds = calibrated_thresholds(values, marginals)
    model.calibration = Calibration(marginals=marginals, thresholds=thresholds, jitter=jitter)
    if pairs is not None:
        tilt = fit_tilt(values > thresholds, pairs, noise_std=max(noise_std, 1e-4))
        model.calibration = replace(model.calibration, tilt=tilt)
    return model
