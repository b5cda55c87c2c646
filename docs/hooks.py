"""What the site needs: notebooks are pages, links that leave docs/ lead to pages or to copies of files, doctests are code."""

import json
import re
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any

from griffe import Docstring, Extension
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
PAGES = {
    "README.md": "index.md",
    "SECURITY.md": "guarantees.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
}
"""Files outside docs/ that a page includes."""

NOTEBOOKS = {f"tutorials/{path.stem}.md": json.loads(path.read_text()) for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}

_LINK = re.compile(r"(?<!!)\]\((?!\w+:)([^)#\s]+)(#[^)]*)?\)")


def on_config(config: Any) -> None:
    """Name every notebook among the tutorials, by its first heading."""
    tutorials = next(entry["Tutorials"] for entry in config.nav if "Tutorials" in entry)
    tutorials += [{"".join(book["cells"][0]["source"]).splitlines()[0].strip("# "): uri} for uri, book in NOTEBOOKS.items()]


def on_files(files: Files, *, config: Any) -> None:
    """Add every notebook, with its outputs, as a page."""
    for uri, book in NOTEBOOKS.items():
        cells = enumerate(book["cells"])
        parts = [part for number, cell in cells for part in _cell(cell, f"{uri.removesuffix('.md')}{number}", files, config)]
        files.append(File.generated(config, uri, content="\n\n".join(parts)))


def _cell(cell: dict[str, Any], place: str, files: Files, config: Any) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] != "code":
        yield source
        return
    yield f"```python\n{source}\n```"
    for number, output in enumerate(cell["outputs"]):
        shown = output.get("data", {"text/plain": output.get("text", "")})
        text = {kind: "".join(content) for kind, content in shown.items() if isinstance(content, str | list)}
        if "image/png" in text:
            picture = f"{place}_{number}.png"
            files.append(File.generated(config, picture, content=b64decode(text["image/png"])))
            yield f"![output]({Path(picture).name})"
        elif "text/html" in text:
            yield text["text/html"]
        elif text["text/plain"].strip():
            yield f"```text\n{text['text/plain']}\n```"


def on_page_markdown(markdown: str, *, page: Any, files: Files, config: Any) -> str:
    """Point links out of docs/ to the page that includes the file, or to a copy of it in the site."""

    def inside(match: re.Match[str]) -> str:
        here = dirname(page.file.src_uri)
        target, anchor = normpath(join("docs", here, match[1])), match[2] or ""
        if target.startswith("docs/") or not (ROOT / target).exists():
            return match[0]  # a page, or a mistake that mkdocs reports
        uri = PAGES.get(target) or _copy(target, files, config)
        return f"]({relpath(uri, here or '.')}{anchor})"

    return _LINK.sub(inside, markdown)


def _copy(target: str, files: Files, config: Any) -> str:
    """The file's own text as a page of plain text."""
    if (ROOT / target).is_dir():
        target = f"{target}/__init__.py"
    uri = f"files/{target}.txt"
    if uri not in files.src_uris:
        files.append(File.generated(config, uri, content=(ROOT / target).read_text()))
    return uri


class Readable(Extension):
    """Doctests and formulas of docstrings as blocks of code, for the pages of the reference."""

    def on_instance(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring = _readable(obj.docstring)


def _readable(docstring: Docstring) -> Docstring:
    text = re.sub(r":math:`([^`]+)`", r"`\1`", docstring.value)
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    text = re.sub(r"^( *)\.\. math:: *(.*(?:\n(?:\1 +\S.*))*)", _formula, text, flags=re.MULTILINE)
    text = re.sub(r"(?:^ *>>> .*\n?(?:^ *\S.*\n?)*)", _example, text, flags=re.MULTILINE)
    docstring.value = text
    return docstring


def _fenced(language: str, lines: list[str]) -> str:
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    pad = " " * indent
    return "\n".join([f"{pad}```{language}", *lines, f"{pad}```"])


def _formula(match: re.Match[str]) -> str:
    lines = [match[1] + line.strip() for line in match[2].splitlines() if line.strip()]
    return _fenced("tex", lines)


def _example(match: re.Match[str]) -> str:
    return _fenced("pycon", match[0].rstrip().splitlines()) + "\n"
