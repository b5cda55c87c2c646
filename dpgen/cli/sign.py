"""`dpgen sign RUN --key FILE`: sign a release, so that who receives it can tell that it is whole and from whom it came.

dpgen sign --new_key owner.pem
dpgen sign runs/RUN --key owner.pem
dpgen verify runs/RUN --key owner.pem.pub

A signature is of the statement, which holds the SHA-256 of every released file, or of the card of a model, which holds that of
its tensors. It says who released something and that nothing was changed since. That the statement is true it does not say.
"""

import base64
import json
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from dpgen.cli.main import Ended, OneLineParser
from dpgen.files import MODEL, SIGNATURE, STATEMENT, create_private, write_atomically
from dpgen.options import require_writable
from dpgen.statement import PrivacyStatement

_PURPOSE = b"dpgen release 1\0"
"""Stands before what is signed, so that no signature of something else counts."""


def parser() -> OneLineParser:
    result = OneLineParser(
        "dpgen sign",
        description="Sign the statement of a run and its model, or a released model, with Ed25519. Sign after the last "
        "evaluation: whatever changes the statement ends the signature.",
    )
    result.add_argument("run", type=Path, nargs="?", metavar="RUN", help="directory of a finished run, or of a released model")
    result.add_argument("--key", type=Path, metavar="FILE", help="private key (Ed25519, PEM, without a passphrase)")
    result.add_argument("--new_key", type=Path, metavar="FILE", help="make a key: FILE for yourself, FILE.pub for everybody")
    return result


def main(arguments: list[str]) -> Ended:
    """Make a key, or sign a release; what was written."""
    options = parser().parse_args(arguments)
    if options.new_key is not None:
        if options.run is not None or options.key is not None:
            raise ValueError("new_key must stand alone; sign with --key once the key is made")
        return _new_key(options.new_key)
    for name in ("run", "key"):
        if getattr(options, name) is None:
            raise ValueError(f"{name} is missing; dpgen sign needs RUN and --key, or --new_key FILE")
    key = _read(options.key, partial(serialization.load_pem_private_key, password=None), "private", Ed25519PrivateKey)
    known, signed = fingerprint(key.public_key()), []
    for path in _signed_files(options.run):
        signature = base64.b64encode(key.sign(_PURPOSE + path.read_bytes())).decode()
        content = {"algorithm": "Ed25519", "key": known, "signature": signature}
        signed.append(path.with_suffix(SIGNATURE))
        write_atomically(signed[-1], json.dumps(content, indent=2) + "\n")
    return Ended(f"signed with {known}: {', '.join(map(str, signed))}", values={"fingerprint": known, "signed": signed})


def _signed_files(run: Path) -> list[Path]:
    """Files whose bytes are signed: the statement of a run, and the card of its model, which may be passed on alone."""
    found = [path for path in (run / STATEMENT, run / MODEL / f"{MODEL}.json", run / f"{MODEL}.json") if path.is_file()]
    if run / STATEMENT in found and not PrivacyStatement.read(run / STATEMENT).files:
        raise ValueError(f"{run / STATEMENT} names no files, as those of dpgen 0.4: a signature of it would not cover them")
    if not found:
        raise ValueError(f"{run} holds no finished run and no released model: privacy.json and model.json are missing")
    return found


def unsigned(run: Path, key: Path | None) -> Iterator[str]:
    """Faults of the signatures of a release, missing ones among them; none are looked for without a key."""
    if key is None:
        return
    public = _read(key, serialization.load_pem_public_key, "public", Ed25519PublicKey)
    for path in _signed_files(run):
        beside = path.with_suffix(SIGNATURE)
        if not beside.is_file():
            yield f"{path.name} is not signed: {beside.name} is missing"
            continue
        try:
            signature = base64.b64decode(json.loads(beside.read_bytes())["signature"], validate=True)
            public.verify(signature, _PURPOSE + path.read_bytes())
        except (ValueError, KeyError, TypeError):
            yield f"{beside.name} is damaged"
        except InvalidSignature:
            yield f"{path.name} was not signed as it is with the key {fingerprint(public)}"


def fingerprint(key: Ed25519PublicKey) -> str:
    """SHA-256 of the 32 bytes of a public key, as ssh shows it."""
    raw = key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return "SHA256:" + base64.b64encode(sha256(raw).digest()).decode().rstrip("=")


def _new_key(path: Path) -> Ended:
    public = path.with_name(f"{path.name}.pub")
    for file in (path, public):
        require_writable(file, "new_key")
        if file.exists():
            raise ValueError(f"new_key is {str(path)!r}; {str(file)!r} exists and is not overwritten")
    key = Ed25519PrivateKey.generate()
    pem, info = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    create_private(path, key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    write_atomically(public, key.public_key().public_bytes(pem, info))
    known = fingerprint(key.public_key())
    text = f"{path}: keep it to yourself\n{public}: for everybody who verifies, {known}"
    return Ended(text, values={"fingerprint": known, "key": path, "public_key": public})


def _read(path: Path, load: Callable[[bytes], Any], what: str, kind: type[Any]) -> Any:
    """A private or public key from a file."""
    try:
        key = load(path.read_bytes())
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ValueError(f"key {str(path)!r} is no {what} key in PEM{' without a passphrase' * (what == 'private')}") from error
    if not isinstance(key, kind):
        raise ValueError(f"key {str(path)!r} is not of Ed25519; dpgen sign --new_key FILE makes one")
    return key
