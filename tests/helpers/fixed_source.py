"""Randomness that is the same in every run of the tests. It must never move into the package."""

import hashlib
import os
import random
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import numpy as np
import pytest
import torch

from dpgen.privacy.draws import Keystream
from dpgen.privacy.noise import SecureSource


class FixedKeySource(SecureSource):
    """Secure source with keys SHA-256(seed/0), SHA-256(seed/1), ..."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self._keys = (hashlib.sha256(f"{seed}/{i}".encode()).digest() for i in count())

    def fresh_key(self) -> bytes:
        return next(self._keys)


class Digits(SecureSource):
    """A source that gives the digits it was told, then zeros."""

    def __init__(self, digits: bytes = b"") -> None:
        super().__init__()
        self.digits = digits

    def random_bytes(self, count: int) -> bytes:
        given, self.digits = self.digits[:count], self.digits[count:]
        return given.ljust(count, b"\0")


def fixed_stream(seed: int = 0) -> Keystream:
    """Key stream of a fixed source."""
    return FixedKeySource(seed).stream()


@contextmanager
def fixed_entropy(name: str) -> Iterator[None]:
    """Replace the operating system's randomness by SHA-256(name/0), ... and seed every generator from the name.

    So no assertion on private noise can fail by chance in one run and hold in the next. Other threads than the main one
    count by themselves, so that their speed changes nothing. Child processes draw from the operating system: a counter
    that a fork copies would give parent and child the same keys.
    """
    owner, real, calls = os.getpid(), os.urandom, {True: count(), False: count()}

    def urandom(size: int) -> bytes:
        if os.getpid() != owner:
            return real(size)
        main = threading.current_thread() is threading.main_thread()
        return hashlib.shake_256(f"{name}/{main}/{next(calls[main])}".encode()).digest(size)

    def randbits(k: int) -> int:
        return int.from_bytes(os.urandom(-(-k // 8)), "big") >> (-k % 8)

    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", urandom)
        patch.setattr(secrets, "randbits", randbits)
        yield
