"""What the site needs: links that leave docs/ lead to pages or to copies of files; doctests and formulas show as code."""

import re
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

_LINK = re.compile(r"(?<!!)\]\((?!\w+:)([^)#\s]+)(#[^)]*)?\)")


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
