"""The front door: `fit` private data in memory or in files to a release, and an estimator of scikit-learn around it."""

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dpgen.config import RunConfig, keyword_job
from dpgen.containers import Dtypes, InMemory, article, in_memory, is_columns
from dpgen.data.kinds import ARCHIVES, KINDS, PACKAGE, kind_of, loader_of, loaders
from dpgen.data.table_files import form_of, is_excel, is_source
from dpgen.options import choose
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger
from dpgen.release import RandomState, Release
from dpgen.run import run
from dpgen.runtime import quiet_training
from dpgen.statement import told
from dpgen.systems.registry import System, systems

if TYPE_CHECKING:
    from dpgen.rehearsal import Expected

Options = dict[str, Any]


AUTO = "auto"
"""The model that containers, types and shapes of the data choose, see `chosen_model`."""


def fit(
    data: Any,
    model: str = AUTO,
    *,
    epsilon: float | None,
    delta: float | None = None,
    ledger: Ledger | Path | str | None = None,
    dtypes: Dtypes = "bought",
    **options: Any,
) -> Release:
    """A private release of the data, with a statement of what it cost.

    All records are private: no part of data in memory or in a file is held out for evaluation, unless `test_fraction` or
    `test_path` asks for it. Columns, types and values are checked before anything is spent.

    Arguments:
        data: what systems of its kind read: 0/1 columns and at most one `label_column`, numbers in public `bounds`, ordered
            values from public `low` to `high`, or events of users. As a pandas, polars or pyarrow table, a NumPy array, a
            tensor, a torch Dataset, a SciPy sparse matrix or a list of sets; as the path of a csv, parquet or npy file; as a
            table of DuckDB or Spark, the path of a DuckDB file or a glob of parquet files, which an engine reads; as
            the name of a data set such as "digits"; or loaded by `dpgen.data`. People and their rows: a mapping of tables by
            name, or one long table, with `person` and `order`.
        model: name of the system, see `dpgen.systems.SYSTEMS`; "auto": the usual one for such data, see `chosen_model`.
        epsilon: budget of the whole fit, in nats; None, for systems that then report it, with their noise given.
        delta: of the guarantee; None: the system's public rule, 1e-5 for most and 0 where the guarantee is pure.
        ledger: the file of a budget that all runs on the data set pay from, see `dpgen.SharedBudget.create`; or a ledger
            that the fit is charged to, of the same relation, unit and delta; None: one of its own.
        dtypes: types of the columns of a table in memory are "bought" inside the budget, for a single value can change what
            pandas makes of a column; "public" where their owner knows them: then they cost nothing, and samples have them.
        options: those of the command line by their names, see `dpgen train --model NAME --help`. With `run_dir` the fit
            leaves a run there as the command line does, its evaluation included.

    Raises:
        ValueError: in one line, a wrong name or value, and what is allowed; nothing was spent. An error of any type that comes
            after something was spent, such as a full disk, has a note on how much.
        TypeError: data in a container that cannot be read.
        BudgetExceeded: the ledger, or the shared budget, allows less than the fit needs.

    >>> frame = pd.DataFrame(np.eye(4, dtype=int).repeat(50, axis=0), columns=["tea", "milk", "rum", "water"])
    >>> release = fit(frame, "gaussian", epsilon=1.0)
    >>> release.epsilon <= 1.0, release.sample(2).columns.tolist()
    (True, ['tea', 'milk', 'rum', 'water'])
    """
    own = ledger if isinstance(ledger, Ledger) else None
    named = {"delta": delta, "ledger": ledger if own is None else None}
    given = {"epsilon": epsilon} | {name: value for name, value in named.items() if value is not None}
    _require_order(data, model)
    job = job_of(model, data, given | options, dtypes)
    if own is not None:
        _require_same(own, job)
    with quiet_training():
        return run(job).release if job.runtime.run_dir is not None else _fit_in_memory(job, own)


def plan(
    data: Any,
    rows: int,
    model: str = AUTO,
    *,
    epsilon: float,
    delta: float | None = None,
    dtypes: Dtypes = "bought",
    **options: Any,
) -> "Expected":
    """The noise, time and memory to expect of a release of a table, before anything is paid; no private value has a part in it.

    The fit is rehearsed on rows that public facts alone make, see `dpgen.rehearsal.rehearsed`.

    Arguments:
        data: as `fit` takes them; they are read and checked as a fit does it.
        rows: about how many there are: declared, or a guess.
        model: "tables", or "auto" where that is the usual one.
        epsilon, delta, dtypes, options: those of `fit`.

    Raises:
        ValueError: what `fit` refuses; rows outside of [1, 10^7]; another model.

    >>> frame = pd.DataFrame({"tea": [True] * 10, "milk": [False] * 10})
    >>> expected = plan(frame, 5000, "tables", epsilon=1.0, dtypes="public")
    >>> expected.singles.std < 20, expected.epsilons[0.02] < 1.0
    (True, True)
    """
    from dpgen.rehearsal import rehearsed

    named = {} if delta is None else {"delta": delta}
    job = job_of(model, data, {"epsilon": epsilon} | named | options, dtypes)
    job.prepare()
    with TemporaryDirectory(prefix="dpgen-") as scratch:
        return rehearsed(job, job.load(Path(scratch)), rows)


