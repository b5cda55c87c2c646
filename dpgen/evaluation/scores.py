"""Figures of merit, their tables and pages, and evaluations: scores and files with their writers."""

from __future__ import annotations

import base64
import html
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from dpgen.files import METRICS, write_atomically
from dpgen.statement import UNPROTECTED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HELD_OUT = 0.3
"""Share of the real rows, or people, that the others are compared with, too."""

_ESCAPED_BAR = r"\|"


@dataclass(frozen=True)
class Score:
    """One figure of merit of a release, beside what real data reach and what knowing nothing reaches.

    `real` is the measure for real data, `chance` that of the `baseline` that is named, `sample` says in words how many records
    were looked at where these are not all. `private`: a figure looks at private or test records; every table then carries
    `UNPROTECTED`. Of figures of one `kind` a summary shows the worst.
    """

    name: str
    value: float
    real: float | None = None
    chance: float | None = None
    better: Literal["higher", "lower"] = "higher"
    baseline: str = "chance"
    sample: str = ""
    private: bool = True
    kind: str = ""

    @property
    def tag(self) -> str:
        """Name of the figure in the logs of a run, in a section that carries the mark."""
        return f"final{f' ({UNPROTECTED})' * self.private}/{self.name}"


def beside(name: str, values: Mapping[str, float], baseline: str, sample: str = "", kind: str = "") -> Score:
    """An error of synthetic records, the "value", and of two rivals: "real" data and the baseline, by "chance"."""
    real, chance = values.get("real"), values.get("chance")
    return Score(name, values["value"], real=real, chance=chance, better="lower", baseline=baseline, sample=sample, kind=kind)


def first_of(scores: Sequence[Score], most: int = 3) -> list[Score]:
    """Figures for a summary: of the first kinds the worst one each, by its ratio to the baseline, else to real data.

    >>> made = [Score("accuracy", 0.8), Score("any", 0.2, chance=0.4, better="lower", kind="queries")]
    >>> made += [Score("all", 0.3, chance=0.4, better="lower", kind="queries"), Score("pairs", 0.1), Score("triples", 0.1)]
    >>> [score.name for score in first_of(made)]
    ['accuracy', 'all', 'pairs']
    """
    kinds: dict[str, list[Score]] = {}
    for score in scores:
        kinds.setdefault(score.kind or score.name, []).append(score)

    def badness(score: Score) -> float:
        reference = score.real if score.chance is None else score.chance
        pair = score.value, 1.0 if reference is None else reference
        worse, better = pair if score.better == "lower" else pair[::-1]
        return math.inf if math.isnan(worse + better) or better <= 0 else worse / better

    return [max(kind, key=badness) for kind in list(kinds.values())[:most]]


def verdict(value: float, real: float | None, chance: float | None, better: str, baseline: str) -> str:
    """One sentence on a score: how near it is to that of real data, beside that of the baseline.

    Between a baseline c and real data r, a value v has covered the part :math:`(v - c) / (r - c)`; without a baseline that is
    worse than real data v is compared with r by their ratio.

    >>> verdict(0.021, 0.03, None, "lower", ""), verdict(0.8, 0.95, 0.1, "higher", "chance")
    ('as good as real data: 0.021 against 0.03 of real data', 'near real data: 0.8 against 0.95 of real data and 0.1 of chance')
    """
    sign = 1.0 if better == "higher" else -1.0
    near = "not computed" if math.isnan(value) else _near(value, real, chance, sign, baseline)
    beside = [f"{number(each)} of {name}" for each, name in ((real, "real data"), (chance, baseline)) if each is not None]
    return f"{near}: {number(value)}" + (f" against {' and '.join(beside)}" if beside else "")


def _near(value: float, real: float | None, chance: float | None, sign: float, baseline: str) -> str:
    """The words of `verdict`; `sign` 1 says that more is better, -1 that less is."""
    if real is None:
        return _beside_baseline(value, chance, sign, baseline)
    if sign * (value - real) >= 0:
        return "as good as real data"
    if chance is None or sign * (real - chance) <= 0:
        ratio = max(value / real, real / value) if value * real > 0 else math.inf
        words = {"close to real data": ratio <= 1.5, "near real data": ratio <= 3, "far from real data": True}
    else:
        part = (value - chance) / (real - chance)
        words = {"close to real data": part >= 0.9, "near real data": part >= 0.5}
        words |= {f"nearer to {baseline}": part > 0, f"no better than {baseline}": True}
    return next(filter(words.get, words))


def _beside_baseline(value: float, chance: float | None, sign: float, baseline: str) -> str:
    """The words of `verdict` where no real data stand beside a score."""
    if chance is None:
        return "nothing stands beside it"
    return f"{'better' if sign * (value - chance) > 0 else 'no better'} than {baseline}"


