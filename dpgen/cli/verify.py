"""`dpgen verify RUN`, and `dpgen sign RUN --key FILE`: whether all files of a run say the same, and from whom they came.

Statement, ledger, released files and shared budget of a run; of a released model that was received alone its files and the
statement in them. `verify` finds accidents, careless edits and files of different runs. Whoever can write all of the files can
forge all of them: against that, sign.

dpgen sign --new_key owner.pem
dpgen sign runs/RUN --key owner.pem
dpgen verify runs/RUN --key owner.pem.pub

A signature is of the statement, which holds the SHA-256 of every released file, or of the card of a model, which holds that of
its tensors. It says who released something and that nothing was changed since. That the statement is true it does not say.
"""

import base64
import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from dpgen.cli.main import Ended, OneLineParser, guarantee_values
from dpgen.files import (
    DRAWS,
    MECHANISM,
    MODEL,
    SIGNATURE,
    STATEMENT,
    create_private,
    others,
    read_tensor_files,
    released_files,
    write_atomically,
    write_files,
)
from dpgen.options import require_writable
from dpgen.privacy.ledger import Ledger, LedgerError
from dpgen.privacy.shared_budget import Payer, SharedBudget, Spending, Standing, account
from dpgen.statement import PrivacyStatement

ALONE = (f"{MODEL}.json", f"{MODEL}.safetensors")
"""Files of a released model that was received alone."""

_ROUNDING = 1e-6
"""Relative difference of two computations of one epsilon, on different machines."""

_ACCOUNTANTS = 2e-3
"""Relative difference of two proofs of one epsilon, by the accountants of 0.5 and of this version."""


_OTHER = "{} is no part of the release: take it away, or say --allow-others"


def parser() -> OneLineParser:
    result = OneLineParser(
        "dpgen verify",
        description="Whether statement, ledger, released files and shared budget of a run say the same, or the files of a "
        "released model and its statement, and whether other files lie beside them: exit code 0, or 1.",
    )
    result.add_argument("run", type=Path, metavar="RUN", help="directory of a finished run, or of a released model")
    result.add_argument("--key", type=Path, metavar="PUB", help="public key of the owner: whether dpgen sign has signed it")
    result.add_argument(
        "--allow_others", "--allow-others", action="store_true", help="files that are no part of it may be there"
    )
    return result


def main(arguments: list[str]) -> Ended:
    """One line and exit code 0, or 1 and what does not fit."""
    options = parser().parse_args(arguments)
    run = options.run
    alone = (run / f"{MODEL}.json").is_file() and not (run / STATEMENT).is_file()
    found = (_of_model_alone if alone else _of_run)(run)
    problems = list(found.problems)
    if not options.allow_others:
        problems += map(_OTHER.format, others(run, found.files, kept=bool(found.parts["ledger"])))
    problems += unsigned(run, options.key)
    values = {"run": run, **guarantee_values(found.statement), "fits": not problems, "problems": problems}
    if problems:
        return Ended("\n".join(f"{run}: {problem}" for problem in problems), 1, values=values)
    there = {**found.parts, "signature": options.key}
    fit = f"statement and {', '.join(filter(there.get, there))} fit"
    return Ended(f"{run}: {found.statement.in_words()}; {fit}", values=values)


class Found(NamedTuple):
    """A release on disk: its statement, what does not fit, the files that are part of it, and whether it has each part."""

    statement: PrivacyStatement
    problems: list[str]
    files: Collection[str]
    parts: Mapping[str, Any]


def _of_run(run: Path) -> Found:
    """A run, or what was received of it without its ledger."""
    statement, problems = _of_statement(run)
    ledger = any((run / name).is_file() for name in ("ledger.jsonl", "config.yaml"))
    problems += _of_ledger(run, statement) if ledger else ()
    problems += [*_of_files(run, statement), *_of_model(run, statement)]
    parts = {"ledger": ledger, "model": (run / MODEL).is_dir(), "files": statement.files}
    released = {STATEMENT, *(statement.files or released_files(run))}
    return Found(statement, problems, released, {**parts, "shared budget": ledger and statement.shared})


def _of_model_alone(model: Path) -> Found:
    """A released model that was received alone."""
    statement, problems = _of_card(model)
    return Found(statement, problems, ALONE, {"ledger": False, "model": True, "files": statement.files})


