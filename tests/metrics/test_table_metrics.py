"""Metrics of mixed tables beside slow versions of them, and their refusals."""

import pytest
import torch

from dpgen.metrics import associations, independent_marginals, train_on_synthetic_auc


def rows(n: int, sizes: tuple[int, ...], seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randint(size, (n,), generator=generator) for size in sizes], 1)


def test_associations_of_independent_columns_are_small_and_of_functions_one() -> None:
    x = rows(5000, (4, 5, 30), 1)
    found = associations(torch.cat([x, 7 - x[:, :1]], 1))
    assert found[0, 3] == pytest.approx(1, abs=1e-6)
    assert float(found[:3, :3].triu(1).max()) < 0.05
    assert torch.equal(found, found.T)


def test_a_constant_column_is_associated_with_nothing() -> None:
    x = torch.cat([rows(50, (3,), 2), torch.zeros(50, 1, dtype=torch.int64)], 1)
    assert associations(x)[0, 1] == 0


@pytest.mark.parametrize("judge", ["boosting", "logistic"])
def test_classifiers_find_what_can_be_predicted(judge: str) -> None:
    sizes, ordered = (20, 3, 3), (True, False, False)
    x = rows(1500, sizes, 7)
    x[:, 2] = (x[:, 0] > 9).long() + (x[:, 1] == 2).long()
    options = {"sizes": sizes, "ordered": ordered, "judge": judge}
    assert train_on_synthetic_auc(x[:1000], x[1000:], 2, **options) > 0.93  # type: ignore[arg-type]
    shuffled = independent_marginals(x[:1000], 1000, generator=torch.Generator().manual_seed(0))
    assert 0.35 < train_on_synthetic_auc(shuffled, x[1000:], 2, **options) < 0.65  # type: ignore[arg-type]


def test_synthetic_rows_of_one_class_predict_nothing() -> None:
    x = rows(50, (4, 2), 8)
    constant = torch.cat([x[:, :1], torch.ones(50, 1, dtype=torch.int64)], 1)
    assert train_on_synthetic_auc(constant, x, 1, sizes=(4, 2), ordered=(True, False)) == 0.5


def test_what_cannot_be_compared_is_refused() -> None:
    x = rows(5, (2, 2), 0)
    with pytest.raises(ValueError, match="judge"):
        train_on_synthetic_auc(x, x, 1, sizes=(2, 2), ordered=(True, True), judge="tree")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="test has 1 classes"):
        train_on_synthetic_auc(x, torch.zeros_like(x), 1, sizes=(2, 2), ordered=(True, True))
