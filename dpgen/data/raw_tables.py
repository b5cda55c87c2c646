"""Tables as they are: rows whose types, gaps, categories and ranges a fit buys where no schema states them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from dpgen.columns.descriptors import EXACT, field_of, stated_key
from dpgen.columns.fields import NumberField
from dpgen.columns.forms import NUMBER, Different, tallied
from dpgen.containers import Dtypes, InMemory, in_memory
from dpgen.data.links import without_keys
from dpgen.data.split import People, Split, SplitOptions
from dpgen.data.table_files import MISSING, form_of, header, table_path
from dpgen.facts import Fact, Said, listed
from dpgen.schema import Schema, nearest, read_descriptor, with_fields

if TYPE_CHECKING:
    from dpgen.data.batches import EngineRows, Part
    from dpgen.data.engines import EngineTable


def draft_schema(
    data: Any, *, delimiter: str | None = None, encoding: str | None = None, dtypes: Dtypes = "bought"
) -> dict[str, Any]:
    """A schema of the columns of a table, with what is not known left blank: null, or an empty enum.

    Only names and public types are looked at: those of a Parquet file, and of a table in memory with `dtypes` "public". Other
    columns have no type in the draft, and neither have texts, which may be dates or numbers.

    Arguments:
        data: a DataFrame, a polars or pyarrow table, or the path of a csv, tsv or parquet file.
        delimiter: of a csv file, the one character between two fields, or "tab"; without it the one of the header line.
        encoding: of a csv file, by its name in Python, as cp1252; without it UTF-8, of other lines cp1252.
        dtypes: whether the types of a table in memory are "public", or "bought" by the fit.

    Each field has "dpgen:check", what is to be checked of it, which no fit reads.

    >>> draft_schema(pd.DataFrame({"age": [3]}), dtypes="public")["fields"][0]["constraints"]
    {'required': False, 'minimum': None, 'maximum': None}
    >>> draft_schema(pd.DataFrame({"zip": ["00501"]}))["fields"][0]["dpgen:check"]
    'type is not known; a code? Then it is a string, also where it has digits alone'
    """
    path = table_path(
        data if isinstance(data, str) else str(data) if isinstance(data, Path) else in_memory(data, dtypes), delimiter, encoding
    )
    empty: dict[str, Any] = {"": {}, "string": {"enum": []}, "boolean": {}}
    fields = []
    for name, kind in ((name, type_of(text) if text not in TEXT_TYPES else "") for name, text in header(path).items()):
        rules = {"required": False, **empty.get(kind, {"minimum": None, "maximum": None})}
        fields.append(
            {"name": name, **({"type": kind} if kind else {}), "constraints": rules, "dpgen:check": _check(name, kind)}
        )
    return {"fields": fields, "missingValues": ["", "NA"]}


_CHECKS = {
    r"e?.?mail|phone|tele?fon|^tel|fax|mobile|handy|iban|address|adress|stra(ss|ß)e|street|(sur|last|first|vor|nach|^)name$": (
        "names a person? Then drop it, or make it the primaryKey"
    ),
    r"plz|zip|post_?(code|al)|\bcp\b|icd|code|kennzeichen": "a code? Then it is a string, also where it has digits alone",
    r"(^|_|\b)(id|nr|no|key|uuid|guid|ref)$|nummer|number|schl(ü|ue)ssel": "a key? Then it is the primaryKey",
    r"date|datum|fecha|(^|_)(day|tag|on|at)$|birth|geb|admitted|aufnahme": "a date? Its format may be stated, as %d.%m.%Y",
}
"""Questions that names of columns suggest, by patterns; the first one counts."""
_UNKNOWN = {
    "": "type is not known",
    "string": "write its categories into enum, from a codebook",
    "boolean": "write required: true if no value may be missing",
}


def _check(name: str, kind: str) -> str:
    """Advice to the owner of a draft, by the name and the public type of a column."""
    own = [text for pattern, text in _CHECKS.items() if re.search(pattern, name.lower()) and kind in ("", "string", "integer")]
    return "; ".join([_UNKNOWN.get(kind, "write minimum and maximum that are known without the data"), *own[:1]])


def blanks(descriptor: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The fields of a draft whose domain is still to be filled in."""
    yield from (field for field in descriptor.get("fields", []) if is_blank(field, descriptor))