def _of_statement(run: Path) -> tuple[PrivacyStatement, list[str]]:
    """The statement of a run, and whether it was edited."""
    path = run / STATEMENT
    if not path.is_file():
        raise ValueError(f"{run} holds no finished run and no released model: privacy.json and model.json are missing")
    try:
        return PrivacyStatement.read(path), []
    except ValueError as edited:
        try:
            values = json.loads(path.read_bytes())
            return PrivacyStatement.from_dict({key: v for key, v in values.items() if key not in ("sha256", "files")}), [
                str(edited)
            ]
        except (ValueError, TypeError, AttributeError):
            raise edited from None


def _of_card(model: Path) -> tuple[PrivacyStatement, list[str]]:
    """The statement that a released model carries, and whether its files are whole."""
    try:
        card = json.loads((model / f"{MODEL}.json").read_bytes())
        statement = PrivacyStatement.from_dict(card["statement"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{model / MODEL}.json is damaged: {' '.join(str(error).split())}") from error
    return statement, [*_of_tensors(model, MODEL)]


def _of_tensors(directory: Path, name: str) -> Iterator[str]:
    try:
        kind = json.loads((directory / f"{name}.json").read_bytes())["kind"]
        read_tensor_files(directory, name, kinds=[kind])
    except (OSError, ValueError, KeyError, TypeError) as error:
        yield " ".join(f"{name}: {error}".split())


def _of_files(run: Path, statement: PrivacyStatement) -> Iterator[str]:
    """Released files against the checksums of the statement; one of dpgen 0.4 has none."""
    for name, stated in statement.files.items():
        if not (run / name).is_file():
            yield f"{name} is missing"
        elif sha256((run / name).read_bytes()).hexdigest() != stated:
            yield f"{name} is not the file that was released: its checksum is another one than in privacy.json"


def _same(stated: Any, found: Any, tolerance: float = _ROUNDING) -> bool:
    if isinstance(stated, int | float) and isinstance(found, int | float):
        return math.isclose(stated, found, rel_tol=tolerance)
    return bool(stated == found)


def _mechanisms(statement: PrivacyStatement) -> Counter[str]:
    """Mechanisms of a statement, as JSON without what is not known of them."""
    known = ({name: value for name, value in one.items() if value is not None} for one in statement.mechanisms)
    return Counter(json.dumps(one, sort_keys=True) for one in known)


def _of_ledger(run: Path, statement: PrivacyStatement) -> Iterator[str]:
    """Guarantee and mechanisms of the statement against those that the ledger's lines give."""
    try:
        with Ledger.open(run / "ledger.jsonl") as ledger:
            payer, ledger.payer = ledger.payer, None  # what the budget says by now is looked at apart
            found = PrivacyStatement.from_ledger(ledger)
            loads = Counter({(p.note, str(p.event)): p.count for p in ledger.promised()})
    except LedgerError as error:
        yield str(error)
        return
    tolerance = _ROUNDING if statement.version else _ACCOUNTANTS  # statements of 0.5 have no version
    for name in ("epsilon", "delta", "relation", "unit", "accountant"):
        own, value = getattr(statement, name), getattr(found, name)
        if not _same(own, value, tolerance):
            yield f"{name} is {own!r} in privacy.json, the ledger says {value!r}"
    for name, value in found.also.items():
        if not _same(statement.also.get(name), value, tolerance):
            yield f"{name} is {statement.also.get(name)!r} in privacy.json, the ledger says {value!r}"
    stated, charged = _mechanisms(statement), _mechanisms(found)
    for line in charged - stated:
        yield f"privacy.json lacks the mechanism {line} of the ledger"
    for line in stated - charged:
        yield f"the ledger lacks the mechanism {line} of privacy.json"
    yield from _of_shared(run, payer, ledger, statement, loads)


def _of_shared(
    run: Path, payer: Payer | None, ledger: Ledger, statement: PrivacyStatement, loads: Counter[Any]
) -> Iterator[str]:
    """Differences between a statement and the file of its shared budget, where the run must have paid for all it declared."""
    if payer is None or statement.shared is None:
        if (payer is None) != (statement.shared is None):
            yield f"{'privacy.json' if payer else 'the ledger'} names no shared budget, the other one does"
        return
    try:
        spending = SharedBudget(payer.path).spending()
    except LedgerError as error:
        yield str(error)
        return
    yield from _of_standing(run, payer, ledger, spending.standings.get(payer.run))
    yield from _of_payments(payer, spending, loads)
    yield from _of_account(payer, spending, statement)


def _of_account(payer: Payer, spending: Spending, statement: PrivacyStatement) -> Iterator[str]:
    """Differences between what a statement says of its shared budget and what the file says of that time."""
    stated = statement.shared or {}
    before = spending.upto(stated.get("payments", 0))
    then = account(before) | {"run": payer.run, "file": payer.path.name}
    if not statement.version:  # of 0.5 and older, which counted by the filter alone
        then["spent"] = before.filtered
    returned = {"spent", "runs"} if len(spending.kept) < len(spending.payments) else set()  # they said more at that time
    for name, value in then.items():
        if name not in returned and not _same(stated.get(name), value):
            yield f"{name} of the shared budget is {stated.get(name)!r} in privacy.json, its file says {value!r}"


def _of_payments(payer: Payer, spending: Spending, loads: Counter[Any]) -> Iterator[str]:
    """Charges of a ledger that its run has not paid for."""
    paid = Counter[Any]()
    for payment in spending.kept:
        if payment.run == payer.run:
            paid.update({(line.note, str(line.event)): line.count for line in payment.plan})
    for note, event in loads - paid:
        if note not in payer.settled:
            yield f"{payer.path} holds no payment of this run for {note!r}, {event}"


def _of_standing(run: Path, payer: Payer, ledger: Ledger, standing: Standing | None) -> Iterator[str]:
    """Commits and the release of a run that the file of its shared budget does not know."""
    if standing is None or standing.commit > ledger.commits:
        yield f"{payer.path} has seen {standing.commit if standing else 0} commits of this run, its ledger has {ledger.commits}"
    files = [path for path in (run / MODEL / f"{MODEL}.safetensors", run / DRAWS) if path.is_file()]
    if standing is not None and files and standing.released != sha256(files[0].read_bytes()).hexdigest():
        yield f"{payer.path} has noted another release of this run than {files[0]}"


def _of_model(run: Path, statement: PrivacyStatement) -> Iterator[str]:
    """Checksums of the model, or of the public mechanism behind draws, and the statement that the model carries."""
    if not ((run / MODEL).is_dir() or (run / DRAWS).is_file()):
        yield f"neither {MODEL}/ nor {DRAWS} is there"
    for name in (MODEL, MECHANISM):
        if (run / name).is_dir():
            found = [*_of_tensors(run / name, name)]
            yield from found
            if name == MODEL and not found:
                carried, _ = _of_card(run / name)
                if replace(carried, files={}, signer="") != replace(statement, files={}, signer=""):
                    yield "the model carries another statement than privacy.json"


_PURPOSE = b"dpgen release 1\0"
"""Stands before what is signed, so that no signature of something else counts."""


def sign_parser() -> OneLineParser:
    result = OneLineParser(
        "dpgen sign",
        description="Sign the statement of a run and its model, or a released model, with Ed25519. The statement then names "
        "the key. Sign after the last evaluation: whatever changes the statement ends the signature.",
    )
    result.add_argument("run", type=Path, nargs="?", metavar="RUN", help="directory of a finished run, or of a released model")
    result.add_argument("--key", type=Path, metavar="FILE", help="private key (Ed25519, PEM, without a passphrase)")
    result.add_argument("--new_key", type=Path, metavar="FILE", help="make a key: FILE for yourself, FILE.pub for everybody")
    return result


def sign(arguments: list[str]) -> Ended:
    """Make a key, or sign a release; what was written."""
    options = sign_parser().parse_args(arguments)
    if options.new_key is not None:
        if options.run is not None or options.key is not None:
            raise ValueError("new_key must stand alone; sign with --key once the key is made")
        return _new_key(options.new_key)
    for name in ("run", "key"):
        if getattr(options, name) is None:
            raise ValueError(f"{name} is missing; dpgen sign needs RUN and --key, or --new_key FILE")
    key = _read(options.key, partial(serialization.load_pem_private_key, password=None), "private", Ed25519PrivateKey)
    known, signed = fingerprint(key.public_key()), []
    if (options.run / STATEMENT).is_file() and (statement := PrivacyStatement.read(options.run / STATEMENT)).files:
        write_files(options.run, replace(statement, signer=known).sealed({})[1])
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
