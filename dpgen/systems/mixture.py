"""The released mixture: noisy weights and k component models."""

import secrets
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dpgen.nets import BANKS, ModelBank
from dpgen.release import PrivacyStatement, PublicModel, Rounding, Samples, round_bits


class MixtureModel(PublicModel, kind="mixture"):
    r"""p(x) = sum_c w_c p_c(x) with w_c from noisy cluster sizes; the output of DPGM (Acs et al. 2017, Algorithm 1).

    Arguments:
        bank: the k component models.
        component: its name in `BANKS`.
        counts: noisy cluster sizes (k,); weights are the positive parts, normalised.
        statement: what the model cost.
        n_classes: labels that the model can give, 0 for none.
        labelled_by: where a label comes from: the "cluster" itself, the last `n_classes` "columns", or None.
        image_shape: (height, width) for pictures, if records are images.
        columns: names of the record's columns.
    """

    def __init__(
        self,
        bank: ModelBank,
        *,
        component: str,
        counts: Tensor,
        statement: PrivacyStatement,
        n_classes: int = 0,
        labelled_by: str | None = None,
        image_shape: tuple[int, int] | None = None,
        columns: Sequence[str] | None = None,
    ) -> None:
        self.bank, self.component, self.counts, self.statement = bank, component, counts, statement
        self.n_classes, self.labelled_by, self.image_shape = n_classes, labelled_by, image_shape
        self.columns = tuple(columns) if columns is not None else None

    @property
    def weights(self) -> Tensor:
        """Mixture weights (k,), summing to 1."""
        positive = self.counts.clamp_min(0.0)
        total = positive.sum()
        return positive / total if total > 0 else torch.full_like(positive, 1.0 / positive.numel())

    def means(self, cluster: int, n: int, generator: torch.Generator) -> Tensor:
        """Mean values (n, d) of n records of one component, label columns included."""
        return self.bank.sample(cluster, n, generator).cpu()

    def sample(
        self,
        n: int,
        *,
        seed: int | None = None,
        clusters: Sequence[int] | None = None,
        rounding: Rounding = "bernoulli",
    ) -> Samples:
        if n < 0:
            raise ValueError(f"n must be at least 0, got {n}")
        k = self.weights.numel()
        chosen = list(range(k)) if clusters is None else list(clusters)
        if not chosen or not all(0 <= c < k for c in chosen):
            raise ValueError(f"clusters must be a non-empty list of numbers in [0, {k}), got {chosen}")
        generator = torch.Generator().manual_seed(secrets.randbits(31) if seed is None else seed)
        weights = torch.zeros(k).index_put_((torch.tensor(chosen),), self.weights[chosen] + 1e-12)
        cluster = torch.multinomial(weights, n, replacement=True, generator=generator).sort().values if n else torch.zeros(0, dtype=torch.int64)
        sizes = torch.bincount(cluster, minlength=k).tolist()
        mean = torch.cat([self.means(c, size, generator) for c, size in enumerate(sizes) if size] or [torch.zeros(0, self.bank_width)])
        order = torch.randperm(n, generator=generator)
        mean, cluster = mean[order], cluster[order]
        labels = self._labels(mean, cluster, generator)
        bits = self.bank_width - (self.n_classes if self.labelled_by == "columns" else 0)
        return Samples(x=round_bits(mean[:, :bits], rounding, generator), cluster=cluster, labels=labels, columns=self.columns)

    @property
    def bank_width(self) -> int:
        """Columns of the component models, label columns included."""
        return int(self.bank.architecture()["d"])

    def _labels(self, mean: Tensor, cluster: Tensor, generator: torch.Generator) -> Tensor | None:
        if self.labelled_by == "cluster":
            return cluster.clone()
        if self.labelled_by == "columns":
            return mean[:, -self.n_classes :].argmax(1)
        return None

    def tensors(self) -> dict[str, Tensor]:
        return {"counts": self.counts, **self.bank.state_dict()}

    def description(self) -> dict[str, Any]:
        return {
            "component": self.component,
            "architecture": self.bank.architecture(),
            "n_classes": self.n_classes,
            "labelled_by": self.labelled_by,
            "image_shape": self.image_shape,
            "columns": self.columns,
        }

    @classmethod
    def rebuild(
        cls, description: dict[str, Any], tensors: dict[str, Tensor], statement: PrivacyStatement
    ) -> "MixtureModel":
        bank = BANKS[description["component"]](**description.pop("architecture"))
        counts = tensors.pop("counts")
        bank.load_state_dict(tensors)
        shape = description.pop("image_shape")
        return cls(bank, counts=counts, statement=statement, image_shape=tuple(shape) if shape else None, **description)
