"""The Gaussian system from records to release: location, axes, moments, clean-up, calibration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from dpgen.facts import Fact, Said
from dpgen.nets.cosines import lowest_frequencies
from dpgen.privacy.curator import Curator, GaussianBudget
from dpgen.privacy.exact_sums import MOST_RECORDS, clipped
from dpgen.privacy.noise import PublicRandomness
from dpgen.release import ImageModel, RecordLayout, RecordModel
from dpgen.statement import PrivacyStatement
from dpgen.systems.gaussian.images import fit_images
from dpgen.systems.gaussian.model import (
    Calibration,
    GaussianMixtureModel,
    PostProcessing,
    Subspace,
    Warp,
    calibrated_thresholds,
)
from dpgen.systems.gaussian.plan import GaussianConfig, GaussianPlan, Sizes, allocated, default_shares, sizes
from dpgen.systems.gaussian.releases import (
    WHOLE,
    Batches,
    Encode,
    Location,
    RecordStream,
    checked,
    one_class,
    release_components,
    release_location,
    release_marginals,
    release_subspace,
)
from dpgen.systems.gaussian.sets import SHARES, release_sets
from dpgen.systems.marginals.model import ProductMixture
from dpgen.systems.plan import large

if TYPE_CHECKING:
    from dpgen.data import Images, Records
    from dpgen.data.stored import StreamedRecords
    from dpgen.runtime import Runtime

SET_FEATURES = 256
"""Unlabelled records of more features that are no images are taken for sets."""

_WARP = 0.8  # on images of classes, where the option leaves it open


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Private records as streams, and all that is public about them and their fit."""

    values: Batches  # in [0, 1]^d, with labels if these make the clusters
    bits: Batches  # the same records
    d: int
    config: GaussianConfig
    n_classes: int = 0  # 0 when labels are not used
    k: int | None = None  # Gaussians that k-means is asked for; None: by the rule (1 with clusters="none")
    grey_threshold: int | None = None  # above which a bit is 1, where `values` are grey
    image_shape: tuple[int, int] | None = None
    columns: Sequence[str] | None = None
    seed: int = 0  # of public randomness

    @classmethod
    def of(
        cls,
        records: Records | StreamedRecords,
        config: GaussianConfig,
        *,
        seed: int = 0,
        device: str = "cpu",
    ) -> Inputs:
        """Inputs of records, whose sums are computed on `device`; what is out of range is refused."""
        clusters = config.resolved(n_classes=records.n_classes).clusters
        labelled, n_classes = clusters == "labels", records.n_classes
        read: Any
        if hasattr(records, "stream"):
            n, d, read = records.n, records.d, records.stream
        else:
            (n, d), read = records.x.shape, partial(_stream, records, device=device)
            if labelled and records.labels is None:
                raise ValueError(f"clusters='labels' needs labels, and the records of n_classes={n_classes} have none")
        if n > MOST_RECORDS:
            raise ValueError(f"there are more than {MOST_RECORDS} records, whose sums would not fit int64")
        bits = read(labelled=labelled)
        grey = config.grey and (hasattr(records, "stream") or records.grey is not None)
        threshold = records.grey_threshold if grey else None
        return cls(
            values=bits if threshold is None else read(labelled=labelled, grey=True),
            bits=bits,
            d=d,
            config=config,
            n_classes=n_classes if labelled else 0,
            k={"none": 1, "kmeans": config.k}.get(clusters),
            grey_threshold=threshold,
            image_shape=records.image_shape,
            columns=records.columns,
            seed=seed,
        )

    @property
    def groups(self) -> int:
        """Disjoint groups with Gaussians of their own: classes, or one."""
        return max(1, self.n_classes)

    @property
    def form(self) -> str:
        """The form that "auto" stands for."""
        if self.config.form != "auto":
            return self.config.form
        return "sizes" if not (self.n_classes or self.image_shape) and self.d > SET_FEATURES else "latent"

    @property
    def warp(self) -> Warp | None:
        """The warp of samples."""
        strength = self.config.warp
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
        return Sizes(self.config.axes or ruled.axes, self.config.subclusters or self.k or ruled.subclusters)

    def shares(self, subclusters: int) -> dict[str, float]:
        """Shares of mu^2 of a latent fit with that many Gaussians per class."""
        return default_shares(subclusters=subclusters, grey=self.grey_threshold is not None)

    def require_sound(self) -> None:
        """Refuse options that contradict each other or the width of the records, before anything is paid for."""
        if self.form != "latent":
            return
        if self.config.axes is not None and self.config.axes > self.d:
            raise ValueError(f"axes must be at most {self.d}, the features of a record, got {self.config.axes}")


