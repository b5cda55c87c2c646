"""What every metric of real beside synthetic samples shares: it keeps both, batch by batch, and compares them in the end."""

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric


class SamplePair(Metric):
    """A metric of two samples, which may come in batches of any sizes, together or one without the other.

    Arguments:
        kwargs: of `torchmetrics.Metric`.

    Raises:
        ValueError: when computed without a real or without a synthetic sample.
    """

    full_state_update = False
    is_differentiable = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("real", default=[], dist_reduce_fx="cat")
        self.add_state("synthetic", default=[], dist_reduce_fx="cat")

    def update(self, real: Tensor | None = None, synthetic: Tensor | None = None) -> None:
        """Take a batch of either sample or of both, first dimension b."""
        for name, batch in (("real", real), ("synthetic", synthetic)):
            if batch is not None:
                getattr(self, name).append(batch.detach())

    def compute(self) -> Any:
        """The metric of all samples since the last reset: float64, or a dictionary of them."""
        found = self._compare(self._all("real"), self._all("synthetic"))
        if isinstance(found, dict):
            return {name: self._scalar(value) for name, value in found.items()}
        return self._scalar(found)

    def _scalar(self, value: float) -> Tensor:
        return torch.tensor(value, dtype=torch.float64, device=self.device)

    def _all(self, name: str) -> Tensor:
        batches: Tensor | list[Tensor] = getattr(self, name)
        if isinstance(batches, Tensor):  # gathered from several processes
            return batches
        if not batches:
            raise ValueError(f"{name} has no samples: update the metric with both before it is computed")
        return torch.cat(batches)

    @abstractmethod
    def _compare(self, real: Tensor, synthetic: Tensor) -> float | dict[str, float]:
        """The pure function behind the metric."""
