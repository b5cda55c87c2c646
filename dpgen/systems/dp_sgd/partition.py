"""Partition of the records into the clusters whose models are trained: by label, or all in one."""

from typing import Any, Protocol

import torch
from torch import Tensor

from dpgen.privacy.accountants import Relation
from dpgen.privacy.curator import Curator
from dpgen.privacy.exact_sums import CHUNK, shared_sizes, size_sums
from dpgen.privacy.ledger import Planned
from dpgen.privacy.mechanisms import count_event
from dpgen.privacy.sampling import one_group

SIZES = "cluster sizes"
"""Note of the sizes of clusters that labels make."""


class Partition(Protocol):
    """Divides records into k clusters by a rule whose parameters are released values; `counts` (k,) are noisy sizes."""

    @property
    def k(self) -> int: ...
    @property
    def counts(self) -> Tensor: ...

    def planned(self, relation: Relation) -> tuple[Planned, ...]:
        """Releases of `fit`, as a ledger of this relation declares them."""

    @property
    def of_people(self) -> bool:
        """Whether sizes count people, where these have several records: all records of a person for one."""

    def fit(self, x: Tensor, labels: Tensor | None, *, curator: Curator, share: Tensor | None = None) -> None:
        """Release what the rule needs, each release charged first; `share` (n,) is what each record has of its person."""

    def assign(self, x: Tensor, labels: Tensor | None) -> Tensor:
        """Cluster (n,) of every record: private, a function of that record and of released values."""

    def state_dict(self) -> dict[str, Any]:
        """Released values."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of `state_dict`."""


class LabelPartition:
    r"""Cluster = label (or one cluster for everything, when `labelled` is false).

    Labels are part of a record, so the cluster sizes are released like any other count:
    :math:`\tilde n_c = n_c + N(0, \sigma_n^2)`, rounded to integers; sensitivity 1, for a record is in one cluster, and
    sqrt 2 for a replaced one, which may change clusters.
    """

    of_people = True

    def __init__(self, k: int, *, noise_count: float, labelled: bool = True) -> None:
        self.k, self.noise_count, self.labelled = k, noise_count, labelled
        self.counts = torch.zeros(k)

    def planned(self, relation: Relation) -> tuple[Planned, ...]:
        return (Planned(count_event(self.noise_count, relation), SIZES),)

    def fit(self, x: Tensor, labels: Tensor | None, *, curator: Curator, share: Tensor | None = None) -> None:
        group = self.assign(x, labels)
        sizes = size_sums(group.split(CHUNK), self.k) if share is None else shared_sizes(group, self.k, share)
        self.counts = curator.gaussian(SIZES, sizes, self.noise_count).to(torch.float32)

    def assign(self, x: Tensor, labels: Tensor | None) -> Tensor:
        if not self.labelled:
            return one_group(x.shape[0])
        if labels is None:
            raise ValueError("clusters='labels' needs labelled records; use clusters='kmeans' or 'none'")
        if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < self.k:
            raise ValueError(
                f"labels must be in [0, {self.k}) with clusters='labels' and k={self.k}, got "
                f"[{int(labels.min())}, {int(labels.max())}]"
            )
        return labels.to(torch.int64)

    def state_dict(self) -> dict[str, Any]:
        return {"counts": self.counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.counts = state["counts"]
