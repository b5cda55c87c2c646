"""Synthetic images with grey values beside their bits."""

import io
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from dpgen.release import Samples


@dataclass(frozen=True, kw_only=True)
class GreySamples(Samples):
    """Samples whose grey values (n, d), uint8 in [0, 255], are there too; `x` are the bits.

    Only .npz keeps the grey values; tables hold the bits.
    """

    grey: Tensor

    def _npz(self) -> bytes:
        buffer = io.BytesIO(super()._npz())
        with np.load(buffer) as stored:
            arrays = {name: stored[name] for name in stored.files}
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays, grey=self.grey.numpy())
        return buffer.getvalue()
