"""Differentially private kernel k-means (Acs et al. 2017, Algorithm 2), and standard DP k-means as its baseline.

Lloyd's rounds on features of bounded norm, random Fourier features whose inner products approximate the RBF kernel, with exact
sums that get noise, and steps on released values alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from dpgen.privacy.exact_sums import BoundedSum, clipped, group_sums, size_sums
from dpgen.privacy.mechanisms import require_positive, require_whole
from dpgen.privacy.noise import PublicRandomness
from dpgen.systems.kmeans.plan import COUNTS, ROUND, SUM_STEP, KMeansPlan, round_replaced, round_sensitivity

if TYPE_CHECKING:
    from dpgen.privacy.accountants import Relation
    from dpgen.privacy.curator import Curator
    from dpgen.privacy.ledger import Planned


# -- random Fourier features -------------------------------------------------------------------------------------------


NORM = 2.0**23
"""Whole numbers of `RandomFourierFeatures.whole` in a norm of 1: float32 holds them, and float64 their products."""
_TABLE_BITS = 16
_EXACT_BITS = 52  # products and partial sums stay below 2^53, where float64 holds every whole number
_MOST_PHASE_BITS = 60  # shifts of int64


class RandomFourierFeatures(nn.Module):
    r"""Maps records to d features with :math:`z(x)^\top z(y) \approx \exp(-\gamma |x - y|^2)` and norm at most 1.

    .. math:: z(x) = \sqrt{2/d} \, [\cos(x W), \sin(x W)], \quad W_{ij} \sim N(0, 2 \gamma), \ W \in R^{m \times d/2}

    Acs et al. 2017 (Algorithm 2) use :math:`\sqrt{2/d} \cos(x W + b)`, whose norm is 1 in expectation only (their
    Theorem 2): single records exceed it, so it bounds no sensitivity. Pairs have :math:`\cos^2 + \sin^2 = 1` for every
    record and approximate the kernel better (root mean square error .051 against .061 at d = 200).
    The paper's kernel width needs *variance* :math:`2\gamma`, not standard deviation :math:`2\gamma`.

    Formal guarantees, on any device, for any batch, number of threads and order of summation:
        - A record's features are a function of that record alone, bit for bit. Entries of x and of :math:`W / 2\pi` are
          whole multiples of :math:`2^{-g}` and :math:`2^{-h}`, so coarse that every partial sum of xW is a whole number
          of :math:`2^{-g-h}` turns below :math:`2^{53}`: float64 products are exact, whichever kernel computes them. The
          phase is reduced modulo a turn by integer arithmetic and looked up in a table of :math:`2^{16}` angles.
        - Norms are at most 1, exactly: table entries are :math:`R \cos, R \sin` cut towards zero to whole numbers with
          :math:`R = \lfloor 2^{23} \sqrt{2/d} \rfloor`, so :math:`\sum c^2 + s^2 \le (d/2) R^2 \le 2^{46}`.

    | case | what holds |
    |---|---|
    | norms | between 1 - 4 sqrt(d) 2^-23 and 1 |
    | phases | right to 2^-17 of a turn: features to 5e-5 of their size, a thousandth of the kernel's own error |
    | an entry beyond `largest` | counts as `largest` |
    | a NaN | an arbitrary phase of that record; no other record is touched |

    `n_inputs` is m, `n_features` d, even; gamma is in units of 1 / distance^2; `largest` bounds the absolute value of entries
    and is public, and so are the frequencies, which are independent of the data.

    Source: Rahimi and Recht 2007.

    >>> features = RandomFourierFeatures(784, 200, gamma=0.01, generator=torch.Generator().manual_seed(0))
    >>> z = features(torch.ones(3, 784))
    >>> bool((z.norm(dim=1) <= 1).all()), round(float(z[0].norm()), 4)
    (True, 1.0)
    """

    turns: Tensor
    grid: Tensor
    cosines: Tensor

    def __init__(
        self, n_inputs: int, n_features: int, *, gamma: float, generator: torch.Generator, largest: float = 1.0
    ) -> None:
        super().__init__()
        if n_inputs < 1:
            raise ValueError(f"n_inputs is {n_inputs!r}; it must be a whole number >= 1")
        if n_features < 2 or n_features % 2:
            raise ValueError(f"n_features is {n_features!r}; it must be an even number >= 2 (pairs of cosine and sine)")
        if not 0 < gamma < math.inf:
            raise ValueError(f"gamma is {gamma!r}; it must be a finite number > 0")
        if not 0 < largest < math.inf:
            raise ValueError(f"largest is {largest!r}; it must be a finite number > 0")
        spread = math.sqrt(2 * gamma) / (2 * math.pi)
        weights = spread * torch.randn(n_inputs, n_features // 2, generator=generator).double()
        self._place(*_on_grids(weights, largest, spread))

    @classmethod
    def restored(cls, turns: Tensor, grid: Tensor) -> RandomFourierFeatures:
        """The features whose `turns` and `grid` were saved."""
        features = cls.__new__(cls)
        nn.Module.__init__(features)
        features._place(turns, grid)
        return features

    def _place(self, turns: Tensor, grid: Tensor) -> None:
        """Whole numbers: changes of a module's floating-point dtype leave them alone."""
        self.register_buffer("turns", turns)
        self.register_buffer("grid", grid)
        self.register_buffer("cosines", circle_cosines(turns.shape[1]).to(turns.device), persistent=False)

    @property
    def frequencies(self) -> Tensor:
        """W (m, d/2), float64."""
        return self.turns.double() * (2 * math.pi * 0.5 ** int(self.grid[1]))

    def whole(self, x: Tensor) -> Tensor:
        """Features (n, d) of records (n, m) as whole numbers of 2^-23, float64; no row is longer than 2^23."""
        entry_bits, turn_bits, most = self.grid.tolist()
        scale = 2.0**entry_bits
        if x.is_floating_point() or scale < 1:
            phases = (x.double() * scale).round_().clamp_(-most, most) @ self.turns.double()
        else:  # whole already
            largest = int(most / scale)
            x = x if x.dtype == torch.bool or (x.dtype == torch.uint8 and largest >= 255) else x.clamp(max=largest)
            x = x.clamp(min=-largest) if x.dtype.is_signed else x
            phases = x.double() @ (self.turns.double() * scale)
        excess = entry_bits + turn_bits - _TABLE_BITS
        steps = phases.to(torch.int64).add_(1 << (excess - 1)).bitwise_right_shift_(excess)
        last, quarter = (1 << _TABLE_BITS) - 1, 1 << (_TABLE_BITS - 2)
        angles = torch.cat([steps, steps - quarter], dim=1).bitwise_and_(last)
        return self.cosines.index_select(0, angles.flatten()).view(angles.shape).double()

    def forward(self, x: Tensor) -> Tensor:
        """Features (n, d) of records (n, m), float64."""
        return self.whole(x) / NORM


