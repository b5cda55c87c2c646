"""The report of a run or a release: one page for a person, that stands alone and asks for nothing outside."""

import base64
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from dpgen import __version__
from dpgen.data.table_files import name_of
from dpgen.evaluation.scores import verdict
from dpgen.figures import inline_svg
from dpgen.files import DRAWS, METRICS, MODEL, OVERLAYS, RELEASED, STATEMENT, write_atomically
from dpgen.pictures import pictures
from dpgen.privacy.ledger import Ledger
from dpgen.release import Draws, PublicModel, Release
from dpgen.statement import RELATIONS, UNPROTECTED, PrivacyStatement, collected, guessed, rounded_up, shared_in_words
from dpgen.systems.registry import load

REPORT = "report.html"
"""Name of a report beside what it reports on."""

_TEMPLATE = "report.html.jinja"
_MOST_ROWS = 24
_JUDGED = ("value", "real", "chance", "better", "baseline")
_LONG = re.compile(r"\d+\.\d{6,}(e-?\d+)?")
_READINGS = {"replace_one": "if a record is replaced", "rdp": "by Renyi accounting alone"}
_FALSE_ALARMS = (0.1, 0.01, 0.001)


def detected(false_alarms: float, epsilon: float, delta: float) -> float:
    r"""Greatest share of the cases in which a test notices a record, if it suspects wrongly in a share f of the others.

    .. math:: \min(1,\; e^\epsilon f + \delta,\; 1 - e^{-\epsilon} (1 - \delta - f))

    Source: Wasserman and Zhou 2010, Theorem 2.4; Kairouz, Oh, Viswanath 2015, equation 2.

    >>> round(detected(0.01, 1.0, 0.0), 4), detected(0.01, 0.0, 0.0)
    (0.0272, 0.01)
    """
    grown = math.inf if epsilon > 700 else math.exp(epsilon) * false_alarms + delta
    return max(false_alarms, min(1.0, grown, 1.0 - math.exp(-epsilon) * (1.0 - delta - false_alarms)))


@dataclass(frozen=True)
class Panel:
    """A picture or a table of the page; `private`: computed on private records without noise."""

    title: str
    caption: str
    body: str = ""
    """An `<svg>` element, or the address of a picture that the page holds itself."""
    table: Sequence[Sequence[str]] = ()
    """Rows, header first."""
    private: bool = False
    whole: bool = False
    """Whether it takes the whole width of the page."""


@dataclass(frozen=True)
class Content:
    """Everything on the page, private parts included."""

    title: str
    release: Release
    spending: str = ""
    scores: Sequence[dict[str, Any]] = ()
    panels: Sequence[Panel] = ()
    files: Mapping[str, bool] = field(default_factory=dict)
    """Whether each file of the run may be shared."""
    facts: Sequence[tuple[str, str]] = ()

    def for_publication(self) -> "Content":
        """Without whatever was computed on private records without noise, and without what only concerns the holder."""
        return replace(
            self,
            spending="",
            scores=[score for score in self.scores if not score["status"]],
            panels=[panel for panel in self.panels if not panel.private],
            files={name: shared for name, shared in self.files.items() if shared},
        )

    @property
    def private(self) -> bool:
        """Whether any part is not for publication."""
        marked = [bool(score["status"]) for score in self.scores]
        return any([*marked, *(panel.private for panel in self.panels), *(not shared for shared in self.files.values())])


