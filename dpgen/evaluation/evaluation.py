"""What an evaluation hands back: scores, and files with their writers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dpgen.evaluation.scores import Score, metrics_json, metrics_markdown
from dpgen.files import write_atomically

Writer = Callable[[Path], object]


@dataclass(frozen=True)
class Evaluation:
    """How good a release is.

    Arguments:
        scores: figures of merit; some may look at private data, which the evaluator's `NOT_COVERED` says.
        released: files that the guarantee covers, by name.
        pictures: files that it does not cover, by name.
    """

    scores: list[Score]
    released: Mapping[str, Writer] = field(default_factory=dict)
    pictures: Mapping[str, Writer] = field(default_factory=dict)

    def write(self, directory: Path) -> None:
        """Write every file, and the scores as metrics.json and METRICS.md."""
        for name, writer in {**self.released, **self.pictures}.items():
            writer(directory / name)
        write_atomically(directory / "metrics.json", metrics_json(self.scores))
        write_atomically(directory / "METRICS.md", metrics_markdown(self.scores))