def _on_grids(weights: Tensor, largest: float, spread: float) -> tuple[Tensor, Tensor]:
    """Frequencies in whole numbers of 2^-h turns, and (g, h, largest entry in 2^-g), so that products are exact.

    What rounding costs in phase is the same for entries and frequencies: 2^-g spread = 2^-h largest.
    """
    reach = largest * float(weights.abs().sum(0).max())
    total = min(_MOST_PHASE_BITS, math.floor(_EXACT_BITS - math.log2(reach)))
    if total <= _TABLE_BITS:
        raise ValueError(
            f"gamma and the range of entries are so large that phases reach {reach:.3g} turns; at most 2^35 are exact"
        )
    entry_bits = round((total - math.log2(largest / spread)) / 2)
    while True:
        turn_bits, most = total - entry_bits, math.ceil(largest * 2.0**entry_bits)
        turns = (weights * 2.0**turn_bits).round().to(torch.int64)
        if most * int(turns.abs().sum(0).max()) < 2**53:
            return turns, torch.tensor([entry_bits, turn_bits, most])
        total -= 1


def circle_cosines(pairs: int) -> Tensor:
    """floor(2^23 / sqrt(pairs)) cos(2 pi j / 2^16), cut towards zero, int32.

    What is cut is lowered by 2^-30 of itself first, more than a library's cosine is wrong by, so that no entry exceeds
    the truth: c^2 + s^2 <= R^2.
    """
    radius = math.isqrt(2**46 // pairs)
    angles = torch.arange(1 << _TABLE_BITS, dtype=torch.float64) * (2 * math.pi / (1 << _TABLE_BITS))
    return (angles.cos() * (radius * (1.0 - 2.0**-30))).trunc().to(torch.int32)


# -- lloyd -------------------------------------------------------------------------------------------------------------

_CHUNK_ENTRIES = 2**18
_DOT_BITS = 51  # products of rows and centres stay below 2^51, where float64 holds every whole number


def require_records(name: str, x: Tensor, value_range: tuple[float, float] | None) -> Tensor:
    """Records (n, m) as a tensor; refuse other shapes, NaN, infinities and entries outside the public range."""
    x = torch.as_tensor(x)
    if x.ndim != 2 or x.shape[1] == 0:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; it must be (n, m) with m >= 1")
    if not len(x):
        return x
    low, high = (float(v) for v in x.aminmax())
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"{name} holds NaN or infinite entries; they must all be finite")
    if value_range is not None and not value_range[0] <= low <= high <= value_range[1]:
        raise ValueError(f"{name} has entries from {low:g} to {high:g}; value_range is {value_range}")
    return x


