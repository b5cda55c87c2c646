"""Errors of counting queries on binary records, of k-way marginals and of pairwise correlations and associations."""

from collections.abc import Sequence
from itertools import combinations
from math import comb, inf
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Predicate = Literal["any", "all"]

SANITY = 0.001
"""Sanity bound of the relative error, as a share of the records (Acs et al. 2017, section IV)."""


def require_samples(rows: int = 1, /, **samples: Tensor) -> None:
    """Refuse samples, given by name, that are not finite matrices (n, d) of one width d >= 1 with n >= `rows`."""
    (first, x), *others = samples.items()
    for name, sample in samples.items():
        if sample.ndim != 2 or sample.shape[1] == 0 or len(sample) < rows:
            raise ValueError(f"{name} has shape {tuple(sample.shape)}: it must be (n >= {rows}, d >= 1)")
        if sample.is_floating_point() and not bool(torch.isfinite(sample).all()):
            raise ValueError(f"{name} has a value that is not finite: every value must be a number")
    for name, other in others:
        if other.shape[1] != x.shape[1]:
            raise ValueError(f"{name} has {other.shape[1]} columns, {first} has {x.shape[1]}: they must agree")


def require_codes(bits: bool = False, /, **samples: Tensor) -> None:
    """`require_samples`, and whole numbers >= 0; `bits` are 0 and 1, of torch.uint8."""
    require_samples(**samples)
    kind, values, most = ("torch.uint8", "in {0, 1}", 1.0) if bits else ("integers", ">= 0", inf)
    for name, x in samples.items():
        whole = not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool)
        if not (x.dtype == torch.uint8 if bits else whole):
            raise ValueError(f"{name} has dtype {x.dtype}: it must be {kind}")
        if wrong := [value for value in (int(x.min()), int(x.max())) if not 0 <= value <= most]:
            raise ValueError(f"{name} has {wrong[0]}: it must be {values}")


