r"""Key streams of AES-256 in counter mode, under all secure randomness, and normal noise made from them.

Every draw has a key of its own, which is dropped afterwards. Normal noise is made at the speed of memory: Box-Muller
on cipher words, added and rounded to a grid in one pass. A pair of standard normals is $R\cos\theta, R\sin\theta$
with $R^2 = -2\ln U$ (Box and Muller, 1958). The angle takes 32 bits. U takes 32 bits, and 96 where these 32 say $U <
2^{-12}$: so $R$ has full float precision far out and reaches 11.6, where a 32-bit uniform stops at 6.7 and a 24-bit
one at 5.8.
"""

import math
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext


KEY_BYTES = 32
REKEY_BYTES = 64 * 2**20
_ZEROS = bytes(2**18)


class SecureBackendError(RuntimeError):
    """Raised when secure randomness cannot be had; there is no insecure fallback."""


def require_backend() -> None:
    """Import what secure randomness stands on, the packages `cryptography` and `numba`.

    Raises:
        SecureBackendError: one of them is missing or cannot work here.
    """
    for module in ("cryptography.hazmat.primitives.ciphers", "dpgen.privacy.normal"):
        try:
            import_module(module)
        except (ImportError, RuntimeError) as error:
            raise SecureBackendError(
                f"secure noise needs the packages cryptography and numba, which do not work here ({error}): install "
                "both, and let numba write its cache (NUMBA_CACHE_DIR); there is no insecure fallback"
            ) from error


def aes_ctr(key: bytes, counter: bytes = bytes(16)) -> "CipherContext":
    """AES-256-CTR encryptor starting at the given 16-byte counter block (NIST SP 800-38A, 6.5).

    Encrypting zeros gives the keystream $E_K(c), E_K(c + 1), ...$

    Example:
        >>> aes_ctr(bytes(32)).update(bytes(4)).hex()
        'dc95c078'
    """
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    return Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor()


