"""What a run shows: pictures, tables of scores, a summary in plain words."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from dpgen.figures import new_figure as _figure
from dpgen.figures import save_figure as _save
from dpgen.statement import rounded_up

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_ESCAPED_BAR = r"\|"


@dataclass(frozen=True)
class Score:
    """One figure of merit of a release, beside what real data reach and what knowing nothing reaches.

    Args:
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


def samples_figure(
    real: Tensor,
    synthetic_by_cluster: Mapping[str, Tensor] | Sequence[Tensor],
    image_shape: tuple[int, int] | None,
    path: Path | str,
    *,
    per_row: int = 8,
) -> Path:
    """Real records beside samples of each cluster, one cluster a row (Fig. 3 of Acs et al. 2017).

    Without an image shape the share of ones of each feature is compared instead: real against synthetic.
    The real records are shown as they are: give records that may be shown.

    Args:
        real: records, values in [0, 1], shape (n, d).
        synthetic_by_cluster: samples (m_c, d) of each cluster, by label or in order; empty ones are left blank.
        image_shape: (height, width) with height * width = d, or None.
        path: file to write; its suffix chooses the format (.png, .pdf, .svg).
        per_row: samples shown of each cluster.

    Raises:
        ValueError: if there is nothing to show or the shapes do not agree.
    """
    if not isinstance(synthetic_by_cluster, Mapping):
        synthetic_by_cluster = {f"cluster {c}": samples for c, samples in enumerate(synthetic_by_cluster)}
    _require_samples(real, synthetic_by_cluster, image_shape)
    if per_row < 1:
        raise ValueError(f"per_row is {per_row}: it must be >= 1")
    if image_shape is None:
        return _save(_marginals_figure(real, synthetic_by_cluster), path)
    return _save(_images_figure(real, synthetic_by_cluster, image_shape, per_row), path)


def epsilon_figure(epochs: Sequence[float], epsilons: Mapping[str, Sequence[float]], path: Path | str, *, delta: float) -> Path:
    """Epsilon spent after each epoch, one line for each accountant or setting (Fig. 2 of Acs et al. 2017).

    Raises:
        ValueError: if a line has another length than ``epochs``.
    """
    for name, values in epsilons.items():
        if len(values) != len(epochs):
            raise ValueError(f"epsilons[{name!r}] has length {len(values)}, epochs has length {len(epochs)}")
    figure = _figure(5.0, 3.5)
    axes = figure.add_subplot()
    for name, values in epsilons.items():
        axes.plot(epochs, values, marker="o", markersize=2, label=name)
    axes.set(xlabel="epoch", ylabel=f"epsilon (delta = {delta:g})", ylim=(0, None))
    if epsilons:
        axes.legend(frameon=False)
    return _save(figure, path)


def metrics_markdown(scores: Sequence[Score]) -> str:
    """Table of scores in Markdown.

    Example:
        >>> print(metrics_markdown([Score("accuracy", 0.8, real=0.95, chance=0.1)]))
        | measure | better | synthetic | real data | baseline |
        |---|---|---|---|---|
        | accuracy | higher | 0.8 | 0.95 | 0.1 (chance) |
    """
    lines = ["| measure | better | synthetic | real data | baseline |", "|---|---|---|---|---|"]
    for score in scores:
        baseline = _number(score.chance) + ("" if score.chance is None else f" ({score.baseline})")
        cells = [score.name, score.better, _number(score.value), _number(score.real), baseline]
        lines.append(f"| {' | '.join(cell.replace('|', _ESCAPED_BAR) for cell in cells)} |")
    return "\n".join(lines)


def metrics_json(scores: Sequence[Score]) -> str:
    """Scores as a JSON list of objects with the fields of `Score`."""
    return json.dumps([asdict(score) for score in scores], indent=2) + "\n"


