"""Pictures of densities are written for one and two dimensions."""

from pathlib import Path

import pytest
import torch

from dpgen.evaluation.points import densities_figure
from dpgen.metrics.densities import Quadrature


def size(path: Path) -> tuple[int, int]:
    content = path.read_bytes()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("with_points", [False, True])
def test_densities_are_drawn(d: int, with_points: bool, tmp_path: Path) -> None:
    rule = Quadrature(torch.tensor([[-3.0, 3.0]] * d), 40)
    log_density = -0.5 * rule.nodes.square().sum(1)
    points = torch.randn(5, d, generator=torch.Generator().manual_seed(0)) if with_points else None
    shown = {"target": log_density, "nothing at all": torch.full_like(log_density, -9.0), "wide": log_density / 2}
    path = densities_figure(shown, rule, tmp_path / "d.png", points=points, per_row=2)
    width, height = size(path)
    assert min(width, height) > 300
    if d == 2:
        assert height > 550, "three panels in two rows"


def test_nothing_to_show_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="densities is empty"):
        densities_figure({}, Quadrature(torch.tensor([[0.0, 1.0]]), 4), tmp_path / "d.png")


@pytest.mark.parametrize("d", [1, 2])
def test_a_title_is_shown(d: int, tmp_path: Path) -> None:
    rule = Quadrature(torch.tensor([[-3.0, 3.0]] * d), 40)
    shown = {"target": -0.5 * rule.nodes.square().sum(1)}
    plain, titled = (
        densities_figure(shown, rule, tmp_path / f"title {t}.png", title=t).read_bytes() for t in ("", "not for release")
    )
    assert plain != titled
