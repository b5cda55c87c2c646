"""The released model of people and their rows: linked samples, also given values of people, and its laws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from dpgen.linked_samples import LinkedSamples
from dpgen.release import PublicModel, RandomState, sampling_seed
from dpgen.schema import Schema
from dpgen.statement import PrivacyStatement
from dpgen.systems.relational.chains import Chain
from dpgen.systems.relational.sums import SPANS, Integers, Reals
from dpgen.systems.tables.columns import Columns
from dpgen.systems.tables.marginals import Coarsening
from dpgen.systems.tables.mixture import Mixture
from dpgen.systems.tables.model import Given, TablesModel
from dpgen.systems.tables.rows import edges, filled

_TRIES = 100
"""Draws of a row or a person until one satisfies the constraints."""


class RelationalModel(PublicModel, kind="relational"):
    """Classes of people, chains of classes of rows (see `chains`), and released shares of the codes inside each group.

    Arguments:
        chain: over groups of codes.
        people: released columns of people, the number of rows last.
        rows: released columns of rows, by their spans.
        spans: of the columns of rows.
        schemas: of people and of rows.
        size: noisy number of people.
        shown: how samples are given back: names of the tables, of the person's column, of the order and of the time since the
            last row, the seconds of its unit, the last possible value of the order, the forms of the tables.
        statement: what the model cost.
    """

    def __init__(
        self,
        chain: Chain,
        *,
        people: Columns,
        rows: Columns,
        spans: Sequence[str],
        schemas: tuple[Schema, Schema],
        size: int,
        shown: Mapping[str, Any],
        statement: PrivacyStatement,
    ) -> None:
        self.chain, self.rows, self.spans, self.schemas = chain, rows, tuple(spans), schemas
        self.shown, self.statement, self._size = dict(shown), statement, size
        full = [Coarsening.full(people.coarse.sizes)]
        self.people = TablesModel(chain.people, people, schema=schemas[0], measurements=[], levels=full, statement=statement)

    @property
    def size(self) -> int:
        """A released (noisy) estimate of how many people the model was fitted to."""
        return max(1, self._size)

    # -- samples -------------------------------------------------------------------------------------------------------

    def sample(self, n: int, random_state: RandomState = None, **options: Any) -> Any:
        """n synthetic people with their rows as the data came: tables by name, or the rows alone; free of further cost."""
        return self.samples(n, random_state=random_state, **options).restored()

    def samples(self, n: int, *, random_state: RandomState = None, given: Mapping[str, Given] | None = None) -> LinkedSamples:
        """n synthetic people with their rows, free of further privacy cost.

        Classes, numbers of rows and values are systematic draws in each class: their shares are close to the model's.

        Arguments:
            given: values of people by the name of their table, see `TablesModel.samples`: people follow the model's law given
                them, and so do their rows.

        Raises:
            ValueError: a table, column or value that is not there, or next to no draw satisfies all of it.
        """
        seed = sampling_seed(int(n), random_state)
        generator, inner = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
        *named, of_rows = self.shown["tables"]
        for name in given or {}:
            if name not in named:
                raise ValueError(
                    f"given is of {name!r}; it must be of the table of people, {', '.join(named) or 'there is none'}"
                )
        people, z = self._people(int(n), dict((given or {}).get(named[0], {})) if named else {}, generator, inner)
        counts = people[self.schemas[0].modelled[-1].name].to_numpy(np.int64)
        owner = np.repeat(np.arange(len(counts)), counts)
        place = np.arange(len(owner)) - np.repeat(counts.cumsum() - counts, counts)
        rows = self._rows(self._classes(z, owner, place, counts, generator), generator, inner)
        self._put_in_time(rows, owner, place)
        keys = np.arange(1, len(counts) + 1)
        keys = keys.astype(str).astype(object) if self.shown["text"] else keys
        tables = {of_rows: rows.assign(**{self.shown["person"]: keys[owner]})}
        if named:
            tables = {named[0]: people.assign(**{self.shown["person"]: keys})} | tables
        return LinkedSamples.of(tables, self.shown["forms"], person=self.shown["person"], order=self.shown["order"])

    def _people(
        self, n: int, given: dict[str, Any], generator: np.random.Generator, inner: torch.Generator
    ) -> tuple[pd.DataFrame, Integers]:
        """Values of n people, and their classes."""
        mixture, inside = self.people.conditioned(given)
        z = np.searchsorted(
            edges(mixture.weights.astype(np.float64)), (np.arange(n) + generator.random()) / max(n, 1), side="right"
        )
        z = generator.permutation(z)

        def holds(table: pd.DataFrame) -> npt.NDArray[np.bool_]:
            return self.schemas[0].satisfied(table) & self.people.inside_ranges(table, given)

        shares = self.people.columns.shares
        found = _drawn(z, mixture, self.people.columns, inside, self.schemas[0], shares, holds, generator, inner)
        for name, value in given.items():
            if not isinstance(value, list | Mapping) and not pd.isna(value):
                found[name] = pd.Series([value] * n, dtype=found[name].dtype)
        return found, z

    def _classes(
        self, z: Integers, owner: Integers, place: Integers, counts: Integers, generator: np.random.Generator
    ) -> Integers:
        """Classes of all rows (r,), of people of classes z (n,)."""
        found = np.zeros(len(owner), np.int64)
        chain = self.chain
        for t in range(int(counts.max(initial=0))):
            rows = np.flatnonzero(place == t)
            own = z[owner[rows]]
            fresh = _systematic(own, generator)
            if t == 0:
                found[rows] = _picked(chain.first, own, fresh)
                continue
            stays = _systematic(own, generator) < chain.kept[own]
            before = found[rows - 1]
            found[rows] = np.where(
                stays, _picked(chain.steps, before, _systematic(before, generator)), _picked(chain.usual, own, fresh)
            )
        return found

    def _rows(self, classes: Integers, generator: np.random.Generator, inner: torch.Generator) -> pd.DataFrame:
        schema, names = self.schemas[1], self.schemas[1].domain.names
        order = [c for span in SPANS for c, own in enumerate(self.spans) if own == span]
        places = np.argsort(order)
        shares = [self.rows.shares[place] for place in places]

        def holds(table: pd.DataFrame) -> npt.NDArray[np.bool_]:
            return schema.satisfied(table)

        assert len(names) == len(places)
        return _drawn(
            classes, self.chain.rows, self.rows, self.rows.shares, schema, shares, holds, generator, inner, places=places
        )

    def _put_in_time(self, rows: pd.DataFrame, owner: Integers, place: Integers) -> None:
        """The order of each row: that of the first one and the times between the rows up to it."""
        order, gap = self.shown["order"], self.shown["gap"]
        if order is None or gap not in rows:
            return
        waits = np.where(place == 0, 0, np.maximum(pd.to_numeric(rows[gap]).to_numpy(np.float64), 0)).round().astype(np.int64)
        total = waits.cumsum()
        first = np.flatnonzero(place == 0)
        begin = np.repeat(first, np.diff(first, append=len(place)))
        since = total - total[begin]
        values = rows[order].to_numpy()[begin]
        if values.dtype.kind == "M":
            found = values + since * np.timedelta64(int(self.shown["seconds"]), "s")
            last = None if self.shown["until"] is None else np.datetime64(self.shown["until"])
        else:
            found, last = values + since, self.shown["until"]
        rows[order] = found if last is None else np.minimum(found, np.asarray(last).astype(found.dtype))

    # -- files ---------------------------------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        arrays = {
            "people": self.chain.people.probabilities,
            "weights": self.chain.people.weights,
            "usual": self.chain.usual,
            "first": self.chain.first,
            "steps": self.chain.steps,
            "kept": self.chain.kept,
            "rows": self.chain.rows.probabilities,
        }
        for name, columns in (("people", self.people.columns), ("rows", self.rows)):
            arrays |= {
                f"{name}.groups": np.concatenate(columns.coarse.groups),
                f"{name}.shares": np.concatenate(columns.shares),
            }
        return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}

    def description(self) -> dict[str, Any]:
        return {
            "schemas": [schema.descriptor() for schema in self.schemas],
            "sizes": [self.chain.people.sizes, self.chain.rows.sizes],
            "spans": self.spans,
            "n": self._size,
            "shown": self.shown,
        }

    @classmethod
    def rebuild(cls, description: dict[str, Any], tensors: dict[str, Tensor], statement: PrivacyStatement) -> RelationalModel:
        schemas = [Schema.from_descriptor(schema) for schema in description["schemas"]]
        arrays, spans, made = {name: tensor.numpy() for name, tensor in tensors.items()}, description["spans"], []
        order = [c for span in SPANS for c, own in enumerate(spans) if own == span]
        widths = [schemas[0].domain.sizes, [schemas[1].domain.sizes[c] for c in order]]
        for name, sizes, own in zip(("people", "rows"), description["sizes"], widths):
            ends = np.cumsum(own)[:-1]
            coarse = Coarsening(tuple(np.split(arrays[f"{name}.groups"], ends)), tuple(sizes))
            made.append(Columns(tuple(np.split(arrays[f"{name}.shares"], ends)), description["n"], coarse, (), ()))
        people = Mixture(arrays["people"], arrays["weights"], made[0].coarse.sizes)
        rows = Mixture(arrays["rows"], arrays["weights"] @ arrays["usual"], made[1].coarse.sizes)
        chain = Chain(people, rows, *(arrays[name] for name in ("usual", "first", "steps", "kept")))
        both = (schemas[0], schemas[1])
        options = {"schemas": both, "size": description["n"], "shown": description["shown"], "statement": statement}
        return cls(chain, people=made[0], rows=made[1], spans=spans, **options)


def _drawn(
    classes: Integers,
    mixture: Mixture,
    columns: Columns,
    inside: Sequence[Reals],
    schema: Schema,
    shares: Sequence[Reals],
    holds: Any,
    generator: np.random.Generator,
    inner: torch.Generator,
    *,
    places: Integers | None = None,
) -> pd.DataFrame:
    """Values of the classes (n,), drawn again in the same class until they satisfy `holds`; `places`: order of the columns."""
    left, found = np.arange(len(classes)), list[pd.DataFrame]()
    for _ in range(_TRIES):
        order = left[np.argsort(classes[left], kind="stable")]
        groups = filled(
            mixture, classes[order], lambda count: generator.permutation((np.arange(count) + generator.random()) / count)
        )
        codes = columns.refined(groups, inside, generator)
        table = schema.decode(torch.from_numpy(codes if places is None else codes[:, places]), inner, shares)
        kept = holds(table)
        found.append(table[kept].set_axis(order[kept]))
        left = np.sort(order[~kept])
        if not len(left):
            return pd.concat(found).sort_index()
    raise ValueError(
        f"constraints accept none of {_TRIES} draws of {len(left)} of {len(classes)} lines: they contradict the model, or what "
        "is given; loosen them, or fit with a greater epsilon"
    )


def _systematic(groups: Integers, generator: np.random.Generator) -> Reals:
    """Numbers in [0, 1) for members of groups (n,): of a group of g one in each interval of length 1 / g, in random order."""
    order = np.lexsort((generator.random(len(groups)), groups))
    sorted_groups = groups[order]
    starts = np.flatnonzero(np.diff(sorted_groups, prepend=-1))
    sizes = np.diff(starts, append=len(groups))
    rank = np.arange(len(groups)) - np.repeat(starts, sizes)
    found = np.empty(len(groups))
    found[order] = (rank + np.repeat(generator.random(len(starts)), sizes)) / np.repeat(sizes, sizes)
    return found


def _picked(law: npt.NDArray[np.float32], given: Integers, uniform: Reals) -> Integers:
    """Classes (n,) by the rows `given` (n,) of a law (K, W), for numbers in [0, 1)."""
    ends = law.astype(np.float64).cumsum(1)
    ends /= ends[:, -1:]
    found = np.empty(len(given), np.int64)
    for row in np.unique(given):
        own = given == row
        found[own] = np.searchsorted(ends[row, :-1], uniform[own], side="right")
    return found
