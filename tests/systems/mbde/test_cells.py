"""Cells of a public lattice: numbering, scattering, and what a sampler of them may show."""

import copy
import math
import pickle

import pytest
import torch
from fixed_source import FixedKeySource
from lattice_laws import data

from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import BudgetExceeded
from dpgen.privacy.noise import SecureSource
from dpgen.systems.mbde.channels import WORD, CellSampler, GridResponse, Lattice, require_box, words
from dpgen.systems.mbde.plan import DrawPlan

BOX = torch.tensor([[0.0, 1.0], [-2.0, 2.0]], dtype=torch.float64)


def law() -> GridResponse:
    x = torch.rand(20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return GridResponse(x, lattice=Lattice(BOX, 4), epsilon=1.0)


def test_every_cell_has_its_number_and_its_points() -> None:
    lattice = Lattice(BOX, 4)
    numbers = torch.arange(16)
    assert torch.equal(lattice.flat(lattice.unflat(numbers)), numbers)
    assert lattice.index(torch.tensor([[0.0, -2.0], [1.0, 2.0], [0.3, 0.1], [-9.0, 9.0]])).tolist() == [
        [0, 0],
        [3, 3],
        [1, 2],
        [0, 3],
    ]
    points = lattice.scatter(lattice.unflat(numbers).repeat(500, 1), SecureSource())
    assert torch.equal(lattice.flat(lattice.index(points)), numbers.repeat(500))
    first = points.reshape(500, 16, 2)[:, 0]
    assert bool(
        ((first.mean(0) - torch.tensor([0.125, -1.5])).abs() < 7 * torch.tensor([0.25, 1.0]) / 12**0.5 / 500**0.5).all()
    )


def test_draws_are_answers_of_the_channel() -> None:
    here = torch.tensor([[0.01, -1.99]], dtype=torch.float64).expand(50, 2)
    sampler = CellSampler(
        GridResponse(here, lattice=Lattice(BOX, 2), epsilon=0.1), curator=Curator(DrawPlan().open_ledger()), note="draws"
    )
    drawn = Lattice(BOX, 2).flat(Lattice(BOX, 2).index(sampler.draw(FixedKeySource(0), 4000)))
    chance = math.exp(0.1) / (math.exp(0.1) + 3)
    assert (drawn == 0).double().mean() == pytest.approx(chance, abs=5 * (chance / 4000) ** 0.5)


def test_words_are_whole_and_in_range() -> None:
    drawn = words(10_000, SecureSource())
    assert (drawn.dtype, int(drawn.min()) >= 0, int(drawn.max()) < WORD) == (torch.int64, True, True)
    assert abs(float((drawn >= WORD // 2).double().mean()) - 0.5) < 7 * 0.5 / 100


def test_every_draw_is_charged_before_it_is_made() -> None:
    ledger = DrawPlan(epsilon=3.0, draws=3).open_ledger()
    sampler = CellSampler(law(), curator=Curator(ledger), note="draws")
    assert sampler.sample(2).shape == (2, 2)
    assert ledger.epsilon() == pytest.approx(2.0)
    with pytest.raises(BudgetExceeded, match="budget epsilon 3"):
        sampler.sample(2)
    assert ledger.epsilon() == pytest.approx(2.0)
    with pytest.raises(TypeError, match="cannot be saved"):
        pickle.dumps(sampler)
    assert not hasattr(sampler, "log_ratio")


def test_a_box_is_needed_and_holds_the_points() -> None:
    x = torch.tensor([[0.5, 0.0]])
    assert require_box(data(x, BOX)) is BOX
    with pytest.raises(ValueError, match="bounds is None; this mechanism works in a public box"):
        require_box(data(x, None))
    for wrong in (2.0, float("nan")):
        with pytest.raises(ValueError, match="x has points outside its public bounds or NaN"):
            require_box(data(torch.tensor([[wrong, 0.0]]), BOX))


@pytest.mark.parametrize("cells", [1, 0, True, 2.5, 2**24 + 1])
def test_a_lattice_has_cells(cells: int) -> None:
    with pytest.raises(ValueError, match=r"cells is .*; it must be a whole number in \[2, 16777216\]"):
        Lattice(BOX, cells)


def test_a_law_stays_where_it_is_and_shows_nothing() -> None:
    """It holds the cell of every record."""
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="GridResponse cannot be saved, pickled or copied"):
            leave(law())
    assert repr(law()) == "GridResponse(epsilon=1, 4^2 cells)"
