"""A source whose keys are fixed, for tests that need the same draws twice. It must never move into the package."""

import hashlib
from itertools import count

from dpgen.privacy.noise import SecureSource
from dpgen.privacy.normal import Keystream


class FixedKeySource(SecureSource):
    """Secure source with keys SHA-256(seed/0), SHA-256(seed/1), ..."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self._keys = (hashlib.sha256(f"{seed}/{i}".encode()).digest() for i in count())

    def _fresh_key(self) -> bytes:
        return next(self._keys)


def fixed_stream(seed: int = 0) -> Keystream:
    """Key stream of a fixed source."""
    return FixedKeySource(seed)._stream()
