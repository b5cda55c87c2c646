"""Public schemas of tables: a Table Schema in JSON or YAML, the finite domain that it declares, constraints of its rows."""

import copy
import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
import yaml
from torch import Tensor

from dpgen.columns.constraints import (
    Computed,
    Constraint,
    Dated,
    Depends,
    Follows,
    Forbidden,
    Part,
    Product,
    Rows,
    Total,
    codes_as_texts,
    constraint_of,
    with_broken,
)
from dpgen.columns.descriptors import field_of, with_key
from dpgen.columns.fields import (
    CategoryField,
    Field,
    GivenField,
    LengthField,
    OpenField,
    breach,
    checked,
    codes_of,
    lengths,
    nearest,
    placed,
)
from dpgen.facts import Fact, Said

Shares = Sequence[npt.NDArray[np.float64]]

_KEYS = {"fields", "missingValues", "primaryKey", "dpgen:target", "dpgen:constraints", "dpgen:privacy"}
_KEYS |= {"dpgen:dates", "$schema", "name", "title", "description", "profile", "fieldsMatch"}
MOST_KINDS = 33
"""Values of a column that follows from codes of another one, which stay apart where these are joined."""
_MOST_TRIES = 1000
"""Rows that are drawn for each row that constraints accept, at most."""
_MOST_VALUES = 100
"""Values that are drawn for the same codes, at most."""


