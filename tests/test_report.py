"""The report: what epsilon means, what is shown and marked, what a public report leaves out, and that the page stands alone."""

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
from figure_labels import unlabelled
from refusals import refused
from scipy.stats import norm
from smoke import linked_tables, tree

import dpgen
from dpgen import report as exported
from dpgen.cli.main import main
from dpgen.columns.discretized import DiscretizedColumn
from dpgen.config import parse_job
from dpgen.nets.gan import Generator
from dpgen.release import Draws, Release
from dpgen.report import RELEASED, REPORT, detected, pictures, report
from dpgen.run import Outcome, run
from dpgen.runtime import quiet_training
from dpgen.statement import UNPROTECTED, guessed
from dpgen.systems.dpgan.model import PointGANModel
from dpgen.systems.marginals.model import ProductMixture
from dpgen.systems.ordered.model import OrderedDistribution, PiecewiseCDF


@pytest.mark.parametrize(("mu", "epsilon"), [(0.3, 0.1), (1.0, 1.0), (3.0, 0.5), (3.0, 4.0)])
def test_no_test_of_a_gaussian_mechanism_detects_more(mu: float, epsilon: float) -> None:
    """Its best tests are known: power Phi(Phi^-1(f) + mu) at false alarms f (Dong, Roth, Su 2022)."""
    delta = float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))
    alarms = np.linspace(1e-6, 1 - 1e-6, 2001)
    power = norm.cdf(norm.ppf(alarms) + mu)
    bound = np.array([detected(float(f), epsilon, delta) for f in alarms])
    assert (power <= bound + 1e-12).all()
    assert (bound - power).min() < 1e-3, "and one test reaches it"
    assert (power > np.array([detected(float(f), epsilon, 0.0) for f in alarms])).any(), "a twin without delta is caught"


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0])
def test_randomised_response_reaches_the_bounds(epsilon: float) -> None:
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    assert guessed(epsilon, 0.0) == pytest.approx(keep)
    assert detected(1 - keep, epsilon, 0.0) == pytest.approx(keep)


def test_guessing_is_the_best_of_all_tests() -> None:
    best = max(0.5 * (detected(float(f), 1.2, 0.01) + 1 - float(f)) for f in np.linspace(0, 1, 10_001))
    assert guessed(1.2, 0.01) == pytest.approx(best, abs=1e-4)


class Page(HTMLParser):
    """Tags with their attributes, what is inside of elements of class "marked", and all text."""

    VOID = ("meta", "link", "img", "br", "col")

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text, self.marked = "", ""
        self._open: list[tuple[str, bool]] = []
        self.feed(self.source)
        assert self._open == [], "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.tags.append((tag, known))
        if tag not in self.VOID:
            self._open.append((tag, "marked" in (known.get("class") or "").split() or self._inside))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1][0] == "style":
            return
        self.text += data
        if self._inside:
            self.marked += data

    @property
    def _inside(self) -> bool:
        return bool(self._open) and self._open[-1][1]

    def values(self, name: str) -> list[str]:
        return [attributes[name] or "" for _, attributes in self.tags if name in attributes]


def require_alone(page: Page) -> None:
    """Nothing on the page is fetched or run, and no identifier stands twice."""
    assert not {"script", "iframe", "object", "form", "base"} & {tag for tag, _ in page.tags}
    assert [name for _, attributes in page.tags for name in attributes if name.startswith("on")] == []
    addresses = [value for name in ("src", "href", "xlink:href", "action", "data") for value in page.values(name)]
    assert [value for value in addresses if not value.startswith(("data:", "#"))] == []
    assert [style for style in page.values("style") if "url(" in style and "url(#" not in style] == []
    assert "@import" not in page.source
    assert "default-src 'none'" in page.source
    names = page.values("id")
    assert len(names) == len(set(names))
    assert {value[1:] for value in addresses if value.startswith("#")} <= set(names)


