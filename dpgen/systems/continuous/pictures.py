"""Densities in TensorBoard: only for synthetic targets, or where logs of private data were asked for."""

from __future__ import annotations

import torch
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from torch import Tensor

from dpgen.systems.continuous.laws import Law

_PIXELS = 128
_MARGIN = 4.5  # scales of the reference around its location


def density_picture(law: Law) -> Tensor | None:
    """The law's density on a window around the reference, (1, 128, 128) in [0, 1], dark is dense; None above 2 dimensions.

    In one dimension the picture is the graph's area.
    """
    reference = law.reference
    if reference.d > 2:
        return None
    ticks = torch.linspace(-_MARGIN, _MARGIN, _PIXELS, dtype=torch.float64)
    grid = torch.cartesian_prod(*[ticks] * reference.d).reshape(-1, reference.d)
    x = reference.location + reference.scale * grid
    density = (reference.log_prob(x) + law.log_ratio(x)).exp()
    density = density / density.max()
    if reference.d == 1:
        picture = (density[None] < ticks.flip(0)[:, None] / (2 * _MARGIN) + 0.5).to(torch.float64)
    else:
        picture = 1 - density.reshape(_PIXELS, _PIXELS).T.flip(0)
    return picture[None]


def write_density(logger: Logger, law: Law, test_x: Tensor, *, step: int = 0) -> None:
    """Picture and mean negative log-likelihood (nats) at points of evaluation (n, d)."""
    picture = density_picture(law)
    if picture is not None and isinstance(logger, TensorBoardLogger):
        logger.experiment.add_image("private/density", picture, step)
    nll = -(law.reference.log_prob(test_x) + law.log_ratio(test_x)).mean()
    logger.log_metrics({"private/nll": float(nll)}, step)
