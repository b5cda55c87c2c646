r"""Partition of the records into the clusters whose models are trained, and the means of these, which networks begin at.

A record x of bits adds :math:`2x - 1`, of norm :math:`\sqrt d` whatever the record is, to the sum of its cluster, and so does
an image of pixels x in [0, 1], of at most that norm: nothing is clipped, and the sums are exact. With the noisy size
:math:`\tilde n_c` the mean is :math:`(S_c / \tilde n_c + 1) / 2`.

Source: centring by means, Montavon and Mueller 2012; shrinkage by column, Efron and Morris 1973.
"""

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from dpgen.privacy.curator import Curator
from dpgen.privacy.exact_sums import CHUNK, WHOLE, BoundedSum, group_sums, shared_sizes, size_sums
from dpgen.privacy.sampling import one_group
from dpgen.systems.dp_sgd.plan import MEANS, SIZES


class Partition(Protocol):
    """Divides records into k clusters by a rule whose parameters are released values; `counts` (k,) are noisy sizes."""

    @property
    def k(self) -> int: ...
    @property
    def counts(self) -> Tensor: ...

    @property
    def of_people(self) -> bool:
        """Whether sizes count people, where these have several records: all records of a person for one."""

    def fit(self, x: Tensor, labels: Tensor | None, *, curator: Curator, share: Tensor | None = None) -> object:
        """Release what the rule needs, each release charged first; `share` (n,) is what each record has of its person."""

    def assign(self, x: Tensor, labels: Tensor | None) -> Tensor:
        """Cluster (n,) of every record: private, a function of that record and of released values."""

    def state_dict(self) -> dict[str, Any]:
        """Released values."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of `state_dict`."""