def _require_order(data: Any, model: Any) -> None:
    """Refuse the order of 0.4, model first."""
    if isinstance(data, str) and data in systems() and (not isinstance(model, str) or model not in (*systems(), AUTO)):
        raise ValueError(f"data is {data!r}, which is a model: the data come first, fit(data, model={data!r}, ...)")


def _fit_in_memory(job: RunConfig, ledger: Ledger | None) -> Release:
    """The release alone; checkpoints and logs of a training are thrown away."""
    job.runtime.begin()
    job.prepare()
    with TemporaryDirectory(prefix="dpgen-") as scratch:
        private = job.load(Path(scratch))  # before a budget is opened, which refused data leave as it is
        curator = Curator(job.open_ledger(payer=job.payer(job.title)) if ledger is None else ledger)
        with told(curator.ledger, since=curator.ledger.charges):
            try:
                return job.named(job.fit(private, curator, replace(job.runtime, run_dir=Path(scratch))))
            finally:
                curator.ledger.commit()  # the caller gets a release or an error, and may show either


def _require_same(ledger: Ledger, job: RunConfig) -> None:
    if job.runtime.run_dir is not None:
        raise ValueError(f"ledger and run_dir {str(job.runtime.run_dir)!r} are both given: a run has a ledger of its own")
    wanted = job.open_ledger()
    size = () if ledger.keeps_size == wanted.keeps_size else ("always_used",)
    for name in ("relation", "unit", "rows", "delta", *size):
        if getattr(ledger, name) != getattr(wanted, name):
            raise ValueError(f"ledger has {name} {getattr(ledger, name)!r}; it must be {getattr(wanted, name)!r}, the fit's")


def chosen_model(data: Any, dtypes: Dtypes = "bought") -> str:
    """The usual system for data, by their container, public types and shape alone.

    Arrays of bits, tables of truth values whose types are public, images, lists of sets and data sets of records go to
    "gaussian"; users to "projected_kernel"; columns of numbers that are loaded to "merr"; all other tables, and files of them,
    to "tables".

    >>> chosen_model(pd.DataFrame({"rum": [True]})), chosen_model(np.eye(2, dtype=bool))
    ('tables', 'gaussian')
    """
    kind = _kind_of(data, dtypes)
    if kind is None or not KINDS[kind].usual:
        raise ValueError(f"model is {AUTO!r}: there is no usual one for these data; it must be one of {', '.join(systems())}")
    return KINDS[kind].usual


def _kind_of(data: Any, dtypes: Dtypes) -> str | None:
    """The kind of data, None where there is no usual one."""
    if held := kind_of(data):
        return held
    if isinstance(data, str | Path):
        named = (name for name, kind in KINDS.items() if str(data) in kind.loaders and data not in ("csv", "sql"))
        return next(named, None) or _kind_of_file(data)
    return _kind_in_memory(in_memory(data, dtypes))


def _kind_in_memory(private: InMemory) -> str | None:
    bits = bool(private.form.types) and all(dtype.startswith("bool") for dtype in private.form.types)
    image = private.form.shape is not None and len(private.form.shape) > 1
    if bits or image or private.like in ("sets", "images"):
        return "records"
    return "table" if private.like in ("parquet", "sql") else None


def _kind_of_file(path: str | Path) -> str | None:
    if Path(path).name == PACKAGE:
        return "linked"
    if Path(path).is_dir() or str(path).lower().endswith(ARCHIVES):
        return "images"
    return None if not is_source(path) and not is_excel(path) and form_of(path) == "npy" else "table"


# -- data --------------------------------------------------------------------------------------------------------------


def _held_prior(prior: Any) -> InMemory:
    if isinstance(prior, Release):
        raise TypeError(f"prior is a {type(prior).__name__} in memory; save it, and give its directory")
    return in_memory(prior, "public")