@dataclass(frozen=True)
class FeatureSpace:
    """Features (n, d) of norm at most `norm_bound`, of its record alone, bit for bit; without `fourier` the record."""

    fourier: RandomFourierFeatures | None = None
    norm_bound: float = 1.0

    def whole(self, x: Tensor) -> Tensor:
        """Clipped features (n, d) in whole numbers of norm_bound * 2^-23, float64, cut towards zero: no row exceeds 2^23."""
        if self.fourier is not None and self.norm_bound == 1.0:
            return self.fourier.whole(x)
        features = x.double() if self.fourier is None else self.fourier(x)
        return clipped(features * (1.0 / self.norm_bound), NORM).mul_(NORM)

    def __call__(self, x: Tensor) -> Tensor:
        """Clipped features (n, d), float64."""
        return self.whole(x) * (self.norm_bound * SUM_STEP)

    def chunks(self, x: Tensor) -> Iterator[Tensor]:
        """`whole` of consecutive slices of x, so that memory does not grow with n; float32, which holds them."""
        for part in slices(x):
            yield self.whole(part).float()


def slices(x: Tensor) -> tuple[Tensor, ...]:
    """Consecutive rows of x, about 2^18 entries at a time."""
    return x.split(max(1, _CHUNK_ENTRIES // x.shape[1]))


@dataclass(frozen=True)
class Centres:
    r"""Released centres (k, d) on a grid so coarse that their products with features are exact.

    The nearest centre maximises :math:`z^\top c - |c|^2 / 2`. Features are whole numbers with norm at most :math:`2^{23}`,
    centres whole numbers with norm at most :math:`2^{28}`: by Cauchy and Schwarz every partial sum of a product is below
    :math:`2^{51}`, so float64 computes it without rounding in any order, and a record's scores depend on that record alone.
    """

    rows: Tensor  # (k, d), float64
    half_squares: Tensor  # (k,)

    @classmethod
    def cut(cls, centres: Tensor, norm_bound: float) -> Centres:
        """Centres (k, d) / norm_bound in whole numbers of 2^-q, cut towards zero; q serves the largest entry."""
        on_device, centres = centres.device, centres.detach().to("cpu", torch.float64) * (1.0 / norm_bound)
        bits = min(24, _DOT_BITS - 23 - math.ceil(math.log2(centres.shape[1]) / 2))
        q = bits - math.frexp(float(centres.abs().max()))[1]
        rows = (centres * 2.0**q).trunc()
        squares = rows.to(torch.int64).square().sum(1)  # below 2^56
        return cls(rows.to(on_device), (squares.double() * 2.0 ** (22 - q)).to(on_device))

    def nearest(self, z: Tensor) -> Tensor:
        """Index (n,) of the nearest centre of every row of z (n, d), whole numbers; of equally near ones the first."""
        return (self.half_squares - z.double() @ self.rows.T).argmin(1)


def cluster_sums(chunks: Iterable[Tensor], centres: Centres) -> Tensor:
    """Private (counts, sums of features) (k, 1 + d), int64, of the clusters of the nearest centre, on the CPU."""
    k, d = centres.rows.shape
    total = torch.zeros(k, 1 + d, dtype=torch.int64)
    for z in chunks:
        rows, owner = z.double(), centres.nearest(z)
        total[:, 1:] += group_sums(rows, owner, k, most=NORM).cpu()
        total[:, 0] += torch.bincount(owner, minlength=k).cpu()
    return total


def round_sums(chunks: Iterable[Tensor], centres: Centres, weight: float) -> BoundedSum:
    """(weight * count, sum of features / norm bound) of every cluster, (k, 1 + d), on one grid; see `round_sensitivity`."""
    sums = cluster_sums(chunks, centres)
    sums[:, 0] *= round(weight / SUM_STEP)
    return BoundedSum(sums, round_sensitivity(weight), replaced=round_replaced(weight), step=SUM_STEP)


def update_centres(centres: Tensor, counts: Tensor, sums: Tensor, *, sum_std: float, floor: float, shrink: bool) -> Tensor:
    r"""New centres (k, d) from released counts (k,) and sums (k, d): post-processing, free of charge.

    Plain means :math:`\tilde S_c / \tilde n_c`, or (`shrink`) drawn towards the mean of all records by the
    positive-part James-Stein factor, which cuts what is more noise than signal:

    .. math:: c = \bar c + s_c (\tilde S_c / \tilde n_c - \bar c), \quad
        s_c = \left(1 - \frac{d \, (\sigma / \tilde n_c)^2}{|\tilde S_c / \tilde n_c - \bar c|^2}\right)_+, \quad
        \bar c = \sum_c \tilde S_c / \sum_c \tilde n_c

    A cluster whose noisy count is below `floor` keeps its centre. Counts are clamped to at least 1 as divisors. `sum_std` is
    the noise std of every entry of sums.

    Source: James and Stein 1961; Efron and Morris 1973. Acs et al. 2017 use plain means.
    """
    sizes = counts.clamp_min(1.0)[:, None]
    means = sums / sizes
    if shrink:
        pooled = sums.sum(0) / counts.sum().clamp_min(1.0)
        offset = means - pooled
        noise = means.shape[1] * (sum_std / sizes).square()
        means = pooled + (1.0 - noise / offset.square().sum(1, keepdim=True).clamp_min(1e-300)).clamp_min(0.0) * offset
    return torch.where((counts < floor)[:, None], centres, means)


def split_largest(centres: Tensor, counts: Tensor, nudges: Tensor, *, floor: float) -> Tensor:
    """Centres (k, d) where each cluster with a noisy count below `floor` takes half of a large one's place."""
    centres = centres.clone()
    starving = torch.nonzero(counts < floor).flatten().tolist()
    donors = [c for c in counts.argsort(descending=True).tolist() if c not in starving]
    for i, cluster in enumerate(starving if donors else []):
        donor = donors[i % len(donors)]
        centres[cluster] = centres[donor] + nudges[cluster]
        centres[donor] -= nudges[cluster]
    return centres


# -- kmeans ------------------------------------------------------------------------------------------------------------

_CACHE_ENTRIES = 2**26
_STARVING = 3.0  # noise stds of a count below which a cluster counts as empty
_NUDGE = 0.1  # in units of the norm bound


class DPKMeans:
    r"""Differentially private k-means in the feature space of a kernel, used like scikit-learn's `KMeans`.

    `kernel="rbf"`: on random Fourier features of norm at most 1 (`RandomFourierFeatures`), so the sums need noise that
    depends neither on d nor on the data. `kernel="linear"`: standard DP k-means on the records themselves.

    Formal guarantees:
        - `fit` releases what `planned` says, whatever x holds: features are clipped to the norm bound exactly.
        - What is added up is a function of each record alone, bit for bit: features are whole numbers that no batch,
          thread or device changes (`FeatureSpace`), the nearest centre is decided by products without rounding, ties by
          the smaller index (`Centres`), and sums are int64. So one record moves one cluster, by at most what is charged.
        - The ledger is charged before each release; if it refuses, nothing of that round is drawn. Everything else (initial
          centres, frequencies, splits) is public or post-processing.

    An empty cluster's counts and sums are released like any other's, also where there are fewer records than clusters. Below 3
    noise stds of a count it is re-seeded next to a large cluster (`plan.repair`), in the last round it keeps its centre. Noisy
    counts below 1 are given as 1 in `counts_`.

    `norm_bound` is the clip norm C of features; None: the analytic bound (1 with "rbf"; the corner of the value range with
    "linear", 28 for 784 binary entries). `init` are public records (p, m), p >= k, of which k are the initial centres; None:
    features of k records with every entry either end of the value range by a public fair coin, scaled to norm C.

    Attributes after `fit`, all released values: `centres_` (k, d), `counts_` (k,) noisy sizes of the clusters of
    exactly these centres, `norm_bound_`.

    Source: Acs et al. 2017, Algorithm 2 and Theorem 2, with [cos, sin] features, less noise for sums than for counts,
    and shrunken means. The paper's noise std sqrt(2) sigma_K is `noise_*` = sqrt(2) sigma_K here.

    >>> from dpgen.privacy.curator import Curator
    >>> from dpgen.privacy.ledger import Budget, Ledger
    >>> x = (torch.arange(2000)[:, None] % 2 == torch.arange(8) % 2).to(torch.uint8)
    >>> kmeans = DPKMeans(2, KMeansPlan(noise_count=20.0, noise_sum=4.0, rounds=5), gamma=0.1, n_features=16)
    >>> kmeans = kmeans.fit(x, curator=Curator(Ledger(Budget(4.0, 1e-5))))
    >>> bool((kmeans.counts_ - 1000).abs().max() < 200), len(kmeans.predict(x[:2]).unique())
    (True, 2)
    """

    centres_: Tensor
    counts_: Tensor
    norm_bound_: float
    of_people = False
    """Sizes count records, not people: networks are trained on the clusters as on a `Partition`."""

    def __init__(
        self,
        k: int,
        plan: KMeansPlan,
        *,
        kernel: Literal["rbf", "linear"] = "rbf",
        gamma: float = 0.01,
        n_features: int = 200,
        norm_bound: float | None = None,
        init: Tensor | None = None,
        seed: int | PublicRandomness = 0,
    ) -> None:
        require_whole("k", k)
        if kernel not in ("rbf", "linear"):
            raise ValueError(f"kernel is {kernel!r}; it must be one of 'rbf', 'linear'")
        if norm_bound is not None:
            require_positive("norm_bound", norm_bound)
        self.k, self.plan, self.kernel, self.gamma, self.n_features = k, plan, kernel, gamma, n_features
        self.norm_bound, self.init = norm_bound, init
        self.seed = seed if isinstance(seed, PublicRandomness) else PublicRandomness(seed)
        self.space: FeatureSpace | None = None

    def planned(self, relation: Relation) -> tuple[Planned, ...]:
        """Releases of `fit`, as a ledger of this relation declares them: `curator.declare(*kmeans.planned(...))` before fit."""
        return self.plan.planned(relation)

    @property
    def counts(self) -> Tensor:
        """Noisy sizes of the clusters, (k,), once they are found."""
        return self.counts_

    def fit(
        self,
        x: Tensor,
        labels: Tensor | None = None,
        *,
        curator: Curator,
        share: Tensor | None = None,
        value_range: tuple[float, float] = (0.0, 1.0),
    ) -> DPKMeans:
        """Release centres and counts of private records; after a failure the estimator is as before.

        Records x (n, m) lie in the public `value_range` (else ValueError); labels and shares are not looked at. Where `planned`
        has not been declared to the curator, its filter decides, which counts more.
        """
        x = require_records("x", x, value_range)
        space = self._feature_space(x, value_range)
        centres = self._initial(space, x, value_range)
        cache = list(space.chunks(x)) if len(x) * centres.shape[1] <= _CACHE_ENTRIES else None

        def chunks() -> Iterable[Tensor]:
            return space.chunks(x) if cache is None else cache

        centres = self._lloyd(space.norm_bound, chunks, centres, curator)
        # Rounded before they are counted, so that the clusters of the stored centres are the counted ones.
        centres = centres.to(torch.float32)
        cut = Centres.cut(centres, space.norm_bound)
        sizes = size_sums((cut.nearest(z) for z in chunks()), self.k)
        counts = curator.gaussian(COUNTS, sizes, self.plan.noise_count)
        self.centres_, self.counts_ = centres, counts.clamp_min(1).to(torch.float32)
        self.norm_bound_, self.space = space.norm_bound, space
        return self

    def predict(self, x: Tensor) -> Tensor:
        """Cluster (n,), int64, of records (n, m): the nearest of `centres_`, whose private sizes `counts_` counts."""
        if self.space is None:
            raise RuntimeError("DPKMeans is not fitted: call fit or load_state_dict before predict")
        x, fourier = require_records("x", x, None), self.space.fourier
        width = self.centres_.shape[1] if fourier is None else len(fourier.turns)
        if x.shape[1] != width:
            raise ValueError(f"x has shape {tuple(x.shape)}; it must be (n, {width}), as in fit")
        cut = Centres.cut(self.centres_.to(x.device), self.space.norm_bound)
        return torch.cat([cut.nearest(self.space.whole(part)) for part in slices(x)])

    def assign(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
        """See `predict`."""
        return self.predict(x)

    def state_dict(self) -> dict[str, Tensor]:
        """Released and public tensors."""
        if self.space is None:
            raise RuntimeError("DPKMeans is not fitted: it has no state to save")
        bound, fourier = torch.tensor(self.norm_bound_, dtype=torch.float64), self.space.fourier
        state = {"centres": self.centres_, "counts": self.counts_, "norm_bound": bound}
        return state if fourier is None else state | {"turns": fourier.turns, "grid": fourier.grid}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of `state_dict`; a state of another k or kernel is refused."""
        wanted = {"centres", "counts", "norm_bound"} | ({"turns", "grid"} if self.kernel == "rbf" else set())
        if set(state) != wanted or len(state["centres"]) != self.k or state["counts"].shape != (self.k,):
            raise ValueError(f"state has entries {sorted(state)}; it must have {sorted(wanted)} of k = {self.k}")
        fourier = RandomFourierFeatures.restored(state["turns"], state["grid"]) if self.kernel == "rbf" else None
        self.centres_, self.counts_, self.norm_bound_ = state["centres"], state["counts"], float(state["norm_bound"])
        self.space = FeatureSpace(fourier, self.norm_bound_)

    # -- steps of fit ------------------------------------------------------------------------------------------------

    def _public(self, name: str) -> torch.Generator:
        return self.seed.spawn(name).generator

    def _feature_space(self, x: Tensor, value_range: tuple[float, float]) -> FeatureSpace:
        m, largest = x.shape[1], max(map(abs, value_range)) or 1.0
        if self.kernel == "linear":
            return FeatureSpace(None, float(self.norm_bound or math.sqrt(m) * largest))
        public = self._public("features")
        features = RandomFourierFeatures(m, self.n_features, gamma=self.gamma, generator=public, largest=largest)
        return FeatureSpace(features.to(x.device), float(self.norm_bound or 1.0))

    def _initial(self, space: FeatureSpace, x: Tensor, value_range: tuple[float, float]) -> Tensor:
        """Public centres (k, d) for private records (n, m), of which only the width and the device count."""
        if self.init is None:
            low, high = value_range
            coins = torch.rand(self.k, x.shape[1], generator=self._public("records")) < 0.5
            z = space((low + (high - low) * coins).to(x.device))
            # One common norm: else the shortest draw would attract nearly everything.
            return space.norm_bound * z / z.norm(dim=1, keepdim=True).clamp_min(1e-12)
        public = require_records("init", self.init, value_range)
        if len(public) < self.k or public.shape[1] != x.shape[1]:
            raise ValueError(f"init has shape {tuple(public.shape)}; it must be (p, {x.shape[1]}) with p >= k = {self.k}")
        chosen = torch.randperm(len(public), generator=self._public("centres"))[: self.k]
        return space(public[chosen].to(x.device))

    def _lloyd(self, norm_bound: float, chunks: Callable[[], Iterable[Tensor]], centres: Tensor, curator: Curator) -> Tensor:
        plan, weight, floor = self.plan, self.plan.weight, max(1.0, _STARVING * self.plan.noise_count)
        sum_std = plan.round_multiplier * round_sensitivity(weight) * norm_bound
        generator = self._public("splits")
        for done in range(1, plan.rounds + 1):
            private = round_sums(chunks(), Centres.cut(centres, norm_bound), weight)
            noisy = curator.gaussian(ROUND, private, plan.round_multiplier).to(centres)
            counts, sums = noisy[:, 0] / weight, noisy[:, 1:] * norm_bound
            centres = update_centres(centres, counts, sums, sum_std=sum_std, floor=floor, shrink=plan.repair)
            if plan.repair and done < plan.rounds:
                nudges = torch.randn(centres.shape, generator=generator, dtype=torch.float64)
                nudges *= _NUDGE * norm_bound / nudges.norm(dim=1, keepdim=True)
                centres = split_largest(centres, counts, nudges.to(centres), floor=floor)
        return centres