def _stream(records: Records, *, device: str, labelled: bool = False, grey: bool = False) -> RecordStream:
    """Bits of records in memory, which are checked here, or their grey values."""
    labels = records.labels if labelled else None
    if grey and records.grey is not None:
        return RecordStream(records.grey, labels, top=255.0, device=device)
    for _ in checked([(records.x, labels)], records.x.shape[1], records.n_classes if labelled else 0):
        pass
    return RecordStream(records.x, labels, device=device)


# -- fit ---------------------------------------------------------------------------------------------------------------

FACTS = (Fact.ONE_RECORD, Fact.CHOSEN_BLIND, Fact.SECURE_NOISE, Fact.EXACT_SUMS(record="record"), Fact.EXACT_INTEGERS)
"""Facts of the statement of a Gaussian fit."""


def fit(
    data: Records | StreamedRecords | Images,
    *,
    plan: GaussianPlan,
    config: GaussianConfig,
    curator: Curator,
    runtime: Runtime,
) -> RecordModel | ImageModel:
    """Fit Gaussians to records or images and release them; no training, one to eight passes over the data.

    ValueError is raised for options that contradict the data, or a ledger of another relation than the
    plan's.
    """
    assert plan.budget is not None
    device = "cuda" if runtime.accelerator == "gpu" else "cpu"
    if curator.relation != plan.relation:
        raise ValueError(f"the ledger's relation must be the plan's {plan.relation!r}, got {curator.relation!r}")
    if not hasattr(data, "stream") and data.x.ndim == 4:
        config.require_for("images")
        return fit_images(cast("Images", data), config, GaussianBudget(curator, plan.budget, WHOLE), device=device)
    config.require_for("records")
    records = cast("Records | StreamedRecords", data)
    inputs = Inputs.of(records, config, seed=runtime.seed, device=device)
    inputs.require_sound()
    budget = GaussianBudget(curator, plan.budget, WHOLE)
    return _fit_sizes(inputs, budget) if inputs.form == "sizes" else _fit_latent(inputs, budget)


def _stated(budget: GaussianBudget, *facts: Fact | Said) -> PrivacyStatement:
    """The statement of what has been released so far, with more facts."""
    return PrivacyStatement.from_ledger(budget.curator.ledger, facts=FACTS).extended(facts)


def _fit_sizes(inputs: Inputs, budget: GaussianBudget) -> RecordModel:
    """Sets: levels of size and classes of frequent items."""
    generator = PublicRandomness(inputs.seed).spawn("classes").generator
    shares = allocated(SHARES, budget.left)
    mixture = release_sets(checked(inputs.bits, inputs.d, 0), inputs.d, budget=budget, shares=shares, generator=generator)
    return ProductMixture(
        mixture.probabilities,
        mixture.weights * mixture.count,
        statement=_stated(budget, Fact.FREQUENT_ITEMS(count=len(mixture.frequent))),
        columns=inputs.columns,
    )


def _fit_independent(inputs: Inputs, budget: GaussianBudget, why: str) -> RecordModel:
    """Marginals of every class, for all that is left."""
    bits = checked(inputs.bits, inputs.d, inputs.n_classes)
    counts, frequencies = release_marginals(bits, inputs.d, k=inputs.groups, budget=budget, share=budget.left)
    statement = _stated(budget, Fact.INDEPENDENT_BITS(why=why))
    return ProductMixture(frequencies, counts, statement=statement, n_classes=inputs.n_classes, columns=inputs.columns)


