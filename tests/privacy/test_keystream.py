"""The key stream against NIST's vectors and against AES block by block; refusal without a backend."""

import os
import sys
from collections.abc import Callable

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from dpgen.privacy import draws
from dpgen.privacy.draws import Keystream, SecureBackendError, aes_ctr, require_backend

# NIST SP 800-38A, F.5.5 CTR-AES256.Encrypt
NIST_KEY = "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4"
NIST_COUNTER = "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"
NIST_PLAINTEXT = (
    "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
    "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710"
)
NIST_CIPHERTEXT = (
    "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5"
    "2b0930daa23de94ce87017ba2d84988ddfc9c58db67aada613c2dd08457941a6"
)


def counter_blocks(key: bytes, count: int) -> bytes:
    """AES of the block numbers 0, 1, ..., one at a time."""
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return b"".join(encryptor.update(i.to_bytes(16, "big")) for i in range(count))


def numbered_keys() -> tuple[list[bytes], Callable[[], bytes]]:
    given: list[bytes] = []

    def fresh_key() -> bytes:
        given.append(len(given).to_bytes(32, "big"))
        return given[-1]

    return given, fresh_key


def test_nist_vector() -> None:
    stream = aes_ctr(bytes.fromhex(NIST_KEY), bytes.fromhex(NIST_COUNTER)).update(bytes(64))
    plaintext = bytes.fromhex(NIST_PLAINTEXT)
    assert bytes(a ^ b for a, b in zip(stream, plaintext)).hex() == NIST_CIPHERTEXT


@pytest.mark.parametrize("count", [1, 15, 16, 17, 1000, 2**18 + 5])
def test_words_are_counter_blocks(count: int) -> None:
    key = bytes(range(32))
    words = Keystream(lambda: key).words(count, np.uint8)
    assert words.tobytes() == counter_blocks(key, -(-count // 16))[:count]


def test_calls_continue_the_stream() -> None:
    one, other = Keystream(lambda: bytes(32)), Keystream(lambda: bytes(32))
    whole = one.words(700, np.uint32)
    parts = [other.words(count, np.uint32) for count in (1, 99, 0, 600)]
    np.testing.assert_array_equal(whole, np.concatenate(parts))


def test_new_key_after_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draws, "REKEY_BYTES", 64)
    given, fresh_key = numbered_keys()
    words = Keystream(fresh_key).words(200, np.uint8)
    assert len(given) == 4
    assert words.tobytes() == b"".join(counter_blocks(key, 4) for key in given)[:200]


def test_limit_is_64_mebibytes() -> None:
    given, fresh_key = numbered_keys()
    stream = Keystream(fresh_key)
    stream.words(2**26, np.uint8)
    assert len(given) == 1
    stream.words(1, np.uint8)
    assert len(given) == 2


def test_key_is_not_kept() -> None:
    key = os.urandom(32)
    stream = Keystream(lambda: bytes(key))
    stream.words(4, np.uint8)
    kept = [value for name, value in vars(stream).items() if name != "_fresh_key"]
    assert not any(isinstance(value, bytes | bytearray) for value in kept)


@pytest.mark.parametrize("package", ["cryptography", "numba"])
def test_refuses_without_backend(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in {package, *(name for name in sys.modules if name.split(".")[0] == package)}:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "dpgen.privacy.draws", raising=False)
    with pytest.raises(SecureBackendError, match=f"cryptography and numba, which do not work here.*{package}"):
        require_backend()
