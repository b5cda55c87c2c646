"""`dpgen schema FILE`: a public schema of a table, drafted from names and types; domains at a price, or unprotected."""

import json
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpgen.cli.main import Ended, OneLineParser
from dpgen.files import write_atomically
from dpgen.options import require_writable
from dpgen.statement import guarantee, told

if TYPE_CHECKING:
    from dpgen.systems.plan import SumsPlan

_OF_PLAN = ("delta", "relation", "unit", "max_contributions")


def parser() -> OneLineParser:
    result = OneLineParser(
        "dpgen schema",
        description="Draft the public schema of a table. Without options it looks at names and types only: fill in the "
        "blanks from public knowledge. With --epsilon the blanks are released privately, which costs that much of the data.",
    )
    result.add_argument("path", metavar="FILE", help="csv, tsv (plain or .gz) or parquet")
    result.add_argument("--delimiter", help="of a csv file: the one character between two fields, or tab")
    result.add_argument("--encoding", help="of a csv file, as cp1252 (default UTF-8, of other lines cp1252)")
    result.add_argument("--schema", type=Path, metavar="FILE", help="a draft whose blanks are filled in")
    result.add_argument("--out", type=Path, metavar="FILE", help="file to write; otherwise it is printed")
    result.add_argument("--epsilon", type=float, help="release the domains that are blank at this price, in nats")
    result.add_argument("--delta", type=float, help="of that release (default 1e-6)")
    result.add_argument("--relation", choices=["add_remove", "replace_one"], help="of neighbouring data (default add_remove)")
    result.add_argument("--unit", metavar="COLUMN", help="that names the person of each row, who is protected; it is no data")
    result.add_argument("--max_contributions", type=int, metavar="M", help="rows of a person that are used (default 1)")
    result.add_argument("--ledger", type=Path, metavar="FILE", help="the budget that all runs on the data share, which pays")
    return result


def main(arguments: list[str]) -> Ended:
    """The draft, printed or written."""
    options = parser().parse_args(arguments)
    if options.epsilon is None:
        _require_free(options)
    if options.out is not None:
        require_writable(options.out, "out")

    from dpgen.data.raw_tables import blanks
    from dpgen.data.table_files import table_path

    options.path = table_path(options.path, options.delimiter, options.encoding)
    draft, paid = _drafted(options)
    left = [field["name"] for field in blanks(draft)]
    text = json.dumps(draft, indent=2, ensure_ascii=False)
    told, untyped = [paid] if paid else [], () if options.schema or paid else _untyped(options.path)
    if options.out is None:
        sys.stderr.writelines(f"{line}\n" for line in untyped)
        return Ended(text, values={"schema": draft, "file": None, "blank": left, "notes": [*told, *untyped]})
    write_atomically(options.out, text + "\n")
    said = [f"schema of {len(draft['fields'])} columns in {options.out}", *told]
    if left:
        said.append(f"fill in from public knowledge: {', '.join(left)} (or key: primaryKey)")
    said += untyped
    return Ended("\n".join(said), values={"schema": draft, "file": options.out, "blank": left, "notes": said[1:]})


def _drafted(options: Any) -> tuple[dict[str, Any], str]:
    """The draft, and what its private releases cost; "": there are none."""
    from dpgen.data.raw_tables import descriptor_of, draft_schema

    stated = dict(descriptor_of(str(options.schema))) if options.schema else None
    if options.epsilon is not None:
        return _filled(stated, options)
    return draft_schema(options.path) if stated is None else stated, ""


def _require_free(options: Any) -> None:
    """Refuse options that spend something."""
    if spending := [name for name in (*_OF_PLAN, "ledger") if getattr(options, name) is not None]:
        raise ValueError(f"epsilon is None; it must be given with {spending[0]}: without it nothing is spent")
    if options.schema is not None:
        raise ValueError("epsilon is None; it must be given with schema: the blanks of a draft are filled in at a price")