def summary(
    title: str,
    *,
    privacy: Mapping[str, Any],
    released: Sequence[str],
    directory: Path | str,
    scores: Sequence[Score] = (),
    notes: Sequence[str] = (),
) -> str:
    """The end of a run in a few lines: what was spent, what was released and where, how good it is.

    Args:
        title: what ran.
        privacy: "epsilon", "delta", "relation" and "unit"; any other entry follows in its own line.
        released: names of the files that may be shared.
        directory: where they are.
        scores: figures of merit.
        notes: what the guarantee does not cover.

    Raises:
        ValueError: if one of the four privacy entries is missing.

    Example:
        >>> privacy = {"epsilon": 3.0, "delta": 1e-5, "relation": "add_remove", "unit": "one record"}
        >>> print(summary("demo", privacy=privacy, released=["model"], directory="runs/1"))
        demo
        privacy    epsilon 3 at delta 1e-05 (add or remove one record)
        released   model
        where      runs/1
    """
    missing = [key for key in ("epsilon", "delta", "relation", "unit") if key not in privacy]
    if missing:
        raise ValueError(f"privacy has no {', '.join(missing)}: epsilon, delta, relation and unit are needed")
    relation = {"add_remove": "add or remove", "replace_one": "replace"}.get(privacy["relation"], privacy["relation"])
    spent = f"epsilon {rounded_up(privacy['epsilon'])} at delta {privacy['delta']:g} ({relation} {privacy['unit']})"
    lines = [title, _entry("privacy", spent)]
    for key, value in privacy.items():
        if key not in ("epsilon", "delta", "relation", "unit"):
            shown = rounded_up(value) if isinstance(value, float) else value
            lines.append(_entry("", f"{key.replace('_', ' ')}: {shown}"))
    lines += [_entry("released", ", ".join(released) or "nothing"), _entry("where", str(directory))]
    width = max((len(score.name) for score in scores), default=0)
    for index, score in enumerate(scores):
        lines.append(_entry("how good" if index == 0 else "", f"{score.name:<{width}}  {_beside(score)}"))
    lines += [_entry("note" if index == 0 else "", note) for index, note in enumerate(notes)]
    return "\n".join(lines)


def _entry(label: str, text: str) -> str:
    return f"{label:<10} {text}".rstrip()


def _beside(score: Score) -> str:
    references = [(score.real, "real data"), (score.chance, score.baseline)]
    known = [f"{name} {_number(value)}" for value, name in references if value is not None]
    return f"{_number(score.value):<8}({'; '.join([*known, f'{score.better} is better'])})"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _images_figure(real: Tensor, clusters: Mapping[str, Tensor], image_shape: tuple[int, int], per_row: int) -> "Figure":
    rows, (height, width) = len(clusters), image_shape
    figure = _figure(2 * 0.45 * per_row + 1.6, max(0.45 * rows * height / width, 0.45) + 0.5)
    left, right = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
    real_rows = [real[row * per_row : (row + 1) * per_row] for row in range(rows)]
    titles = ("real", "synthetic")
    for axes, parts, title in zip((left, right), (real_rows, list(clusters.values())), titles):
        axes.imshow(_tiles(parts, image_shape, per_row), cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
        axes.set(title=title, xticks=[], yticks=[])
    right.set_yticks([(row + 0.5) * (height + 1) - 0.5 for row in range(rows)], labels=list(clusters), fontsize=7)
    right.tick_params(length=0)
    return figure


def _tiles(parts: Sequence[Tensor], image_shape: tuple[int, int], per_row: int) -> Any:
    height, width = image_shape
    sheet = torch.full((len(parts) * (height + 1), per_row * (width + 1)), 0.25)
    for row, part in enumerate(parts):
        for column, image in enumerate(part[:per_row]):
            top, left = row * (height + 1), column * (width + 1)
            sheet[top : top + height, left : left + width] = image.float().cpu().reshape(height, width)
    return sheet.numpy()


def _marginals_figure(real: Tensor, clusters: Mapping[str, Tensor]) -> "Figure":
    figure = _figure(4.5, 4.5)
    axes = figure.add_subplot()
    synthetic = torch.cat([samples.float().cpu() for samples in clusters.values() if len(samples)])
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    axes.scatter(real.float().cpu().mean(0).numpy(), synthetic.mean(0).numpy(), s=8, alpha=0.6)
    axes.set(xlabel="share of ones, real", ylabel="share of ones, synthetic", title=f"{real.shape[1]} features")
    return figure


def _require_samples(real: Tensor, clusters: Mapping[str, Tensor], image_shape: tuple[int, int] | None) -> None:
    if real.ndim != 2 or real.numel() == 0:
        raise ValueError(f"real has shape {tuple(real.shape)}: it must be (records, features), both at least 1")
    if not any(len(samples) for samples in clusters.values()):
        raise ValueError(f"synthetic_by_cluster has {len(clusters)} clusters and no sample: at least one is needed")
    for name, samples in clusters.items():
        if samples.ndim != 2 or samples.shape[1] != real.shape[1]:
            raise ValueError(f"samples of {name} have shape {tuple(samples.shape)}: they must be (m, {real.shape[1]})")
    if image_shape is not None and image_shape[0] * image_shape[1] != real.shape[1]:
        raise ValueError(f"image_shape is {image_shape}: it must have {real.shape[1]} pixels, the features of a record")
