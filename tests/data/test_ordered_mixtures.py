"""Reference mixtures: exact CDFs against their own draws, and the data set that needs no file."""

import numpy as np
import pytest

from dpgen.data.toy import REFERENCE_MIXTURES, load_mixture, reference_mixture


@pytest.mark.parametrize("name", REFERENCE_MIXTURES)
@pytest.mark.parametrize("N", [1000, 10**18])
def test_draws_follow_the_cdf(name: str, N: int) -> None:
    """Fixed seed; a Kolmogorov statistic above 2.6 / sqrt(n) has chance 3e-6."""
    mixture, n = reference_mixture(name), 20_000  # type: ignore[arg-type]
    x = np.sort(mixture.draw(n, N, np.random.default_rng(0)))
    assert x[0] >= 0
    assert x[-1] < N
    assert np.abs(mixture.below(x + 1, N) - np.searchsorted(x, x, side="right") / n).max() < 2.6 / n**0.5
    assert mixture.below([0, N], N).tolist() == [0.0, 1.0]
    assert sum(mixture.weights) == pytest.approx(1)


def test_low_digits_are_drawn_too() -> None:
    x = reference_mixture("betas").draw(1000, 10**18, np.random.default_rng(0))
    assert len(set((x % 64).tolist())) > 50


def test_unknown_names() -> None:
    with pytest.raises(ValueError, match="mixture is 'cauchy'; it must be one of gaussians"):
        reference_mixture("cauchy")  # type: ignore[arg-type]


def test_a_mixture_as_data() -> None:
    data = load_mixture(mixture="spikes", n_records=1000, data_seed=1)
    assert data.values["x"].tolist() == load_mixture(mixture="spikes", n_records=1000, data_seed=1).values["x"].tolist()
    assert data.truth is not None
    assert data.domains["x"].size == 10**18
    for options, said in [
        ({"mixture": "x"}, "mixture is 'x'"),
        ({"n_records": 1}, "n_records is 1"),
        ({"size": 1}, "N = 1 values"),
    ]:
        with pytest.raises(ValueError, match=said):
            load_mixture(**options)  # type: ignore[arg-type]
