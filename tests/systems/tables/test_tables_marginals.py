"""Coarsenings, candidates, exact counts and scores beside slow versions; the fit's gradients beside differences."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgen.systems.tables.fitter import Deep, Fitter, Held
from dpgen.systems.tables.marginals import SCALE, Coarsening, Counts, Marginal, Measurement, candidates, shape, smoothed

DOMAIN = (7, 3, 12, 2)


@given(st.integers(1, 40), st.integers(1, 20), st.booleans(), st.booleans(), st.integers(0, 10**6))
def test_groups_are_few_and_missing_values_stay_apart(size: int, most: int, ordered: bool, nullable: bool, seed: int) -> None:
    p = np.random.default_rng(seed).dirichlet(np.full(size + nullable, 0.3)) + 1e-9
    missing = size if nullable else None
    level = Coarsening.of([p], most, ordered=[ordered], missing=[missing])
    group, groups = level.groups[0], level.sizes[0]
    assert sorted(set(group.tolist())) == list(range(groups))
    assert groups <= max(most, 1 + nullable)
    if missing is not None:
        assert (group == group[missing]).sum() == 1
    if ordered:
        assert (np.diff(group[:size]) >= 0).all()


def test_counts_are_those_of_a_loop() -> None:
    rng = np.random.default_rng(0)
    codes = np.stack([rng.integers(0, size, 300) for size in DOMAIN], 1)
    levels = [
        Coarsening.full(DOMAIN),
        Coarsening.of([np.ones(s) / s for s in DOMAIN], 2, ordered=[True] * 4, missing=[None] * 4),
    ]
    marginals = candidates(levels, [0, 1], [1], target=None, most_triples=10)
    counts = Counts.of(codes, marginals, levels)
    for i, marginal in enumerate(marginals):
        slow = np.zeros(shape(marginal, levels), np.int64)
        for row in codes:
            slow[tuple(levels[marginal.level].groups[c][row[c]] for c in marginal.columns)] += 1
        assert np.array_equal(counts.sums(i).values.numpy(), slow.ravel())


def test_candidates_are_listed_once_and_triples_only_where_they_fit() -> None:
    full = Coarsening.full(DOMAIN)
    assert len(candidates([full, full], [0, 1], [0], target=None, most_triples=4)) == 6 + 4
    assert len(candidates([full, full], [0, 1], [0], target=1, most_triples=3)) == 6 + 3
    assert len(candidates([full, full], [0, 1], [0], target=None, most_triples=3)) == 6
    constant = Coarsening.full((7, 1, 12))
    assert [m.columns for m in candidates([constant], [0], [0], target=None, most_triples=9)] == [(0, 2)]


def test_scores_are_weighted_distances_less_their_offset() -> None:
    levels = [Coarsening.full((2, 2, 2))]
    counts = Counts.of(np.array([[0, 0, 0], [0, 1, 1], [1, 1, 1]]), [Marginal((0, 1), 0), Marginal((1, 2), 0)], levels)
    scores = counts.scores(np.full(8, 0.75), np.array([1, 3]), np.array([0.5, 0.0]))
    assert (scores / SCALE).tolist() == [1.0, 9.0]


@pytest.mark.parametrize(("order", "together"), [(1, True), (2, False), (2, True), (3, True), (4, True)])
def test_gradients_are_those_of_the_loss(order: int, together: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpgen.systems.tables.fitter._CALL", 10**6 * together)
    monkeypatch.setattr("dpgen.systems.tables.fitter._CELL", 0)
    rng = np.random.default_rng(order)
    shares = [rng.dirichlet(np.ones(size)) + 0.05 for size in DOMAIN]
    shares = [p / p.sum() for p in shares]
    levels = [Coarsening.full(DOMAIN), Coarsening.of(shares, 3, ordered=[True, False] * 2, missing=[None] * 4)]
    marginals = {
        1: [Marginal((2,), 0)],
        2: [Marginal((0, 2), 1), Marginal((0, 1), 1), Marginal((1, 3), 0)],
        3: [Marginal((0, 1, 2), 1), Marginal((1, 2, 3), 1)],
        4: [Marginal((0, 1, 2, 3), 1)],
    }
    measured = [
        Measurement(m, rng.uniform(0, 60, shape(m, levels)), 5.0 if order == 3 else np.full(shape(m, levels), 5.0))
        for m in [Marginal((0,), 0), *marginals[order]]
    ]
    fitter = Fitter(shares, 100.0, components=3, information=20.0, generator=np.random.default_rng(1))
    fitter.measure(measured, levels)

    def loss() -> float:
        found, (logits, weights) = fitter.mixture, fitter.logits
        total = 1e-3 * float(((logits - fitter.prior) ** 2).sum() + (weights**2).sum())
        ratio = np.log(found.probabilities.astype(float)) - fitter.prior
        total += 20.0 * float(((found.probabilities * ratio) @ found.weights).sum())
        for m in measured:
            joint = found.marginal(m.marginal.columns)
            coarse = np.zeros(m.values.shape)
            groups = [levels[m.marginal.level].groups[c] for c in m.marginal.columns]
            np.add.at(coarse, np.ix_(*groups), joint)
            total += float((0.5 * ((100.0 * coarse - m.values) / m.noise_std) ** 2).sum())
        return total

    for value, gradient in zip(fitter.logits, fitter.gradients()):
        for index in list(np.ndindex(value.shape))[:: max(1, value.size // 12)]:
            before, step = value[index], 0.02
            value[index] = before + step
            high = loss()
            value[index] = before - step
            low = loss()
            value[index] = before
            assert gradient[index] == pytest.approx((high - low) / (2 * step), rel=0.02, abs=0.05)


def test_gradients_of_products_in_cells_are_those_of_all_products() -> None:
    rng, sizes = np.random.default_rng(0), (4, 2, 6, 3)
    shares, levels = [np.full(size, 1 / size) for size in sizes], [Coarsening.full(sizes)]
    levels.append(Coarsening((np.array([0, 0, 1, 1]), np.arange(2), np.arange(6) // 2, np.arange(3)), (2, 2, 3, 3)))
    asked = Measurement(Marginal((0, 1, 2, 3), 1), rng.uniform(0, 60, (2, 2, 3, 3)), 5.0)
    seeds = Held.of([asked], levels).seeds(SimpleNamespace(coarse=levels[0], group_shares=shares, n=100.0), 20)  # type: ignore[arg-type]
    fitter = Fitter(shares, 100.0, components=20, information=20.0, seeds=seeds, generator=rng)
    fitter.measure([Measurement(Marginal((0,), 0), np.full(4, 25.0), 5.0), asked], levels)
    assert (fitter.mixture.in_cells == [True, True, True, False]).all()
    fast, fitter._errors[-1] = fitter.gradients(), Deep(asked, levels[1], sizes, 100.0)
    for own, slow in zip(fast, fitter.gradients()):
        assert np.abs(own).max() > 1
        assert np.allclose(own, slow, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dependent", [True, False])
def test_a_column_that_is_a_function_of_another_is_not_held_back_and_noise_is_not_fitted(dependent: bool) -> None:
    size, n, std = 8, 10_000.0, 40.0
    rng, levels, uniform = np.random.default_rng(0), [Coarsening.full((size, size))], np.full(size, 1 / size)
    truth = np.diag(uniform) if dependent else np.outer(uniform, uniform)
    measured = [Measurement(Marginal((0, 1), 0), n * truth + rng.normal(0, std, truth.shape), std) for _ in range(3)]
    errors = []
    for corrected in (False, True):
        fitter = Fitter([uniform] * 2, n, components=24, information=2000.0, generator=np.random.default_rng(1))
        for until in range(1, 8):
            fitter.measure(measured[:until], levels, corrected=corrected)
            fitter.run(60, 0.1, 0.05)
        fitter.measure(measured, levels, corrected=corrected)
        fitter.run(200, 0.05, 0.002)
        errors.append(np.abs(fitter.mixture.marginal((0, 1)) - truth).sum() / 2)
    assert errors[1] < 0.6 * errors[0] if dependent else errors[1] <= errors[0]


def test_smooth_counts_lose_noise_and_jumps_stay() -> None:
    rng = np.random.default_rng(0)
    hill = 400.0 * np.exp(-(np.linspace(-2, 2, 40) ** 2))
    spikes = np.zeros(40)
    spikes[[3, 17, 30]] = 2000.0, 5000.0, 900.0
    for truth, most, least in ((hill, 0.6, 0.1), (spikes, 1.05, 0.9)):
        noisy = truth[:, None] + rng.normal(0, 30, (40, 200))
        error = np.abs(smoothed(noisy, 30.0) - truth[:, None]).mean() / np.abs(noisy - truth[:, None]).mean()
        assert least <= error <= most
    assert np.array_equal(smoothed(hill[:3, None], 30.0), hill[:3, None])
