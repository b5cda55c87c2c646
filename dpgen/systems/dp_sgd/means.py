r"""Means of the clusters, released with their sizes, which networks begin at.

A record x of bits adds :math:`2x - 1`, of norm :math:`\sqrt d` whatever the record is, to the sum of its cluster, and so does
an image of pixels x in [0, 1], of at most that norm: nothing is clipped, and the sums are exact. With the noisy size
:math:`\tilde n_c` the mean is :math:`(S_c / \tilde n_c + 1) / 2`.

Source: centring by means, Montavon and Mueller 2012; shrinkage by column, Efron and Morris 1973.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from dpgen.privacy.curator import Curator
from dpgen.privacy.exact_sums import WHOLE, BoundedSum, group_sums
from dpgen.privacy.ledger import Planned
from dpgen.privacy.mechanisms import Relation, gaussian_event
from dpgen.systems.dp_sgd.partition import Partition

MEANS = "cluster means"
"""Note of the means of clusters."""

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

    Arguments:
        x: bits (n, d), or pixels in [0, white], of which chunks of rows are read.
        cluster: of each record.
        k: clusters.
        labels: in [0, categories), which become bits of their own, or None.
        categories: 0 without labels.
        share: of each record in its person (n,), see `shares`: signs of a person are averaged, so their norm stays.
        white: above 1, the value of a pixel that counts as 1.
    """
    if white > 1 and (labels is not None or share is not None):
        raise ValueError(f"white is {white}; it must be 1 with labels among the columns or people of several records")
    total = torch.zeros(k, x.shape[1] + categories, dtype=torch.int64)
    for i, (rows, members) in enumerate(zip(x.split(_ROWS), cluster.split(_ROWS))):
        if labels is not None:
            rows = torch.cat([rows, one_hot(labels[i * _ROWS :][: len(rows)], categories).to(rows)], 1)
        values = rows > 0.5 if white == 1 else rows.clamp(0, white)
        signs = values.double().mul_(2.0).sub_(float(white))
        if share is not None:
            signs *= share[i * _ROWS :][: len(rows), None]
        total += group_sums(signs, members, k, most=float(white) if share is None else WHOLE).cpu()
    norm = total.shape[1] ** 0.5
    if share is None:
        return BoundedSum(total, norm, "signs of bits" if white == 1 else "pixels around their middle", step=1.0 / white)
    return BoundedSum(total, norm, "signs of bits", step=1.0 / WHOLE, of_unit=True)


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


class MeansPartition:
    """A partition whose clusters' means are released with it, `means` (k, d), labels that are columns included.

    Arguments:
        inner: what finds the clusters.
        noise_multiplier: noise std / sensitivity of the sums of signs.
        categories: labels that are columns of the models, 0 for none.
        white: of records that are images, see `sign_sums`.
    """

    def __init__(self, inner: Partition, *, noise_multiplier: float, categories: int, white: int = 1) -> None:
        self.inner, self.noise_multiplier, self.categories, self.white = inner, noise_multiplier, categories, white
        self.means = torch.zeros(inner.k, 0)

    @property
    def k(self) -> int:
        return self.inner.k

    @property
    def counts(self) -> Tensor:
        return self.inner.counts

    def planned(self, relation: Relation) -> tuple[Planned, ...]:
        return (*self.inner.planned(relation), Planned(gaussian_event(self.noise_multiplier), MEANS))

    @property
    def of_people(self) -> bool:
        return self.inner.of_people

    def fit(self, x: Tensor, labels: Tensor | None, *, curator: Curator, share: Tensor | None = None) -> None:
        self.inner.fit(x, labels, curator=curator, share=share)
        own = share if self.of_people else None  # means are sums over sizes: both count people, or both records
        categories = 0 if labels is None else self.categories
        columns = labels if categories else None
        cluster = self.inner.assign(x, labels)
        sums = sign_sums(x, cluster, self.k, labels=columns, categories=categories, share=own, white=self.white)
        noisy = curator.gaussian(MEANS, sums, self.noise_multiplier)
        steps = 1 if sums.of_unit else curator.rows
        self.means = estimated_means(noisy, self.counts, self.noise_multiplier * sums.sensitivity * steps)

    def assign(self, x: Tensor, labels: Tensor | None) -> Tensor:
        return self.inner.assign(x, labels)

    def state_dict(self) -> dict[str, Any]:
        return {"inner": self.inner.state_dict(), "means": self.means}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.inner.load_state_dict(state["inner"])
        self.means = state["means"]