class Keystream:
    """Key stream of one draw: a fresh key at the start and after every 64 MiB, each dropped when the next one comes.

    Forward secrecy: whoever reads the memory later finds no key that produced earlier noise. Not for sharing
    between threads; every draw builds its own.

    Arguments:
        fresh_key: returns a new 32-byte key at each call.

    Example:
        >>> import os
        >>> Keystream(lambda: os.urandom(32)).words(3, np.uint64).shape
        (3,)
    """

    def __init__(self, fresh_key: Callable[[], bytes]) -> None:
        self._fresh_key = fresh_key
        self._left = 0

    def fill(self, words: npt.NDArray[Any]) -> None:
        """Overwrite a contiguous array with key stream."""
        target = words.reshape(-1).view(np.uint8)
        start = 0
        while start < target.size:
            if self._left == 0:
                self._cipher, self._left = aes_ctr(self._fresh_key()), REKEY_BYTES
            count = min(target.size - start, self._left, len(_ZEROS))
            self._cipher.update_into(memoryview(_ZEROS)[:count], target[start : start + count].data)
            self._left -= count
            start += count

    def words(self, count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return `count` independent uniform words of an unsigned integer type, shape `(count,)`."""
        words = np.empty(count, dtype)
        self.fill(words)
        return words


Words = npt.NDArray[np.unsignedinteger]
Reals = npt.NDArray[np.floating]

PAIRS = 512  # normals are made in blocks of 512 radius words and 512 angle words
BLOCK = 2 * PAIRS
CHUNK = 64 * BLOCK  # 256 KiB of key stream at a time, to stay inside the second-level cache
TAIL = np.uint32(2**20)
_SIGN, _SWAP, _TWO = np.uint32(2**31), np.uint32(2**30), np.uint32(2)
_SQRT_HALF = np.int32(0x3F3504F3)  # the bits of 1/sqrt(2) as float32
_MANTISSA = np.int32(23)
_UNIT, _ONE, _FOUR = np.float32(2.0**-32), np.float32(1), np.float32(4)
_TWO_LN2 = np.float32(2 * math.log(2))
_ATANH = tuple(np.float32(1 / k) for k in (3, 5, 7, 9))
_SIN = tuple(np.float32(c) for c in (-1 / 6, 1 / 120, -1 / 5040, 1 / 362880))
_COS = tuple(np.float32(c) for c in (-1 / 2, 1 / 24, -1 / 720, 1 / 40320))
_ANGLE = np.float32(math.pi / 4 * 2.0**-31)

_compile = numba.njit(nogil=True, cache=True, fastmath={"contract"}, error_model="numpy")
_inline = numba.njit(inline="always", fastmath={"contract"}, error_model="numpy")


@_inline
def _squared_radius(word: np.uint32) -> np.float32:
    r"""$-2\ln(w 2^{-32})$, from $u = 2^e m$ with m in $[1/\sqrt2, \sqrt2)$ and $\ln m$ = 2 atanh((m - 1) / (m + 1))."""
    bits = np.float32(np.float32(word) * _UNIT).view(np.int32)
    exponent = np.int32(np.int32(bits - _SQRT_HALF) >> _MANTISSA)
    m = np.int32(bits - np.int32(exponent << _MANTISSA)).view(np.float32)
    s = (m - _ONE) / (m + _ONE)
    q = s * s
    series = _ONE + q * (_ATANH[0] + q * (_ATANH[1] + q * (_ATANH[2] + q * _ATANH[3])))
    return -_FOUR * s * series - _TWO_LN2 * np.float32(exponent)


@_inline
def _block_of_normals(radius_words: Words, angle_words: Words, extension: Words, used: int, z: Reals) -> int:
    """Fill z with `2 * PAIRS` normals; return how many extension words are used up afterwards."""
    tails = np.uint32(0)
    for i in range(PAIRS):
        z[i] = math.sqrt(_squared_radius(radius_words[i]))
        tails = np.uint32(tails + np.uint32(radius_words[i] < TAIL))
    if tails:
        for i in range(PAIRS):
            if radius_words[i] < TAIL:
                u = (np.float64(radius_words[i]) * 2.0**64 + np.float64(extension[used]) + 0.5) * 2.0**-96
                z[i] = math.sqrt(-2.0 * math.log(u))
                used += 1
    # The angle is uniform in [-pi/4, pi/4); one more bit mirrors it at the y axis, one swaps x and y.
    for i in range(PAIRS):
        word = angle_words[i]
        t = np.float32(np.int32(np.uint32(word << _TWO))) * _ANGLE
        q = t * t
        sine = t * (_ONE + q * (_SIN[0] + q * (_SIN[1] + q * (_SIN[2] + q * _SIN[3])))) * z[i]
        radius = np.uint32(np.float32(z[i]).view(np.uint32) ^ np.uint32(word & _SIGN)).view(np.float32)
        cosine = (_ONE + q * (_COS[0] + q * (_COS[1] + q * (_COS[2] + q * _COS[3])))) * radius
        swap = (word & _SWAP) != 0
        z[i] = sine if swap else cosine
        z[i + PAIRS] = cosine if swap else sine
    return used


@_compile
def count_tails(words: Words) -> int:
    """Number of radius words that need an extension word."""
    total = 0
    for start in range(0, words.size, BLOCK):
        radius_words = words[start : start + PAIRS]
        tails = np.uint32(0)
        for i in range(PAIRS):
            tails = np.uint32(tails + np.uint32(radius_words[i] < TAIL))
        total += int(tails)
    return total


@_compile
def add_block_normals(
    values: Reals, words: Words, extension: Words, noise_std: np.floating, grid: np.floating, per_grid: np.floating
) -> int:
    r"""Replace v by $g\,\mathrm{round}((v + \sigma z) / g)$, the last g times a factor; return how many are not finite."""
    z = np.empty(BLOCK, np.float32)
    used = 0
    broken = 0
    for start in range(0, values.size, BLOCK):
        used = _block_of_normals(words[start : start + PAIRS], words[start + PAIRS : start + BLOCK], extension, used, z)
        count = min(BLOCK, values.size - start)
        out = values[start : start + count]
        not_finite = np.uint32(0)
        for i in range(count):
            v = np.rint((out[i] + noise_std * z[i]) * per_grid) * grid
            out[i] = v
            not_finite = np.uint32(not_finite + np.uint32(not (abs(v) < np.inf)))
        broken += int(not_finite)
    return broken


def add_normal(stream: Keystream, values: Reals, *, noise_std: float, grid: float, factor: float = 1.0) -> bool:
    r"""Add $N(0, \sigma^2)$ to every value, round the sum to multiples of the grid and multiply by a factor, in place.

    Arguments:
        stream: key stream of this draw.
        values: `(n,)`, contiguous, float32 or float64.
        noise_std: in data units; rounded up where the type of the values cannot hold it.
        grid: power of two, in data units.
        factor: public; it comes last.

    Returns:
        True when every result is finite.
    """
    kind = values.dtype.type
    std = kind(noise_std)
    if float(std) < noise_std:
        std = np.nextafter(std, kind(np.inf))
    buffer = np.empty(min(CHUNK, -(-values.size // BLOCK) * BLOCK), np.uint32)
    broken = 0
    for start in range(0, values.size, CHUNK):
        part = values[start : start + CHUNK]
        words = buffer[: -(-part.size // BLOCK) * BLOCK]
        stream.fill(words)
        extension = stream.words(count_tails(words), np.uint64)
        broken += add_block_normals(part, words, extension, std, kind(factor * grid), kind(1 / grid))
    return broken == 0
