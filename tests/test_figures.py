"""Figures are written whole, in the format of their suffix."""

from pathlib import Path

import pytest

from dpgen.figures import epsilon_figure, new_figure, save_figure


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_the_suffix_chooses_the_format(suffix: str, tmp_path: Path) -> None:
    figure = new_figure(2.0, 1.0)
    figure.add_subplot().plot([0, 1])
    path = save_figure(figure, tmp_path / "new" / f"f.{suffix}")
    start = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}[suffix]
    assert path.read_bytes().startswith(start)


def test_names_with_dollars_are_names(tmp_path: Path) -> None:
    figure = new_figure(2.0, 1.0)
    axes = figure.add_subplot()
    axes.set(title="$_$", xlabel="income $10k-$20k")
    axes.plot([0, 1], label="a_$_$")
    axes.legend()
    assert save_figure(figure, tmp_path / "f.png").exists()


def test_epsilon_figure(tmp_path: Path) -> None:
    lines = {"PLD": [0.5, 0.8], "as published": [0.3, 0.4]}
    text = epsilon_figure([1, 2], lines, tmp_path / "a.svg", delta=1e-5).read_text()
    assert all(f"<!-- {label} -->" in text for label in [*lines, "epoch", "epsilon (delta = 1e-05)"])
    with pytest.raises(ValueError, match=r"epsilons\['PLD'\] has length 2, epochs has length 3"):
        epsilon_figure([1, 2, 3], lines, tmp_path / "b.svg", delta=1e-5)