class LabelPartition:
    r"""Cluster = label (or one cluster for everything, when `labelled` is false).

    Labels are part of a record, so the sizes :math:`\tilde n_c = n_c + N(0, \sigma_n^2)`, integers, are released like any
    other count; sensitivity 1, and sqrt 2 for a replaced record, which may change clusters.

    Arguments:
        k: labels.
        noise_count: sigma_n.
        joined: all records are in one cluster, though the sizes of all labels are released.
    """

    of_people = True

    def __init__(self, k: int, *, noise_count: float, labelled: bool = True, joined: bool = False) -> None:
        self.k, self.noise_count, self.labelled, self.joined = 1 if joined else k, noise_count, labelled, joined
        self.sizes = torch.zeros(k)

    @property
    def counts(self) -> Tensor:
        """Noisy sizes of the clusters, (k,)."""
        return self.sizes.clamp_min(0.0).sum()[None] if self.joined else self.sizes

    def fit(self, x: Tensor, labels: Tensor | None, *, curator: Curator, share: Tensor | None = None) -> None:
        group, k = self._labels(x, labels), len(self.sizes)
        sums = size_sums(group.split(CHUNK), k) if share is None else shared_sizes(group, k, share)
        self.sizes = curator.gaussian(SIZES, sums, self.noise_count).to(torch.float32)

    def assign(self, x: Tensor, labels: Tensor | None) -> Tensor:
        return one_group(len(x)) if self.joined else self._labels(x, labels)

    def _labels(self, x: Tensor, labels: Tensor | None) -> Tensor:
        if not self.labelled:
            return one_group(len(x))
        if labels is None:
            raise ValueError("clusters='labels' needs labelled records; use clusters='kmeans' or 'none'")
        k = len(self.sizes)
        if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < k:
            raise ValueError(f"labels must be in [0, {k}), got [{int(labels.min())}, {int(labels.max())}]")
        return labels.to(torch.int64)

    def state_dict(self) -> dict[str, Any]:
        return {"counts": self.sizes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.sizes = state["counts"]


# -- means -------------------------------------------------------------------------------------------------------------

_LEAST = 1e-3
_ROWS = 8192


def sign_sums(
    x: Tensor,
    cluster: Tensor,
    k: int,
    *,
    labels: Tensor | None = None,
    categories: int = 0,
    share: Tensor | None = None,
    white: int = 1,
) -> BoundedSum:
    """Sums (k, d + categories) of 2x - 1 over the bits of each cluster (n,): a replaced record may change all of its signs.

    x (n, d) holds bits, or pixels in [0, white]; labels in [0, categories) become bits of their own. With the `share` (n,) of
    each record in its person signs of a person are averaged, so their norm stays.
    """
    if white > 1 and (labels is not None or share is not None):
        raise ValueError(f"white is {white}; it must be 1 with labels among the columns or people of several records")
    total = torch.zeros(k, x.shape[1] + categories, dtype=torch.int64)
    for i, (rows, members) in enumerate(zip(x.split(_ROWS), cluster.split(_ROWS))):
        if labels is not None:
            rows = torch.cat([rows, one_hot(labels[i * _ROWS :][: len(rows)], categories).to(rows)], 1)
        signs = _signs(rows, white)
        if share is not None:
            signs *= share[i * _ROWS :][: len(rows), None]
        total += group_sums(signs, members, k, most=float(white) if share is None else WHOLE).cpu()
    norm = total.shape[1] ** 0.5
    if share is None:
        return BoundedSum(total, norm, "signs of bits" if white == 1 else "pixels around their middle", step=1.0 / white)
    return BoundedSum(total, norm, "signs of bits", step=1.0 / WHOLE, of_unit=True)


def _signs(x: Tensor, white: int) -> Tensor:
    """2x - white of bits x, or of pixels in [0, white], float64."""
    values = x > 0.5 if white == 1 else x.clamp(0, white)
    return values.double().mul_(2.0).sub_(float(white))


def estimated_means(signs: Tensor, counts: Tensor, noise_std: float) -> Tensor:
    r"""Means (k, d) in (0, 1) from noisy sums of signs (k, d) of noise std `noise_std`, and noisy sizes (k,).

    A column's differences between the clusters shrink towards its mean over all of them, as far as noise explains them, and
    no mean is nearer to 0 or 1 than a fifth of the standard deviation that is left of its noise: its log-odds would be noise.

    >>> estimated_means(torch.tensor([[80, -100], [-60, -100]]), torch.tensor([100.0, 100.0]), 1e-6)
    tensor([[0.9000, 0.0010],
            [0.2000, 0.0010]])
    """
    sizes = counts.double().clamp_min(1.0)[:, None]
    means, std = (signs.double() / sizes + 1.0) / 2.0, 0.5 * noise_std / sizes
    pooled = (sizes / sizes.sum() * means).sum(0)
    apart = (means - pooled).square().mean(0)
    kept = (1.0 - std.square().mean() / apart.clamp_min(1e-12)).clamp(0.0, 1.0)
    shrunk = pooled + kept * (means - pooled)
    left = std * (kept + (1.0 - kept) / len(means)).sqrt()  # of the noise
    least = (0.2 * left).clamp(_LEAST, 0.5)
    return torch.minimum(torch.maximum(shrunk, least), 1.0 - least).float()


def release_means(
    partition: Partition,
    x: Tensor,
    labels: Tensor | None,
    *,
    curator: Curator,
    noise_multiplier: float,
    categories: int,
    share: Tensor | None = None,
    white: int = 1,
) -> Tensor:
    """Means (k, d + categories) of the clusters of a fitted partition, charged first; arguments as of `sign_sums`."""
    share = share if partition.of_people else None  # means are sums over sizes: both count people, or both records
    columns = labels if categories else None
    cluster = partition.assign(x, labels)
    sums = sign_sums(x, cluster, partition.k, labels=columns, categories=categories, share=share, white=white)
    noisy = curator.gaussian(MEANS, sums, noise_multiplier)
    steps = 1 if sums.of_unit else curator.rows
    return estimated_means(noisy, partition.counts, noise_multiplier * sums.sensitivity * steps)
