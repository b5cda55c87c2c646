"""A run as its settings say it: model, data, privacy and runtime, from a command line, YAML files or keywords of Python."""

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import yaml

from dpgen.data.kinds import Loader, loader_of, loaders
from dpgen.extras import extras
from dpgen.facts import Fact, Said
from dpgen.options import (
    BLOCKS,
    Sources,
    by_block,
    choose,
    keys,
    list_items,
    plain,
    read_yaml,
    require_value,
    split_options,
    typed,
)
from dpgen.privacy.composition import Planned
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.mechanisms import require_positive, require_within
from dpgen.runtime import Runtime, quiet_runtime
from dpgen.systems.plan import Plan
from dpgen.systems.registry import System, systems

if TYPE_CHECKING:
    from dpgen.privacy.curator import Curator
    from dpgen.privacy.shared_budget import Payer, SharedBudget
    from dpgen.release import Release
    from dpgen.systems.built_on import BuiltOn

FREE_TO_CHANGE = (
    "run_dir", "progress_bar", "evaluation", "fid_weights", "checkpoint_every", "threads", "accelerator", "devices",
    "num_nodes", "title",
)  # fmt: skip
"""Runtime options that a resumed run may change: they touch neither the model nor the guarantee."""

DEFAULT_MODEL = "dpgm"
_HERE = Path(__file__).parent
CONFIGS = next(place for place in (_HERE / "configs", _HERE.parent / "configs") if place.is_dir())
"""The configurations that are shipped: a folder of the installed package, or of the checkout."""


@dataclass(frozen=True)
class ModelConfig:
    """A system by name, and its configuration; a mapping by the names of the command line, or None, is completed by defaults.

    `chosen` says whether public facts of the data chose the system.

    >>> ModelConfig("merr", {"method": "points"}).options.method
    'points'
    """

    name: str
    options: Any = None
    chosen: bool = False

    def __post_init__(self) -> None:
        choose("model", self.name, list(systems()))
        if self.options is None or isinstance(self.options, Mapping):
            made = self.system.config(**typed(self.system.config, self.options or {}))
            object.__setattr__(self, "options", made)

    @property
    def system(self) -> System:
        return systems()[self.name]


@dataclass(frozen=True)
class DataConfig:
    """Private data: the name and the options of a loader, or `loaded` data with their name."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    loaded: Any = None

    def completed(self, system: System, *, judged: bool = True) -> "DataConfig":
        """With the defaults of the loader that the system's kinds of data have under this name; see `_whole`."""
        if self.loaded is not None:
            return self
        choose("data", self.name, list(loaders(system.kinds)))
        loader = loader_of(system.kinds, self.name, self.options)
        if set(keys(loader.options)) <= set(self.options):
            return self
        return replace(self, options=typed(loader.options, self.options if judged else _whole(loader.options, self.options)))


