"""The noise of a sum over several processes: every coordinate gets it once, from the process that owns it."""

import torch
from torch import Tensor

from dpgen.privacy.noise import SecureSource, grid_step, multiply_rows_
from dpgen.privacy.noise_ahead import NoiseAhead
from dpgen.privacy.ranks import Ranks


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Values of the CPU on the device, without waiting for it."""
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values.to(device)


def place(values: Tensor, device: torch.device) -> Tensor:
    """Values where `device` is, moved only if they are elsewhere."""
    return values if values.device.type == device.type else to_device(values.cpu(), device)


@torch.no_grad()
def release_sum_(
    sums: Tensor,
    *,
    noise_std: float,
    source: SecureSource,
    ranks: Ranks,
    ahead: NoiseAhead | None = None,
    factor: Tensor | None = None,
) -> Tensor:
    r"""Replace `sums` by :math:`g\,\text{round}((\sum_r S_r + N(0, \sigma^2)) / g)`, the same bits on every rank.

    Coordinates are split into one block per rank; a rank adds the whole noise of its block to its own sums, unrounded,
    and the sums of all ranks are added. So each coordinate carries exactly one draw of std sigma, drawing it takes
    1 / ranks of the time, and only the noisy total is ever used. Noise on every rank would have std
    :math:`\sqrt W \sigma`; noise divided by the number of ranks W, :math:`\sigma / W` or :math:`\sigma / \sqrt W`.

    Rounding to the grid comes last, as in `SecureSource.add_normal_`: rounding before the ranks are added would be part
    of the query.

    Arguments:
        sums: this rank's sums, contiguous, float32 or float64; overwritten.
        noise_std: sigma, in the units of the sums.
        source: secure noise of this process.
        ranks: the processes; one alone adds all of the noise.
        ahead: noise drawn ahead for a device, which is then never waited for.
        factor: (k,), public: what the k rows of the released values are multiplied by.

    Raises:
        ValueError: values that are not finite, or noise out of range. (On a CUDA device without waiting for it: the
            device itself stops with an assertion.)
    """
    if ranks.count == 1 and sums.device.type == "cpu":
        return source.add_normal_(sums, noise_std=noise_std, factor=factor)
    flat = sums.view(-1)
    block = flat[ranks.block(flat.numel())]
    if ahead is not None:
        block.add_(ahead.draw(block.numel(), noise_std=noise_std, dtype=sums.dtype))
    else:
        noise = source.unrounded_normal(block.numel(), noise_std=noise_std, dtype=sums.dtype)
        block.add_(to_device(noise, sums.device))
    ranks.sum_(flat)
    grid = grid_step(noise_std)
    flat.div_(grid).round_().mul_(grid)
    _require_finite(flat)
    return multiply_rows_(sums, factor)


def _require_finite(values: Tensor) -> None:
    text = "values must be finite before noise is added, got NaN or infinite entries"
    if values.device.type == "cpu":
        if not bool(values.isfinite().all()):
            raise ValueError(text)
    else:
        torch._assert_async(values.isfinite().all(), text)
