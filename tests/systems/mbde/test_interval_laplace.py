"""Laplace noise on an interval: the exact channel, against brute force, and twins that are not private."""

import math

import pytest
import torch
from lattice_laws import CountingSource, data, extremes, worst_loss

from dpgen.privacy.curator import Curator
from dpgen.privacy.noise import SecureSource
from dpgen.runtime import Runtime
from dpgen.systems.mbde import channels
from dpgen.systems.mbde.channels import (
    WORD,
    IntervalLaplace,
    IntervalLaplaceConfig,
    Lattice,
    channel_loss,
    fit_interval_laplace,
    laplace_channel,
)
from dpgen.systems.mbde.plan import DrawPlan


def unit(d: int) -> torch.Tensor:
    return torch.tensor([[0.0, 1.0]] * d, dtype=torch.float64)


def nodes(d: int, cells: int) -> torch.Tensor:
    axis = (torch.arange(cells, dtype=torch.float64) + 0.5) / cells
    return torch.cartesian_prod(*[axis] * d).reshape(-1, d)


@pytest.mark.parametrize("epsilon", [0.01, 0.25, 1.0, 5.0, 12.0])
@pytest.mark.parametrize("cells", [2, 5, 64, 512])
def test_the_channel_is_private_and_uses_the_budget(epsilon: float, cells: int) -> None:
    law = laplace_channel(cells, epsilon)
    assert bool((law > 0).all())
    assert law.sum(1).tolist() == [WORD] * cells
    assert epsilon * (1 - 1e-6) < channel_loss(law) <= epsilon


def test_the_channel_is_the_truncated_laplace_law() -> None:
    law = laplace_channel(9, 2.0).double() / WORD
    for i in range(9):
        weights = [math.exp(-2.0 * abs(i - j) / 8) for j in range(9)]
        assert law[i].tolist() == pytest.approx([w / sum(weights) for w in weights], rel=1e-7)


def test_a_twin_with_half_the_scale_is_rejected() -> None:
    """Sensitivity taken as half the interval: the distance from its middle."""
    place = torch.arange(64, dtype=torch.float64)
    weights = (-(2 * 1.0 / 63) * (place[:, None] - place).abs()).exp()
    twin = (weights / weights.sum(1, keepdim=True) * WORD).to(torch.int64)
    assert channel_loss(twin) == pytest.approx(2.0, rel=1e-6)
    assert channel_loss(laplace_channel(64, 1.0)) <= 1.0


def test_a_twin_that_moves_stray_noise_to_the_ends_of_another_interval_is_rejected() -> None:
    """Bounds taken from the data: a data set with one more point reaches where the other never does."""
    x = extremes(1)[3]
    laws = []
    for points in (x, torch.cat([x, torch.tensor([[0.999]])])):
        box = torch.stack([points.amin(0), points.amax(0)], 1)
        laws.append(IntervalLaplace(points, lattice=Lattice(box, 32), epsilon=1.0))
    x = torch.linspace(0, 1, 500, dtype=torch.float64)[:, None]
    assert worst_loss(laws[0], laws[1], x) == math.inf
    public = [IntervalLaplace(law_x, lattice=Lattice(unit(1), 32), epsilon=1.0) for law_x in extremes(1)]
    assert worst_loss(public[0], public[1], x) <= 1.0


@pytest.mark.parametrize("epsilon", [0.25, 1.0, 5.0])
@pytest.mark.parametrize(("d", "cells"), [(1, 33), (2, 9), (3, 5)])
def test_any_data_set_may_replace_any_other(epsilon: float, d: int, cells: int) -> None:
    laws = [IntervalLaplace(x, lattice=Lattice(unit(d), cells), epsilon=epsilon) for x in extremes(d)]
    x = nodes(d, cells)
    losses = [worst_loss(a, b, x) for a in laws for b in laws]
    assert epsilon * (1 - 1e-6) < max(losses) <= epsilon * (1 + 1e-9)
    for law in laws:
        assert float(law.log_ratio(x).exp().mean()) == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize("d", [1, 2])