@dataclass(frozen=True)
class RunConfig:
    """Everything that a run needs, typed and checked: what a command line, a YAML file and keywords of Python are made into.

    Each block may be given as in YAML: a name or a mapping with `name` for model and data, a mapping for the other two.
    `base` is the file of settings that the options were laid over, if any.

    >>> RunConfig("gaussian", "digits", {"epsilon": 2.0}).settings["privacy"]["epsilon"]
    2.0
    """

    model: ModelConfig
    data: DataConfig
    privacy: Plan
    runtime: Runtime = field(default_factory=Runtime)
    base: Path | None = None

    def __post_init__(self) -> None:
        for name, kind in (("model", ModelConfig), ("data", DataConfig)):
            block: Any = getattr(self, name)
            if isinstance(block, str | Mapping):
                object.__setattr__(self, name, _named(name, kind, block))
        given = self.privacy
        for name, source in (("privacy", self.system.plan), ("runtime", Runtime)):
            if isinstance(block := getattr(self, name), Mapping):
                object.__setattr__(self, name, source(**typed(source, block)))
        object.__setattr__(self, "data", self.data.completed(self.system, judged=self.runtime.evaluation != "none"))
        directory = self.runtime.run_dir
        if directory is not None and not directory.name:
            raise ValueError(f"run_dir is {str(directory)!r}; it must name a directory, not be empty or the present one")
        self._require_people(getattr(self.privacy, "unit", None))
        if isinstance(given, Mapping):
            self._take_share(given)
        if self.runtime.processes > 1 and not self.resumable:
            raise ValueError(
                f"devices is {self.runtime.devices} and num_nodes is {self.runtime.num_nodes}; both must be 1 for this model: "
                "several processes can share the sums of DP-SGD only"
            )

    def _require_people(self, unit: str | None) -> None:
        if unit is None:
            return
        if self.data.loaded is not None:
            raise ValueError(f"unit is {unit!r}; it must be left out: the data are loaded already, without such a column")
        if not self.loader.takes_people:
            able = ", ".join(name for name, loader in loaders(self.system.kinds).items() if loader.takes_people)
            raise ValueError(f"unit is {unit!r}; it needs data with a column of people: {able}, not {self.data.name}")

    def _take_share(self, given: Mapping[str, Any]) -> None:
        """Take what the options do not name from a shared budget (`Plan.sharing`), beside the price of releases read."""
        ledger = self.runtime.ledger
        if ledger is None or not ledger.exists() or {"epsilon", "delta"} <= set(given):
            return
        from dpgen.privacy.shared_budget import SharedBudget

        shared = SharedBudget(ledger)
        read = [release.statement for release in self.built_on if not release.public]
        paid = sum(own.epsilon for own in read if shared.paid(own.shared))
        share = shared.share.beside(paid, sum(own.delta for own in read))
        object.__setattr__(self, "privacy", self.privacy.sharing(share, given))
        self.__dict__.pop("settings", None)

    @cached_property
    def settings(self) -> dict[str, dict[str, Any]]:
        """All of it in the form of YAML, by block; `--config` reads it."""
        blocks = {
            "privacy": _options(self.privacy),
            "model": {"name": self.model.name, **_options(self.model.options)},
            "data": {"name": self.data.name, **self.data.options},
            "runtime": _options(self.runtime),
        }
        return {block: plain(block, values) for block, values in blocks.items()}

    @property
    def loader(self) -> Loader:
        return loader_of(self.system.kinds, self.data.name, self.data.options)

    @property
    def facts(self) -> tuple[Fact | Said, ...]:
        """Facts of the statement on whose rows are used, and on where the settings come from."""
        dropped = (Fact.MISSING_DROPPED(unit=self.privacy.protected),) if self._drops else ()
        tuned = () if self.base is None else (Fact.TUNED_SETTINGS(file=self.base.name),)
        chosen = (Fact.CHOSEN_MODEL(model=self.model.name),) if self.model.chosen else ()
        return (*getattr(self.privacy, "facts", ()), *dropped, *tuned, *chosen)

    @property
    def system(self) -> System:
        return self.model.system

    def on(self, data: Any) -> "RunConfig":
        """This run on data that are loaded already, in place of a loader's."""
        return replace(self, data=DataConfig(_name_of(data), loaded=data))

    @property
    def title(self) -> str:
        """Name of the run in the summary."""
        return self.model.name

    @property
    def resumable(self) -> bool:
        """Whether what dies while it is fitted goes on from a checkpoint."""
        return bool(self.system.module_path)

    def difference(self, stored: Mapping[str, Mapping[str, Any]]) -> str:
        """The first setting that is another one in stored settings, in words, names of models and data first; else empty."""
        all_of_them = [(block, key, value) for block, options in self.settings.items() for key, value in options.items()]
        for block, key, value in sorted(all_of_them, key=lambda setting: setting[1] != "name"):
            if (before := stored[block].get(key)) != value and key not in FREE_TO_CHANGE:
                return f"{block}.{key}={before!r}, now {value!r}"
        return ""

    def prepare(self) -> None:
        """Import the code and read the releases that the settings name; for a new fit, not for what a run has left."""
        _ = self.own_plan  # refused before anything is made
        with extras():
            _ = self.system.fit
        if callable(prepare := getattr(self.model.options, "prepare", None)):
            prepare()

    def split_key(self, directory: Path) -> Path | None:
        """The file of the secret key that the data of a run in `directory` are split by, if they are split by one."""
        from dpgen.data.split import KEY_FILE, needs_key  # here, because reading a command line needs no torch

        if not (needs_key(self.data.options) or getattr(self.privacy, "unit", None)):
            return None
        shared = self.runtime.ledger  # runs that share a budget put the same records aside: who is private to one is to all
        return self.data.options.get("split_key") or (directory / KEY_FILE if shared is None else Path(f"{shared}.key"))

    def shared_budget(self) -> "SharedBudget | None":
        """The budget that the run shares with others, if any."""
        if (path := self.runtime.ledger) is None:
            return None
        if not path.exists():
            raise ValueError(f"ledger {str(path)!r} does not exist; dpgen budget {path} --create --epsilon E makes it")
        from dpgen.privacy.shared_budget import SharedBudget  # here, because most runs have a budget of their own

        shared = SharedBudget(path)
        shared.require_same(relation=self.privacy.relation, unit=self.privacy.protected, delta=self.privacy.resolved_delta)
        return shared

    @cached_property
    def built_on(self) -> "tuple[BuiltOn, ...]":
        """Releases that the run reads; without `release_origin` "public" they are paid for by its plan."""
        from dpgen.systems.built_on import releases_read  # here, because reading a command line needs no torch

        schema, public = self.data.options.get("schema", getattr(self.data.loaded, "schema", None)), self.runtime.release_origin
        places = {"base": self.base, "run_dir": self.runtime.run_dir}
        return releases_read(self.settings, schema=schema, public=public == "public", **places)

    @property
    def own_plan(self) -> Plan:
        """The plan of what the run itself may spend: its budget less the price of the releases that it is built on."""
        from dpgen.systems.built_on import own_plan

        return own_plan(self.privacy, self.built_on)

    def open_ledger(self, path: Path | None = None, *, payer: "Payer | None" = None) -> Ledger:
        """A new ledger of the plan for these data, see `Plan.open_ledger`."""
        return self.privacy.open_ledger(path, payer=payer, gaps=self._drops)

    def payer(self, title: str, directory: Path | None = None) -> "Payer | None":
        """The run as one that pays from the shared budget, if there is one; releases that were paid for from it are settled."""
        if (shared := self.shared_budget()) is None:
            return None
        paid = [release for release in self.built_on if shared.paid(release.statement.shared)]
        if public := [release.option for release in paid if release.public]:
            raise ValueError(f"release_origin is 'public', and {public[0]} is a release that {shared.path} has paid for")
        settled = [release.planned.note for release in paid if release.planned is not None]
        return shared.payer(title, directory=directory, settled=settled)

    def load(self, directory: Path) -> Any:
        """Read the data, of a kind that the system works on, split by the key of the run in `directory`, and a public prior."""
        data, prior = self._loaded(directory), getattr(self.model.options, "prior", None)
        if prior is None:
            return data
        from dpgen.data.public_tables import with_prior

        return with_prior(data, prior)

    def _loaded(self, directory: Path) -> Any:
        if self.data.loaded is not None:
            return self.data.loaded
        key = self.split_key(directory)
        options = dict(self.data.options)
        if key is not None and "split_key" in options:
            options["split_key"] = key
        if (unit := getattr(self.privacy, "unit", None)) is not None:
            from dpgen.data.split import People, secret_key

            assert key is not None
            options["people"] = People(unit, self.privacy.rows, secret_key(key))
        return self.loader(**options)

    def fit(self, data: Any, curator: "Curator", runtime: Runtime) -> "Release":
        """The system's release of these data, whose statement says what data, settings and earlier releases add to it.

        Processes of a training but the first, which alone releases, end with `ShareDone`.
        """
        release = self.fit_system(data, curator, runtime)
        if not runtime.first:
            from dpgen.privacy.distributed import ShareDone

            raise ShareDone
        release.form = release.form or getattr(data, "form", None)
        typed = release.form is not None and any(release.form.types)
        container = () if release.form is None else (Fact.PUBLIC_CONTAINER if typed else Fact.PUBLIC_LAYOUT,)
        release.statement = release.statement.extended([*getattr(data, "facts", ()), *container, *self.facts])
        for earlier in self.built_on:
            release.statement = earlier.added_to(release.statement)
        return release

    def named(self, release: "Release") -> "Release":
        """The release with a statement of the name of the data and of how many records there are; warns of a large delta.

        Not a part of `fit`: how many runs a selection has, and their numbers of records, are secret.
        """
        stated = release.statement.of_records(release.size, release.size_std)
        release.statement = replace(stated, title=self.runtime.title or "")
        for warned in stated.warnings:
            if warned["code"] == Fact.LARGE_DELTA.name:
                warnings.warn(warned["text"], stacklevel=3)
        return release

    def fit_system(self, data: Any, curator: "Curator", runtime: Runtime) -> "Release":
        """The system's release, of what is left beside the releases that the curator is told of."""
        for earlier in self.built_on:
            curator.build_on(earlier.sha256, earlier.planned)
        release = self.system.fit(data, plan=self.own_plan, config=self.model.options, curator=curator, runtime=runtime)
        promised = {line.note for line in curator.ledger.promised()}
        if missing := [e.option for e in self.built_on if e.planned is not None and e.planned.note not in promised]:
            raise ValueError(f"model {self.model.name} declares no plan, so it cannot be built on {missing[0]}")
        return release

    def declared(self, data: Any) -> Sequence[Planned]:
        """The plan of the job, which it declares before it looks at a record, and ends there; nothing is spent."""
        from dpgen.privacy.curator import Curator  # here, because reading a command line needs no torch
        from dpgen.privacy.shared_budget import Declared, Quoting

        curator = Curator(self.open_ledger(payer=Quoting(Path(), "planned", self.model.name, "", "")))
        with TemporaryDirectory(prefix="dpgen-") as scratch:
            try:
                self.fit(data, curator, quiet_runtime(Path(scratch), 0))
            except Declared as found:
                return found.plan
        raise ValueError(f"model {self.model.name} declares no plan: what it would cost is known once it has run")

    @property
    def _drops(self) -> bool:
        """Whether rows with a missing value are left out."""
        return self.data.options.get("missing") == "drop"