def _untyped(path: str) -> tuple[str, ...]:
    """A sentence on a file without types; none on others."""
    from dpgen.data.table_files import header

    if any(header(path).values()):
        return ()
    return (
        f"{path} has no types: write string, integer, number, boolean, date or datetime where you know it, or draft from a "
        "Parquet file, which has types; --epsilon buys them",
    )


def _sharing(plan: "SumsPlan", ledger: Path, given: Collection[str]) -> "SumsPlan":
    """The plan with a tenth of a run's share of delta, whose rest a model needs."""
    from dpgen.privacy.shared_budget import SharedBudget

    share = SharedBudget(ledger).share
    return plan.sharing(share._replace(delta=share.delta / 10), {"epsilon", *given})


def _filled(draft: dict[str, Any] | None, options: Any) -> tuple[dict[str, Any], str]:
    """The draft with private releases in its blanks, and what they cost."""
    from dpgen.data.split import People
    from dpgen.data.tables import load_table
    from dpgen.privacy.curator import Curator
    from dpgen.systems.tables.discovery import blank, release_domains

    plan = _plan(options)
    if draft is not None and draft.get("dpgen:privacy"):
        raise ValueError("schema holds domains that were bought before; the fit of a model buys what is still blank")
    draft = None if draft is None else _without(draft, plan.unit)
    people = None if plan.unit is None else People(plan.unit, plan.rows)
    table: Any = load_table(path=options.path, schema=draft, test_fraction=0.0, people=people)
    if not blank(getattr(table, "draft", {"fields": []})):
        raise ValueError("schema has no blanks: there is nothing to release")
    with _ledger(plan, options.ledger) as ledger, told(ledger):
        found = release_domains(table, plan=plan, curator=Curator(ledger))
    paid = plan.paid | ({} if ledger.payer is None else {"shared": {"run": ledger.payer.run}})
    spent = f"{guarantee(plan.epsilon, plan.resolved_delta, plan.relation, plan.protected)}, a part of that of any model"
    said = "".join(f"; {fact.sentence[:-1]}" for fact in found.facts[1:])
    fields = [entry | _checked(entry) for entry in found.descriptor["fields"]]
    return found.descriptor | {"fields": fields, "dpgen:privacy": paid}, spent + said


def _plan(options: Any) -> "SumsPlan":
    """The plan of releases that options ask for."""
    from dpgen.systems.plan import SumsPlan

    given = {name: getattr(options, name) for name in _OF_PLAN if getattr(options, name) is not None}
    plan = SumsPlan(epsilon=options.epsilon, **({"delta": 1e-6} | given))
    return plan if options.ledger is None else _sharing(plan, options.ledger, given)


def _checked(entry: dict[str, Any]) -> dict[str, str]:
    """Things to check of a field that was bought."""
    if entry.get("dpgen:source") != "dp":
        return {}
    kind, written = entry["type"], f" written as {entry['format']}" if entry.get("format") else ""
    way = {"string": "more categories may be known", "boolean": "gaps may be hidden by noise"}
    return {
        "dpgen:check": f"{kind}{written} by noisy counts; {way.get(kind, 'its range is where noise hides what lies beyond')}"
    }


def _without(draft: dict[str, Any], unit: str | None) -> dict[str, Any]:
    """The draft without the column that names people, which is no data."""
    left = {key: value for key, value in draft.items() if (key, value) != ("primaryKey", unit)}
    return left | {"fields": [field for field in draft["fields"] if field.get("name") != unit]}


def _ledger(plan: "SumsPlan", path: Path | None) -> Any:
    if path is None:
        return plan.open_ledger()
    from dpgen.privacy.shared_budget import SharedBudget

    shared = SharedBudget(path)
    shared.require_same(relation=plan.relation, unit=plan.protected, delta=plan.resolved_delta)
    return plan.open_ledger(payer=shared.payer("schema"))
