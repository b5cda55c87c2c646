"""The pages of documentation: the site builds without a warning, and examples run."""

import os
import re
import runpy
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import dpgen
from dpgen.data import KINDS
from dpgen.options import keys
from dpgen.systems import SYSTEMS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
EXAMPLES = re.compile(r"^```python\n(.*?)\n```$", re.DOTALL | re.MULTILINE)


class Fetched(HTMLParser):
    """Addresses that a page asks for by itself."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        asks = tag in ("script", "img", "iframe", "source") or (tag == "link" and known.get("rel") != "canonical")
        self.addresses += [known[name] or "" for name in ("src", "href") if asks and name in known]


def test_the_site_builds_strictly_and_fetches_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, timeout=300)
    assert (built.returncode, built.stderr) == (0, "")
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(PAGES)
    outside = {address for page in pages for address in Fetched(page.read_text()).addresses if "//" in address}
    assert outside == set()
    reference = (tmp_path / "site" / "reference" / "privacy" / "index.html").read_text()
    assert 'id="dpgen.privacy.ledger.Ledger.declare"' in reference
    assert "blockquote" not in reference, "doctests are code, not quotations"
    assert ".. math::" not in reference


def test_a_page_says_when_to_turn_each_option() -> None:
    pages = "".join(page.read_text() for page in [*PAGES, ROOT / "README.md"])
    code = " ".join(re.findall(r"```.*?```|`[^`\n]+`", pages, re.DOTALL))
    systems = {name for system in SYSTEMS.values() for kind in (system.plan, system.config) for name in keys(kind)}
    options = systems.union(*(keys(loader.options) for kind in KINDS.values() for loader in kind.loaders.values()))
    assert len(options) > 100
    assert [name for name in sorted(options) if not re.search(rf"(?<![\w.]){name}\b", code)] == []


def test_the_support_matrix_is_that_of_the_code() -> None:
    matrix = runpy.run_path(str(ROOT / "docs" / "support.py"))["matrix"]()
    assert matrix in (DOCS / "choose.md").read_text(), "python docs/support.py prints the table"


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("page", [page for page in PAGES if EXAMPLES.search(page.read_text())], ids=lambda page: page.stem)
def test_every_example_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for example in EXAMPLES.findall(page.read_text()):
        exec(compile(example, str(page), "exec"), {"__name__": page.stem})


@pytest.mark.usefixtures("quiet")
def test_networks_of_your_own_are_trained_released_and_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The files of the page, each as it stands there, in its order."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    text = (DOCS / "own_model.md").read_text()
    files = re.findall(r'^```python title="(\w+)\.py"\n(.*?)\n```$', text, re.DOTALL | re.MULTILINE)
    assert [name for name, _ in files] == ["mymodule", "fit", "with_opacus", "loop", "mynets", "train", "mygan", "train_gan"]
    assert files[4][1].count("\n") + files[5][1].count("\n") <= 40
    for name, source in files:
        (tmp_path / f"{name}.py").write_text(source)
    try:
        for name in ("fit", "loop", "train", "train_gan"):
            runpy.run_path(str(tmp_path / f"{name}.py"))
        released = dpgen.load("my_model").statement
    finally:
        for name, _ in files:
            sys.modules.pop(name, None)
    said = capsys.readouterr().out
    assert re.search(r"^torch.Size\(\[1000, 64\]\) torch.Size\(\[1000\]\) [12]\.\d+$", said, re.MULTILINE)
    assert "3.0 torch.Size([1000, 10])\n" in said
    assert re.search(r"^[23]\.\d+ \['0.bias', '0.weight', '2.bias', '2.weight'\]$", said, re.MULTILINE)
    assert [line["note"] for line in released.mechanisms] == ["cluster sizes", "training steps"]
    with pytest.raises(ValueError, match="needs the network 'mynets:MyVAE', which has not been imported"):
        dpgen.load("digits_model")
