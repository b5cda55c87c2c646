"""Earlier releases that a run reads, and the price at which they count: that of their statements.

A release of the same records that is read again is a part of what is released next: both together cost what they cost one
after the other. That price is the one of the earlier statement, as one (epsilon, delta) mechanism of the new plan, whatever a
model says of its own noise: the statement of a selection is dearer than the fit that it released.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from glob import glob, has_magic
from hashlib import sha256
from os.path import exists
from pathlib import Path
from typing import Any

import yaml

from dpgen.facts import Fact
from dpgen.files import MODEL, STATEMENT, damaged, read_tensor_files
from dpgen.privacy.ledger import Planned
from dpgen.privacy.ledger_file import checksum
from dpgen.privacy.mechanisms import approximate_event
from dpgen.statement import PrivacyStatement, person

NOTE = "a release that this run is built on"
"""Beginning of the note of an earlier release in the ledger."""

_ROUNDING = 1e-12  # by which (epsilon - earlier) + earlier may round above epsilon


@dataclass(frozen=True)
class BuiltOn:
    """A release in a `directory`, with the checksum of what is released, that a run reads by an `option`.

    `public`: the holder of the data declares that it is of other records.
    """

    option: str
    statement: PrivacyStatement
    sha256: str
    public: bool = False
    directory: Path = Path()

    @property
    def planned(self) -> Planned | None:
        """The price, as one mechanism of the plan; None where the release is declared public."""
        event = approximate_event(self.statement.epsilon, self.statement.delta)
        return None if self.public else Planned(event, f"{NOTE} (sha256 {self.sha256})")

    def added_to(self, statement: PrivacyStatement) -> PrivacyStatement:
        """A statement that rests on what the earlier one rests on, and does not cover what that does not."""
        if not self.public:
            return statement.extended(self.statement.facts)
        return statement.extended([Fact.READ_RELEASE(sha256=self.sha256, guarantee=self.statement.in_words())])


def find_release(path: Path) -> BuiltOn | None:
    """The release that a path is, or lies in: the directory of a run or of a model, or anything below one."""
    path = path.resolve()
    return next((found for place in (path, *path.parents) if (found := _release_of(place)) is not None), None)


def _release_of(directory: Path) -> BuiltOn | None:
    of_run, found = directory / STATEMENT, None
    own = directory / MODEL if of_run.is_file() else directory
    try:
        if (own / f"{MODEL}.json").is_file():
            card = json.loads((own / f"{MODEL}.json").read_bytes())
            read_tensor_files(own, MODEL, kinds=[card["kind"]])  # which compares the checksum
            statement = PrivacyStatement.from_dict(card["statement"])
            found = BuiltOn("", statement, str(card["sha256"]), directory=directory)
        if of_run.is_file():
            statement = PrivacyStatement.read(of_run)
            statement = replace(statement, files={})  # samples may be added later
            found = found or BuiltOn("", statement, sha256(statement.to_json().encode()).hexdigest(), directory=directory)
            if found.statement != statement:
                raise ValueError(f"{directory} holds a model with another statement than {STATEMENT}")
    except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise damaged(directory, "statement", error) from error
    return found


def names_files(option: str) -> bool:
    """Whether an option of data or of a model names files, or folders of them, that a run reads."""
    return option in ("path", "source", "data_root", "schema", "prior") or option.endswith("_path")


def releases_read(
    settings: Mapping[str, Mapping[str, Any]], *, schema: Any, base: Path | None, public: bool, run_dir: Path | None
) -> tuple[BuiltOn, ...]:
    """Every release that the settings of a run, by block, name, once; that of its own `run_dir` is none.

    `schema` is that of the data, a descriptor or its file; `base` a file of settings that the options were laid over;
    `public`: the holder of the data declares that these releases are of other people's or public records.
    """
    found = [*_named({**settings["data"], **settings["model"]}, base, run_dir), *_bought(schema)]
    if public:
        for release in found:
            _require_others(release.option, release.directory / "config.yaml", settings["data"])
    return tuple({release.sha256: replace(release, public=public) for release in reversed(found)}.values())


def _named(settings: Mapping[str, Any], base: Path | None, run_dir: Path | None) -> Iterator[BuiltOn]:
    """Releases that settings name, as paths or patterns of files; and the selection that settings in a file are."""
    for key, path in [*_paths(settings), *([] if base is None else [("config", str(base))])]:
        found = find_release(Path(path)) if exists(path) else None
        if found is None or found.directory == (run_dir and run_dir.resolve()):
            continue
        if key != "config" or _follows_release(found.statement):
            yield replace(found, option=f"{key} {path!r}")


def _follows_release(statement: PrivacyStatement) -> bool:
    """Whether settings were chosen in the light of a release; else they were fixed before any."""
    from dpgen.privacy.selection import SELECTION

    notes = [line["note"] for line in statement.mechanisms]
    return SELECTION in notes or any(note.startswith(NOTE) for note in notes)


def _paths(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Files that settings name, those of patterns one by one."""
    for key, value in settings.items():
        if isinstance(value, str) and names_files(key):
            yield from ((key, path) for path in (glob(value, recursive=True) if has_magic(value) else [value]))


