"""Every figure that a run and its report leave has titles, names on both axes, and the noise level beside it."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from figure_labels import saved_figures, unlabelled
from matplotlib.figure import Figure

import dpgen
from dpgen.figures import new_figure
from dpgen.report import pictures

RUNS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "images": ("gaussian", "digits", {}),
    "columns": ("merr", "mixture", {}),
    "curves": ("bernstein", "mixture_1d", {}),
    "planes": ("bernstein", "ring", {"degree": 8}),
    "users": ("minimax", "synthetic_users", {}),
}


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """All figures that are written."""
    return saved_figures(monkeypatch)


def words(figure: Figure) -> str:
    """Titles of a figure and of its panels."""
    return " ".join([figure.get_suptitle(), *(axes.get_title() for axes in figure.axes)])


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("name", RUNS)
def test_figures_of_a_run_and_of_its_report_say_what_they_show(
    name: str, saved: list[Figure], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("dpgen.evaluation.records"), "train_on_synthetic_accuracy", lambda *_, **__: 0.5)
    model, data, options = RUNS[name]
    release = dpgen.fit(data, model, epsilon=2.0, run_dir=tmp_path / "run", **options)
    assert saved, "the evaluation left pictures"
    assert [unlabelled(figure) for figure in saved] == [[]] * len(saved)
    assert all("eps" in words(figure) and "2" in words(figure) for figure in saved), "the noise level"
    shown = pictures(release)
    assert [unlabelled(picture.figure, titled=bool(picture.title)) for picture in shown] == [[]] * len(shown)
    assert all("psilon 2" in picture.caption for picture in shown)


def test_what_is_missing_is_found() -> None:
    figure = new_figure(2.0, 2.0)
    figure.add_subplot().plot([0, 1], [0, 1])
    assert unlabelled(figure) == ["title", "x label", "y label"]