def random_queries(
    d: int, max_length: int, *, generator: torch.Generator, n_queries: int = 1000, classes: int = 5
) -> list[list[Tensor]]:
    """Random sets of items in length classes, the protocol of Acs et al. (2017), section IV.

    A query of class i = 1..classes has a length uniform in [1, floor(i * max_length / classes)] and that many distinct items,
    uniform over the d items: lists of n_queries / classes tensors of item indices, int64. `max_length`, in [1, d], is the
    largest number of items of a record; n_queries must be a multiple of `classes`.

    >>> queries = random_queries(64, 40, generator=torch.Generator().manual_seed(0))
    >>> [max(len(items) for items in one_class) <= 8 * i for i, one_class in enumerate(queries, start=1)]
    [True, True, True, True, True]
    """
    if not 1 <= max_length <= d:
        raise ValueError(f"max_length is {max_length}: it must be in [1, {d}]")
    if classes < 1 or n_queries < classes or n_queries % classes:
        raise ValueError(f"n_queries is {n_queries}: it must be a positive multiple of classes, which is {classes}")
    queries = []
    for i in range(1, classes + 1):
        longest = max(i * max_length // classes, 1)
        lengths = torch.randint(1, longest + 1, (n_queries // classes,), generator=generator)
        queries.append([torch.randperm(d, generator=generator)[:length] for length in lengths.tolist()])
    return queries


def conjunctions(
    x: Tensor, k: int, *, generator: torch.Generator, n_queries: int = 1000, min_marginal: float = 0.05
) -> list[Tensor]:
    """At most `n_queries` distinct sets of k items among those that more than `min_marginal` of the records (n, d) hold.

    >>> conjunctions(torch.tensor([[1, 1, 0]], dtype=torch.uint8), 2, generator=torch.Generator())
    [tensor([0, 1])]
    """
    require_codes(True, x=x)
    frequent = (_marginals(x) > min_marginal).nonzero().flatten()
    if not 1 <= k <= len(frequent):
        raise ValueError(f"k is {k}: it must be in [1, {len(frequent)}], the items with marginal > {min_marginal:g}")
    return [frequent[list(items)] for items in _item_sets(len(frequent), k, n_sets=n_queries, generator=generator)]


def _item_sets(d: int, k: int, *, n_sets: int, generator: torch.Generator) -> list[tuple[int, ...]]:
    """Distinct sets of k of d items, in order: all when there are at most `n_sets`, otherwise a random choice."""
    if n_sets < 1:
        raise ValueError(f"the number of sets of items is {n_sets}: it must be >= 1")
    if comb(d, k) <= n_sets:
        return list(combinations(range(d), k))
    chosen: set[tuple[int, ...]] = set()
    while len(chosen) < n_sets:
        chosen.add(tuple(torch.randperm(d, generator=generator)[:k].sort().values.tolist()))
    return sorted(chosen)


def answers(x: Tensor, queries: Sequence[Tensor], *, predicate: Predicate = "any") -> Tensor:
    """Share of the records that satisfy each query, (queries,): Q(x) / n with Q(x) = sum_i p(x_i).

    Acs et al. count "the users who visited these cells", which reads both ways. The default is "any": with "all" nearly
    every random query of more than a few items is answered 0 by any data.

    x are records (n, d), uint8 in {0, 1}; queries are items, int64 in [0, d): by "any" a record holds at least one of them, by
    "all" every one.

    >>> x = torch.tensor([[1, 0, 0], [1, 1, 0]], dtype=torch.uint8)
    >>> answers(x, [torch.tensor([0, 1])]).item(), answers(x, [torch.tensor([0, 1])], predicate="all").item()
    (1.0, 0.5)
    """
    require_codes(True, x=x)
    if predicate not in get_args(Predicate):
        raise ValueError(f"predicate is {predicate!r}: it must be one of {', '.join(get_args(Predicate))}")
    # One row of bits per item: a query is then a few bytewise operations on n / 8 bytes per item.
    bits = np.packbits(np.ascontiguousarray(x.cpu().numpy().T), axis=1)
    merge = np.bitwise_or if predicate == "any" else np.bitwise_and
    counts = np.empty(len(queries), dtype=np.int64)
    for position, items in enumerate(queries):
        if len(items) == 0 or int(items.min()) < 0 or int(items.max()) >= x.shape[1]:
            raise ValueError(f"query {position} has items {items.tolist()[:5]}: each must be in [0, {x.shape[1] - 1}]")
        counts[position] = np.bitwise_count(merge.reduce(bits[items.cpu().numpy()], axis=0)).sum(dtype=np.int64)
    return torch.from_numpy(counts).double() / len(x)


def relative_errors(
    real: Tensor, synthetic: Tensor, queries: Sequence[Tensor], *, predicate: Predicate = "any", sanity: float = SANITY
) -> Tensor:
    """|Q(synthetic) - Q(real)| / max(Q(real), sanity) of each query (queries,), all as shares of records (n, d) and (m, d)."""
    if not sanity > 0:
        raise ValueError(f"sanity is {sanity}: it must be > 0")
    require_samples(real=real, synthetic=synthetic)
    truth, found = (answers(x, queries, predicate=predicate) for x in (real, synthetic))
    return (found - truth).abs() / truth.clamp(min=sanity)


def query_errors(
    real: Tensor, synthetic: Tensor, *, seed: int = 0, n_queries: int = 1000, sanity: float = SANITY
) -> dict[str, float]:
    """Average relative error of each kind of query, the same queries for the same `real` and `seed`.

    ``any_20%`` ... ``any_100%``: the five length classes of `random_queries`; ``all_1`` ... ``all_3``: `conjunctions`
    of 1, 2 and 3 items with marginal > 5 % (left out where too few items are that frequent).

    >>> x = torch.eye(4, dtype=torch.uint8)
    >>> query_errors(x, x, n_queries=10)["any_100%"]
    0.0
    """
    require_codes(True, real=real)
    generator = torch.Generator().manual_seed(seed)
    longest = max(int(real.sum(1, dtype=torch.int64).max()), 1)
    subsets = random_queries(real.shape[1], longest, generator=generator, n_queries=n_queries)
    kinds = {f"any_{100 * i // len(subsets)}%": queries for i, queries in enumerate(subsets, start=1)}
    frequent = int((_marginals(real) > 0.05).sum())
    for k in range(1, min(frequent, 3) + 1):
        kinds[f"all_{k}"] = conjunctions(real, k, generator=generator, n_queries=n_queries)
    errors: dict[str, float] = {}
    for predicate in get_args(Predicate):
        chosen = [kind for kind in kinds if kind.startswith(predicate)]
        flat = [items for kind in chosen for items in kinds[kind]]
        each = relative_errors(real, synthetic, flat, predicate=predicate, sanity=sanity)
        parts = each.split([len(kinds[kind]) for kind in chosen])
        errors |= {kind: float(part.mean()) for kind, part in zip(chosen, parts)}
    return errors


def _marginals(x: Tensor) -> Tensor:
    return x.cpu().sum(0, dtype=torch.int64).double() / len(x)


def independent_marginals(x: Tensor, n: int, *, generator: torch.Generator) -> Tensor:
    """n rows whose columns are drawn each for itself from the rows (m, d): a NON-private baseline with exact marginals."""
    require_samples(x=x)
    if n < 1:
        raise ValueError(f"n is {n}: it must be >= 1")
    return torch.stack([column[torch.randint(len(x), (n,), generator=generator)] for column in x.T], 1)


def marginal_errors(real: Tensor, synthetic: Tensor, k: int = 2, *, n_sets: int = 1000, seed: int = 0) -> Tensor:
    r"""Total variation $\frac12 \sum_c |P_S(c) - Q_S(c)|$ in [0, 1] of the marginals of each set S of k columns, (sets,).

    Their mean is the average variation distance of Zhang et al. (2014), section 6.1. real (n, d) and synthetic (m, d) are
    categories, integers >= 0. Of more than n_sets sets a random choice is taken.

    >>> x = torch.tensor([[0, 0], [1, 1]])
    >>> marginal_errors(x, torch.tensor([[0, 1], [1, 0]])).item(), marginal_errors(x, x.flip(0), 1).tolist()
    (1.0, [0.0, 0.0])
    """
    require_codes(real=real, synthetic=synthetic)
    n, m, d = len(real), len(synthetic), real.shape[1]
    if not 1 <= k <= d:
        raise ValueError(f"k is {k}: it must be in [1, {d}]")
    both = compressed(torch.cat([real.long(), synthetic.long()]))
    errors = []
    for chosen in _item_sets(d, k, n_sets=n_sets, generator=torch.Generator().manual_seed(seed)):
        key = both[:, chosen[0]]
        for column in chosen[1:]:
            key = key * (int(both[:, column].max()) + 1) + both[:, column]
        _, cell = np.unique(key, return_inverse=True)
        own, other = (np.bincount(part, minlength=int(cell.max()) + 1) for part in (cell[:n], cell[n:]))
        errors.append(0.5 * float(np.abs(own / n - other / m).sum()))
    return torch.tensor(errors, dtype=torch.float64)


def compressed(codes: Tensor) -> np.ndarray:
    """The codes (n, d) that occur in each column, by number: int64 (n, d)."""
    return np.stack([np.unique(column, return_inverse=True)[1] for column in codes.cpu().numpy().T], axis=1)


def correlation_errors(real: Tensor, synthetic: Tensor) -> Tensor:
    r"""$|\rho_{ij} - \hat\rho_{ij}|$ of Pearson's correlations of all pairs i < j, (pairs,); of binary columns, phi.

    Pairs of a column that is constant in the real data are left out. A column that is constant in the synthetic data alone
    has correlation 0 there.

    >>> x = torch.tensor([[0, 0], [1, 1]])
    >>> correlation_errors(x, 1 - x).tolist(), round(correlation_errors(x, x[:1]).item(), 9)
    ([0.0], 1.0)
    """
    require_samples(real=real, synthetic=synthetic)
    varies = real.amax(0) > real.amin(0)
    d = int(varies.sum())
    if d < 2:
        raise ValueError(f"real has {d} columns that vary: at least 2 are needed")
    upper = torch.triu_indices(d, d, offset=1, device=real.device)
    own, other = (_correlations(x[:, varies])[upper[0], upper[1]] for x in (real, synthetic))
    return (own - other).abs()


def _correlations(x: Tensor) -> Tensor:
    """Pearson's correlations (d, d) of columns (n, d), 0 where a column is constant."""
    constant = x.amax(0) == x.amin(0)
    centred = x.double() - x.double().mean(0)
    centred[:, constant] = 0
    scaled = centred / centred.abs().amax(0).where(~constant, 1)
    scaled = scaled / scaled.norm(dim=0).where(~constant, 1)
    return (scaled.T @ scaled).clamp(-1, 1)


def associations(codes: Tensor) -> Tensor:
    r"""Cramér's V of every two columns of codes (n, d), n >= 2, corrected for its bias: (d, d), 0 independent, 1 a function.

    Source: Bergsma 2013, equation 5.

    >>> associations(torch.tensor([[0, 0], [1, 1]] * 50)).round(decimals=2).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    columns, n = compressed(codes), len(codes)
    d = columns.shape[1]
    found = torch.eye(d, dtype=torch.float64)
    for i, j in combinations(range(d), 2):
        found[i, j] = found[j, i] = _cramers_v(columns[:, i], columns[:, j], n)
    return found


def _cramers_v(left: npt.NDArray[np.int64], right: npt.NDArray[np.int64], n: int) -> float:
    r, k = int(left.max()) + 1, int(right.max()) + 1
    cells, counts = np.unique(left * k + right, return_counts=True)
    expected = np.bincount(left, minlength=r)[cells // k] * np.bincount(right, minlength=k)[cells % k] / n
    phi = float((counts**2 / expected).sum()) / n - 1  # chi squared over n, empty cells included
    corrected = max(0.0, phi - (r - 1) * (k - 1) / (n - 1))
    least = min(r - (r - 1) ** 2 / (n - 1), k - (k - 1) ** 2 / (n - 1)) - 1
    return min(1.0, (corrected / least) ** 0.5) if least > 0 else 0.0