def require_public(page: Page) -> None:
    """Nothing on the page is marked, so nothing on it may be of the kind that is marked elsewhere."""
    assert page.marked == ""
    assert [tag for tag, attributes in page.tags if attributes.get("class") == "mark"] == []
    assert "Parts in red" not in page.text
    assert "Nothing on this page was computed on private records" in page.text


def small(name: str, directory: Path) -> list[str]:
    return {
        "columns": ["--model=merr", "--data=mixture", "--n_records=500", "--epsilon=1"],
        "points": ["--model=mbde", "--data=ring", "--n_points=60", "--n_test=40", "--steps=2", "--draws=2"],
        "users": ["--model=minimax", "--data=synthetic_users", "--n_users=12", "--n_categories=5"],
    }[name] + ["--progress_bar=false", f"--run_dir={directory / name}"]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory, finished: Outcome) -> dict[str, Outcome]:
    """A finished run of every kind of data."""
    root = tmp_path_factory.mktemp("reports")
    with quiet_training():
        runs = {name: run(parse_job(small(name, root))) for name in ("columns", "points", "users")}
    shutil.copytree(finished.directory, root / "records")
    return runs | {"records": replace(finished, directory=root / "records")}


@pytest.fixture(scope="module")
def directories(outcomes: dict[str, Outcome]) -> dict[str, Path]:
    return {name: outcome.directory for name, outcome in outcomes.items()}


KINDS = ["records", "columns", "points", "users"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_holders_report_marks_all_that_looks_at_private_records(kind: str, directories: dict[str, Path]) -> None:
    directory = directories[kind]
    assert report(directory) == directory / REPORT
    page = Page(directory / REPORT)
    require_alone(page)
    shown = json.loads((directory / "metrics.json").read_text())
    assert shown
    for score in shown:
        assert score["name"] in page.text
        assert (score["name"] in page.marked) == (score["status"] is not None)
    looking = [path.stem for path in directory.iterdir() if path.suffix in (".png", ".csv") and path.name not in RELEASED]
    assert looking
    assert all(name in page.marked for name in looking)
    assert UNPROTECTED in page.marked
    with pytest.raises(AssertionError, match="not for publication"):
        require_public(page)


@pytest.mark.parametrize("kind", KINDS)
def test_a_public_report_is_made_from_what_may_be_shared_alone(kind: str, directories: dict[str, Path], tmp_path: Path) -> None:
    directory, shared = directories[kind], tmp_path / "shared"
    shared.mkdir()
    for name in ("config.yaml", *RELEASED):  # the names of model and data come from the settings
        if (directory / name).is_dir():
            shutil.copytree(directory / name, shared / name)
        elif (directory / name).exists():
            shutil.copy(directory / name, shared / name)
    scores = json.loads((directory / "metrics.json").read_text())
    (shared / "metrics.json").write_text(json.dumps([score for score in scores if not score["status"]]))
    page = Page(report(directory, tmp_path / "public.html", public=True))
    require_alone(page)
    require_public(page)
    assert str(Path(__file__).parents[1]) not in page.source, "a path says who made it"
    assert page.source == report(shared, tmp_path / "again.html", public=True).read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_what_may_be_shared_is_what_the_summary_calls_released(kind: str, outcomes: dict[str, Outcome]) -> None:
    listed = next(line for line in outcomes[kind].summary.splitlines() if line.startswith("released")).split(None, 1)[1]
    released = {name.rstrip("/") for name in listed.split(", ")}
    assert released == {path.name for path in outcomes[kind].directory.iterdir()} & set(RELEASED) - {"PRIVACY.md"}


def test_what_was_spent_and_what_is_left_comes_from_the_ledger(directories: dict[str, Path], tmp_path: Path) -> None:
    full = Page(report(directories["records"], tmp_path / "full.html"))
    public = Page(report(directories["records"], tmp_path / "public.html", public=True))
    assert "of epsilon 3, nothing is left" in full.text
    assert "left" not in public.text
    statement = json.loads((directories["records"] / "privacy.json").read_text())
    for page in (full, public):
        assert all(text in page.text for text in (*statement["assumptions"], *statement["not_covered"]))
        assert all(mechanism["note"] in page.text for mechanism in statement["mechanisms"])


def test_a_budget_that_others_pay_from_is_named(tmp_path: Path) -> None:
    model = product(("a",))
    assert "same budget" not in Page(model.report(tmp_path / "alone.html")).text
    paid = {"file": "data.budget", "epsilon": 7.5, "delta": 1e-5, "spent": 1.25, "runs": 2}
    model.statement = replace(model.statement, shared=paid)
    assert "epsilon 1.25 of 7.5 at delta 1e-05 is paid for by 2 runs" in Page(model.report(tmp_path / "shared.html")).text


NASTY = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "a&b", "$_$", "\u00fc\U0001f600", "x" * 300)