@dataclass(frozen=True, kw_only=True)
class SelectOptions:
    """Options of a selection.

    Arguments:
        select: release the best of a secret number of runs, by a paid score, each of a combination of "epsilon=1,3;k=5,10"
        select_runs: so many of them on average (10)
        select_noise: noise of the score, a mean error of counts, in records (20)
        select_epsilon: refuse a selection that costs more
    """

    select: str
    select_runs: float = 10.0
    select_noise: float = 20.0
    select_epsilon: float | None = None

    def __post_init__(self) -> None:
        require_within("select_runs", self.select_runs, (2.0, 1000.0), ", the expected number of runs")
        require_positive("select_noise", self.select_noise)
        if self.select_epsilon is not None:
            require_positive("select_epsilon", self.select_epsilon)

    def combinations(self, fixed: Mapping[str, str]) -> list[tuple[str, dict[str, str]]]:
        """Names and options of all combinations, with the options that they share.

        >>> SelectOptions(select="k=1,2").combinations({"steps": "3"})[1]
        ('k=2', {'steps': '3', 'k': '2'})
        """
        parts = [part.partition("=") for part in self.select.split(";")]
        values = {key.strip().replace("-", "_"): list(filter(None, list_items(listed))) for key, _, listed in parts}
        if "" in values or [] in values.values():
            raise ValueError(f"select is {self.select!r}; it must give each option a list of values, as in 'epsilon=1,3;k=5,9'")
        if len(values) < len(parts) or values.keys() & fixed.keys():
            raise ValueError(f"select is {self.select!r}; it must give each option once, and none that is given beside it")
        chosen = [dict(zip(values, choice)) for choice in product(*values.values())]
        return [(",".join(f"{key}={value}" for key, value in own.items()), {**fixed, **own}) for own in chosen]


