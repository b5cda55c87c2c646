r"""Normal noise drawn on an accelerator: Philox4x32-10, a counter-based generator, in PyTorch's whole numbers.

A draw has a key of its own of 160 bits of the operating system: the two key words, and three of the four counter words; the
fourth counts blocks. Each block gives four 32-bit words, and a pair of normals :math:`R \cos\theta, R \sin\theta` with
:math:`R^2 = -2 \ln U` (Box and Muller 1958), 64 bits for U and for :math:`\theta`, so that R reaches 9.4.

**What is assumed.** Philox passes tests of randomness and is no cipher: no reduction says that nobody tells its words from
chance. AES on the host is the default, and statements declare this source (`Fact.DEVICE_NOISE`). Masks, integer noise and
whatever runs on a CPU stay with AES.

Source: Salmon, Moraes, Dror, Shaw 2011.
"""

import math
import os

import torch
from torch import Tensor

from dpgen.privacy.noise import SecureSource

_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_BUMPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def philox(counter: tuple[Tensor | int, ...], key: tuple[int, int]) -> tuple[Tensor, ...]:
    """Four words (n,), int64 in [0, 2^32), of counters of four words, the first (n,), and a key of two.

    >>> [hex(int(word)) for word in philox((torch.zeros(1, dtype=torch.int64), 0, 0, 0), (0, 0))]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    a, b, c, d = counter
    j, k = key
    for _ in range(_ROUNDS):
        one, two = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]  # of tensors modulo 2^64, whose upper half the mask restores
        a, b, c, d = two >> 32 & _WORD ^ b ^ j, two & _WORD, one >> 32 & _WORD ^ d ^ k, one & _WORD
        j, k = j + _BUMPS[0] & _WORD, k + _BUMPS[1] & _WORD
    return a, b, c, d  # type: ignore[return-value]


class DeviceSource(SecureSource):
    """A `SecureSource` whose real noise on accelerators comes from `philox` there; see the module for what that assumes.

    >>> DeviceSource().normal_on(torch.device("meta"), 5, noise_std=2.0).shape
    torch.Size([5])
    """

    def normal_on(self, device: torch.device, n: int, *, noise_std: float, dtype: torch.dtype = torch.float32) -> Tensor:
        if device.type == "cpu":
            return super().normal_on(device, n, noise_std=noise_std, dtype=dtype)
        return device_normal(device, n).mul_(noise_std).to(dtype)


def device_normal(device: torch.device, n: int) -> Tensor:
    """n standard normals, float64, under a fresh key; at most 2^33, on one that counts up."""
    words = [int.from_bytes(os.urandom(4), "big") for _ in range(5)]
    blocks = torch.arange(-(-n // 2), device=device)
    a, b, c, d = philox((blocks, *words[:3]), (words[3], words[4]))
    uniform, turn = (((high * 2.0**32 + low) + 0.5) * 2.0**-64 for high, low in ((a.double(), b), (c.double(), d)))
    radius, angle = (-2.0 * uniform.clamp_max(1.0 - 2.0**-53).log()).sqrt_(), turn * (2.0 * math.pi)
    return torch.cat([radius * angle.cos(), radius * angle.sin()])[:n]
