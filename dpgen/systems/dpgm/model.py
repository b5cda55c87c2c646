"""The released mixture: noisy weights and k component models."""

from collections.abc import Sequence
from dataclasses import asdict
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dpgen.files import under
from dpgen.nets import ModelBank
from dpgen.release import RecordLayout, draw_components
from dpgen.statement import PrivacyStatement
from dpgen.systems.dp_sgd.model import Means, NetworkModel
from dpgen.systems.dpgm.plan import BANKS

if TYPE_CHECKING:
    from dpgen.systems.kmeans.fit import DPKMeans


def component_name(bank: ModelBank) -> str:
    """The name of a bank's kind in `BANKS`."""
    own = f"{type(bank).__module__}:{type(bank).__qualname__}"
    found = next((name for name, path in BANKS.items() if path == own), None)
    if found is None:
        kinds = ", ".join(path.partition(":")[2] for path in BANKS.values())
        raise ValueError(f"bank is {type(bank).__name__}, which cannot be released; it must be one of {kinds}")
    return found


class MixtureModel(NetworkModel, kind="mixture"):
    r"""p(x) = sum_c w_c p_c(x) with w_c from noisy cluster sizes; the output of DPGM (Acs et al. 2017, Algorithm 1).

    `counts` are the noisy cluster sizes (k,), whose positive parts are the weights; a label comes from the "cluster" itself,
    the last `n_classes` "columns", or nowhere (`labelled_by`); `kmeans` is the released clustering, if there is one.
    """

    def __init__(
        self,
        bank: ModelBank,
        *,
        counts: Tensor,
        statement: PrivacyStatement,
        layout: RecordLayout | None = None,
        labelled_by: str | None = None,
        kmeans: "DPKMeans | None" = None,
    ) -> None:
        self.bank, self.counts, self.statement = bank, counts, statement
        self.labelled_by, self.kmeans = labelled_by, kmeans
        layout = layout or RecordLayout()
        self.n_classes, self.image_shape, self.grey_threshold = layout.n_classes, layout.image_shape, layout.grey_threshold
        self.columns = None if layout.columns is None else tuple(layout.columns)
        self.passes = bank.passes

    def assign(self, x: Tensor) -> Tensor | None:
        """Cluster (n,) of records (n, d) by the released k-means centres; None when clusters are labels."""
        return self.kmeans.predict(x) if self.kmeans is not None else None

    def means(self, cluster: int, n: int, generator: torch.Generator) -> Tensor:
        """Mean values (n, d) of n records of one component, label columns included."""
        return self.bank.sample(cluster, n, generator).cpu()

    def means_of(self, n: int, clusters: Sequence[int] | None, generator: torch.Generator) -> Means:
        k = self.weights.numel()
        cluster = draw_components(self.weights, n, clusters, generator).sort().values
        sizes = torch.bincount(cluster, minlength=k).tolist()
        parts = [self.means(c, size, generator) for c, size in enumerate(sizes) if size]
        mean = torch.cat(parts) if parts else torch.zeros(0, self.bank_width)
        order = torch.randperm(n, generator=generator)
        mean, cluster = mean[order], cluster[order]
        labels = self._labels(mean, cluster)
        bits = self.bank_width - (self.n_classes if self.labelled_by == "columns" else 0)
        return Means(mean[:, :bits], cluster, labels, k)

    @property
    def bank_width(self) -> int:
        """Columns of the component models, label columns included."""
        return int(self.bank.architecture()["d"])

    def _labels(self, mean: Tensor, cluster: Tensor) -> Tensor | None:
        if self.labelled_by == "cluster":
            return cluster.clone()
        if self.labelled_by == "columns":
            return mean[:, -self.n_classes :].argmax(1)
        return None

    def tensors(self) -> dict[str, Tensor]:
        clustering = self.kmeans.state_dict() if self.kmeans is not None else {}
        return {
            "counts": self.counts,
            **{f"bank.{name}": value for name, value in self.bank.state_dict().items()},
            **{f"kmeans.{name}": value.clone() for name, value in clustering.items()},
        }

    def description(self) -> dict[str, Any]:
        return {
            "component": component_name(self.bank),
            "architecture": self.bank.architecture(),
            "n_classes": self.n_classes,
            "labelled_by": self.labelled_by,
            "image_shape": self.image_shape,
            "columns": self.columns,
            "kmeans": asdict(self.kmeans.plan) if self.kmeans is not None else None,
            "grey_threshold": self.grey_threshold,
        }

    @classmethod
    def rebuild(cls, description: dict[str, Any], tensors: dict[str, Tensor], statement: PrivacyStatement) -> "MixtureModel":
        options = dict(description)
        bank = resolve_name(BANKS[options.pop("component")])(**options.pop("architecture"))
        bank.load_state_dict(under("bank", tensors))
        plan, kmeans = options.pop("kmeans"), None
        if plan is not None:
            from dpgen.systems.kmeans.fit import DPKMeans, KMeansPlan  # labels need none

            kmeans = DPKMeans(bank.k, KMeansPlan(**plan))
            kmeans.load_state_dict(under("kmeans", tensors))
        layout = RecordLayout.taken(options)
        return cls(bank, counts=tensors["counts"], statement=statement, layout=layout, kmeans=kmeans, **options)
