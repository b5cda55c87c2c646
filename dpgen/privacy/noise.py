r"""The one source of private randomness: every mechanism's noise and every Poisson mask is drawn here.

**Prefix sums** get correlated noise: B x + z with :math:`z \sim N(0, \sigma^2 \Delta^2 I)`, B the square root of the
prefix-sum matrix A and :math:`\Delta` the largest :math:`\|B (x - x')\|`; A x + B z = B (B x + z) follows from it. The error of
a prefix sum has std :math:`\sigma \Delta \|row\|`, both factors about :math:`(1 + \ln(m) / \pi)^{1/2}`: better than a tree's
:math:`\log_2 m` nodes. It is exact in the private part, for no count enters a floating-point number:

1. A x is a cumulative sum of int64, exact, so neighbours differ by exactly A (x - x').
2. w = B z is computed from noise alone. Its rounding errors are part of the noise, the same for every data set.
3. What is released is A x + round(w) on a grid g, a power of two at most 1. A x is a whole multiple of g, hence
   A x + round(w) = round(A x + w) entry by entry: the post-processing of A x + B z, which is the post-processing of B x + z.

Source: Fichtenberger, Henzinger, Upadhyay 2023, Theorem 1; Henzinger, Upadhyay, Upadhyay 2023.
"""

import hashlib
import math
import operator
import os
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np
import torch
from scipy.fft import next_fast_len
from torch import Tensor

from dpgen.privacy import draws
from dpgen.privacy.draws import KEY_BYTES, Integers, Keystream, Reals
from dpgen.privacy.mechanisms import Relation, require_relation

_GRID_BITS = 10
_UNROUNDED_BITS = 40
_STD_LIMITS = (1e-20, 1e20)
_DTYPES = (torch.float32, torch.float64)
_REFUSAL = "SecureSource refuses to be copied, pickled or saved: make a new one, its keys are always fresh"


def grid_step(noise_std: float, *, bits: int = _GRID_BITS) -> float:
    r"""Step of the grid that noisy values are rounded to: the largest power of two $\le 2^{-10}\sigma$.

    >>> grid_step(1.5) == 2**-10
    True
    """
    return math.ldexp(1.0, math.frexp(noise_std)[1] - 1 - bits)


def _size(shape: tuple[int, ...]) -> int:
    sizes = [operator.index(size) for size in shape]
    if any(size < 0 for size in sizes):
        raise ValueError(f"shape must have sizes >= 0, got {shape}")
    return math.prod(sizes)


def _check_noise(noise_std: float, dtype: torch.dtype) -> None:
    low, high = _STD_LIMITS
    if not low <= noise_std <= high:
        raise ValueError(f"noise_std must be in [{low:g}, {high:g}], got {noise_std!r}")
    if dtype not in _DTYPES:
        raise ValueError(f"dtype of noisy values must be torch.float32 or torch.float64, got {dtype}")