# -- from options to a run ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """Options of a run by name: those given, and those stored in the file `base`, which they override; `sources` says whose."""

    model: str
    data: str
    sources: Sources
    stored: dict[str, Any]
    given: dict[str, Any]
    base: Path | None

    @classmethod
    def of(cls, options: Mapping[str, Any], *, config_root: Path | None = None, loaded: str | None = None) -> "Request":
        """From values by name; `model`, `data` and `config` are among them."""
        given = dict(options)
        require_value("config", given.get("config"))
        base = _config_file(str(given.pop("config"))) if "config" in given else None
        blocks = read_blocks(base) if base is not None else {}
        model = _first(given.pop("model", None), blocks.get("model", {}).get("name"), DEFAULT_MODEL)
        system = systems()[choose("model", model, list(systems()))]
        data = _data_of(given, blocks, list(loaders(system.kinds))) if loaded is None else loaded
        if base is None and (base := _usual_file(config_root, model, data, given)) is not None:
            blocks = read_blocks(base)
        blocks = {**blocks, "model": _own_block(blocks, "model", model), "data": _own_block(blocks, "data", data)}
        options_of = (lambda: None) if loaded else loader_of(system.kinds, data, [*given, *blocks["data"]]).options
        sources: Sources = {"privacy": system.plan, "model": system.config, "data": options_of, "runtime": Runtime}
        stored: dict[str, Any] = {}
        for block, values in blocks.items():
            stored |= {choose(f"option of {block}", name, keys(sources[block])): value for name, value in values.items()}
        return cls(model, data, sources, stored, given, base and _from_here(base))

    def _refuse(self, name: str, known: Collection[str]) -> None:
        """Refuse an option by the data or the models that have it, or beside the nearest one."""
        of_data = [data for data, loader in loaders(systems()[self.model].kinds).items() if name in keys(loader.options)]
        models = [model for model, system in systems().items() if name in {*keys(system.plan), *keys(system.config)}]
        for block, own, names in (("data", self.data, of_data), ("model", self.model, models)):
            if names:
                raise ValueError(f"{name} is no option of --{block} {own}; it is one of --{block} {', '.join(names)}")
        choose("option", name, sorted({*known, "model", "data", "config"}))

    def config(self, *, private: Any = None) -> RunConfig:
        """The run with typed options; one that belongs to other data or to another system is refused with its owner."""
        known = {name for source in self.sources.values() for name in keys(source)}
        for name in self.given:
            if name not in known:
                self._refuse(name, known)
        mine: dict[str, Any] = by_block(self.sources, self._held_out(self.stored | self.given))
        options = mine["data"] if mine["runtime"].get("evaluation") != "none" else _whole(self.sources["data"], mine["data"])
        data = DataConfig(self.data, typed(self.sources["data"], options), private)
        return RunConfig(ModelConfig(self.model, mine["model"]), data, mine["privacy"], mine["runtime"], self.base)

    def _held_out(self, options: dict[str, Any]) -> dict[str, Any]:
        """Options where evaluation "holdout=F" stands for "quick" with a share F of the records held out."""
        given = options.get("evaluation")
        name, _, share = str(given).partition("=")
        if name != "holdout":
            return options
        if "test_fraction" not in keys(self.sources["data"]):
            raise ValueError(f"evaluation is {given!r}; it must be none, quick or full with --data {self.data}")
        if self.given.get("test_fraction") is not None:
            raise ValueError(
                f"evaluation is {given!r} beside test_fraction {self.given['test_fraction']}; leave one of them out"
            )
        with suppress(ValueError):
            if 0.0 < float(share) < 1.0:
                return {**options, "evaluation": "quick", "test_fraction": float(share)}
        raise ValueError(f"evaluation is {given!r}; the share that is held out must be in (0, 1), as in holdout=0.05")


