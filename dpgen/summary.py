"""The end of a run in plain words."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dpgen.evaluation.scores import Score, marks, number
from dpgen.statement import guarantee, rounded_up

_SPENT = ("epsilon", "delta", "relation", "unit")


def summary(
    title: str,
    *,
    privacy: Mapping[str, Any],
    released: Sequence[str],
    directory: Path | str,
    scores: Sequence[Score] = (),
    notes: Sequence[str] = (),
    settings: Path | None = None,
) -> str:
    """The end of a run in a few lines: what was spent, what was released and where, how good it is.

    Arguments:
        title: what ran.
        privacy: "epsilon", "delta", "relation" and "unit"; any other entry follows in its own line.
        released: names of the files that may be shared.
        directory: where they are.
        scores: figures of merit.
        notes: what the guarantee does not cover.
        settings: file that the run's options were laid over.

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
    missing = [key for key in _SPENT if key not in privacy]
    if missing:
        raise ValueError(f"privacy has no {', '.join(missing)}: epsilon, delta, relation and unit are needed")
    spent = {key: privacy[key] for key in _SPENT}
    lines = [title, *([] if settings is None else [_entry("settings", str(settings))]), _entry("privacy", guarantee(**spent))]
    for key, value in privacy.items():
        if key not in _SPENT:
            shown = rounded_up(value) if isinstance(value, float) else value
            lines.append(_entry("", f"{key.replace('_', ' ')}: {shown}"))
    lines += [_entry("released", ", ".join(released) or "nothing"), _entry("where", str(directory))]
    width = max((len(score.name) for score in scores), default=0)
    for index, score in enumerate(scores):
        lines.append(_entry("how good" if index == 0 else "", f"{score.name:<{width}}  {_beside(score)}"))
    lines += [_entry("", mark) for mark in marks(scores)]
    lines += [_entry("note" if index == 0 else "", note) for index, note in enumerate(notes)]
    return "\n".join(lines)


def _entry(label: str, text: str) -> str:
    return f"{label:<10} {text}".rstrip()


def _beside(score: Score) -> str:
    references = [(score.real, "real data"), (score.chance, score.baseline)]
    known = [f"{name} {number(value)}" for value, name in references if value is not None]
    return f"{number(score.value):<8}({'; '.join([*known, f'{score.better} is better'])})"
