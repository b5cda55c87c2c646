"""`dpgen verify RUN`: whether the statement, the ledger, the released files and the shared budget of a run say the same.

Of a released model that was received alone: whether its files and the statement in them do. It finds accidents, careless edits
and files of different runs. Whoever can write all of the files can forge all of them: against that, sign and give `--key`.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from dpgen.cli.main import Ended, OneLineParser, guarantee_values
from dpgen.cli.sign import unsigned
from dpgen.files import DRAWS, MECHANISM, MODEL, STATEMENT, read_tensor_files, released_files
from dpgen.privacy.ledger import Ledger, LedgerError
from dpgen.privacy.shared_budget import Payer, SharedBudget, account
from dpgen.statement import PrivacyStatement

_ROUNDING = 1e-6
"""Relative difference of two computations of one epsilon, on different machines."""


def parser() -> OneLineParser:
    result = OneLineParser(
        "dpgen verify",
        description="Whether statement, ledger, released files and shared budget of a run say the same, or the files of a "
        "released model and its statement: exit code 0, or 1.",
    )
    result.add_argument("run", type=Path, metavar="RUN", help="directory of a finished run, or of a released model")
    result.add_argument("--key", type=Path, metavar="PUB", help="public key of the owner: whether dpgen sign has signed it")
    return result


def main(arguments: list[str]) -> Ended:
    """One line and exit code 0, or 1 and what does not fit."""
    options = parser().parse_args(arguments)
    run = options.run
    alone = (run / f"{MODEL}.json").is_file() and not (run / STATEMENT).is_file()
    statement, problems = _of_card(run) if alone else _of_statement(run)
    if not alone:
        ledger = any((run / name).is_file() for name in ("ledger.jsonl", "config.yaml"))  # else it was received without one
        problems += [*(_of_ledger(run, statement) if ledger else ()), *_of_files(run, statement)]
        problems += [*_of_model(run, statement)]
    problems += unsigned(run, options.key)
    values = {"run": run, **guarantee_values(statement), "fits": not problems, "problems": problems}
    if problems:
        return Ended("\n".join(f"{run}: {problem}" for problem in problems), 1, values=values)
    parts = [] if alone or not ledger else ["ledger"]
    parts += [*(["model"] if alone or (run / MODEL).is_dir() else []), *(["files"] if statement.files else [])]
    parts += ["shared budget"] if statement.shared and not alone and ledger else []
    parts += ["signature"] if options.key is not None else []
    return Ended(f"{run}: {statement.in_words()}; statement and {', '.join(parts)} fit", values=values)


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
    for name in released_files(run) if statement.files else ():
        if name not in statement.files:
            yield f"{name} is no file of this run: privacy.json does not name it"


def _same(stated: Any, found: Any) -> bool:
    if isinstance(stated, int | float) and isinstance(found, int | float):
        return math.isclose(stated, found, rel_tol=_ROUNDING)
    return bool(stated == found)


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
    for name in ("epsilon", "delta", "relation", "unit", "accountant"):
        own, value = getattr(statement, name), getattr(found, name)
        if not _same(own, value):
            yield f"{name} is {own!r} in privacy.json, the ledger says {value!r}"
    for name, value in found.also.items():
        if not _same(statement.also.get(name), value):
            yield f"{name} is {statement.also.get(name)!r} in privacy.json, the ledger says {value!r}"
    stated, charged = (Counter(json.dumps(m, sort_keys=True) for m in s.mechanisms) for s in (statement, found))
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
    standing = spending.standings.get(payer.run)
    if standing is None or standing.commit > ledger.commits:
        yield f"{payer.path} has seen {standing.commit if standing else 0} commits of this run, its ledger has {ledger.commits}"
    files = [path for path in (run / MODEL / f"{MODEL}.safetensors", run / DRAWS) if path.is_file()]
    if standing is not None and files and standing.released != sha256(files[0].read_bytes()).hexdigest():
        yield f"{payer.path} has noted another release of this run than {files[0]}"
    paid = Counter[Any]()
    for payment in spending.kept:
        if payment.run == payer.run:
            paid.update({(m.note, str(m.event)): count for m, count in payment.loads})
    for note, event in (load for load in loads - paid if load[0] not in payer.settled):
        yield f"{payer.path} holds no payment of this run for {note!r}, {event}"
    then = account(spending.upto(statement.shared.get("payments", 0))) | {"run": payer.run, "file": payer.path.name}
    returned = {"spent", "runs"} if len(spending.kept) < len(spending.payments) else set()  # they said more at that time
    for name, value in then.items():
        if name not in returned and not _same(statement.shared.get(name), value):
            yield f"{name} of the shared budget is {statement.shared.get(name)!r} in privacy.json, its file says {value!r}"


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
                if replace(carried, files={}) != replace(statement, files={}):
                    yield "the model carries another statement than privacy.json"