def parse_job(arguments: Sequence[str] | Mapping[str, Any], *, config_root: Path | None = None) -> RunConfig:
    """A run from command-line arguments, `--key value`, or from their values by name.

    `--model NAME` and `--data NAME` choose a system and a loader. `--config FILE` is a YAML file with the four blocks; without
    it `config_root/<model>_<data>.yaml` is the base if it exists.
    """
    given = arguments if isinstance(arguments, Mapping) else split_options(arguments)
    return Request.of(given, config_root=config_root).config()


def keyword_job(model: str, options: Mapping[str, Any], *, data: str | None = None, private: Any = None) -> RunConfig:
    """A run from values of Python under the names of the command line.

    `private` are data in memory, which the loader `data` reads in place of its `path`, or loaded ones, which need no loader.
    """
    given = {name: plain(name, value) for name, value in options.items()} | {"model": model}
    given |= {} if data is None else {"data": data}
    read = isinstance(private, str)
    if read:
        if "path" in given:
            raise ValueError(f"path is {given['path']!r}; it must be left out: the data are {private}")
        given["path"] = str(private)
    loaded = None if private is None or read else _name_of(private)
    made = Request.of(given, loaded=loaded).config(private=None if read else private)
    return replace(made, data=replace(made.data, options={**made.data.options, "path": private})) if read else made


