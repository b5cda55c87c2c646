"""Noise for a fast device: drawn by several CPU threads while the device computes the step before."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from dpgen.privacy.noise import SecureSource, require_secure

_LEAST = 2**16  # values per thread below which another thread is not worth it
_MOST_THREADS = 8


class NoiseAhead:
    r"""The next draw of :math:`N(0, \sigma^2)`, ready on the device when it is asked for; every draw is given out once.

    Each thread draws its part under its own keys from the source. A draw waits in (pinned) memory until it is used,
    at most one step, and is dropped unused after a fork, so that no two processes share it.

    Arguments:
        source: secure noise.
        device: where draws are wanted; copies to a CUDA device are not waited for.

    Example:
        >>> NoiseAhead(SecureSource(), torch.device("cpu")).draw(5, noise_std=2.0).shape
        torch.Size([5])
    """

    def __init__(self, source: SecureSource, device: torch.device) -> None:
        self.source, self.device = require_secure(source), device
        threads = max(1, min(_MOST_THREADS, (os.cpu_count() or 2) - 1))
        self._threads, self._pool = threads, ThreadPoolExecutor(threads, thread_name_prefix="noise")
        self._pid = os.getpid()
        self._ready: dict[tuple[int, float, torch.dtype], tuple[Tensor, list[Future[None]]]] = {}
        self._in_use: list[tuple[Tensor, Any]] = []

    def draw(self, n: int, *, noise_std: float, dtype: torch.dtype = torch.float32) -> Tensor:
        """n values on the device, unrounded: the sum that they are added to has to be rounded to the grid afterwards."""
        if os.getpid() != self._pid:
            raise RuntimeError("noise drawn ahead cannot be used in a forked process: make a new NoiseAhead there")
        asked = (n, noise_std, dtype)
        values, parts = self._ready.pop(asked) if asked in self._ready else self._begin(*asked)
        for part in parts:
            part.result()
        result = self._on_device(values)
        self._ready[asked] = self._begin(*asked)
        return result

    def _begin(self, n: int, noise_std: float, dtype: torch.dtype) -> tuple[Tensor, list[Future[None]]]:
        values = torch.empty(n, dtype=dtype, pin_memory=self.device.type == "cuda")
        size = max(_LEAST, -(-n // self._threads))
        return values, [self._pool.submit(self._fill, part, noise_std) for part in values.split(size)]

    def _fill(self, part: Tensor, noise_std: float) -> None:
        part.copy_(self.source.unrounded_normal(part.numel(), noise_std=noise_std, dtype=part.dtype))

    def _on_device(self, values: Tensor) -> Tensor:
        if self.device.type != "cuda":
            return values
        result = values.to(self.device, non_blocking=True)
        copied = torch.cuda.Event()
        copied.record()
        # The allocator of pinned memory must not hand the buffer out again before the copy is done.
        self._in_use = [(v, e) for v, e in self._in_use if not e.query()] + [(values, copied)]
        return result

    def close(self) -> None:
        """Stop the threads and drop what is ready."""
        self._ready.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)