def _of_directory(directory: Path) -> Content:
    """What a run, or a released model, has left in its directory."""
    if (directory / MODEL).is_dir() or (directory / "model.json").is_file():
        release: Release = load(directory)
    elif (directory / DRAWS).is_file() and (directory / STATEMENT).is_file():
        statement = PrivacyStatement.read(directory / STATEMENT)
        release = Draws(pd.read_csv(directory / DRAWS), statement=statement)
    else:
        raise ValueError(f"run is {str(directory)!r}; it must be the directory of a finished run or of a released model")
    settings, ledger, metrics = (directory / name for name in ("config.yaml", "ledger.jsonl", METRICS))
    file, title = settings, f"{type(release).__name__} {directory.resolve().name}"
    try:  # a score that does not say what it looked at counts as private
        if file.is_file():
            title = _title(yaml.safe_load(file.read_bytes()))
        file = metrics
        scores = json.loads(file.read_bytes()) if file.is_file() else []
        scores = [{"status": UNPROTECTED} | s | {"verdict": verdict(*(s[name] for name in _JUDGED))} for s in scores]
    except (ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        raise ValueError(f"{file} is damaged: {' '.join(str(error).split())}") from error
    content = _of_release(release, title)
    spending = ""
    if ledger.is_file():
        with Ledger.open(ledger) as book:
            spending = f"The ledger holds epsilon {rounded_up(book.epsilon())} and enforces no budget."
            if book.budget is not None:
                left = max(0.0, book.budget.epsilon - book.epsilon())
                rest = f"{left:.4g} left" if left > 1e-3 * book.budget.epsilon else "nothing is left"
                spending = f"Spent {rounded_up(book.epsilon())} of epsilon {book.budget.epsilon:.4g}, {rest}."
    panels = [*content.panels, *_private_panels(directory)]
    return replace(content, spending=spending, scores=scores, panels=panels, files=_files(directory))


def _title(settings: dict[str, Any]) -> str:
    """What was released and from what: the system, and the file or the data set.

    >>> _title({"model": {"name": "tables"}, "data": {"name": "table", "path": "data/customers.csv"}})
    'tables on customers'
    >>> _title({"model": {"name": "tables"}, "data": {"name": "sql", "source": "visits/*.parquet"}})
    'tables on visits'
    """
    data = settings["data"]
    place = Path(next((data[name] for name in ("table", "path", "source") if data.get(name)), data["name"]))
    return f"{settings['model']['name']} on {name_of(place.parent if '*' in place.name else place) or data['name']}"


def _of_release(release: Release, title: str) -> Content:
    facts = []
    if isinstance(release, PublicModel):
        released = f"a model of kind {release.kind}, from which anyone may draw any number of records for free"
        facts = [("released", released), ("SHA-256 of model, description and statement", release.sha256)]
    elif isinstance(release, Draws):
        paid = f"{len(release.to_pandas()):,} private draws"
        facts = [("released", f"{paid}; what drew them stays with the holder; more draws cost more")]
    return Content(title, release, panels=_own_panels(release), facts=facts)


def _own_panels(release: Release) -> list[Panel]:
    shown = [
        Panel(picture.title, picture.caption, body=inline_svg(picture.figure, f"picture{number}"))
        for number, picture in enumerate(pictures(release))
    ]
    if isinstance(release, Draws):
        shown.append(Panel("Draws", f"The first of {len(release.to_pandas()):,} rows.", table=_rows(release.to_pandas())))
    return shown


def _private_panels(directory: Path) -> Iterator[Panel]:
    """Pictures and tables that the evaluation left: all that is not released was computed on private records."""
    overlays = sorted((directory / OVERLAYS).glob("*.png"))
    names = pd.read_csv(directory / f"{OVERLAYS}.csv", dtype=str, keep_default_na=False)["column"] if overlays else ()
    for path, name in zip(overlays, names):
        yield Panel(name, "Real and synthetic values over each other.", body=_address(path), private=True)
    for path in sorted(directory.glob("*.png")):
        yield Panel(path.stem, "Of the evaluation.", body=_address(path), private=True, whole=True)
    for path in sorted(directory.glob("*.csv")):
        if path.name not in RELEASED:
            yield Panel(path.stem, "Of the evaluation.", table=_rows(pd.read_csv(path)), private=True)


def _address(path: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"


def _rows(table: pd.DataFrame) -> list[list[str]]:
    def cell(value: Any) -> str:
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    return [[str(name) for name in table.columns], *([cell(v) for v in row] for row in table[:_MOST_ROWS].to_numpy().tolist())]


def _files(directory: Path) -> dict[str, bool]:
    shown = [path for path in sorted(directory.iterdir()) if path.name != REPORT and not path.name.startswith(".")]
    known = {path: path.name in RELEASED or path.suffix == ".safetensors" or path.name == "model.json" for path in shown}
    return {path.name + "/" * path.is_dir(): shared for path, shared in known.items()}


def report(source: Path | str | Release, out: Path | str | None = None, *, public: bool = False) -> Path:
    """Write the report of a run, of a released model or of a release in memory: one HTML file; returns its path.

    It needs no private data: pictures of the release are drawn from its own samples, and what compares it with real data is
    what the evaluation wrote, marked as not for publication. `public` leaves that out, and what only concerns the holder.
    """
    if isinstance(source, Release):
        if out is None:
            raise ValueError("out is None; a release in memory needs a file to write the report to")
        content, target = _of_release(source, type(source).__name__), Path(out)
    else:
        content, target = _of_directory(Path(source)), Path(out) if out is not None else Path(source) / REPORT
    write_atomically(target, page(content.for_publication() if public else content, public=public))
    return target


def page(content: Content, *, public: bool) -> str:
    """The HTML of a report."""
    from jinja2 import Environment, StrictUndefined

    statement = content.release.statement
    tests = [
        [f"{100 * share:g} % of the cases", _percent(most), rounded_up(most / share)]
        for share in _FALSE_ALARMS
        for most in [detected(share, statement.epsilon, statement.delta)]
    ]
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"up": rounded_up, "percent": _percent, "score": lambda v: "" if v is None else f"{v:.4g}"}
    template = environment.from_string(files("dpgen").joinpath(_TEMPLATE).read_text(encoding="utf-8"))
    return template.render(
        content=content,
        statement=statement,
        relation=RELATIONS.get(statement.relation, statement.relation),
        question=statement.question(),
        guessed=guessed(statement.epsilon, statement.delta),
        tests=tests,
        mechanisms=[
            [m["note"], _LONG.sub(lambda n: f"{float(n[0]):.6g}", m["event"]), m["count"], m.get("most", m["count"])]
            for m in collected(statement.mechanisms)
        ],
        shared=shared_in_words(statement.shared) if statement.shared else "",
        readings=_READINGS,
        mark=UNPROTECTED,
        public=public,
        version=__version__,
    )


def _percent(share: float) -> str:
    """A share in percent, four digits, never less than it is.

    >>> _percent(0.73105858), _percent(0.001), _percent(1.0)
    ('73.11 %', '0.1 %', '100 %')
    """
    return f"{rounded_up(100 * share)} %"