def is_blank(field: Mapping[str, Any], descriptor: Mapping[str, Any]) -> bool:
    """Whether the domain of a field is not known."""
    if field.get("type") == "boolean" or is_made(field, descriptor):
        return False
    rules = field.get("constraints", {})
    listed = rules.get("enum") or field.get("categories")
    bounded = rules.get("minimum") is not None and rules.get("maximum") is not None
    return not listed and not (field.get("type", "string") not in _OF_TEXTS and (bounded or "dpgen:bins" in field))


def is_made(field: Mapping[str, Any], descriptor: Mapping[str, Any]) -> bool:
    """Whether the values of a field are generated, or computed by a constraint."""
    rules = (rule for rule in descriptor.get("dpgen:constraints", []) if isinstance(rule, Mapping))
    made = {descriptor.get("primaryKey"), *(rule.get("total", rule.get("depends")) for rule in rules)}
    return field.get("name") in made or "dpgen:key" in field


def type_of(text: str) -> str:
    """Type of the Table Schema of an Arrow type, by its name."""
    if text.startswith("date"):
        return "date"
    found = {"bool": "boolean", "int": "integer", "uint": "integer", "float": "number", "double": "number"}
    found |= {"halffloat": "number", "decimal": "number", "timestamp": "datetime"}
    return next((kind for start, kind in found.items() if text.startswith(start)), "string")


TEXT_TYPES = ("", "string", "large_string", "string_view", "utf8", "str")
"""Arrow's types of texts, and of what is not known: the forms of their values are bought."""
_OF_TEXTS = ("any", "string")  # types of fields that may hold texts
Dates = Literal["day_first", "month_first"]
"""Which of two numbers of a date comes first, where both may be."""

Descriptor = dict[str, Any]
Read = Callable[[pd.Series], npt.NDArray[Any]]
TableOf = Callable[[Schema, Any, Tensor], Any]

_NESTED = ("list", "large_list", "fixed_size_list", "struct", "map", "binary", "large_binary", "union")


@dataclass(frozen=True, eq=False, repr=False)
class RawTable:
    """Private rows of a table as they are, and what is known of their columns.

    Fields of the `draft` with "dpgen:blank" have no domain yet; `table_of` makes the table of a complete schema and its codes,
    private ones and those of `test`. `prior` are public rows.
    """

    name: str
    rows: AnyRows
    draft: Descriptor
    test: pd.DataFrame
    facts: tuple[Fact | Said, ...]
    table_of: TableOf
    prior: pd.DataFrame | None = None

    def __repr__(self) -> str:
        shape = f"{self.n} private, {len(self.test)} test rows of {len(self.draft['fields'])} columns"
        return f"RawTable({self.name!r}: {shape}, as they are)"

    @property
    def n(self) -> int:
        """Number of private rows."""
        return len(self.rows)

    @property
    def foreseen(self) -> tuple[str, ...]:
        """Sentences on what the release will not have, as far as public facts tell."""
        return foreseen(self.facts, self.draft)

    def coded(self, schema: Schema) -> Any:
        """The rows as codes of a complete schema, each value by itself; what has no place goes where the schema says."""
        test = schema.codes(self.test) if len(self.test) else torch.empty(0, len(schema.modelled)).long()
        return self.table_of(schema, self.rows.codes(schema), test)