def _named(title: str, kind: Callable[[str, dict[str, Any]], Any], block: str | Mapping[str, Any]) -> Any:
    """The model or the data of a block as YAML has it, or of a name alone."""
    options = {"name": block} if isinstance(block, str) else dict(block)
    if "name" not in options:
        raise ValueError(f"{title} has no name; give it as in {{'name': ..., 'option': value}}")
    return kind(options.pop("name"), options)


def _whole(loader: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a loader that holds nothing out where nobody will judge the release, unless they ask for it."""
    able = "test_fraction" in keys(loader) and options.get("test_path") is None
    return ({"test_fraction": 0.0} if able else {}) | dict(options)


def _options(value: Any) -> dict[str, Any]:
    """Options of a dataclass by name."""
    return {name: getattr(value, name) for name in keys(type(value))}


def _name_of(data: Any) -> str:
    """Name of data that are loaded."""
    return str(getattr(data, "name", type(data).__name__))


def _own_block(blocks: Mapping[str, Mapping[str, Any]], block: str, name: str) -> dict[str, Any]:
    """Options of a block of a file without its name; they belong to the system or loader that it names, if it names one."""
    options = dict(blocks.get(block, {}))
    return options if _first(options.pop("name", None), name) == name else {}


def _first(*values: Any) -> Any:
    """The first that is not None: an empty name is a wrong one, not a missing one."""
    return next(value for value in values if value is not None)


def _config_file(name: str) -> Path:
    """A file of settings, or the one of this name that is shipped."""
    path, shipped = Path(name), CONFIGS / f"{name.removesuffix('.yaml')}.yaml"
    if path.exists() or path.parent.name:
        return path
    if shipped.is_file():
        return shipped
    close = get_close_matches(shipped.stem, [found.stem for found in CONFIGS.glob("*.yaml")], n=1)
    raise ValueError(f"config file {name!r} does not exist{f' (did you mean {close[0]}?)' if close else ''}")


def _data_of(given: dict[str, Any], blocks: Mapping[str, Mapping[str, Any]], known: Sequence[str]) -> str:
    """Name of the data, taken out of the given options, else that of a file of settings, else the first known one."""
    return choose("data", _first(given.pop("data", None), blocks.get("data", {}).get("name"), known[0]), known)


def _usual_file(root: Path | None, model: str, data: str, given: Mapping[str, Any]) -> Path | None:
    """The file of the usual settings of a model and data, if there is one; none is of a network of your own."""
    if root is None or ":" in str(given.get("network", "")):
        return None
    usual = root / f"{model}_{data}.yaml"
    return usual if usual.is_file() else None


def _from_here(path: Path) -> Path:
    """A path relative to the working directory, where it lies inside; of a configuration that is shipped, its name alone."""
    if path.parent.resolve() == CONFIGS.resolve():
        return Path("configs", path.name)
    return path.resolve().relative_to(Path.cwd()) if path.resolve().is_relative_to(Path.cwd()) else path


def read_blocks(path: Path) -> dict[str, dict[str, Any]]:
    """Settings in a file, by block; any of the blocks may be missing."""
    blocks = read_yaml(path, "config file")
    blocks = {} if blocks is None else blocks
    if not isinstance(blocks, dict) or not all(isinstance(value, dict) for value in blocks.values()):
        raise ValueError(f"config file {str(path)!r} must hold the blocks {', '.join(BLOCKS)}")
    for block in blocks:
        choose("block", block, BLOCKS)
    return {block: _renamed(values) if block == "privacy" else values for block, values in blocks.items()}


_CALIBRATED_0_5 = {"sigma_norm": 10.0, "sigma_count": None, "sigma_sum": None, "sigma_means": None}
"""Options of 0.5 that are calibrated now, with the values that a run had where nobody gave another one."""


def _renamed(privacy: dict[str, Any]) -> dict[str, Any]:
    """Settings of a plan, whose noise runs of 0.5 have under other names."""
    kept = {name: value for name, value in privacy.items() if (name, value) not in _CALIBRATED_0_5.items()}
    return {"noise_multiplier" if name == "sigma_sgd" else name: value for name, value in kept.items()}


def written(job: RunConfig) -> str:
    """The settings of a job in YAML, as `--config` reads them."""
    return yaml.safe_dump(job.settings, sort_keys=False).rstrip()
