"""Pages of scores and pictures, each in one file."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from dpgen.evaluation.scores import Score, number
from dpgen.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDE = 10.0  # inches of a figure that takes the whole width of a page
_PRIVATE = "Computed on real rows without noise: not for publication."
_HEAD = """<meta name='viewport' content='width=device-width, initial-scale=1'><style>
body { font-family: sans-serif; margin: 1em auto; max-width: 80rem; padding: 0 1em }
table { border-collapse: collapse; font-size: .85em }
td, th { padding: .2em .6em; text-align: left }
.scroll { overflow-x: auto }
.grid { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)) }
img { width: 100%; height: auto }
.whole { grid-column: 1 / -1 }
</style>"""


def write_page(
    path: Path,
    title: str,
    pictures: Mapping[str, Callable[[], Figure]],
    scores: str,
    *,
    mark: str = _PRIVATE,
    first: Sequence[str] = (),
) -> Path:
    """Write one page of sentences that come first, pictures and tables of scores, under its mark; returns its path."""
    drawn = "".join(_shown(name, draw()) for name, draw in pictures.items())
    head = f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{title}</title>{_HEAD}</head>"
    scores = scores.replace("<table", "<div class='scroll'><table").replace("</table>", "</table></div>")
    told = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in first)
    body = (
        f"<body><h1>{title}</h1><p><b>{mark}</b></p>{told}<div class='grid'>{drawn}</div><h2>Scores</h2>{scores}</body></html>"
    )
    write_atomically(path, head + body + "\n")
    return path


def table_of(scores: Sequence[Score]) -> str:
    """Scores as a table of a page."""
    rows = [[s.name, s.better, number(s.value), number(s.real), number(s.chance)] for s in scores]
    table = pd.DataFrame(rows, columns=["measure", "better", "synthetic", "held-out real rows", "baseline"])
    return str(table.to_html(index=False))


def _shown(name: str, figure: Figure) -> str:
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=110)
    source = base64.b64encode(data.getvalue()).decode()
    wide = " class='whole'" if figure.get_figwidth() > _WIDE else ""
    return f"<img{wide} alt='{html.escape(name, quote=True)}' src='data:image/png;base64,{source}'>"
