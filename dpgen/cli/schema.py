"""`dpgen schema FILE`: a public schema of a table, drafted from names and types; domains at a price, or unprotected."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpgen.cli.command import OneLineParser
from dpgen.files import write_atomically
from dpgen.options import require_writable
from dpgen.statement import guarantee

if TYPE_CHECKING:
    from dpgen.systems.domains import DomainsPlan

_OF_PLAN = ("delta", "relation", "unit", "rows_per_unit")

OTHER = "other"
"""Category of a released domain for all values that are not frequent."""


def parser() -> OneLineParser:
    result = OneLineParser(
        "dpgen schema",
        description="Draft the public schema of a table. Without options it looks at names and types only: fill in the "
        "blanks from public knowledge. With --epsilon the blanks are released privately, which costs that much of the data.",
    )
    result.add_argument("path", metavar="FILE", help="csv, tsv (plain or .gz) or parquet")
    result.add_argument("--schema", type=Path, metavar="FILE", help="a draft whose blanks are filled in")
    result.add_argument("--out", type=Path, metavar="FILE", help="file to write; otherwise it is printed")
    result.add_argument(
        "--from_private_values", action="store_true", help="read types, categories and ranges off the records: NOT protected"
    )
    result.add_argument("--epsilon", type=float, help="release the domains that are blank at this price, in nats")
    result.add_argument("--delta", type=float, help="of that release (default 1e-6)")
    result.add_argument("--relation", choices=["add_remove", "replace_one"], help="of neighbouring data (default add_remove)")
    result.add_argument("--unit", metavar="COLUMN", help="that names the person of each row, who is protected; it is no data")
    result.add_argument("--rows_per_unit", type=int, metavar="M", help="rows of a person that are used (default 1)")
    result.add_argument("--ledger", type=Path, metavar="FILE", help="the budget that all runs on the data share, which pays")
    return result


def main(arguments: list[str]) -> str:
    """The draft, printed or written."""
    options = parser().parse_args(arguments)
    spending = [name for name in (*_OF_PLAN, "ledger") if getattr(options, name) is not None]
    if options.epsilon is None and spending:
        raise ValueError(f"epsilon is None; it must be given with {spending[0]}: without it nothing is spent")
    if options.from_private_values and (options.epsilon is not None or options.schema is not None):
        raise ValueError("from_private_values is true; it must stand alone: it reads all domains off the records")
    if options.schema is not None and options.epsilon is None:
        raise ValueError("epsilon is None; it must be given with schema: the blanks of a draft are filled in at a price")
    if options.out is not None:
        require_writable(options.out, "out")

    from dpgen.data.drafts import blanks, draft_schema

    draft = (
        _draft(options.schema)
        if options.schema
        else draft_schema(options.path, from_private_values=options.from_private_values)
    )
    paid = ""
    if options.epsilon is not None:
        draft, paid = _filled(draft, options)
    left = [field["name"] for field in blanks(draft)]
    text = json.dumps(draft, indent=2, ensure_ascii=False)
    untyped = () if options.schema or options.from_private_values else _untyped(options.path)
    if options.out is None:
        sys.stderr.writelines(f"{line}\n" for line in untyped)
        return text
    write_atomically(options.out, text + "\n")
    said = [f"schema of {len(draft['fields'])} columns in {options.out}"]
    said += [paid] if paid else []
    if options.from_private_values:
        said.append(
            "types, categories and ranges were read off the records without noise: whoever sees them learns of the records"
        )
    if left:
        said.append(f"fill in from public knowledge: {', '.join(left)} (or key: primaryKey)")
    said += untyped
    return "\n".join(said)


def _untyped(path: str) -> tuple[str, ...]:
    """A sentence on a file without types, whose columns are all drafted as texts; none on others."""
    from dpgen.data.table_files import header

    if any(header(path).values()):
        return ()
    return (
        f"{path} has no types, so every column is drafted as a string: write integer, number, boolean, date or datetime where "
        "you know it, or draft from a Parquet file, which has types; --from_private_values reads them off the records, NOT "
        "protected",
    )


def _draft(path: Path) -> dict[str, Any]:
    from dpgen.schema import read_descriptor

    draft = read_descriptor(path)
    if not isinstance(draft, dict) or not isinstance(draft.get("fields"), list):
        raise ValueError(f"schema {str(path)!r} has no list of fields; dpgen schema FILE drafts one")
    return draft


def _filled(draft: dict[str, Any], options: Any) -> tuple[dict[str, Any], str]:
    """The draft with private releases in its blanks, and what they cost."""
    from dpgen.data.drafts import blanks, private_columns
    from dpgen.data.table_files import header
    from dpgen.data.units import People
    from dpgen.privacy.curator import Curator
    from dpgen.systems.domains import DomainsPlan, release_domains

    if options.schema is None and not any(header(options.path).values()):
        raise ValueError(
            f"schema is None; {options.path} has no types: draft a schema, fill in types, and give it with --schema"
        )
    given = {name: getattr(options, name) for name in _OF_PLAN if getattr(options, name) is not None}
    plan = DomainsPlan(epsilon=options.epsilon, **given)
    draft = {key: value for key, value in draft.items() if (key, value) != ("primaryKey", plan.unit)}
    draft["fields"] = [field for field in draft["fields"] if field.get("name") != plan.unit]  # who names people is no data
    fields = list(blanks(draft))
    if not fields:
        raise ValueError("schema has no blanks: there is nothing to release")
    paid = _added(draft.get("dpgen:privacy"), plan)
    people = None if plan.unit is None else People(plan.unit, plan.rows)
    columns = private_columns(options.path, fields, draft.get("missingValues", [""]), people)
    with _ledger(plan, options.ledger) as ledger:
        found = release_domains(columns, plan=plan, curator=Curator(ledger))
    for field in fields:
        _fill(field, found[field["name"]])
    rare = [field["name"] for field in fields if field.get("constraints", {}).get("enum") == [OTHER]]
    paid = paid | ({} if ledger.payer is None or "dpgen:privacy" in draft else {"shared": {"run": ledger.payer.run}})
    spent = f"{guarantee(plan.epsilon, plan.resolved_delta, plan.relation, plan.protected)}, a part of that of any model"
    none = f"; no value is frequent in {', '.join(rare)}: drop the column, or make it the primaryKey" if rare else ""
    return draft | {"dpgen:privacy": paid}, spent + none


def _added(earlier: dict[str, Any] | None, plan: "DomainsPlan") -> dict[str, Any]:
    """What all domains of a schema have cost: that of the draft, and this purchase on top of it."""
    if earlier is None:
        return plan.paid
    known = {"relation": "add_remove", "unit": None, "rows_per_unit": 1} | earlier  # 0.4 bought for single records only
    for name in ("relation", "unit", "rows_per_unit"):
        if plan.paid[name] != known[name]:
            raise ValueError(
                f"{name} is {plan.paid[name]!r}; it must be {known[name]!r}, for which the domains of the schema were bought"
            )
    both = {name: earlier.get(name, 0.0) + plan.paid[name] for name in ("epsilon", "delta")}
    return plan.paid | both


def _ledger(plan: "DomainsPlan", path: Path | None) -> Any:
    if path is None:
        return plan.open_ledger()
    from dpgen.privacy.shared_budget import SharedBudget

    shared = SharedBudget.obtain(path, None, relation=plan.relation, unit=plan.protected)
    shared.require_same(relation=plan.relation, unit=plan.protected, delta=plan.resolved_delta)
    return plan.open_ledger(payer=shared.payer("schema"))


def _fill(field: dict[str, Any], domain: Any) -> None:
    """The released domain in the words of the schema; what lies outside of it has a place too, so that no record is refused."""
    rules = field.setdefault("constraints", {})
    field["dpgen:source"] = "dp"
    kind = field.get("type", "string")
    if kind == "string":
        rules["enum"] = [*(value for value in domain if value != OTHER), OTHER]
        field["dpgen:outside"] = OTHER
        return
    import numpy as np

    low, high = domain
    field["dpgen:outside"] = "clamp"
    if kind in ("date", "datetime"):
        rules |= {"minimum": str(np.datetime64(int(low), "D")), "maximum": str(np.datetime64(int(np.ceil(high)), "D"))}
    elif kind == "number":
        rules |= {"minimum": float(f"{low:.6g}"), "maximum": float(f"{high:.6g}")}
    else:
        rules |= {"minimum": int(np.ceil(low)), "maximum": max(int(np.ceil(low)), int(np.ceil(high)) - 1)}