class Rows:
    """Private rows of a table in memory as they are; the counterpart of `EngineRows`."""

    def __init__(self, source: pd.DataFrame) -> None:
        self.source = source

    def __len__(self) -> int:
        return len(self.source)

    def column(self, name: str, read: Read) -> FrameBatch:
        """The values of a column that count: `read` gets values (m,), and returns at most m, each of one of them."""
        return FrameBatch(read(self.source[name]))

    def together(self, names: list[str], read: Callable[[pd.DataFrame], npt.NDArray[Any]]) -> FrameBatch:
        """Values that `read` makes of the rows (m,) of some columns: m values or rows of values at most, each of one row."""
        return FrameBatch(read(self.source))

    def codes(self, schema: Schema) -> Tensor:
        """Codes of a complete schema (n, d)."""
        return schema.codes(self.source)

    def some(self, most: int, seed: int) -> pd.DataFrame:
        """All of the rows: they are in memory."""
        return self.source


AnyRows: TypeAlias = "Rows | EngineRows"
"""Private rows of a table, wherever they are."""


def rows_of(source: pd.DataFrame | EngineTable) -> AnyRows:
    """The rows of a table, wherever they are."""
    if isinstance(source, pd.DataFrame):
        return Rows(source)
    from dpgen.data.batches import EngineRows  # here and below: data in memory need no engine

    return EngineRows(source)


@dataclass(frozen=True, eq=False)
class FrameBatch:
    """Values (n,) or codes (n, width) of all rows in memory; the counterpart of `EngineBatches`."""

    values: npt.NDArray[Any]

    def totals(self, part: Part) -> Tensor:
        """See `dpgen.privacy.exact_sums.totals`."""
        return part((self.values,))

    def different(self) -> Different:
        """The different ones of values (n,)."""
        values, counts = tallied(self.values)
        return Different(counts, lambda places: values[places])

    def kept(self, width: int, codes: int) -> Tensor:
        """Codes (n, width)."""
        return torch.from_numpy(self.values)


@dataclass(frozen=True)
class Chosen:
    """Options on the columns of a table, in place of a schema.

    `target` is a column to predict, `key` one whose values are generated, `dates` the order of numbers in a date; `columns` are
    all that are released, None: any, and `drop` those that are not.
    """

    target: str | None = None
    key: str | None = None
    dates: Dates | None = None
    columns: Sequence[str] | None = None
    drop: Sequence[str] = ()

    @property
    def named(self) -> dict[str, Sequence[str]]:
        """Columns by the option that names them."""
        of_one = {option: [name] for option, name in (("target", self.target), ("key", self.key)) if name is not None}
        return {"columns": self.columns or (), "drop": self.drop} | of_one

    def left_out(self, types: Collection[str]) -> set[str]:
        """Columns that are not released."""
        return {*self.drop} | ({*types} - {*self.columns} if self.columns is not None else set())

    def over(self, given: Mapping[str, Any]) -> Descriptor:
        """A schema with what the options say in its place."""
        own = {"dpgen:target": self.target, "primaryKey": self.key, "dpgen:dates": self.dates}
        draft = {**given} | {name: value for name, value in own.items() if value}
        if (order := draft.get("dpgen:dates")) not in (None, *get_args(Dates)):
            raise nearest("dpgen:dates", str(order), get_args(Dates))
        return draft


