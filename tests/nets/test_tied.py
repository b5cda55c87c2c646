"""Weights that are an embedding and the last layer: no gradient per record of words x width, and none that is understated."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from refusals import refused
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dpgen.nets import Factor, RecordGradients, per_record
from dpgen.nets.per_record import PerRecord
from dpgen.privacy import clipping
from dpgen.privacy.clipping import SENSITIVITY, clipped_sums, flat_coefficients, gradient_norms
from dpgen.systems.dp_sgd.sums import _change

WORDS, WIDTH, B, T = 2000, 32, 8, 6


class Tied(nn.Module):
    """The next word after each word, with words that are looked up in two places, and a head that is used twice."""

    def __init__(self, *, several: bool = False, bias: bool = False, ignored: int | None = None) -> None:
        super().__init__()
        self.several = several
        self.embed, self.mix = nn.Embedding(WORDS, WIDTH, padding_idx=ignored), nn.Linear(WIDTH, WIDTH)
        self.other, self.out = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS, bias=bias)
        self.other.weight = self.out.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        found = self.mix(self.embed(x)).tanh()
        if self.several:
            found = found + self.other(x.flip(1)) + 0.1 * self.out(found)[..., :WIDTH].tanh()
        return self.out(found)


TIED: dict[str, dict[str, Any]] = {
    "plain": {},
    "ignored word": {"ignored": 3},
    "bias": {"bias": True},
    "several uses": {"several": True, "ignored": 3, "bias": True},
}


def built(name: str = "plain") -> tuple[nn.Module, Tensor, Any]:
    torch.manual_seed(0)
    module, x = Tied(**TIED[name]), torch.randint(WORDS, (B, T + 1))
    x[:, 1] = 3  # also where it is ignored, and predicted
    return module, x, lambda x: cross_entropy(module(x[:, :-1]).mT, x[:, 1:], reduction="sum")


class Largest(TorchDispatchMode):
    """Keeps the most entries that a tensor has."""

    def __init__(self) -> None:
        super().__init__()
        self.entries = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        sizes = (v.untyped_storage().nbytes() // v.element_size() for v in tree_leaves(made) if isinstance(v, Tensor))
        self.entries = max(self.entries, *sizes, 0)
        return made


@contextmanager
def largest() -> Iterator[Largest]:
    with Largest() as seen:
        yield seen


def step(name: str) -> tuple[Tensor, Tensor, RecordGradients]:
    """The clipped sum of a step, its weights, and its gradients."""
    module, x, run = built(name)
    made = RecordGradients(PerRecord(module).factors(run, x), [0, B])
    weights = flat_coefficients(gradient_norms(made), torch.tensor(0.5))
    return clipped_sums(made, weights, torch.full((1, PerRecord(module).p), torch.nan))[0], weights, made


@pytest.mark.parametrize("name", TIED)
def test_sums_are_those_of_batches_of_one_without_a_gradient_per_record(name: str) -> None:
    with largest() as seen:
        found, weights, made = step(name)
    assert seen.entries < B * WORDS * WIDTH / 2
    kinds = [(f.outputs.ndim, f.outputs.is_floating_point()) for f in made.factors if f.weight == slice(0, WORDS * WIDTH)]
    assert kinds == [(2, False), (3, True)], "codes, and outputs at positions"
    module, x, run = built(name)
    values, alone = list(module.parameters()), list[Tensor]()
    for row, norm in zip(x, 1.0 / weights, strict=True):
        alone.append(torch.cat([g.flatten() for g in torch.autograd.grad(run(row[None]), values)]))
        assert 1.0 <= float(norm / alone[-1].norm()) < 1.001
    wanted = torch.stack(alone).T @ weights
    assert float((found - wanted).norm() / wanted.norm()) < 1e-5
    assert bool(wanted[3 * WIDTH : 4 * WIDTH].any()), "an ignored word is still predicted"


def test_gradients_that_are_multiplied_out_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(per_record, "MOST_POSITIONS", 0)
    with largest() as seen:
        dense, _, made = step("plain")
    assert seen.entries >= B * WORDS * WIDTH
    assert all(f.inputs is None for f in made.factors if (f.weight or f.bias) == slice(0, WORDS * WIDTH))
    monkeypatch.undo()
    assert torch.allclose(dense, step("plain")[0], rtol=1e-3, atol=1e-6)


def test_many_words_of_few_entries_are_multiplied_out_where_that_takes_no_memory() -> None:
    codes, outputs = torch.zeros(2, 100, dtype=torch.int64), torch.ones(2, 100, 500)
    for width, dense in ((100, True), (200, False)):
        columns = slice(0, 500 * width)
        both = [
            Factor(codes, torch.ones(2, 100, width), columns, None),
            Factor(outputs, torch.ones(2, 100, width), columns, None),
        ]
        assert [f.inputs is None for f in per_record.joined_uses(both)] == ([True] if dense else [False, False])
    with refused("6000 positions"):
        some = [Factor(torch.zeros(1, 3000, dtype=torch.int64), torch.ones(1, 3000, 1), slice(0, 2), None)] * 2
        gradient_norms(RecordGradients(some, [0, 1]))


# -- rounding ----------------------------------------------------------------------------------------------------------


def opposed(n: int, apart: float, *, sign: float = -1.0, dtype: torch.dtype = torch.float64) -> tuple[RecordGradients, Tensor]:
    """Uses of 40 words that nearly cancel (or, by sign, agree), and their exact gradients (n, 40 * 5)."""
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(40, (n, 7), generator=generator)
    slopes = torch.randn(n, 7, 5, generator=generator, dtype=torch.float64).to(dtype)
    outputs = sign * torch.nn.functional.one_hot(codes, 40).to(dtype)
    inputs = (slopes.double() * (1.0 + apart * torch.randn(n, 7, 5, generator=generator, dtype=torch.float64))).to(dtype)
    looked_up = torch.zeros(n, 40, 5, dtype=torch.float64)
    for row, own, slope in zip(looked_up, codes, slopes.double()):
        row.index_add_(0, own, slope)
    exact = (looked_up + outputs.double().mT @ inputs.double()).flatten(1)
    columns = slice(0, 200)
    return RecordGradients([Factor(codes, slopes, columns, None), Factor(outputs, inputs, columns, None)], [0, n]), exact


CASES = [(1.0, torch.float32), (1e-3, torch.float32), (1e-6, torch.float32), (1e-7, torch.float64), (1e-9, torch.float64)]


@pytest.mark.parametrize(("apart", "dtype"), CASES)
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_no_norm_is_understated_where_the_uses_cancel(apart: float, dtype: torch.dtype, sign: float) -> None:
    made, exact = opposed(60, apart, sign=sign, dtype=dtype)
    norms, parts = gradient_norms(made).double(), [gradient_norms(made._replace(factors=[f])).double() for f in made.factors]
    assert bool((norms >= exact.norm(dim=1)).all())
    assert bool((norms <= exact.norm(dim=1) + 2**-7 * (parts[0] + parts[1]) * 7**0.5).all()), "relative to the parts"


def test_a_margin_of_the_total_alone_would_understate_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    """The faulty variant: 2^-16 of what is computed is put on top, where that is all rounding."""
    made, exact = opposed(60, 1e-9)
    monkeypatch.setattr(clipping, "_CANCELLED", 0.0)
    norms = gradient_norms(made).double() * (1.0 + 2.0**-16) ** 0.5
    assert float((norms / exact.norm(dim=1)).min()) < 0.5


def test_norms_without_what_the_uses_have_in_common_would_be_understated() -> None:
    """The faulty variant: two maps of weights of their own. A record then moves a sum by more than one."""
    made, exact = opposed(60, 1e-3, sign=1.0)
    apart = made._replace(factors=[made.factors[0], made.factors[1]._replace(weight=slice(200, 400))])
    moved = [exact.norm(dim=1) / gradient_norms(part) for part in (apart, made)]
    assert float(moved[0].min()) > 1.4
    assert float(moved[1].max()) <= 1.0
    sums = clipped_sums(made, 1.0 / gradient_norms(made), torch.empty(1, 200, dtype=torch.float64))
    for r in (0, 59):
        weights = 1.0 / gradient_norms(made)
        weights[r] = 0.0
        step = sums - clipped_sums(made, weights, torch.empty(1, 200, dtype=torch.float64))
        assert 0.99 < float(step.norm()) <= SENSITIVITY


def test_uses_that_cancel_are_added_before_they_are_rounded() -> None:
    """The faulty variant rounds the sum of one use to float32, which is 2^8 times as long as the total, before the other."""
    made, exact = opposed(1, 1e-5)
    n = 300
    factors = [
        f._replace(outputs=f.outputs.expand(n, -1, *f.outputs.shape[2:]), inputs=f.inputs.expand(n, -1, -1))
        for f in made.factors
    ]  # type: ignore[union-attr]
    made = made._replace(factors=factors, bounds=[0, n])
    weights = 1.0 / gradient_norms(made)
    wanted, rounding = n * weights[0] * exact[0], n * 2.0**-24
    right = clipped_sums(made, weights, torch.empty(1, 200))[0]
    assert float((right - wanted).norm()) <= rounding
    wrong = torch.empty(1, 200)
    for i, f in enumerate(made.factors):
        clipped_sums(made._replace(factors=[f]), weights, wrong, accumulate=i > 0)
    assert float((wrong[0] - wanted).norm()) > 10 * rounding


@pytest.mark.parametrize("n", [3, 100])
def test_pieces_of_a_wide_map_are_its_whole(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made, exact = opposed(n, 1.0)
    norms = gradient_norms(made)
    for name, value in (("_PIECE", 40), ("_PAIRS", 1), ("_ROWS", 50)):
        monkeypatch.setattr(clipping, name, value)
    assert torch.allclose(gradient_norms(made), norms)
    weights = torch.linspace(0.0, 1.0, n, dtype=torch.float64)
    cast_to = made.factors[1].outputs
    cast_to[0] = torch.nan  # of weight 0
    old = torch.ones(1, 200, dtype=torch.float64)
    sums = clipped_sums(made, weights, old.clone(), accumulate=True)
    assert torch.allclose(sums - old, (weights[1:] @ exact[1:])[None])
    assert gradient_norms(made).isnan().tolist() == [True] + [False] * (n - 1)


def test_what_others_change_of_both_uses_adds_up() -> None:
    """The margin for a record beside others; the faulty variant adds squares, as if the uses had weights of their own."""
    made, exact = opposed(1, 1e-3, sign=1.0)
    changed = made._replace(factors=[f._replace(inputs=f.inputs * 1.001) for f in made.factors])  # type: ignore[operator]
    stated = _change(made, changed)
    assert stated >= 1e-3 * float(exact.norm() / gradient_norms(made))

    def own_weights(of: RecordGradients) -> RecordGradients:
        return of._replace(factors=[of.factors[0], of.factors[1]._replace(weight=slice(200, 400))])

    length = float(gradient_norms(own_weights(made)) / gradient_norms(made))
    assert _change(own_weights(made), own_weights(changed)) * length < 0.8 * stated


# -- positions ---------------------------------------------------------------------------------------------------------


def positional(n: int, positions: int, cancelling: float) -> RecordGradients:
    """Random factors at many positions whose sum is much smaller than its parts."""
    generator = torch.Generator().manual_seed(0)
    g = torch.randn(n, positions, 4, generator=generator)
    a = torch.randn(n, positions, 5, generator=generator)
    half = positions // 2
    g[:, half : 2 * half] = -g[:, :half] * (1 + cancelling * torch.randn(n, half, 4, generator=generator))
    a[:, half : 2 * half] = a[:, :half]
    return RecordGradients([Factor(g, a, slice(0, 20), None)], [0, n])


@pytest.mark.parametrize("cancelling", [1.0, 1e-2, 1e-4, 1e-7, 0.0])
@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e12])
def test_no_norm_is_understated_where_positions_cancel(cancelling: float, scale: float) -> None:
    made = positional(50, 16, cancelling)
    factor = made.factors[0]._replace(outputs=made.factors[0].outputs * scale)
    assert factor.inputs is not None
    exact = (factor.outputs.double().mT @ factor.inputs.double()).flatten(1).norm(dim=1)
    norms = gradient_norms(made._replace(factors=[factor])).double()
    assert bool((norms >= exact).all())


@pytest.mark.parametrize("n", [88, 300])
def test_a_record_moves_the_sum_by_no_more_than_the_sensitivity(n: int) -> None:
    made = positional(n, 16, 0.3)
    weights = 1.0 / gradient_norms(made)
    whole = clipped_sums(made, weights, torch.empty(1, 20, dtype=torch.float64))
    for r in (0, n // 2, n - 1):
        others = [i for i in range(n) if i != r]
        f = made.factors[0]
        assert f.inputs is not None
        fewer = RecordGradients([f._replace(outputs=f.outputs[others], inputs=f.inputs[others])], [0, n - 1])
        moved = float((whole - clipped_sums(fewer, weights[others], torch.empty(1, 20, dtype=torch.float64))).norm())
        assert 0.9 < moved <= SENSITIVITY


@pytest.mark.parametrize("n", [3, 100])
def test_wide_gradients_are_bounded_and_weighed_to_their_ends(n: int) -> None:
    rows = torch.randn(n, 4100, generator=torch.Generator().manual_seed(0))
    rows[:, -1] = 1000.0
    made = RecordGradients([Factor(rows, None, None, slice(0, 4100))], [0, n])
    norms, exact = gradient_norms(made).double(), rows.double().norm(dim=1)
    assert bool(((norms >= exact) & (norms <= exact * (1 + 1e-4))).all())
    weights = torch.linspace(0.0, 1.0, n)
    rows[0] = torch.nan  # of weight 0
    sums = clipped_sums(made, weights, torch.full((1, 4100), torch.nan))
    torch.testing.assert_close(sums[0], weights[1:] @ rows[1:], rtol=1e-4, atol=1e-4)


def test_records_of_weight_zero_add_nothing_where_they_are_not_finite() -> None:
    made = positional(4, 6, 1.0)
    made.factors[0].outputs[1, 2, 3] = torch.nan
    norms = gradient_norms(made)
    assert norms.isnan().tolist() == [False, True, False, False]
    weights = torch.tensor([0.5, 0.0, 1.0, 0.0])
    sums = clipped_sums(made, weights, torch.full((1, 20), torch.nan))
    f = made.factors[0]
    assert f.inputs is not None
    expected = sum(w * f.outputs[r].T @ f.inputs[r] for r, w in ((0, 0.5), (2, 1.0)))
    assert isinstance(expected, Tensor)
    torch.testing.assert_close(sums[0], expected.flatten())


def test_many_positions_are_multiplied_out() -> None:
    ones = torch.ones(1, 5000, 1)
    with refused("5000 positions"):
        gradient_norms(RecordGradients([Factor(ones, ones, slice(0, 1), None)], [0, 1]))
    with refused("offset"):
        gradient_norms(positional(1, 2, 1.0)._replace(offset=torch.zeros(1, 20)))
