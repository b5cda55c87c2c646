"""The bits under all secure randomness: AES-256 in counter mode under keys that are used once and dropped."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

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
    for module in ("cryptography.hazmat.primitives.ciphers", "dpgen.privacy.boxmuller"):
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
