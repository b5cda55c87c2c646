"""`dpgen verify RUN`: whether the statement, the ledger, the model and the shared budget of a run say the same.

It finds accidents, careless edits and files of different runs. Whoever can write all of the files can forge all of them: the
checksums are no signatures.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from dpgen.cli.command import Ended, OneLineParser
from dpgen.privacy.ledger import Ledger, LedgerError
from dpgen.privacy.shared_budget import Payer, SharedBudget, account
from dpgen.statement import PrivacyStatement

_ROUNDING = 1e-6
"""Relative difference of two computations of one epsilon, on different machines."""


def main(arguments: list[str]) -> Ended:
    """One line and exit code 0, or 1 and what does not fit."""
    parser = OneLineParser(
        "dpgen verify",
        description="Whether statement, ledger, model and shared budget of a run say the same: exit code 0, or 1.",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="directory of a finished run")
    run = parser.parse_args(arguments).run
    statement = _statement(run)
    if problems := [*_of_ledger(run, statement), *_of_model(run, statement)]:
        return Ended("\n".join(f"{run}: {problem}" for problem in problems), 1)
    held = statement.in_words()
    parts = ["ledger", *(["model"] if (run / "model").is_dir() else []), *(["shared budget"] if statement.shared else [])]
    return Ended(f"{run}: {held}; statement and {', '.join(parts)} fit")


def _statement(run: Path) -> PrivacyStatement:
    path = run / "privacy.json"
    if not path.is_file():
        raise ValueError(f"{run} holds no finished run: privacy.json is missing")
    try:
        return PrivacyStatement.from_dict(json.loads(path.read_text()))
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is damaged: {' '.join(str(error).split())}") from error


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
            loads = Counter({(p.note, p.group, str(p.event)): p.count for p in ledger.promised()})
    except LedgerError as error:
        yield str(error)
        return
    for name in ("epsilon", "delta", "relation", "unit", "accountant"):
        stated, value = getattr(statement, name), getattr(found, name)
        if not _same(stated, value):
            yield f"{name} is {stated!r} in privacy.json, the ledger says {value!r}"
    for name, value in found.also.items():
        if not _same(statement.also.get(name), value):
            yield f"{name} is {statement.also.get(name)!r} in privacy.json, the ledger says {value!r}"
    yield from _of_mechanisms(statement, found)
    yield from _of_shared(run, payer, ledger, statement, loads)


def _of_mechanisms(statement: PrivacyStatement, found: PrivacyStatement) -> Iterator[str]:
    stated, charged = ([json.dumps(m, sort_keys=True) for m in s.mechanisms] for s in (statement, found))
    for line in Counter(charged) - Counter(stated):
        yield f"privacy.json lacks the mechanism {line} of the ledger"
    for line in Counter(stated) - Counter(charged):
        yield f"the ledger lacks the mechanism {line} of privacy.json"


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
    from dpgen.files import DRAWS, MODEL

    standing = spending.standings.get(payer.run)
    if standing is None or standing.commit > ledger.commits:
        yield f"{payer.path} has seen {standing.commit if standing else 0} commits of this run, its ledger has {ledger.commits}"
    files = [path for path in (run / MODEL / f"{MODEL}.safetensors", run / DRAWS) if path.is_file()]
    if standing is not None and files and standing.released != sha256(files[0].read_bytes()).hexdigest():
        yield f"{payer.path} has noted another release of this run than {files[0]}"
    paid = Counter[Any]()
    for payment in spending.kept:
        if payment.run == payer.run:
            paid.update({(m.note, m.group, str(m.event)): count for m, count in payment.loads})
    for note, _, event in (load for load in loads - paid if load[0] not in payer.settled):
        yield f"{payer.path} holds no payment of this run for {note!r}, {event}"
    then = account(spending.upto(statement.shared.get("payments", 0))) | {"run": payer.run, "file": payer.path.name}
    returned = {"spent", "runs"} if len(spending.kept) < len(spending.payments) else set()  # they said more at that time
    for name, value in then.items():
        if name not in returned and not _same(statement.shared.get(name), value):
            yield f"{name} of the shared budget is {statement.shared.get(name)!r} in privacy.json, its file says {value!r}"


def _of_model(run: Path, statement: PrivacyStatement) -> Iterator[str]:
    """Checksums of the model, or of the public mechanism behind draws, and the statement that the model carries."""
    from dpgen.files import DRAWS, MECHANISM, MODEL, read_tensor_files

    if not ((run / MODEL).is_dir() or (run / DRAWS).is_file()):
        yield f"neither {MODEL}/ nor {DRAWS} is there"
    for name in (MODEL, MECHANISM):
        if not (run / name).is_dir():
            continue
        try:
            kind = json.loads((run / name / f"{name}.json").read_text())["kind"]
            card, _ = read_tensor_files(run / name, name, kinds=[kind])
            if name == MODEL and _as_json(PrivacyStatement.from_dict(card["statement"])) != _as_json(statement):
                yield "the model carries another statement than privacy.json"
        except (OSError, ValueError, KeyError, TypeError) as error:
            yield " ".join(f"{name}: {error}".split())


def _as_json(statement: PrivacyStatement) -> Any:
    return json.loads(statement.to_json())