def product(columns: tuple[str, ...]) -> ProductMixture:

    means = torch.linspace(0.0, 1.0, len(columns))[None]
    return ProductMixture(means, torch.tensor([50.0]), statement=tiny.statement(), columns=columns)


def ordered() -> OrderedDistribution:
    domains = {
        "price": DiscretizedColumn(low="0", high="1000000000", resolution="1e-9"),
        "day": DiscretizedColumn(kind="date", low="2020-01-01", high="2020-12-31", resolution="86400"),
        "size": DiscretizedColumn(kind="category", categories=("small", "large")),
    }
    cdfs = {name: PiecewiseCDF(np.array([0, domain.size]), np.array([0.0, 1.0])) for name, domain in domains.items()}
    return OrderedDistribution(cdfs, domains, statement=tiny.statement())


def mixed() -> Release:
    frame = pd.DataFrame({"drink": ["tea", "rum", None] * 40, "age": [20, 30, 40, 50] * 30})
    fields = [
        {"name": "drink", "type": "string", "constraints": {"enum": ["tea", "rum"]}},
        {"name": "age", "type": "integer", "constraints": {"required": True, "minimum": 0, "maximum": 99}},
    ]
    schema = {"fields": fields}
    return dpgen.fit(frame, "tables", schema=schema, epsilon=4.0, test_fraction=0.0)


def points(d: int) -> PointGANModel:

    names = tuple(f"axis {i}" for i in range(d))
    box = {"location": torch.zeros(d), "scale": torch.ones(d), "bounds": None}
    return PointGANModel(Generator(d, latent=2, hidden=3), columns=names, statement=tiny.statement(), **box)


TIMELINES = ("Rows over time", "Time between rows", "First rows", "What follows what")


def linked(data: Any = None) -> Release:
    fast: dict[str, Any] = {"method": "independent", "classes": 1, "row_classes": 1, "steps": 1}
    return dpgen.fit(data or linked_tables(), "relational", epsilon=9.0, **fast)


def drawn(table: pd.DataFrame) -> Draws:
    return Draws(table, statement=tiny.statement())


RELEASES: dict[str, tuple[Callable[[], Release], list[str]]] = {
    "images": (tiny.mixture, ["Synthetic images", "Average images", "Shares"]),
    "columns of bits": (lambda: product(NASTY), ["Marginals", "Pairwise associations"]),
    "one column": (lambda: product(("a",)), ["Marginals"]),
    "tables": (mixed, ["Distribution of drink", "Distribution of age", "Pairwise associations"]),
    "ordered": (ordered, ["Distribution of price", "Distribution of day", "Distribution of size"]),
    "points on a line": (lambda: points(1), ["Distribution of axis 0"]),
    "points on a plane": (lambda: points(2), ["Distribution of axis 0", "Distribution of axis 1", "axis 0 and axis 1"]),
    "draws of users": (lambda: drawn(pd.DataFrame({"user": ["u", "v"], "category": NASTY[:2]})), ["Distribution of category"]),
    "draws of points": (lambda: drawn(pd.DataFrame({"x": [0.5, math.nan]})), ["Distribution of x"]),
    "people and their rows": (linked, ["Rows of a person", "Five people", *TIMELINES, "Associations across tables"]),
    "people, rows and rows of these": (
        lambda: linked(tree()),
        [
            *("Rows of a person", "Five people", *TIMELINES, "Associations across tables"),
            "prescriptions: Rows for each row of visits",
            "prescriptions: What follows what",
            "prescriptions: Associations across tables",
        ],
    ),
    "no draw": (lambda: drawn(pd.DataFrame({"x": []})), []),
}