def draft_of(
    source: str | EngineTable,
    schema: Mapping[str, Any] | str | None,
    chosen: Chosen,
    *,
    unit: str | None = None,
    types: Mapping[str, str] | None = None,
) -> Descriptor:
    """A draft schema of every column: its type where the file declares it, and all that the given schema states.

    A schema that states the types and domains of its fields leaves other columns out; of any other schema the rest is bought.
    Its `fieldsMatch`, "subset" or "partial", says so too.

    `unit` is a column that names people, which is no data; `types` are more public types.
    """
    types = types_of(source) | dict(types or {})
    if not types:
        raise ValueError(f"{source} has no column; it must have one at least")
    gone = chosen.left_out(types)
    given = without_keys("", descriptor_of(schema), gone)
    known = {str(entry.get("name")): dict(entry) for entry in given["fields"]}
    _require_names(types, {"a field of the schema": [*known]} | chosen.named)
    known = {name: entry for name, entry in known.items() if name not in gone}
    draft = chosen.over(given)
    if draft.get("primaryKey") in gone:
        draft.pop("primaryKey")
    own = {*known, draft.get("primaryKey")}  # a key need not be listed
    own |= set() if _leaves_out(draft, known, complete=schema is not None) else {*types} - {unit}
    fields = _with_types(source, types, _wanted(source, types, own - gone), known)
    draft |= {"fields": fields} | ({"missingValues": list(MISSING)} if schema is None else {})
    _mark_blank(fields, draft, types)
    Schema.from_descriptor(draft)  # refuses what no bought domain could mend
    return draft


def _wanted(source: str | EngineTable, types: Collection[str], names: Collection[Any]) -> list[str]:
    """The columns of these names, one at least."""
    wanted = [name for name in types if name in names]
    if not wanted:
        raise ValueError(f"columns and drop leave no column of {', '.join(types)}; one at least must be released")
    if "" in wanted:
        raise ValueError(f"{getattr(source, 'name', source)} has a column without a name; write one into its header")
    return wanted


def _require_names(types: Collection[str], named: Mapping[str, Sequence[str]]) -> None:
    """Refuse names, by what names them, that no column has."""
    for option, names in named.items():
        for name in names:
            if name not in types:
                raise nearest(option, name, list(types))


def _leaves_out(draft: Descriptor, known: Mapping[str, Descriptor], *, complete: bool) -> bool:
    """Whether a schema leaves other columns out: it says so, or is `complete` and states the domains of its fields."""
    stated = all("type" in field and not is_blank(field, draft) for field in known.values())
    whole = complete and stated and not all(is_made(field, draft) for field in known.values())
    return draft.get("fieldsMatch", "subset" if whole else "partial") in ("subset", "exact", "equal")


def _with_types(
    source: str | EngineTable, types: Mapping[str, str], wanted: Sequence[str], known: Mapping[str, Descriptor]
) -> list[Descriptor]:
    """Fields of the wanted columns, with their public types and what a schema says of them."""
    complete = set[str]()  # columns whose public type holds no missing value
    if isinstance(source, InMemory) and source.form.container == "pandas":
        typed = zip(source.form.names, source.form.types)
        complete = {str(name) for name, kind in typed if re.fullmatch(r"u?int\d+|bool", kind)}
    of_csv = isinstance(source, str) and form_of(source) == "csv"
    fields = [_field(name, types[name], known.get(name, {}), never=name in complete, as_texts=of_csv) for name in wanted]
    return [{key: value for key, value in entry.items() if key != "dpgen:check"} for entry in fields]


def _mark_blank(fields: Sequence[Descriptor], draft: Descriptor, types: Mapping[str, str]) -> None:
    """Mark fields whose domains are to be bought, and give a type to those that are not bought and have none."""
    totals = [rule.get("total") for rule in draft.get("dpgen:constraints", []) if isinstance(rule, Mapping)]
    key = draft.get("primaryKey")
    for entry in fields:
        if is_blank(entry, draft) or _needs_bins(entry, draft):
            _require_flat(entry["name"], types[entry["name"]])
            entry["dpgen:blank"] = _blank(entry, types)
        elif entry["type"] == "any" and entry["name"] != key:  # what a constraint computes
            entry["type"] = "number" if entry["name"] in totals else "string"
    bought = any_blank(fields)
    for entry in filter(lambda entry: entry["name"] == key, fields):
        _mark_key(entry, types, bought=bought)


