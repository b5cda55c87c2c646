"""The Gaussian component from records to release: location, axes, moments, clean-up, calibration."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dpgen.privacy.curator import Curator
from dpgen.privacy.exact_sums import clipped
from dpgen.privacy.ledger import Budget
from dpgen.privacy.noise import PublicRandomness
from dpgen.release import RecordModel
from dpgen.runtime import Runtime
from dpgen.statement import PrivacyStatement
from dpgen.systems.assumptions import CHOSEN_BLIND, EXACT_INTEGERS, ONE_RECORD, SECURE_NOISE
from dpgen.systems.gaussian.component_moments import Components, release_components
from dpgen.systems.gaussian.fit_rule import Sizes
from dpgen.systems.gaussian.gaussian_model import Calibration, GaussianMixtureModel, PostProcessing
from dpgen.systems.gaussian.gaussian_task import Checked, Task
from dpgen.systems.gaussian.gram_sums import Encode
from dpgen.systems.gaussian.marginal_calibration import fit_tilt, release_marginals, release_pairs
from dpgen.systems.gaussian.record_stream import Batches, RecordStream
from dpgen.systems.gaussian.size_tilt import SHARES, release_size_tilt
from dpgen.systems.gaussian.spending import Spending
from dpgen.systems.gaussian.subspace import Location, Subspace, release_location, release_radius, release_subspace
from dpgen.systems.gaussian.warps import calibrated_thresholds
from dpgen.systems.marginals.product_mixture import ProductMixture
from dpgen.systems.private_data import PrivateRecords

if TYPE_CHECKING:
    from dpgen.systems.networks.dpgm_options import DPGMConfig, DPGMPlan

ASSUMPTIONS = (
    ONE_RECORD,
    CHOSEN_BLIND,
    SECURE_NOISE,
    "what a record adds lies on a grid and sums are exact (of at most 2^27 records), so no rounding depends on other records; "
    "the result of one device serves all of a fit",
    EXACT_INTEGERS,
)
"""What the statement of a Gaussian fit rests on."""

_QUANTILE = 0.8


def fit(data: PrivateRecords, *, plan: "DPGMPlan", config: "DPGMConfig", curator: Curator, runtime: Runtime) -> RecordModel:
    """Fit the Gaussian component to records and release it; no training, one to eight passes over the data.

    Raises:
        ValueError: options that contradict the data, records out of range, a plan with numbers of training, or a ledger of
            another relation than the plan's.
        BudgetExceeded: the ledger does not allow what the plan asks.
    """
    plan.require_use(config)
    assert plan.budget is not None
    resolved = config.resolved(n_classes=data.n_classes)
    device = "cuda" if runtime.accelerator == "gpu" else "cpu"
    task = Task.of(
        data,
        config,
        clusters=resolved.clusters,
        k=config.k,
        seed=runtime.seed,
        device=device,
        public_n=plan.public_n,
    )
    if curator.relation != plan.relation:
        raise ValueError(f"the ledger's relation must be the plan's {plan.relation!r}, got {curator.relation!r}")
    return fit_task(task, budget=plan.budget, curator=curator)


def fit_task(task: Task, *, budget: Budget, curator: Curator) -> RecordModel:
    """Spend the budget, under the ledger's relation, and release a model; for streams that are not in memory, too.

    Raises:
        ValueError: options that contradict the data, or records out of range.
        BudgetExceeded: the ledger does not allow what the budget promised.
    """
    task.require_sound()
    if task.form == "latent":
        fit_form, shares = _fit_latent, next(iter(task.ways().values()))  # all ways give the mean the same share
    elif task.form == "sizes":
        fit_form, shares = _fit_sizes, SHARES
    else:
        fit_form, shares = _fit_independent, {"marginals": 1.0}
    run = _Run(task, curator, Spending.within(curator, budget, shares))
    model = fit_form(run)
    model.noise_multiplier = run.spending.whole  # of all releases, now that they are made
    return model


@dataclass(frozen=True)
class _Run:
    """A task with the means to pay for it."""

    task: Task
    curator: Curator
    spending: Spending

    def statement(self) -> PrivacyStatement:
        n = self.task.public_n
        declared = () if n is None else (f"the number of records, {n}, was declared public",)
        return PrivacyStatement.from_ledger(self.curator.ledger, assumptions=(*ASSUMPTIONS, *declared))


def _fit_sizes(run: _Run) -> RecordModel:
    task = run.task
    bits = Checked(task.bits, task.d, 0)
    tilt = release_size_tilt(bits, task.d, spending=run.spending)
    return ProductMixture(
        tilt.probabilities,
        tilt.weights * tilt.count,
        statement=run.statement(),
        columns=task.columns,
        declared=("items are independent given the size of the set; rare items are shrunk towards their common prior",),
    )


def _fit_independent(run: _Run, declared: str = "independent marginals of every class") -> RecordModel:
    task = run.task
    bits = Checked(task.bits, task.d, task.n_classes)
    counts, frequencies = release_marginals(bits, task.d, k=task.groups, spending=run.spending)
    return ProductMixture(
        frequencies,
        counts,
        statement=run.statement().extended((declared,)),
        n_classes=task.n_classes,
        columns=task.columns,
        declared=(declared,),
    )


def _fit_latent(run: _Run) -> RecordModel:
    task, spending = run.task, run.spending
    location = release_location(task.first_codes, task.width, spending=spending)
    if task.public_n is not None:
        location = replace(location, count=float(task.public_n))
    chosen = task.sizes(spending.mu, location.count)
    spending.share({name: share for name, share in task.ways()[chosen.subclusters > 1].items() if name != "mean"})
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
        f"fallback to independent marginals: {reason} at {location.count:.0f} noisy records; an axis that carries 10 % needs "
        f"{share / 0.1:.3g} times the records or the mu = {mu:.3g} of this budget"
    )


def _subspace(run: _Run, location: Location, chosen: Sizes) -> Subspace:
    task, clip = run.task, run.task.options.clip
    if clip == "quantile":
        clip = release_radius(task.codes, location, quantile=_QUANTILE, spending=run.spending)
    elif clip == "moments":
        clip = math.sqrt(location.spread)
    assert not isinstance(clip, str)
    return release_subspace(
        task.codes,
        location,
        axes=chosen.axes,
        power=task.options.whitening,
        radius=task.options.radius,
        clip=clip,
        spending=run.spending,
    )


def _fit_components(run: _Run, location: Location, subspace: Subspace, chosen: Sizes) -> RecordModel:
    task = run.task

    def encode(x: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        return subspace.project(x), torch.zeros(len(x), dtype=torch.int64, device=x.device) if labels is None else labels

    batches: Batches = task.codes
    coordinates: Encode = encode
    if chosen.subclusters > 1 and isinstance(task.values, RecordStream):
        batches, coordinates = _coordinates(batches, encode), _as_they_are
    components = release_components(
        batches,
        coordinates,
        k=task.groups,
        m=chosen.axes,
        subclusters=chosen.subclusters,
        covariance=task.options.covariance,
        cut=task.options.cut,
        spending=run.spending,
        generator=PublicRandomness(task.seed).spawn("centres").generator,
    )
    m, width = chosen.axes, task.width
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


def _declared(components: Components) -> Sequence[str]:
    if not components.pooled:
        return ()
    names = ", ".join(map(str, components.pooled))
    return (f"fallback to the Gaussian of all records for classes {names}: too few records at this budget",)


def _model(run: _Run, subspace: Subspace, components: Components, residual: float) -> GaussianMixtureModel:
    task, options = run.task, run.task.options
    post = PostProcessing(
        warp=task.warp,
        grey=task.grey,
        threshold=task.threshold,
        fill=options.fill,
        codec=None if options.codec == "none" else options.codec,
    )
    return GaussianMixtureModel(
        subspace,
        components.mixture,
        density=components.density,
        classes=components.classes,
        counts=components.counts,
        statement=run.statement(),
        n_classes=task.n_classes,
        residual=residual,
        post=post,
        image_shape=task.image_shape,
        columns=task.columns,
        declared=_declared(components),
    )


def _calibrated(run: _Run, model: GaussianMixtureModel, location: Location) -> GaussianMixtureModel:
    """The model with bits that follow released marginals; a pilot of its own samples serves, so only releases cost."""
    task, pairs = run.task, None
    bits = Checked(task.bits, task.d, task.n_classes)
    if task.calibration == "none":
        return model
    if task.calibration == "pairs":
        pairs, noise_std = release_pairs(bits, task.d, spending=run.spending)
        marginals = pairs.diagonal().clone()
    elif task.grey or task.codec is not None:
        marginals = release_marginals(bits, task.d, k=1, spending=run.spending)[1][0]
    else:
        marginals = location.mean
    generator = PublicRandomness(task.seed).spawn("pilot").generator
    values = model.pilot(generator)
    jitter = None
    if task.image_shape is None:  # bits of tables vary beyond the axes; strokes of images are kept sharp
        jitter = (marginals * (1.0 - marginals) - values.double().var(0)).clamp_min(1e-6).sqrt()
        values = values + jitter.float() * torch.randn(values.shape, generator=generator)
    thresholds = calibrated_thresholds(values, marginals)
    model.calibration = Calibration(marginals=marginals, thresholds=thresholds, jitter=jitter)
    if pairs is not None:
        tilt = fit_tilt(values > thresholds, pairs, noise_std=max(noise_std, 1e-4))
        model.calibration = replace(model.calibration, tilt=tilt)
    return model