@dataclass(frozen=True)
class TableDomain:
    """The finite domain of the columns that are modelled: everything that a model may know before it has paid.

    `sizes` count the missing value, whose code in `missing` is the last one; None: no value may be missing. `ordered` says
    whether neighbouring codes are neighbouring values, `target` where the column is that users want to predict. `kinds` of the
    codes of some columns, by their place, say what follows from them.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    ordered: tuple[bool, ...]
    missing: tuple[int | None, ...]
    target: int | None = None
    kinds: Mapping[int, tuple[int, ...]] = field(default_factory=dict, hash=False)


# -- schema ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Schema:
    """A public description of a table: fields, the one to predict, and constraints that hold in every row.

    Made by `from_descriptor`; nothing in it may be read from the private records, unless it says so.

    `missing_values` are texts of a csv file that stand for no value; `privacy` is what was spent on the domains of fields with
    the source "dp": epsilon, delta, relation, unit, max_contributions.

    >>> schema = Schema.from_descriptor({"fields": [
    ...     {"name": "age", "type": "integer", "constraints": {"minimum": 18, "maximum": 29, "required": True}},
    ...     {"name": "tea", "type": "boolean"}]})
    >>> schema.domain.sizes, schema.domain.missing
    ((12, 3), (None, 2))
    >>> schema.encode(pd.DataFrame({"age": [18, 29], "tea": [True, None]})).tolist()
    [[0, 1], [11, 2]]
    """

    fields: tuple[Field, ...]
    target: str | None = None
    constraints: tuple[Constraint, ...] = ()
    missing_values: tuple[str, ...] = ("",)
    privacy: Mapping[str, Any] = field(default_factory=dict)
    source: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        names = [given.name for given in self.fields]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"fields have the name {twice!r} twice; names must differ")
        for constraint in self.constraints:
            for name in constraint.names:
                if name not in names:
                    raise nearest("a field of a constraint", name, names)
        self._require_computable()
        for constraint in self.constraints:
            self._require_comparable(constraint)
        if not self.modelled:
            raise ValueError("fields are all keys or computed ones; at least one must be modelled")
        self._require_modelled()
        self._require_no_blank_category()

    def _require_modelled(self) -> None:
        """Refuse a target and bases of lengths that are no modelled fields, and a circle of lengths."""
        modelled = [given.name for given in self.modelled]
        for given in self.modelled:
            if isinstance(given, LengthField) and given.base not in modelled:
                raise nearest(f"the field that {given.name!r} is a length from", given.base, modelled)
        _ = self._bases_first  # refuses a circle
        if self.target is not None and self.target not in modelled:
            raise nearest("dpgen:target", self.target, modelled)

    def _require_no_blank_category(self) -> None:
        """Refuse public categories that are written like missing values."""
        for given in self.fields:
            listed = _stated_values(given) or ()  # bought ones are there
            if hidden := [value for value in listed if isinstance(value, str) and value in self.missing_values]:
                raise ValueError(f"enum of field {given.name!r} lists {hidden[0]!r}, which is one of missingValues")

    def _require_computable(self) -> None:
        """Every computed field follows from fields that are there before it."""
        there = {given.name for given in self.modelled}
        for constraint in self._computed:
            for name in constraint.names:
                if name != constraint.name and name not in there:
                    raise ValueError(f"field {constraint.name!r} depends on {name!r}, which is computed later or is a key")
            there.add(constraint.name)
            if isinstance(constraint, Depends):
                self._require_whole_table(constraint)

    def _require_whole_table(self, constraint: Depends) -> None:
        on = self.by_name[constraint.on]
        if not isinstance(on, CategoryField):
            raise ValueError(f"field {constraint.name!r} depends on {on.name!r}; it must list its values in enum")
        if left := [value for value in on.values if str(value) not in constraint.table]:
            raise ValueError(f"table of field {constraint.name!r} lacks {str(left[0])!r} of {on.name!r}")

    def _require_comparable(self, constraint: Constraint) -> None:
        on = self.by_name[constraint.names[0]]
        if isinstance(constraint, Part | Dated) and on.type not in ("date", "datetime"):
            raise ValueError(f"field {constraint.names[1]!r} is a part of {on.name!r}, a {on.type}; it must be a date")
        if isinstance(constraint, Forbidden):
            self._require_conditions(constraint)
        names = constraint.compared
        kinds = {"date" if self.by_name[name].type in ("date", "datetime") else self.by_name[name].type for name in names}
        of_dates = kinds == {"date"} and not isinstance(constraint, Total | Product)
        if kinds & {"string", "boolean", "any", "date"} and not of_dates:
            shown = ", ".join(f"{name} ({self.by_name[name].type})" for name in names)
            raise ValueError(f"a constraint compares {shown}; it must be of numbers, or of dates, by types that are stated")

    def _require_conditions(self, constraint: Forbidden) -> None:
        for name, condition in constraint.conditions.items():
            if isinstance(condition, Mapping):
                if not condition or set(condition) - {"minimum", "maximum"}:
                    raise ValueError(f"condition on field {name!r} is {dict(condition)!r}; it needs minimum or maximum or both")
                continue
            listed = _stated_values(self.by_name[name])  # a bought list may lack it: then it is rare
            for value in condition if isinstance(condition, list) else [condition]:
                if listed is not None and value not in (None, *listed):
                    raise nearest(f"a forbidden value of field {name!r}", str(value), [str(v) for v in listed[:20]])

    @classmethod
    def from_descriptor(cls, descriptor: "Mapping[str, Any] | Path | str") -> "Schema":
        """A schema from a mapping, or from a file of JSON or YAML."""
        if isinstance(descriptor, str | Path):
            descriptor = read_descriptor(Path(descriptor))
        descriptor = with_fields(descriptor)
        _require_form(descriptor)
        keys = _keys_of(descriptor)
        constraints = tuple(map(constraint_of, descriptor.get("dpgen:constraints", [])))
        computed = [constraint.name for constraint in constraints if isinstance(constraint, Computed)]
        return cls(
            fields=tuple(
                field_of(given, key=given.get("name") in keys or "dpgen:key" in given, computed=given.get("name") in computed)
                for given in descriptor["fields"]
            ),
            target=descriptor.get("dpgen:target"),
            constraints=constraints,
            missing_values=tuple(str(text) for text in descriptor.get("missingValues", [""])),
            privacy=descriptor.get("dpgen:privacy", {}),
            source=json.loads(json.dumps(descriptor, default=str)),
        )

    def descriptor(self) -> dict[str, Any]:
        """The schema as JSON, from which `from_descriptor` makes it again."""
        return copy.deepcopy(dict(self.source))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self.source == other.source

    def __hash__(self) -> int:
        return hash(json.dumps(self.source, sort_keys=True))

    # -- what is modelled ------------------------------------------------------------------------------------------------

    @cached_property
    def by_name(self) -> dict[str, Field]:
        """The fields by their names."""
        return {given.name: given for given in self.fields}

    @cached_property
    def modelled(self) -> tuple[Field, ...]:
        """The fields that a model sees, in order: neither keys nor computed ones."""
        return tuple(given for given in self.fields if not isinstance(given, GivenField))

    @cached_property
    def _bases_first(self) -> tuple[int, ...]:
        """Places of the modelled fields, each after the one that it is a length from."""
        left, found = dict(enumerate(self.modelled)), list[int]()
        while left:
            there = {self.modelled[place].name for place in found}
            ready = [place for place, given in left.items() if getattr(given, "base", None) in (None, *there)]
            if not ready:
                raise ValueError(f"fields {', '.join(given.name for given in left.values())} are lengths from each other")
            found += ready
            left = {place: given for place, given in left.items() if place not in ready}
        return tuple(found)

    @cached_property
    def tied(self) -> frozenset[str]:
        """Names of the fields that constraints are about."""
        return frozenset(name for constraint in self.constraints for name in constraint.names)

    @cached_property
    def checked(self) -> tuple[str, ...]:
        """Names of the fields of which something can be false: no keys, and none of which nothing is said."""
        free = [f for f in self.fields if isinstance(f, OpenField) and f.type == "any" and f.nullable]
        others = {f.name for f in self.fields if isinstance(f, GivenField) or f in free} - self.tied
        return tuple(f.name for f in self.fields if f.name not in others)

    @property
    def _computed(self) -> list[Computed]:
        return [constraint for constraint in self.constraints if isinstance(constraint, Computed)]

    @cached_property
    def domain(self) -> TableDomain:
        """The domain of the modelled fields."""
        names = tuple(given.name for given in self.modelled)
        return TableDomain(
            names=names,
            sizes=tuple(given.size + given.nullable for given in self.modelled),
            ordered=tuple(given.ordered for given in self.modelled),
            missing=tuple(given.size if given.nullable else None for given in self.modelled),
            target=names.index(self.target) if self.target in names else None,
            kinds=self._kinds(names),
        )

    def _kinds(self, names: Sequence[str]) -> dict[int, tuple[int, ...]]:
        """Numbers (codes,) of the value that goes with each code of columns on which others follow, 0 where it is free."""
        found, follows = dict[int, tuple[int, ...]](), [one for one in self.constraints if isinstance(one, Follows)]
        for one in follows:
            if len(one.on) == 1 and one.on[0] in names and (codes := self._kinds_of(one)):
                found.setdefault(names.index(one.on[0]), codes)
        return found

    def _kinds_of(self, constraint: Follows) -> tuple[int, ...]:
        """Kinds of values of one constraint; (): there are too many values."""
        numbers = {value: i + 1 for i, value in enumerate(dict.fromkeys(constraint.table.values()))}
        texts = codes_as_texts(self.by_name[constraint.on[0]]) if len(numbers) < MOST_KINDS else None
        return tuple(numbers.get(constraint.table.get((text or "",), ""), 0) for text in texts or ())

    @property
    def _paid(self) -> str:
        people = ("unit", "max_contributions", "rows_per_unit") if self.privacy.get("unit") else ()  # the last in 0.4
        paid = [f"{key} {self.privacy[key]}" for key in ("epsilon", "delta", "relation", *people) if key in self.privacy]
        return ", ".join(paid) or "at a price that the schema does not state"

    @property
    def facts(self) -> tuple[Fact | Said, ...]:
        """Facts of where domains come from, for a statement; none of those that are still open."""
        of = {source: tuple(f.name for f in self.modelled if f.source == source) for source in ("private", "dp")}
        bought = (*of["private"], *of["dp"])
        public = tuple(f.name for f in self.fields if not isinstance(f, OpenField) and f.name not in bought)
        found: list[Fact | Said] = [Fact.PUBLIC_SCHEMA(columns=public)] if public else []
        if of["private"]:
            found.append(Fact.READ_DOMAINS(columns=of["private"]))
        if of["dp"]:
            found.append(Fact.BOUGHT_DOMAINS(columns=of["dp"], price=self._paid))
        return tuple(found)

    # -- tables to codes and back ------------------------------------------------------------------------------------------

    def require(self, table: pd.DataFrame, but: Collection[str] = ()) -> None:
        """Refuse a table that contradicts the schema: the one place where private values are checked, before any release.

        Each value is checked by itself against what its field says, also where its domain is open, and then each row against
        the constraints. Columns that a table does not have are keys.

        Errors name the column and the rule; which row and value it is is private. Columns in `but`, on which there is no
        constraint, are left to `require_values`.
        """
        self._parsed(table, strict=True, but=but)

    def require_values(self, name: str, values: pd.Series) -> None:
        """Refuse values of a checked field, each by itself; of constraints `require` alone knows."""
        checked(self.by_name[name], values, strict=True)

    def encode(self, table: pd.DataFrame) -> Tensor:
        """Codes (n, d), int64, of the modelled columns of a table that satisfies the schema; another one is refused.

        Where a domain was bought (source "dp"), a value that is not of the type is missing; elsewhere it is refused.
        """
        return torch.from_numpy(codes_of(self.modelled, self._parsed(table, strict=False), strict=True))

    def codes(self, table: pd.DataFrame) -> Tensor:
        """Codes of any table, each value by itself: what has no place in the domain is missing."""
        return torch.from_numpy(self.codes_of(self.domain.names, table))

    def codes_of(self, names: Sequence[str], table: pd.DataFrame) -> npt.NDArray[np.int64]:
        """Codes (n, k) of some modelled fields, as `codes` has them; a length needs the field that it is from among them."""
        parsed = {name: self.by_name[name].read(_column(table, name)) for name in names}
        return codes_of([self.by_name[name] for name in names], parsed, strict=False)

    def codes_of_samples(
        self, table: pd.DataFrame, names: Sequence[str] = (), *, strict: bool = False
    ) -> npt.NDArray[np.int64]:
        """Codes (n, k) of the modelled fields, or of some, of values as `decode` gives them: no writing is read.

        What has no place in the domain is missing; a ValueError if this is `strict`.
        """
        return codes_of([self.by_name[name] for name in names or self.domain.names], table, strict=strict)

    def typed(self, table: pd.DataFrame) -> pd.DataFrame:
        """Modelled columns of a raw table in the types of samples, each value by itself; see `Field.read`."""
        return pd.DataFrame({given.name: given.read(_column(table, given.name)) for given in self.modelled})

    def _parsed(self, table: pd.DataFrame, *, strict: bool, but: Collection[str] = ()) -> dict[str, pd.Series]:
        """Values of all fields in their types; `strict`: also of those whose domain was bought."""
        parsed = dict[str, pd.Series]()
        for given in self.fields:
            if given.name not in self.checked or given.name in but or (given.name not in table and given not in self.modelled):
                continue
            parsed[given.name] = checked(given, _column(table, given.name), strict=strict)
        if self.constraints:
            self._require_constraints(pd.DataFrame(parsed))
        return parsed

    def known(self, table: pd.DataFrame) -> tuple[npt.NDArray[np.int64], pd.DataFrame]:
        """Codes (n, d) of a table with gaps, -1 where a value is null, and its parsed values, computed ones among them.

        A value that has no place in a domain that was bought is as if it were null; elsewhere a ValueError.
        """
        codes, found = np.full((len(table), len(self.modelled)), -1, np.int64), {}
        for position, given in enumerate((*self.modelled, *(self.by_name[constraint.name] for constraint in self._computed))):
            if position >= len(self.modelled) and given.name not in table:
                continue
            there, parsed, own = placed(given, _column(table, given.name))
            if position < len(self.modelled):
                codes[there, position] = own
            found[given.name] = pd.Series(parsed.to_numpy(object), index=there, dtype=object).reindex(range(len(table)))
        for own, given in zip(codes.T, self.modelled):
            if isinstance(given, LengthField):
                own[:] = lengths(given, found)
        return codes, pd.DataFrame(found)

    def _require_constraints(self, table: pd.DataFrame) -> None:
        for constraint, described in zip(self.constraints, self.source.get("dpgen:constraints", [])):
            if constraint.broken or not set(constraint.names) <= set(table.columns):
                continue
            if not constraint.holds(table).all():
                raise breach(", ".join(constraint.names), f"constraint {json.dumps(described)[:120]}")

    def decode(
        self,
        codes: Tensor,
        generator: torch.Generator,
        shares: Shares | None = None,
        known: Mapping[str, pd.Series] | None = None,
    ) -> pd.DataFrame:
        """Values of codes (n, d): in a bin by the law of its field, missing ones as nulls, keys and computed fields filled in.

        Rows satisfy the constraints that compute fields; `satisfied` says which satisfy the others.

        Laws inside bins follow `shares`, released ones of the codes of every modelled field; None: uniform ones. Parsed values
        (n,) that are `known` stand in their place, and what follows from them follows.
        """
        array, columns, known = codes.numpy(), dict[str, pd.Series](), {} if known is None else known
        for position in self._bases_first:
            given, own = self.modelled[position], array[:, position]
            present = np.minimum(own, given.size - 1)
            uniform = _places(given, present, generator, None if shares is None else shares[position])
            if isinstance(given, LengthField):
                values = given.decode_beside(present, uniform, columns[given.base])
            else:
                values = given.decode(present, uniform)
            if given.nullable:  # of the same type whether there are gaps
                kind = {"i": "Int64", "b": "boolean"}.get(values.dtype.kind)
                values = (values if kind is None else values.astype(kind)).mask(own == given.size)
            columns[given.name] = _put(values, known.get(given.name))
        table = pd.DataFrame(columns)
        for constraint in self._computed:
            table[constraint.name] = _put(self._follows(constraint, table), known.get(constraint.name))
        return self._keyed(table)

    def overlaid(self, drawn: pd.DataFrame, known: pd.DataFrame) -> pd.DataFrame:
        """Drawn rows (n,) with parsed values that are known in their place; computed fields that are not known follow."""
        table = drawn.copy()
        for given in self.modelled:
            table[given.name] = _put(drawn[given.name], known.get(given.name))
        for constraint in self._computed:
            table[constraint.name] = _put(self._follows(constraint, table), known.get(constraint.name))
        return table

    def _follows(self, constraint: Computed, table: pd.DataFrame) -> pd.Series:
        """Values (n,) of a computed field in its type."""
        values = constraint.compute(table)
        whole = self.by_name[constraint.name].type == "integer" and values.dtype.kind == "f"
        return values.astype("Int64" if values.isna().any() else "int64") if whole else values

    def _keyed(self, table: pd.DataFrame) -> pd.DataFrame:
        """The table with fresh keys, and its columns in the order of the fields."""
        computed = {constraint.name for constraint in self._computed}
        keys = [given for given in self.fields if isinstance(given, GivenField) and given.name not in computed]
        added = table.assign(**{key.name: key.decode(np.arange(len(table)), np.zeros) for key in keys})
        return added[[given.name for given in self.fields]]

    def satisfied(self, table: pd.DataFrame, but: Rows | None = None) -> Rows:
        """Rows (n,) of decoded values that satisfy all constraints, but for those (n, constraints) of each row."""
        found = np.ones(len(table), bool)
        for i, constraint in enumerate(self.constraints):
            found &= constraint.holds(table) | (False if but is None else but[:, i])
        return found

    def admissible(self, codes: Tensor, but: Rows | None = None) -> Tensor:
        """Rows (n,) of codes (n, d) with values that each constraint alone allows; False: no values of them satisfy it."""
        columns = dict(zip(self.domain.names, codes.numpy().T))
        found = np.ones(len(codes), bool)
        for i, constraint in enumerate(self.constraints):
            possible = constraint.possible(columns, self.by_name)
            found &= True if possible is None else possible | (False if but is None else but[:, i])
        return torch.from_numpy(found)

    def broken(self, known: pd.DataFrame) -> Rows:
        """Constraints, among those that a share of rows may break, that known values break, (n, constraints)."""
        found = np.zeros((len(known), len(self.constraints)), bool)
        for i, constraint in enumerate(self.constraints):
            if constraint.broken and set(constraint.names) <= set(known):
                there = known[list(constraint.names)].notna().all(axis=1).to_numpy()
                found[there, i] = ~constraint.holds(known[there].infer_objects())
        return found

    @cached_property
    def rejects(self) -> bool:
        """Whether some constraint is kept by rejecting rows."""
        return any(not constraint.built_in(self.by_name) for constraint in self.constraints)

    def rows(
        self,
        draw: Callable[[int], Tensor],
        n: int,
        generator: torch.Generator,
        shares: Shares | None = None,
        *,
        holds: Callable[[pd.DataFrame], Rows] | None = None,
        fixed: Mapping[str, Any] | None = None,
        about: Iterable[str] = (),
    ) -> pd.DataFrame:
        """n rows that satisfy the constraints, of codes (m, d) that `draw(m)` draws: the law of codes given the constraints.

        Shares of rows break those of which this is said (`Constraint.broken`). `holds(table)` says which rows (m,) satisfy a
        condition more, `fixed` are values of columns that all of them have; columns that these are `about` keep their values.
        Where they are about a length, a row is drawn once in its codes: how many of their values satisfy is part of its
        probability.
        """
        ways: dict[str, Any] = {"holds": holds, "fixed": fixed, "about": about}
        if not self.rejects and holds is None:
            found = self.decode(draw(n), generator, shares, _repeated(fixed, n))
            return self.broken_as_said(found, draw, generator, shares, held={*about})
        kept, drawn = self.values(draw(n), generator, shares, **ways), n
        while len(kept) < n:
            if drawn > _MOST_TRIES * max(100, len(kept)):
                raise ValueError(
                    f"constraints accept {len(kept)} of {drawn} rows that were drawn, and {n} were asked for: they contradict "
                    "the model, or what is given; loosen them, or fit with a greater epsilon"
                )
            more = min(2**20, math.ceil(1.1 * (n - len(kept)) * drawn / max(1, len(kept))) + 16)
            kept, drawn = pd.concat([kept, self.values(draw(more), generator, shares, **ways)]), drawn + more
        return self._keyed(self.broken_as_said(kept.iloc[:n].reset_index(drop=True), draw, generator, shares, {*about}))

    def broken_as_said(
        self, table: pd.DataFrame, draw: Any, generator: torch.Generator, shares: Shares | None, held: Collection[str] = ()
    ) -> pd.DataFrame:
        """Rows that satisfy the constraints, of which shares break those of which this is said; see `rows`."""
        if not (share := sum(constraint.broken for constraint in self.constraints)) or not len(table):
            return table
        pool = self.decode(draw(min(2**16, 64 + math.ceil(8 * share * len(table)))), generator, shares)
        rng = np.random.default_rng(int(torch.randint(2**62, (1,), generator=generator)))
        return with_broken(table, pool, self.constraints, held, rng)

    def values(
        self,
        codes: Tensor,
        generator: torch.Generator,
        shares: Shares | None = None,
        *,
        holds: Callable[[pd.DataFrame], Rows] | None = None,
        known: Mapping[str, pd.Series] | None = None,
        fixed: Mapping[str, Any] | None = None,
        about: Iterable[str] = (),
    ) -> pd.DataFrame:
        """Values of those of the codes (n, d) that satisfy the constraints, by their places; see `rows`.

        Values are drawn in their bins again where others would satisfy them: only codes without such values are rejected, so
        that a constraint inside bins does not move the shares of bins. Parsed values (n,) that are `known` stay.
        """
        left, found = np.flatnonzero(self.admissible(codes).numpy()), list[pd.DataFrame]()
        for _ in range(1 if any(isinstance(self.by_name[name], LengthField) for name in about) else _MOST_VALUES):
            of_left = {name: own.iloc[left].reset_index(drop=True) for name, own in (known or {}).items()}
            table = self.decode(codes[torch.from_numpy(left)], generator, shares, of_left | _repeated(fixed, len(left)))
            satisfied = self.satisfied(table) & (True if holds is None else holds(table))
            found.append(table.set_axis(left)[satisfied])
            if not len(left := left[~satisfied]):
                break
        return pd.concat(found).sort_index()


def _repeated(fixed: Mapping[str, Any] | None, n: int) -> dict[str, pd.Series]:
    """Columns (n,) of one value each."""
    return {name: pd.Series([value] * n, dtype=object) for name, value in (fixed or {}).items()}


def _put(values: pd.Series, known: pd.Series | None) -> pd.Series:
    """Values (n,) with those that are known in their place, in the same type."""
    if known is None or not (there := known.notna().to_numpy()).any():
        return values
    return values.astype(object).where(~there, known.set_axis(values.index)).astype(values.dtype)


def _places(
    given: Field, codes: npt.NDArray[np.int64], generator: torch.Generator, shares: npt.NDArray[np.float64] | None
) -> Callable[[int], npt.NDArray[np.float64]]:
    """Public numbers in [0, 1) by the law of a field, for its `decode` of these codes."""

    def uniform(n: int) -> npt.NDArray[np.float64]:
        drawn = torch.rand(n, generator=generator, dtype=torch.float64).numpy()
        return drawn if shares is None else given.inside(codes, drawn, shares)

    return uniform


def read_descriptor(path: Path) -> Any:
    """Content of a file of JSON or YAML."""
    if not path.is_file():
        raise ValueError(f"schema is {str(path)!r}: there is no such file")
    try:
        text = path.read_bytes().decode()
        with suppress(ValueError):  # a hundred times as fast, and 1e5 is a number there, for YAML a text
            return json.loads(text, parse_constant=str)
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ValueError(f"schema {str(path)!r} is neither JSON nor YAML: {' '.join(str(error).split())[:200]}") from None


def _require_form(descriptor: Mapping[str, Any]) -> None:
    """Refuse keys that no schema has, and parts of another form than theirs."""
    for found in descriptor:
        if found not in _KEYS:
            raise nearest("a key of the schema", str(found), sorted(_KEYS))
    if not all(isinstance(given, Mapping) for given in descriptor["fields"]):
        raise ValueError("schema has a field that is no mapping; it must be {'name': ..., 'type': ...}")
    if not isinstance(listed := descriptor.get("dpgen:constraints", []), list):
        raise ValueError(f"dpgen:constraints is {listed!r}; it must be a list")
    if not isinstance(paid := descriptor.get("dpgen:privacy", {}), Mapping):
        raise ValueError(f"dpgen:privacy is {paid!r}; it must be a mapping, as dpgen schema writes it")


def _keys_of(descriptor: Mapping[str, Any]) -> list[str]:
    """The fields whose values are generated: one at most."""
    key = descriptor.get("primaryKey", [])
    keys = [key] if isinstance(key, str) else list(key)
    if len(keys) > 1:
        raise ValueError(f"primaryKey is {keys}; it must be one field: keys are generated one by one")
    names = [given.get("name") for given in descriptor["fields"]]
    if keys and keys[0] not in names:
        raise nearest("primaryKey", str(keys[0]), [str(name) for name in names])
    return keys


def _stated_values(given: Field) -> tuple[Any, ...] | None:
    """Values that a schema lists of a field; None: it has no list, or one that was bought."""
    return given.values if isinstance(given, CategoryField) and given.source != "dp" else None


def with_fields(descriptor: Any) -> Mapping[str, Any]:
    """The descriptor with patterns of keys as `dpgen:key`; it must have a list of fields."""
    if not isinstance(descriptor, Mapping) or not isinstance(descriptor.get("fields"), list):
        raise ValueError("schema has no list of fields; it must be {'fields': [{'name': ..., 'type': ...}, ...]}")
    key = descriptor.get("primaryKey")
    names = [key, *(key if isinstance(key, list) else [])]
    fields = [with_key(f, key=isinstance(f, Mapping) and f.get("name") in names) for f in descriptor["fields"]]
    return {**descriptor, "fields": fields}


def _column(table: pd.DataFrame, name: str) -> pd.Series:
    if name not in table:
        raise nearest("table lacks a field of its schema, which", name, [str(found) for found in table.columns])
    return table[name].reset_index(drop=True)