def _fit_latent(inputs: Inputs, budget: GaussianBudget) -> RecordModel:
    """Gaussians on principal axes; without an axis that stands out from the noise, independent bits."""
    mu, share = budget.mu, allocated(inputs.shares(1), budget.left)["mean"]  # the mean has one share in all
    location = release_location(checked(inputs.values, inputs.d, inputs.n_classes), inputs.d, budget=budget, share=share)
    chosen = inputs.sizes(mu, location.count)
    later = {name: share for name, share in inputs.shares(chosen.subclusters).items() if name != "mean"}
    shares = allocated(later, budget.left)
    subspace = release_subspace(
        inputs.values,
        location,
        axes=chosen.axes,
        radius=inputs.config.radius,
        clip=math.sqrt(location.spread),
        within=inputs.frequencies(chosen.axes),
        budget=budget,
        share=shares["subspace"],
    )
    if float(subspace.eigenvalues[0]) <= subspace.edge:
        return _fit_independent(inputs, budget, _no_signal(mu, location, subspace))
    model = _fit_components(inputs, budget, shares, location, subspace, chosen)
    model.calibration = _calibration(inputs, budget, shares, model, location)
    model.statement = _stated(budget, *model.statement.facts)
    return model


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


def _fit_components(
    inputs: Inputs, budget: GaussianBudget, shares: dict[str, float], location: Location, subspace: Subspace, chosen: Sizes
) -> GaussianMixtureModel:
    """The Gaussians in the coordinates of the axes, not calibrated yet."""

    def encode(x: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        return subspace.project(x), one_class(x) if labels is None else labels

    batches: Batches = inputs.values
    coordinates: Encode = encode
    if chosen.subclusters > 1 and isinstance(batches, RecordStream) and isinstance(batches.x, Tensor):
        # For the six passes over records in memory: clipped coordinates lie on a grid that float32 holds exactly.
        batches = [(clipped(u).float(), classes) for u, classes in starmap(encode, batches)]
        coordinates = cast(Encode, lambda u, classes: (u, classes))
    components = release_components(
        batches,
        coordinates,
        k=inputs.groups,
        sizes=chosen,
        cut=inputs.config.cut,
        budget=budget,
        shares=shares,
        generator=PublicRandomness(inputs.seed).spawn("centres").generator,
    )
    left = (location.spread - float(subspace.eigenvalues.clamp_min(0.0).sum())) / max(1, inputs.d - chosen.axes)
    names = ", ".join(map(str, components.pooled))
    threshold = 0.5 if inputs.grey_threshold is None else (inputs.grey_threshold + 0.5) / 255.0
    return GaussianMixtureModel(
        subspace,
        components,
        statement=_stated(budget, *([Fact.POOLED_CLASSES(classes=names, records="records")] if names else [])),
        layout=RecordLayout(inputs.n_classes, inputs.image_shape, inputs.columns),
        residual=max(left, 1e-4 * location.spread / inputs.d),
        post=PostProcessing(warp=inputs.warp, grey=inputs.grey_threshold is not None, threshold=threshold),
    )


def _calibration(
    inputs: Inputs, budget: GaussianBudget, shares: dict[str, float], model: GaussianMixtureModel, location: Location
) -> Calibration:
    """Calibration of the model's bits to released marginals; a pilot of its own samples serves, so only releases cost."""
    marginals = location.mean
    if inputs.grey_threshold is not None:
        bits = checked(inputs.bits, inputs.d, inputs.n_classes)
        marginals = release_marginals(bits, inputs.d, k=1, budget=budget, share=shares["marginals"])[1][0]
    generator = PublicRandomness(inputs.seed).spawn("pilot").generator
    values = model.pilot(generator)
    jitter = None
    if inputs.image_shape is None:  # bits of tables vary beyond the axes; strokes of images are kept sharp
        jitter = (marginals * (1.0 - marginals) - values.double().var(0)).clamp_min(1e-6).sqrt()
        values = values + jitter.float() * torch.randn(values.shape, generator=generator)
    return Calibration(marginals=marginals, thresholds=calibrated_thresholds(values, marginals), jitter=jitter)