def _bought(schema: Any) -> Iterator[BuiltOn]:
    """The private release that filled in domains of a schema, if one did; see `dpgen schema --epsilon`."""
    descriptor = _descriptor(schema)
    if not isinstance(descriptor, dict) or not isinstance(fields := descriptor.get("fields"), list):
        return
    if (price := _price(descriptor, fields)) is None:
        return
    told = {name: price[name] for name in _TERMS} | {"shared": price.get("shared")}
    most = next((price[name] for name in ("max_contributions", "rows_per_unit") if name in price), 1)  # the second in 0.4
    unit = person(price.get("unit"), most)
    statement = PrivacyStatement(**told, unit=unit, accountant="")
    yield BuiltOn("schema", statement, checksum(descriptor))


_TERMS = ("epsilon", "delta", "relation")


def _price(descriptor: Mapping[str, Any], fields: Sequence[Any]) -> Mapping[str, Any] | None:
    """Facts in a schema of the release that bought its domains; None: none were bought."""
    price = descriptor.get("dpgen:privacy")
    if not price and not any(isinstance(f, dict) and f.get("dpgen:source") == "dp" for f in fields):
        return None
    if not isinstance(price, dict) or any(name not in price for name in _TERMS):
        raise ValueError(f"dpgen:privacy of the schema is {price!r}; it must name {', '.join(_TERMS)} of the bought domains")
    return price


def _require_others(option: str, config: Path, data: Mapping[str, Any]) -> None:
    """Refuse to call a release public whose run read the data of this one: the same file, or the same data set."""
    if not config.is_file():
        return
    before = yaml.safe_load(config.read_bytes())["data"]
    first, second = _places(before), _places(data)
    same = {Path(place).resolve() for place in first if exists(place)} & {Path(p).resolve() for p in second if exists(p)}
    if same or (not (first or second) and before["name"] == data["name"]):
        raise ValueError(
            f"release_origin is 'public', and {option} is a release of a run on the same data; it must be 'records': the "
            "statement has to cover both"
        )


def _places(data: Mapping[str, Any]) -> list[str]:
    """Files, or other sources, that settings of data name."""
    return [data[key] for key in ("path", "source") if data.get(key) is not None]


def _descriptor(schema: Any) -> Any:
    """The descriptor of a schema, or what stands in the place of one."""
    if schema is None:
        return None
    from dpgen.schema import Schema, read_descriptor  # here, because most runs have none

    if isinstance(schema, str | Path):
        return read_descriptor(Path(schema)) if Path(schema).is_file() else None
    return schema.descriptor() if isinstance(schema, Schema) else schema


def _require_terms(release: BuiltOn, **terms: str) -> None:
    """Refuse a release of another unit or relation than those of the run that is built on it."""
    for name, wanted in terms.items():
        if (own := getattr(release.statement, name)) != wanted:
            raise ValueError(
                f"{release.option} is a release whose {name} is {own!r}; it must be {wanted!r}, that of this run, whose "
                "statement has to cover both; or release_origin must be 'public', where it is of other people's records"
            )


def own_plan(plan: Any, built_on: Sequence[BuiltOn]) -> Any:
    """The part of a plan that is left beside the releases that its run is built on; a plan without a budget stays."""
    private = [release for release in built_on if not release.public]
    for release in private:
        _require_terms(release, unit=plan.protected, relation=plan.relation)
    if not private or plan.epsilon is None:
        return plan
    left = {}
    for name, whole in (("epsilon", plan.epsilon), ("delta", plan.resolved_delta)):
        if not (spent := sum(getattr(release.statement, name) for release in private)):
            continue
        if whole <= spent:
            raise ValueError(
                f"{name} is {whole:g}; it must be above {spent:g}, the price of what the run is built on; or "
                "release_origin must be 'public', where that is of other people's records"
            )
        left[name] = whole - spent
    left["epsilon"] *= 1 - _ROUNDING
    return replace(plan, **left)