def test_the_table_is_the_mean_over_records(d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "_CHUNK", 50)
    law = IntervalLaplace(extremes(d)[3], lattice=Lattice(unit(d), 6), epsilon=1.0)
    x = nodes(d, 6)
    fast = law.log_ratio(x)
    law._table = None
    assert torch.allclose(fast, law.log_ratio(x), rtol=0, atol=1e-12)


def test_every_word_goes_to_its_cell() -> None:
    """The answer is monotone in the word, so its borders say everything."""

    class Words:
        def __init__(self, words: torch.Tensor) -> None:
            self.words = words

        def uniform(self, n: int) -> torch.Tensor:
            return (self.words.double() + 0.5) / WORD

    law = IntervalLaplace(extremes(1)[3], lattice=Lattice(unit(1), 8), epsilon=1.0)
    for row in range(8):
        last = law.channel[row].cumsum(0) - 1
        first = last - law.channel[row] + 1
        for border in (first, last):
            answer = law.send(torch.full((8, 1), row), Words(border))  # type: ignore[arg-type]
            assert answer[:, 0].tolist() == list(range(8))


def test_draws_follow_the_law() -> None:
    law = IntervalLaplace(extremes(2)[3], lattice=Lattice(unit(2), 4), epsilon=2.0)
    source = SecureSource()
    answers = law.lattice.flat(law.send(law.pick(40_000, source), source))
    share = torch.bincount(answers, minlength=16).double() / 40_000
    expected = law.log_ratio(nodes(2, 4)).exp() / 16
    assert bool(((share - expected).abs() < 7 * (expected / 40_000).sqrt()).all())


def test_the_work_of_a_draw_does_not_depend_on_the_data() -> None:
    asked = []
    for x in extremes(2):
        law, source = IntervalLaplace(x, lattice=Lattice(unit(2), 5), epsilon=1.0), CountingSource()
        law.lattice.scatter(law.send(law.pick(7, source), source), source)
        asked.append(source.asked)
    assert asked == [[(7,), (14,), (7, 2)]] * 4


def test_fit_makes_the_planned_draws() -> None:
    plan = DrawPlan(epsilon=2.0, draws=4)
    ledger = plan.open_ledger()
    box = torch.tensor([[-1.0, 3.0]], dtype=torch.float64)
    release = fit_interval_laplace(
        data(extremes(1)[3], box), plan=plan, config=IntervalLaplaceConfig(cells=16), curator=Curator(ledger), runtime=Runtime()
    )
    assert len(release.to_pandas()) == 4
    assert release.to_pandas()["c0"].between(-1, 3).all()
    assert ledger.epsilon() == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("cells", "epsilon", "match"),
    [
        (1, 1.0, "cells is 1"),
        (4096, 1.0, r"it must be a whole number in \[2, 2048\]"),
        (8, 0.0, "epsilon is 0.0"),
        (8, math.nan, "epsilon is nan"),
    ],
)
def test_bad_channels_are_refused(cells: int, epsilon: float, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        laplace_channel(cells, epsilon)


def test_too_few_bits_are_noticed() -> None:
    with pytest.raises(ValueError, match="52 bits cannot hold it"):
        laplace_channel(2048, 1e-8)


@pytest.mark.parametrize("cells", [1, 2049])
def test_cells_are_checked_without_data(cells: int) -> None:
    with pytest.raises(ValueError, match=rf"cells is {cells}; it must be a whole number in \[2, 2048\]"):
        IntervalLaplaceConfig(cells=cells)


def test_more_cells_than_an_integer_holds_have_a_density() -> None:
    law = IntervalLaplace(extremes(8)[3], lattice=Lattice(unit(8), 256), epsilon=1.0)
    assert bool(law.log_ratio(extremes(8)[3]).isfinite().all())