class SecureSource:
    """Cryptographic source of noise and sampling masks: AES-256-CTR under keys of the operating system.

    Formal guarantees:
        - Every draw call takes a fresh 32-byte key from `os.urandom`, and another one every 64 MiB; keys are dropped
          after use. There is no seed and no state: nothing to replay after a fork, a resume, or on another rank.
        - Integer draws are within $2^{-128}$ (total variation, per value) of the exact distribution.
        - Real draws are a 96-bit-tailed Box-Muller in floating point. Noisy sums are rounded to multiples of
          `grid_step(noise_std)`, which is post-processing and removes the attack that recognises the true value by the
          floats that can be reached (Mironov 2012). This is a mitigation, not a proof of exactness.

    >>> source = SecureSource()
    >>> source.add_normal_(torch.zeros(2, 3), noise_std=4.0).shape
    torch.Size([2, 3])
    """

    def fresh_key(self) -> bytes:
        return os.urandom(KEY_BYTES)

    def stream(self) -> Keystream:
        return Keystream(self.fresh_key)

    def random_bytes(self, count: int) -> bytes:
        """Uniform bytes."""
        return self.stream().words(_size((count,)), np.uint8).tobytes()

    def words(self, *shape: int, bits: int = 64) -> draws.Words:
        """uint64 whole numbers, uniform in [0, 2^bits), bits in [1, 64]."""
        if not 1 <= bits <= 64:
            raise ValueError(f"bits is {bits!r}; it must be in [1, 64]")
        words = np.frombuffer(self.random_bytes(8 * _size(shape)), np.uint64)
        return (words >> np.uint64(64 - bits)).reshape(shape)

    def uniform(self, *shape: int) -> Tensor:
        """float64 uniforms strictly inside (0, 1): $(w + 1/2) 2^{-52}$ with 52 random bits w."""
        words = self.stream().words(_size(shape), np.uint64)
        return torch.from_numpy(((words >> np.uint64(12)) + 0.5) * 2.0**-52).reshape(shape)

    def normal(self, *shape: int, noise_std: float = 1.0, dtype: torch.dtype = torch.float32) -> Tensor:
        r"""$N(0, \sigma^2)$ rounded to the grid; of private values only rounding the *sum* is post-processing."""
        return self._normal(shape, noise_std, dtype, _GRID_BITS)

    def unrounded_normal(self, *shape: int, noise_std: float = 1.0, dtype: torch.dtype = torch.float32) -> Tensor:
        r"""$N(0, \sigma^2)$ as finely as the type holds it, for sums that are rounded to the grid after adding it."""
        return self._normal(shape, noise_std, dtype, _UNROUNDED_BITS)

    def normal_on(self, device: torch.device, n: int, *, noise_std: float, dtype: torch.dtype = torch.float32) -> Tensor:
        """`unrounded_normal` (n,) on a device, for sums there."""
        return to_device(self.unrounded_normal(n, noise_std=noise_std, dtype=dtype), device)

    def _normal(self, shape: tuple[int, ...], noise_std: float, dtype: torch.dtype, bits: int) -> Tensor:
        _check_noise(noise_std, dtype)
        values = torch.zeros(_size(shape), dtype=dtype)
        draws.add_normal(self.stream(), values.numpy(), noise_std=noise_std, grid=grid_step(noise_std, bits=bits))
        return values.reshape(shape)

    @torch.no_grad()
    def add_normal_(self, values: Tensor, *, noise_std: float, factor: Tensor | None = None) -> Tensor:
        r"""Release values in place: v becomes $g$ round$((v + N(0, \sigma^2)) / g)$ with $g$ = `grid_step(noise_std)`.

        Values are float32 or float64, and finite (else ValueError). Draw, addition and rounding are one pass over contiguous
        CPU memory; elsewhere the noise is drawn on the CPU and copied. Row i of the released values (k, ...) is multiplied by
        entry i of `factor` (k,), public.
        """
        _check_noise(noise_std, values.dtype)
        grid = grid_step(noise_std)
        if values.device.type == "cpu" and values.is_contiguous():
            flat = values.detach().reshape(1 if factor is None else len(factor), -1).numpy()
            factors = [1.0] if factor is None else factor.tolist()
            stream = self.stream()
            finite = True
            for row, f in zip(flat, factors, strict=True):
                finite &= draws.add_normal(stream, row, noise_std=noise_std, grid=grid, factor=f)
        else:
            # Rounding the noise before the addition would make the rounding of the values part of the query.
            noise = self.normal_on(values.device, values.numel(), noise_std=noise_std, dtype=values.dtype)
            values.add_(noise.view(values.shape)).div_(grid).round_().mul_(grid)
            finite = bool(values.isfinite().all())
            multiply_rows_(values, factor)
        if not finite:
            raise ValueError("values must be finite before noise is added, got NaN or infinite entries")
        return values

    def rounded_normal(self, *shape: int, noise_std: float) -> Tensor:
        r"""int64 round$(N(0, \sigma^2))$, exactly; integer queries keep the Gaussian mechanism's accounting."""
        return torch.from_numpy(draws.rounded_normal(self.stream(), _size(shape), noise_std=noise_std)).reshape(shape)

    def discrete_laplace(self, *shape: int, scale: float) -> Tensor:
        r"""int64 $P(k) \propto e^{-|k| / s}$, exactly; at sensitivity 1, scale 1/epsilon is epsilon-private."""
        return torch.from_numpy(draws.discrete_laplace(self.stream(), _size(shape), scale=scale)).reshape(shape)

    def bernoulli_indices(self, n: int, *, probability: float) -> Tensor:
        """Poisson-sample records: increasing indices of successes in n independent Bernoulli(p) trials, exact to $2^{-80}$."""
        if not 0 <= probability <= 1:
            raise ValueError(f"probability must be in [0, 1], got {probability!r}")
        indices = draws.bernoulli_indices(self.stream(), _size((n,)), probability=float(probability))
        return torch.from_numpy(indices)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(_REFUSAL)

    def state_dict(self) -> NoReturn:
        """Refuse: noise must never be replayed."""
        raise TypeError(_REFUSAL)


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Values of the CPU on the device, without waiting for it."""
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values.to(device)


def place(values: Tensor, device: torch.device) -> Tensor:
    """Values where `device` is, moved only if they are elsewhere."""
    return values if values.device.type == device.type else to_device(values.cpu(), device)


def multiply_rows_(values: Tensor, factor: Tensor | None) -> Tensor:
    """Row i of values (k, ...) times entry i of factor (k,), in place; None changes nothing."""
    return values if factor is None else values.mul_(factor.to(values).reshape(-1, *[1] * (values.dim() - 1)))


class PublicRandomness:
    """Seeded randomness for what is public: initial weights, features, splits. Mechanisms refuse it.

    Streams of different seeds, any integers, and names are independent.

    >>> torch.randn(3, generator=PublicRandomness(0).spawn("weights").generator).shape
    torch.Size([3])
    """

    def __init__(self, seed: int) -> None:
        self.seed = operator.index(seed)
        # torch keeps 32 bits of a seed, so hashing it is what separates seeds that agree in their low bits.
        digest = hashlib.sha256(str(self.seed).encode()).digest()
        self.generator = torch.Generator().manual_seed(int.from_bytes(digest[:4], "big"))

    def spawn(self, name: str) -> "PublicRandomness":
        """An independent stream, the same for the same seed and name."""
        digest = hashlib.sha256(f"{self.seed}/{name}".encode()).digest()
        return PublicRandomness(int.from_bytes(digest, "big"))


def require_secure(source: object) -> SecureSource:
    """The source if it may make private noise; TypeError for anything but a `SecureSource`."""
    if isinstance(source, SecureSource):
        return source
    raise TypeError(
        f"source must be a SecureSource, got {type(source).__name__}: seeded randomness can be replayed and gives no "
        "privacy; pass dpgen.privacy.noise.SecureSource()"
    )


# -- prefix sums -------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=16)
def square_root_factor(m: int) -> Reals:
    r"""First column f (m,) of the lower triangular Toeplitz matrix B with B B = A, the matrix of prefix sums.

    .. math:: f_0 = 1, \qquad f_k = f_{k-1} \frac{2k - 1}{2k}, \qquad \textstyle\sum_k f_k z^k = (1 - z)^{-1/2}

    >>> square_root_factor(3).tolist()
    [1.0, 0.5, 0.375]
    """
    if m < 1:
        raise ValueError(f"m is {m!r}; it must be at least 1")
    k = np.arange(1, m)
    factor = np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))])
    factor.setflags(write=False)
    return factor


@lru_cache(maxsize=64)
def prefix_sensitivity(m: int, relation: Relation) -> float:
    r"""L2 distance by which one record moves B x, x (m,) being counts of disjoint cells.

    Add/remove moves one cell by 1: the longest column, squared :math:`\sum_k f_k^2`. Replace-one moves it d cells on, or out
    of a last cell that is left out because n is public: squared, the larger of that and
    :math:`\max_d \sum_{k<d} f_k^2 + \sum_{k<m-d} (f_k - f_{k+d})^2`, all d at once by one autocorrelation.

    >>> round(prefix_sensitivity(2, "add_remove") ** 2, 6), round(prefix_sensitivity(2, "replace_one") ** 2, 6)
    (1.25, 1.25)
    """
    factor = square_root_factor(m)
    total = float(factor @ factor)
    if require_relation(relation) == "add_remove":
        return math.sqrt(total) * (1 + 1e-9)  # never below the exact value for its rounding
    head = np.concatenate([[0.0], np.cumsum(factor**2)])  # head[d] = sum of the first d squares
    spectrum = np.fft.rfft(factor, 2 * m)
    lagged = np.fft.irfft(spectrum * spectrum.conj(), 2 * m)[: m + 1]
    lags = np.arange(1, m + 1)
    squared = head[lags] + head[m - lags] + (total - head[lags]) - 2 * lagged[lags]
    return math.sqrt(max(total, float(squared.max()))) * (1 + 1e-9)


def toeplitz_product(factor: Reals, x: Reals) -> Reals:
    """The lower triangular Toeplitz matrix with first column `factor` (m,), times x (m,), by FFT; for noise, not for counts.

    >>> toeplitz_product(np.array([1.0, 1.0, 1.0]), np.array([1.0, 2.0, 3.0])).round(9).tolist()
    [1.0, 3.0, 6.0]
    """
    size = next_fast_len(2 * len(x), real=True)
    return np.fft.irfft(np.fft.rfft(factor, size) * np.fft.rfft(x, size), size)[: len(x)]


def noisy_prefix_sums(
    cells: Integers, *, noise_multiplier: float, relation: Relation, source: SecureSource
) -> tuple[Reals, Reals]:
    """Prefix sums (m,) of int64 counts of disjoint cells with the privacy of one Gaussian, and their noise variances (m,).

    The ledger must have been charged before. `noise_multiplier` is noise std / L2 sensitivity under `relation` itself; under
    replace_one the last cell of all may be left out when n is public.
    """
    source, m = require_secure(source), len(cells)
    factor = square_root_factor(m)
    std = noise_multiplier * prefix_sensitivity(m, relation)
    noise = toeplitz_product(factor, source.unrounded_normal(m, noise_std=std, dtype=torch.float64).numpy())
    grid = min(1.0, grid_step(std))
    released = np.cumsum(cells) * int(1 / grid) + np.rint(noise / grid).astype(np.int64)
    return np.asarray(released * grid, np.float64), std**2 * np.cumsum(factor**2)


# -- noise drawn on an accelerator -------------------------------------------------------------------------------------


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
    r"""A `SecureSource` whose real noise on accelerators is drawn there: Philox4x32-10, in PyTorch's whole numbers.

    A draw has a key of its own of 160 bits of the operating system: the two key words, and three of the four counter words;
    the fourth counts blocks. Each block gives four 32-bit words, and a pair of normals :math:`R \cos\theta, R \sin\theta` with
    :math:`R^2 = -2 \ln U` (Box and Muller 1958), 64 bits for U and for :math:`\theta`, so that R reaches 9.4.

    **What is assumed.** Philox passes tests of randomness and is no cipher: no reduction says that nobody tells its words
    from chance. AES on the host is the default, and statements declare this source (`Fact.DEVICE_NOISE`). Masks, integer
    noise and whatever runs on a CPU stay with AES.

    Source: Salmon, Moraes, Dror, Shaw 2011.

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