def job_of(model: str, data: Any, options: Options, dtypes: Dtypes = "bought") -> RunConfig:
    if not isinstance(prior := options.get("prior"), str | Path | None):
        held = _held_prior(prior)
        made = job_of(model, data, {**options, "prior": str(held)}, dtypes)
        return replace(made, model=replace(made.model, options=replace(made.model.options, prior=held)))
    if model == AUTO:
        linked = _named_tables(data) or not {"person", "links"}.isdisjoint(options)
        made = job_of("relational" if linked else chosen_model(data, dtypes), data, options, dtypes)
        return replace(made, model=replace(made.model, chosen=True))
    if _named_tables(data):
        return _linked_job(model, data, options, dtypes)
    system = systems()[choose("model", model, list(systems()))]
    options = {"progress_bar": False} | options
    if loaded := kind_of(data):
        if loaded not in system.kinds:
            raise TypeError(f"data is {type(data).__name__}; model {model!r} works on {' or '.join(system.kinds)}")
        return keyword_job(model, options, private=data)
    if isinstance(data, str | Path):
        if str(data) in loaders(system.kinds):
            return keyword_job(model, options, data=str(data))
        name = loader_of_file(data, model, options)
        return keyword_job(model, _all_private(name, system, {"path": data} | options), data=name)
    private = in_memory(data, dtypes)
    loader = _loader_of(private, model, system, options)
    completed = _all_private(loader, system, _completed(private, loader, system, options))
    return keyword_job(model, completed, data=loader, private=private)


def _named_tables(data: Any) -> bool:
    """Whether data are tables by their names; a sparse matrix can be a mapping, too, and so can one table of lists."""
    return isinstance(data, Mapping) and all(isinstance(name, str) for name in data) and not is_columns(data)


def _linked_job(model: str, data: Mapping[str, Any], options: Options, dtypes: Dtypes) -> RunConfig:
    """People and their rows by the names of their tables; which is which, public names say, see `arranged`."""
    from dpgen.data.linked import arranged

    system = systems()[choose("model", model, list(systems()))]
    if "linked" not in system.kinds:
        raise TypeError(f"data is a mapping of tables; model {model!r} works on {' or '.join(system.kinds)}")
    if "people_path" in options or "path" in options:
        raise ValueError("path and people_path must be left out: the data are tables in memory")
    first, person, beside = arranged(data, options, dtypes)
    given = {"progress_bar": False} | options | person
    shown = {option: _shown(held) for option, held in beside.items()}
    made = keyword_job(model, _all_private("linked", system, given) | shown, data="linked", private=first)
    return replace(made, data=replace(made.data, options={**made.data.options, **beside}))


def _shown(held: Any) -> Any:
    """A table, or tables by name, as settings name them."""
    return {name: str(table) for name, table in held.items()} if isinstance(held, Mapping) else str(held)


def loader_of_file(path: str | Path, model: str, given: Iterable[str] = ()) -> str:
    """Name of the loader that reads a file, a folder or an archive of images, or the table of an engine."""
    system = systems()[choose("model", model, list(systems()))]
    if is_source(path):
        return _one_loader(system, given) or next((name for name in ("sql", "table") if name in loaders(system.kinds)), "sql")
    if Path(path).is_dir() or str(path).lower().endswith(ARCHIVES):
        _require_images(path, model, system)
        return "images"
    return _one_loader(system, given) or ("parquet" if is_excel(path) else form_of(path))


def _require_images(path: str | Path, model: str, system: System) -> None:
    if "images" not in system.kinds:
        fitting = " or ".join(name for name, other in systems().items() if "images" in other.kinds)
        raise ValueError(f"data is {str(path)!r}, images for {fitting}; model {model!r} works on {' or '.join(system.kinds)}")


def _one_loader(system: System, given: Iterable[str]) -> str | None:
    """The loader of every form of file, where the system has one: of systems of several kinds, if options are of tables."""
    mixed = not {"schema", "target"}.isdisjoint(given)
    asked = system.kinds if mixed else system.kinds[:1]
    return next((KINDS[kind].reader for kind in asked if KINDS[kind].reader), None)


def _loader_of(private: InMemory, model: str, system: System, given: Iterable[str]) -> str:
    """Name of the loader that reads such data as it reads a file."""
    name = (_one_loader(system, given) if private.like in ("parquet", "sql") else None) or private.like
    if name not in loaders(system.kinds):
        tables = [kind for kind in KINDS if kind in system.kinds]
        raise TypeError(f"data is {article(private)}; model {model!r} works on {' or '.join(tables)}, which it does not hold")
    return name


def _completed(private: InMemory, name: str, system: System, options: Options) -> Options:
    """Options that follow from the form of data in memory where they are left out."""
    if private.like == "images":
        return dict(options)
    given = (_of_records(private) if "records" in system.kinds else {}) | options
    if name == "sets" and given.get("items") is not None:
        given["items"] = [str(item) for item in given["items"]]
    if "columns" in system.kinds:
        given = {"columns": _columns_of(private, options.get("unit"))} | given
    return given


