"""The figures of Zamanlooy et al. (2025)."""

import math
from pathlib import Path

import movielens_files
import pandas as pd
import pytest
import torch

from dpgen.systems.local.kernels import MinimaxSampler
from papers import zamanlooy2025 as zamanlooy
from papers.zamanlooy2025 import movielens_groups, reproduce, sweep, worst_users


def test_a_point_of_the_sweep_agrees_with_the_explicit_kernel() -> None:
    generator = torch.Generator().manual_seed(3)
    runs = []
    for _ in range(4):
        prior = torch.rand(6, generator=generator, dtype=torch.float64)
        prior = prior / prior.sum()
        torch.randn(6, generator=generator, dtype=torch.float64)
        p = torch.tensor([0.5, *[0.1] * 5], dtype=torch.float64)
        runs.append(float((p - p @ MinimaxSampler(2.0, prior).kernel()).abs().sum() / 2))
    table = sweep([0.5], zamanlooy.peaked, n=6, epsilon=2.0, priors=4, seed=3)
    row = table[(table["sampler"] == "minimax") & (table["divergence"] == "tv")].iloc[0]
    mean = sum(runs) / 4
    assert row["mean"] == pytest.approx(mean, rel=1e-12)
    assert row["standard_error"] == pytest.approx(math.sqrt(sum((x - mean) ** 2 for x in runs) / 3 / 4), rel=1e-9)


def test_the_two_regimes_of_the_paper(tmp_path: Path) -> None:
    text = reproduce(tmp_path, quick=True)
    table = pd.read_csv(tmp_path / "figure2.csv")
    tv = table[table["divergence"] == "tv"].pivot(index="value", columns="sampler", values="mean")
    assert tv["mollifier"].iloc[1] < tv["minimax"].iloc[1], "near the uniform distribution the mollifier is better"
    assert tv["minimax"].iloc[-1] < tv["mollifier"].iloc[-1], "near a Dirac distribution the kernel is"
    assert (tv["projected_kernel"] <= tv["minimax"] + 1e-12).all()
    near = pd.read_csv(tmp_path / "figure2_near.csv")
    at_prior = near[(near["value"] == 0) & (near["sampler"].isin(["minimax", "mollifier", "q_invariant"]))]
    assert at_prior["mean"].max() < 1e-12, "the prior itself is kept"
    assert {path.name for path in tmp_path.iterdir()} == {f"figure2{x}.{y}" for x in ("", "_near") for y in ("csv", "png")}
    assert "minimax beats the mollifier from" in text
    assert "give data_root" in text


@pytest.fixture
def data_root(tmp_path: Path) -> Path:
    movielens_files.write_100k(tmp_path)
    movielens_files.write_1m(tmp_path)
    (tmp_path / "avazu").mkdir()
    rows = [(f"d{i}", site, 1, value) for value in (0, 2) for i in range(25) for site in ["a", "b", "ab"[i % 2]] * 7]
    rows += [("few", "a", 1, 3)] * 30
    clicks = pd.DataFrame(rows, columns=["device_id", "site_id", "click", "C18"])
    clicks.to_csv(tmp_path / "avazu" / "train.csv.gz", index=False)
    return tmp_path


def test_figures_of_real_files(data_root: Path) -> None:
    out = data_root / "out"
    out.mkdir()
    text = reproduce(out, data_root=data_root, quick=True)
    assert "figure3: worst user" in text
    assert "figure4: worst user" in text
    third, fourth = (pd.read_csv(out / f"{name}.csv") for name in ("figure3", "figure4"))
    assert set(third["group"]) == {0, 2}, "one device alone is no subcategory"
    assert set(third["users"]) == {25}
    assert set(fourth["group"]) == {"18-24", "50-55", "under 18"}
    assert set(fourth["epsilon"]) == set(zamanlooy.EPSILONS)
    for table in (third, fourth):
        assert table["worst"].between(0, 1).all()
        assert (table["mean"] <= table["worst"]).all()
    assert (out / "figure4.png").exists()


def test_each_group_has_the_prior_of_its_own_group(data_root: Path) -> None:
    groups = movielens_groups(data_root)
    for users in groups.values():
        assert users.prior is not None
        torch.testing.assert_close(users.prior, users.distributions.mean(0))  # both files hold the same ratings
    shares = dict(zip(groups["18-24"].categories, groups["18-24"].distributions[0].tolist()))
    assert {name: share for name, share in shares.items() if share} == {"Animation": 0.5, "Drama": 0.3, "Comedy": 0.2}
    table = worst_users(groups, epsilons=(300.0,))
    assert table["worst"].max() < 1e-3, "without privacy nothing is lost"
