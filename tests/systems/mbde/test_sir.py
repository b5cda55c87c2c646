"""SIR draws: their exact law, its privacy, twins that lack one safeguard, and constant work."""

import math

import numpy as np
import pytest
import torch
from enumeration import adversarial, fractions, is_private
from refusals import refused
from torch import Tensor

from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.noise import SecureSource
from dpgen.systems.mbde.densities import (
    Box,
    ClippedDensity,
    GaussianReference,
    ModelReference,
    SIRSampler,
    chosen,
    evaluated,
    mollified,
    whole_weights,
)

BOXES = [(1e-6, None), (0.25, None), (1.0, None), (1.0, 0.05), (5.0, None), (5.0, 0.01), (100.0, None)]


def curator() -> Curator:
    return Curator(Ledger(Budget(1e6, 0.0), relation="replace_one", unit="the whole data set"))


class Scripted(SecureSource):
    """Gives the words it is told."""

    def __init__(self, script: list[int]) -> None:
        super().__init__()
        self.script = script

    def random_bytes(self, count: int) -> bytes:
        used, self.script = self.script[: count // 8], self.script[count // 8 :]
        return np.array(used, np.uint64).tobytes()


@pytest.mark.parametrize(("epsilon", "alpha"), BOXES)
@pytest.mark.parametrize("m", [2, 7, 100])
def test_the_law_of_a_draw_is_private_for_every_codebook(epsilon: float, alpha: float | None, m: int) -> None:
    weights = whole_weights(adversarial(m, rows=15), Box.of(epsilon, alpha))
    assert bool((weights.sum(1) == 2**62).all())
    assert is_private([fractions(row) for row in weights], epsilon)


@pytest.mark.parametrize("m", [2, 3, 100, 1024, 2**16])
def test_whole_weights_are_the_real_ones_up_to_rounding(m: int) -> None:
    box = Box.of(1.0)
    rows = adversarial(m, rows=5)
    weights = whole_weights(rows, box).double() * m / 2.0**62
    assert (weights - mollified(rows, box)).abs().max() < 1e-9


def test_unclipped_ratios_are_rejected() -> None:
    weights = (torch.softmax(adversarial(7, rows=15), 1) * 2.0**52).to(torch.int64)
    assert not is_private([fractions(row) for row in weights], 5.0)


def test_a_box_that_follows_the_data_is_rejected() -> None:
    """Twin: a public width, but the lower edge set by the private ratios."""
    rows = [torch.tensor([[0.0, 0.0, 0.0, 4.0]]), torch.tensor([[4.0, 0.0, 0.0, 0.0]]), torch.tensor([[0.0, 4.0, 4.0, 4.0]])]
    laws = []
    for row in rows:
        share = float((row > 1).double().mean())  # the optimal alpha of these data
        laws.append(fractions(whole_weights(row.double(), Box.of(2.0, share))[0]))
    assert not is_private(laws, 2.0)
    assert is_private([fractions(whole_weights(row.double(), Box.of(2.0, 0.25))[0]) for row in rows], 2.0)


def test_garbage_logits_count_as_zero_or_as_the_limit() -> None:
    garbage = torch.tensor([math.nan, math.inf, -math.inf, 1e30, -1e30])
    values = evaluated(lambda x: garbage, torch.zeros(5, 1))
    assert values.tolist() == [0.0, 0.0, 0.0, 50.0, -50.0]
    assert is_private([fractions(whole_weights(v[None], Box.of(1.0))[0]) for v in (values, values.flip(0), 0 * values)], 1.0)


def test_an_index_has_exactly_its_share_of_the_words() -> None:
    weights = whole_weights(torch.tensor([[0.0, 1.0, 2.0]], dtype=torch.float64), Box.of(2.0))
    ends = weights.cumsum(1)[0].tolist()
    words = [0, ends[0] - 1, ends[0], ends[1] - 1, ends[1], ends[2] - 1]
    source = Scripted([w << 2 | 3 for w in words])
    assert chosen(weights.expand(6, 3), source).tolist() == [0, 0, 1, 1, 2, 2]


def three_points(n: int, generator: torch.Generator) -> Tensor:
    return torch.randint(3, (n, 1), generator=generator).double()


def law(function: object = None, *, epsilon: float = 2.0, reference: object = None) -> ClippedDensity:
    q0 = reference or GaussianReference.standard(2)
    return ClippedDensity(function or (lambda x: x.sum(1)), q0, box=Box.of(epsilon), epsilon=epsilon)  # type: ignore[arg-type]


def test_draws_follow_the_law() -> None:
    """Three atoms, codebook of 4: the exact law by listing all 81 codebooks; 6 standard errors."""
    scores = torch.tensor([0.0, 1.5, -1.0], dtype=torch.float64)
    books = torch.cartesian_prod(*[torch.arange(3)] * 4)
    weights = whole_weights(scores[books], Box.of(2.0)).double() / 2.0**62
    exact = torch.stack([(weights * (books == atom)).sum(1).mean() for atom in range(3)])
    sampler = SIRSampler(
        law(lambda x: scores[x[:, 0].long()], reference=ModelReference(three_points)), curator=curator(), codebook=4
    )
    drawn = torch.bincount(sampler.sample(20_000)[:, 0].long(), minlength=3) / 20_000
    assert ((drawn - exact).abs() < 6 * (exact * (1 - exact) / 20_000).sqrt()).all()
    assert (exact - 1 / 3).abs().max() > 0.1


def test_work_does_not_depend_on_the_data() -> None:
    def counted(function: object) -> list[int]:
        rows: list[int] = []

        def watched(x: Tensor) -> Tensor:
            rows.append(len(x))
            return function(x)  # type: ignore[operator]

        SIRSampler(law(watched), curator=curator(), codebook=64).sample(100)
        return rows

    assert counted(lambda x: x[:, 0]) == counted(lambda x: 1e9 * x[:, 0]) == counted(lambda x: x[:, 0] * math.nan)
    assert sum(counted(lambda x: x[:, 0])) == 100 * 64


@pytest.mark.parametrize(("codebook", "epsilon"), [(1, 1.0), (2**17, 1.0), (3.5, 1.0), (True, 1.0), (1024, 2.0)])
def test_codebooks_out_of_range_and_boxes_wider_than_epsilon_are_refused(codebook: int, epsilon: float) -> None:
    density = ClippedDensity(lambda x: x.sum(1), GaussianReference.standard(1), box=Box.of(epsilon), epsilon=1.0)
    with refused("codebook" if epsilon == 1.0 else "box"):
        SIRSampler(density, curator=curator(), codebook=codebook)