def _of_records(private: InMemory) -> Options:
    """Options of records: the last of several parts of a dataset is the label, and images have a shape."""
    labelled = private.form.container == "dataset" and len(private.form.types) > 1
    shape = private.form.shape or ()
    return ({"label_column": -1} if labelled else {}) | (_of_images(private, shape) if len(shape) > 1 else {})


def _columns_of(private: InMemory, unit: str | None) -> list[str]:
    """Names of columns, without that of people; numbered where they have none."""
    width = 0 if private.like in ("parquet", "sql") else private.content.shape[1]
    return [str(name) for name in private.form.names if name != unit] or [f"x{i}" for i in range(width)]


def _of_images(private: InMemory, shape: tuple[int, ...]) -> Options:
    """Options of images: grey by their type, uint8 or floating point, bits of any other; a channel of its own counts not."""
    sides = [side for side in shape if side != 1] if len(shape) > 2 else list(shape)
    grey = private.own_types[0] == "uint8" or private.own_types[0].startswith("float")
    if grey and len(sides) > 2:
        raise ValueError(
            f"{private} holds images of shape {shape}; grey ones must have the shape (height, width), and those in colour "
            "(height, width, 3) of uint8"
        )
    from dpgen.data.records import PIXEL_THRESHOLD

    height = int(np.prod(sides[:-1]))
    return {"image_shape": [height, int(np.prod(shape)) // height]} | ({"grey_threshold": PIXEL_THRESHOLD} if grey else {})


def _all_private(name: str, system: System, options: Options) -> Options:
    """The options, with no part of the records for evaluation unless they ask for one."""
    known = inspect.signature(loader_of(system.kinds, name, options).options).parameters
    asked = str(options.get("evaluation")).startswith("holdout=")
    if asked or "test_fraction" not in known or {"test_fraction", "test_path"} & set(options):
        return options
    return {"test_fraction": 0.0} | options


# -- estimator ---------------------------------------------------------------------------------------------------------


class Synthesizer(BaseEstimator):
    """The estimator of scikit-learn around `fit`: its parameters are the model and the options of `fit`, which checks them.

    Every call of `fit` spends epsilon (1 unless it is given) again: cross-validation and searches spend it many times.

    Attributes:
        model: name of the system.
        release_: what the last call of `fit` released.
        n_features_in_: columns of the data, the label included.
        feature_names_in_: their names, of tables whose names are all texts.

    >>> Synthesizer("mwem", epsilon=2.0, relation="replace_one")
    Synthesizer(epsilon=2.0, model='mwem', relation='replace_one')
    """

    release_: Release

    def __init__(self, model: str = "gaussian", **options: Any) -> None:
        self.model, self._options = model, options

    def get_params(self, deep: bool = True) -> Options:
        """The model and the options that are given."""
        return {"model": self.model, **self._options}

    def set_params(self, **params: Any) -> Self:
        """Another model, or other options beside those that are given."""
        self._options = self.get_params() | params
        self.model = self._options.pop("model")
        return self

    def fit(self, X: Any, y: Any = None) -> Self:
        """Release a model of X within epsilon; `y` is scikit-learn's and ignored: a label is a column of X, `label_column`."""
        self.release_ = fit(X, self.model, **({"epsilon": 1.0} | self._options))
        names = self.release_.form.names if self.release_.form is not None else ()
        self.n_features_in_ = _width(X) or len(names)
        self.__dict__.pop("feature_names_in_", None)
        if isinstance(X, pd.DataFrame) and all(isinstance(name, str) for name in X.columns):
            self.feature_names_in_ = np.asarray(X.columns, dtype=object)
        return self

    def sample(self, n: int = 1, random_state: RandomState = None) -> Any:
        """n synthetic rows as X came; of systems that charge for every draw, the first n that were paid for."""
        check_is_fitted(self)
        return self.release_.sample(n, random_state)

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log-likelihood in nats of records X under the released model; without noise, so not for publication."""
        check_is_fitted(self)
        density = getattr(self.release_, "log_prob", None)
        if density is None:
            raise ValueError(f"{type(self.release_).__name__} has no density: there is no score")
        if (width := _width(X)) not in (None, self.n_features_in_):
            name = type(self).__name__
            raise ValueError(f"X has {width} features, but {name} is expecting {self.n_features_in_} features as input")
        with TemporaryDirectory(prefix="dpgen-") as scratch:
            records = job_of(self.model, X, {"epsilon": 1.0} | self._options).load(Path(scratch))
        return float(density(records.x).mean())

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _width(X: Any) -> int | None:
    """Columns of data that say so."""
    return int(X.shape[1]) if len(getattr(X, "shape", ())) > 1 else None
