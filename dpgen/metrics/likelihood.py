"""How likely a model finds held-out records, and how much of the data lies where the model is dense, from samples."""

import math
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from dpgen.metrics.densities import dense_threshold
from dpgen.metrics.sample_pair import SamplePair


def mean_negative_log_likelihood(log_prob: Tensor) -> float:
    r"""$-\frac1n \sum_i \log q(x_i)$ in nats, infinite where the model excludes a record.

    Arguments:
        log_prob: log density or log probability of n records under the model, (n,).

    Raises:
        ValueError: no record, or a value that is NaN or +inf.

    Example:
        >>> mean_negative_log_likelihood(torch.tensor([-1.0, -2.0]))
        1.5
    """
    return -float(_log_values(log_prob, "log_prob").mean())


def sampled_mode_coverage(log_real: Tensor, log_synthetic: Tensor, *, level: float = 0.95) -> float:
    r"""Share of the real records where $q \ge t$, with the largest t that `level` of the model's own samples reach.

    The estimate from samples of `mode_coverage`, where no quadrature is possible.

    Arguments:
        log_real: the model's log density at real records, (n,); -inf where it excludes them.
        log_synthetic: the model's log density at samples of its own, (m,).
        level: in (0, 1).

    Raises:
        ValueError: no record or sample, a value that is NaN or +inf, or level outside (0, 1).

    Source: Tolstikhin et al. 2017.

    Example:
        >>> sampled_mode_coverage(torch.tensor([-1.0, -9.0]), torch.tensor([-1.0, -2.0, -3.0]))
        0.5
    """
    real, synthetic = _log_values(log_real, "log_real"), _log_values(log_synthetic, "log_synthetic")
    threshold = dense_threshold(synthetic, torch.zeros_like(synthetic), level=level)
    return float((real >= threshold).double().mean())


class NegativeLogLikelihood(Metric):
    """`mean_negative_log_likelihood` over batches of log densities (b,).

    Example:
        >>> NegativeLogLikelihood()(torch.tensor([-1.0, -2.0])).item()
        1.5
    """

    full_state_update = False
    is_differentiable = False
    higher_is_better = False
    total: Tensor
    n: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("n", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, log_prob: Tensor) -> None:
        """Take log densities (b,)."""
        self.total -= _log_values(log_prob, "log_prob").sum()
        self.n += log_prob.numel()

    def compute(self) -> Tensor:
        """Mean over all records since the last reset.

        Raises:
            ValueError: there was no record.
        """
        if int(self.n) == 0:
            raise ValueError("log_prob has no values: update the metric before it is computed")
        return self.total / self.n


class ModeCoverage(SamplePair):
    """`sampled_mode_coverage` over batches of the model's log densities at real records and at its own samples, (b,)."""

    higher_is_better = True

    def __init__(self, level: float = 0.95, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.level = level

    def _compare(self, real: Tensor, synthetic: Tensor) -> float:
        return sampled_mode_coverage(real, synthetic, level=self.level)


def _log_values(values: Tensor, name: str) -> Tensor:
    if values.ndim != 1 or len(values) == 0:
        raise ValueError(f"{name} has shape {tuple(values.shape)}: it must be (n,) with n >= 1")
    if bool(values.isnan().any()) or bool((values == math.inf).any()):
        raise ValueError(f"{name} has a value that is NaN or +inf: it must be finite or -inf")
    return values.double()