@pytest.mark.parametrize("name", RELEASES)
def test_every_kind_of_release_is_shown_from_itself(name: str, tmp_path: Path) -> None:
    make, titles = RELEASES[name]
    release = make()
    shown = pictures(release)
    assert [picture.title for picture in shown] == titles
    assert [unlabelled(picture.figure, titled=True) for picture in shown] == [[]] * len(shown)
    page = Page(release.report(tmp_path / "r.html"))
    require_alone(page)
    require_public(page)
    assert all(title in page.text for title in titles)


def test_pages_have_the_rules_of_narrow_windows(directories: dict[str, Path]) -> None:
    page = report(directories["records"]).read_text()
    assert all(rule in page for rule in ('content="width=device-width', "overflow-wrap: anywhere", "overflow-wrap: normal"))


def test_names_of_columns_are_text(tmp_path: Path) -> None:
    page = Page(product(NASTY).report(tmp_path / "r.html"))
    assert not [tag for tag, _ in page.tags if tag in ("script", "img")]
    for name in ("<script>alert(1)</script>", "a&b", "$_$", "\u00fc\U0001f600"):
        assert page.text.count(name) >= 3, "a bar, a row and a column"
    assert "x" * 29 not in page.text


def test_what_is_no_release_is_refused_in_one_line(tmp_path: Path) -> None:
    with refused("run is"):
        report(tmp_path / "absent")
    with refused("out is None"):
        exported(tiny.mixture())
    with refused("release is str"):
        pictures("model")  # type: ignore[arg-type]
    with refused("absent", error=FileNotFoundError):
        report(tiny.mixture(), tmp_path / "absent" / "r.html")


def test_the_command(finished: Outcome, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown, hidden = tmp_path / "shown.html", tmp_path / "hidden.html"
    assert main(["report", str(finished.directory), "--out", str(shown)]) == 0
    assert UNPROTECTED in capsys.readouterr().out
    assert main(["report", str(finished.directory / "model"), "--public", "--out", str(hidden)]) == 0
    assert capsys.readouterr().out == f"{hidden}: for publication\n"
    assert Page(shown).marked
    require_public(Page(hidden))
    assert main(["report", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / REPORT).exists()


def test_a_score_that_does_not_say_what_it_looked_at_is_private(tmp_path: Path) -> None:
    tiny.mixture().save(tmp_path / "model")
    score = {"name": "accuracy", "value": 0.5, "real": None, "chance": None, "better": "higher", "baseline": "chance"}
    (tmp_path / "metrics.json").write_text(json.dumps([score]))
    assert "accuracy" in Page(report(tmp_path)).marked
    assert "accuracy" not in Page(report(tmp_path, public=True)).text


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("metrics.json", '[{"name": "x"}]'),
        ("metrics.json", "[1]"),
        ("metrics.json", "{"),
        ("config.yaml", "model: {}"),
        ("config.yaml", "a: ["),
    ],
)
def test_a_damaged_file_is_named(name: str, content: str, tmp_path: Path) -> None:
    tiny.mixture().save(tmp_path / "model")
    (tmp_path / name).write_text(content)
    with refused(name):
        report(tmp_path)
    assert not (tmp_path / REPORT).exists()
