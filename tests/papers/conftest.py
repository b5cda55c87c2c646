"""Every figure that a test of the papers writes says what it shows."""

from collections.abc import Iterator

import pytest
from figure_labels import saved_figures, unlabelled


@pytest.fixture(autouse=True)
def figures_have_titles_and_named_axes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Titles, and names on both axes, of whatever the test wrote."""
    saved = saved_figures(monkeypatch)
    yield
    assert [unlabelled(figure) for figure in saved] == [[]] * len(saved)