def _mark_key(entry: Descriptor, types: Mapping[str, str], *, bought: bool) -> None:
    """Domain of the key too, where other fields are `bought`: its pattern, and whether it is a number."""
    if bought and entry["type"] in _OF_TEXTS and not stated_key(entry):
        entry["dpgen:blank"] = _blank(entry, types)
    elif entry["type"] == "any":
        entry["type"] = "string"


def any_blank(fields: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the domain of a field of a draft is to be bought."""
    return any("dpgen:blank" in entry for entry in fields)


def _require_flat(name: str, found: str) -> None:
    """Refuse a column of bytes, or of values that hold several."""
    if found.startswith(_NESTED):
        advice = "texts: decode it" if "binary" in found else "single values: flatten it"
        raise ValueError(f"column {name!r} is {found}; it must hold {advice}")


def _blank(entry: Descriptor, types: Mapping[str, str]) -> bool | str:
    """Whether a field without a domain is one of texts by the container's public type."""
    return "text" if entry["type"] == "any" and types[entry["name"]] else True


def descriptor_of(schema: Mapping[str, Any] | str | None) -> Mapping[str, Any]:
    """The descriptor of a schema given as a mapping or a file; without one, a descriptor of no fields."""
    if schema is None:
        return {"fields": []}
    found = with_fields(read_descriptor(Path(schema)) if isinstance(schema, str) else schema)
    key = found.get("primaryKey")
    return {**found, "primaryKey": key[0]} if isinstance(key, list) and len(key) == 1 else found


def types_of(source: str | EngineTable) -> dict[str, str]:
    """Names of the columns of a table, and their types where these are public."""
    if not isinstance(source, str):
        return {field.name: str(field.type) if source.declared else "" for field in source.schema}
    return header(source)


def _needs_bins(entry: Descriptor, draft: Descriptor) -> bool:
    """Whether a number has a range of many values, and nobody says how to group them."""
    if is_made(entry, draft) or "dpgen:bins" in entry or not {"minimum", "maximum"} <= set(entry.get("constraints", {})):
        return False
    made = field_of(entry)
    return isinstance(made, NumberField) and made.grid.size > EXACT


def unnamed(source: str | EngineTable, draft: Mapping[str, Any], unit: str | None = None) -> tuple[Said, ...]:
    """Facts on the columns and the named index that a schema leaves out."""
    named = {entry["name"] for entry in draft["fields"]}
    left = tuple(name for name in types_of(source) if name not in named and name != unit)
    index = tuple(getattr(source, "index_names", ()))
    return (*((Fact.NOT_IN_SCHEMA(columns=left),) if left else ()), *((Fact.INDEX_LEFT_OUT(names=index),) if index else ()))


def foreseen(facts: Sequence[Fact | Said], draft: Mapping[str, Any]) -> tuple[str, ...]:
    """Sentences on columns that a release will not have, or not as they are, before anything is paid."""
    found = [one.short for one in facts if isinstance(one, Said) and one.fact in (Fact.NOT_IN_SCHEMA, Fact.INDEX_LEFT_OUT)]
    if keys := _generated(draft):
        found.append(f"Generated anew: {listed(keys, 8)}. Values of a key are no data.")
    blank = (entry for entry in draft.get("fields", ()) if entry.get("dpgen:blank"))
    if others := [entry["name"] for entry in blank if entry["type"] in _OF_TEXTS and entry["name"] not in keys]:
        found.append(
            f"Not known before it is paid for: {listed(others, 8)}. Texts of which few are frequent and that have no common "
            "pattern will be left out. A list of categories (enum) in the schema keeps a column, drop saves its price."
        )
    return tuple(found)


def _generated(draft: Mapping[str, Any]) -> list[str]:
    """Names of the fields whose values are generated."""
    key = draft.get("primaryKey")
    return [entry["name"] for entry in draft.get("fields", ()) if entry["name"] == key or "dpgen:key" in entry]


_POSTCODE = re.compile(r"plz|postleitzahl|zip([ _-]?codes?)?|post(al)?[ _-]?codes?|code[ _-]?postal|cp", re.IGNORECASE)


def _kind_of_text(name: str, kind: str, rules: Mapping[str, Any], written: str, *, as_texts: bool) -> str:
    """The type of a column of texts by its bounds, its name and its format; `kind` where these say nothing."""
    bounds = [str(rules[rule]) for rule in ("minimum", "maximum") if rule in rules]
    if bounds:
        kind = _kind_of_bounds(bounds)
    if kind == "any" and as_texts and _POSTCODE.fullmatch(name.strip()):
        kind = "string"
    if "%" in written and kind in _OF_TEXTS:
        kind = "datetime" if re.search("%[HIMSTRcX]", written) else "date"
    return kind


def _kind_of_bounds(bounds: Sequence[str]) -> str:
    """The type of a number, a date or a time by its least and greatest value."""
    if all(NUMBER.fullmatch(bound) for bound in bounds):
        return "number"
    return "date" if all(len(bound) == len("2000-01-01") for bound in bounds) else "datetime"


def _field(name: str, text: str, known: Mapping[str, Any], *, never: bool = False, as_texts: bool = False) -> Descriptor:
    """The field of a column: its type, and what a schema says of it, without blanks; `never`: it has no gaps.

    `as_texts`: nothing has changed its values, so postcodes have their zeros, by their name.
    """
    rules = {rule: value for rule, value in known.get("constraints", {}).items() if value not in (None, [])}
    kind = type_of(text) if text not in TEXT_TYPES else "any"
    if kind in _OF_TEXTS and "type" not in known:
        kind = _kind_of_text(name, kind, rules, str(known.get("format", "")), as_texts=as_texts)
    if never and "required" not in rules:
        rules["required"] = True
    field: Descriptor = {"name": name, "type": kind, **known}
    return field | ({"constraints": rules} if rules or "constraints" in known else {})


def read_names(draft: Descriptor) -> list[str]:
    """Columns that are read: a key only where its pattern is bought."""
    key = draft.get("primaryKey")
    return [entry["name"] for entry in draft["fields"] if entry["name"] != key or entry.get("dpgen:blank")]


def load_raw(source: str, draft: Descriptor, options: SplitOptions, *, name: str, table_of: TableOf) -> RawTable:
    """The rows of a table, with a part for evaluation if the options ask for one."""
    names = read_names(draft)
    table, split = options.read(source, names, text=names, missing=draft.get("missingValues", [""]))
    declared, unit = Schema.from_descriptor(draft), None if options.people is None else options.people.column
    declared.require(table)
    test = split.test_rows(len(table)).numpy()
    return RawTable(
        name=name,
        rows=Rows(table[~test].reset_index(drop=True)),
        draft=draft,
        test=table[test].reset_index(drop=True),
        facts=(*declared.facts, split.fact("rows"), *unnamed(source, draft, unit)),
        table_of=table_of,
    )


def raw_in_engine(opened: EngineTable, draft: Descriptor, people: People | None, *, table_of: TableOf) -> RawTable:
    """The rows of a table that stays in an engine; none is for evaluation."""
    names = read_names(draft)
    from dpgen.data.batches import EngineRows, bounded_rows

    table = opened.columns(names) if people is None else bounded_rows(opened.columns([*names, people.column]), people)
    rows = EngineRows(table)
    if not len(rows):
        raise ValueError(f"{opened.name} is empty: it has {len(opened.schema)} columns and no record")
    declared, unit = Schema.from_descriptor(draft), None if people is None else people.column
    rows.require(declared)
    return RawTable(
        name=opened.name,
        rows=rows,
        draft=draft,
        test=pd.DataFrame(columns=names),
        facts=(
            *declared.facts,
            *opened.facts,
            Split(0.0).fact("rows"),
            *unnamed(opened, draft, unit),
        ),
        table_of=table_of,
    )
