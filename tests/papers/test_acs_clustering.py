"""Figure 4: every method pays the epsilon of its column, and little noise finds what labels say."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from dpgen.data import load_digits
from papers import acs2017 as acs_clustering
from papers.acs2017 import (
    METHODS,
    PAPER_BOUND,
    TIGHT_BOUND,
    clustering_figure,
    clustering_runs,
    clustering_verdict,
)


def test_less_noise_clusters_better(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acs_clustering, "METHODS", {name: METHODS[name] for name in ("kernel, d = 200", TIGHT_BOUND)})
    table = clustering_runs(load_digits(public_records=10), epsilons=(0.01, 500.0), seed=0)
    accuracy = table.set_index(["method", "epsilon"])["accuracy"]
    for name in ("kernel, d = 200", TIGHT_BOUND):
        assert accuracy[name, 500.0] > accuracy[name, 0.01] + 0.1, accuracy


def test_the_ledger_spends_the_epsilon_of_the_column(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = []

    class Watched(acs_clustering.Ledger):
        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **options)  # type: ignore[arg-type]
            spent.append(self)

    monkeypatch.setattr(acs_clustering, "Ledger", Watched)
    monkeypatch.setattr(acs_clustering, "METHODS", {name: METHODS[name] for name in ("kernel, d = 50", PAPER_BOUND)})
    clustering_runs(load_digits(public_records=10), epsilons=(0.7,), seed=0)
    assert len(spent) == 2
    assert all(0.69 < ledger.epsilon() <= 0.7 + 1e-9 for ledger in spent)


def test_the_figure_and_the_verdict(tmp_path: Path) -> None:
    rows = [
        {"method": name, "epsilon": epsilon, "seed": 0, "accuracy": 0.1 + 0.05 * i}
        for i, name in enumerate(METHODS)
        for epsilon in (0.1, 1.0)
    ]
    table = pd.DataFrame(rows)
    assert clustering_figure(table, tmp_path / "a.png").stat().st_size > 0
    text = clustering_verdict(table)
    assert "0.1: 0.20 (kernel, d = 400) against 0.30 as the paper and 0.35 with C = .36 sqrt(m)" in text


def test_records_without_labels_or_public_records() -> None:
    digits = load_digits(public_records=10)
    nameless = replace(digits, labels=None, test_labels=None, public_labels=None, n_classes=0, class_names=None)
    for records in (load_digits(), nameless):
        with pytest.raises(ValueError, match="needs labels, and at least 10 public records"):
            clustering_runs(records, seed=0)