def marks(scores: Iterable[Score]) -> tuple[str, ...]:
    """The mark that a table of these scores carries, if any."""
    return (UNPROTECTED,) if any(score.private for score in scores) else ()


def number(value: float | None) -> str:
    """Four digits, or a dash."""
    return "-" if value is None else f"{value:.4g}"


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table in Markdown; floats with four digits.

    >>> print(markdown_table(["name", "value"], [["a|b", 0.123456]]))
    | name | value |
    |---|---|
    | a\\|b | 0.1235 |
    """
    lines = [[number(cell) if isinstance(cell, float) else str(cell) for cell in row] for row in (header, *rows)]
    table = [f"| {' | '.join(cell.replace('|', _ESCAPED_BAR) for cell in cells)} |" for cells in lines]
    return "\n".join([table[0], "|" + "---|" * len(header), *table[1:]])


def metrics_markdown(scores: Sequence[Score]) -> str:
    """Table of scores in Markdown, under its mark.

    >>> print(metrics_markdown([Score("accuracy", 0.8, real=0.95, chance=0.1)]))
    computed on private records without noise: not for publication
    <BLANKLINE>
    | measure | better | synthetic | real data | baseline |
    |---|---|---|---|---|
    | accuracy | higher | 0.8 | 0.95 | 0.1 (chance) |
    """
    rows = []
    for score in scores:
        baseline = number(score.chance) + ("" if score.chance is None else f" ({score.baseline})")
        name = f"{score.name} ({score.sample})" if score.sample else score.name
        rows.append([name, score.better, score.value, number(score.real), baseline])
    table = markdown_table(["measure", "better", "synthetic", "real data", "baseline"], rows)
    return "\n\n".join([*marks(scores), table])


def metrics_json(scores: Sequence[Score]) -> str:
    """Scores as a JSON list of objects with the fields of `Score`; private ones carry their mark as "status"."""
    rows = [asdict(score) | {"status": UNPROTECTED if score.private else None} for score in scores]
    return json.dumps(rows, indent=2) + "\n"


Writer = Callable[[Path], object]


@dataclass(frozen=True)
class Evaluation:
    """Scores and files of a release.

    `released` makes bytes of files that the guarantee covers, `pictures` writes those that it does not, by name; `notes` are of
    the summary.
    """

    scores: list[Score]
    released: Mapping[str, Callable[[], bytes]] = field(default_factory=dict)
    pictures: Mapping[str, Writer] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def write(self, directory: Path) -> None:
        """Write every file, and the scores as METRICS.md and, last, as metrics.json: where that is, the evaluation is whole."""
        for name, made in self.released.items():
            write_atomically(directory / name, made())
        for name, writer in self.pictures.items():
            writer(directory / name)
        write_atomically(directory / "METRICS.md", "\n\n".join([metrics_markdown(self.scores), *self.notes]))
        write_atomically(directory / METRICS, metrics_json(self.scores))


def require_size(release: object, data: str, family: type[Any]) -> None:
    """Refuse a release that does not say how many synthetic records are to be compared, naming the family that does."""
    if getattr(release, "size", None) is None:
        from dpgen.containers import article

        kind, needed = type(release).__name__, article(family.__name__)
        raise TypeError(f"release is {article(kind)}, which has no size; for an evaluation on {data} it must be {needed}")


MOST_SYNTHETIC = 60_000


@dataclass(frozen=True)
class Effort:
    """Numbers of records of each sample that figures are computed on, at most; a random choice where there are more.

    `trained` and `held` are of the classifier that learns from synthetic records and is judged by test ones, `tested` of the
    two-sample test, `slow` of a model with many passes for each record, `steps` of training a convolutional network (None: the
    usual ones). `looks`: features of images are compared, by a network that takes minutes.
    """

    trained: int
    held: int
    tested: int
    slow: int = MOST_SYNTHETIC
    steps: int | None = None
    looks: bool = False

    def epochs(self, n: int, image_shape: tuple[int, ...] | None) -> int | None:
        """Passes over n records of training; None: the usual ones."""
        if self.steps is None or image_shape is None:
            return None
        from dpgen.metrics.classification import CNN_SIDE

        if min(image_shape[:2]) < CNN_SIDE:
            return None
        return max(1, self.steps * 256 // n)


FULL = Effort(trained=MOST_SYNTHETIC, held=MOST_SYNTHETIC, tested=2_000, looks=True)
QUICK = Effort(trained=10_000, held=2_000, tested=500, slow=10_000, steps=120)
"""Up to a minute on a core for 60,000 images of 784 pixels; counting queries look at all records."""


# -- pages -------------------------------------------------------------------------------------------------------------

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
