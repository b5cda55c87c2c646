"""The report in a browser: nothing is asked for outside, nothing complains, and a narrow screen shows all of it."""

from pathlib import Path

import pytest
import tiny
import torch
from browser import Browser

from dpgen.report import report
from dpgen.run import Outcome
from dpgen.systems.marginals.model import ProductMixture

pytestmark = pytest.mark.browser

WIDEST = "document.documentElement.scrollWidth"
SMALLEST = """Math.min(...[...document.querySelectorAll('svg text')].map(
    text => parseFloat(getComputedStyle(text).fontSize) * Math.hypot(text.getScreenCTM().a, text.getScreenCTM().b)))"""
BROKEN = "[...document.images].filter(image => !image.complete || image.naturalWidth === 0).length"


def wide() -> ProductMixture:
    """A model of many columns with long names."""
    names = [f"{'very_long_' * 8}{i}" for i in range(60)]
    return ProductMixture(torch.full((1, 60), 0.3), torch.tensor([50.0]), statement=tiny.statement(), columns=names)


def test_pages_stand_alone_and_fit_a_narrow_screen(finished: Outcome, tmp_path: Path) -> None:
    pages = {
        "full": report(finished.directory, tmp_path / "full.html"),
        "public": report(finished.directory, tmp_path / "public.html", public=True),
        "wide": report(wide(), tmp_path / "wide.html"),
    }
    for name, path in pages.items():
        for width in (400, 1200):
            with Browser(width) as browser:
                browser.open(path)
                assert browser.value("document.title"), name
                assert [address for address in browser.requests if not address.startswith(("data:", path.as_uri()))] == []
                assert browser.complaints == []
                assert browser.value(WIDEST) <= width
                assert browser.value(BROKEN) == 0
                assert browser.value(SMALLEST) > 6.0


def test_what_asks_for_more_is_noticed(tmp_path: Path) -> None:
    """The broken twin: a picture from outside, an error, a line that does not fit."""
    page = tmp_path / "broken.html"
    page.write_text("<img src='other.png'><pre>" + "x" * 300 + "</pre><script>console.error('no'); undefined_name()</script>")
    with Browser(400) as browser:
        browser.open(page)
        assert any(address.endswith("other.png") for address in browser.requests)
        assert len(browser.complaints) >= 2
        assert browser.value(WIDEST) > 400
        assert browser.value(BROKEN) == 1
