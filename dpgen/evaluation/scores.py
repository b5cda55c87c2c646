"""Figures of merit, and tables of them."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

_ESCAPED_BAR = r"\|"


@dataclass(frozen=True)
class Score:
    """One figure of merit of a release, beside what real data reach and what knowing nothing reaches.

    Arguments:
        name: what was measured.
        value: the release's figure.
        real: the same measure for real data in place of synthetic ones.
        chance: the same measure without any knowledge of the records, or for the plain baseline that is named.
        better: whether higher or lower figures are better.
        baseline: what ``chance`` stands for, in a word or two.
    """

    name: str
    value: float
    real: float | None = None
    chance: float | None = None
    better: Literal["higher", "lower"] = "higher"
    baseline: str = "chance"


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
    """Table of scores in Markdown.

    >>> print(metrics_markdown([Score("accuracy", 0.8, real=0.95, chance=0.1)]))
    | measure | better | synthetic | real data | baseline |
    |---|---|---|---|---|
    | accuracy | higher | 0.8 | 0.95 | 0.1 (chance) |
    """
    rows = []
    for score in scores:
        baseline = number(score.chance) + ("" if score.chance is None else f" ({score.baseline})")
        rows.append([score.name, score.better, score.value, number(score.real), baseline])
    return markdown_table(["measure", "better", "synthetic", "real data", "baseline"], rows)


def metrics_json(scores: Sequence[Score]) -> str:
    """Scores as a JSON list of objects with the fields of `Score`."""
    return json.dumps([asdict(score) for score in scores], indent=2) + "\n"
