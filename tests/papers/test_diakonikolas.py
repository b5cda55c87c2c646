"""The paper's figures in their quick version."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from papers.diakonikolas2015 import Target, methods, reproduce, targets


@pytest.mark.usefixtures("quiet")
def test_figures_and_table(tmp_path: Path) -> None:
    text = reproduce(tmp_path, quick=True)
    assert {p.name for p in tmp_path.iterdir()} == {"figure1.png", "figure3.csv"} | {
        f"figure3_{name}.png" for name in ("gaussians", "betas", "gammas")
    }
    table = pd.read_csv(tmp_path / "figure3.csv")
    assert set(table.method) == {"empirical (not private)", *(label for label, _ in methods((4, 8)))}
    assert (table.error > 0).all()
    assert (table.seconds >= table.sort_seconds).all()
    assert "partition" in text


def test_files_are_used_where_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "cms_lepton_pt"
    folder.mkdir()
    pd.DataFrame({"pt": [1.5, 2.5, 3.5]}).to_csv(folder / "cms_lepton_pt.csv.gz", index=False)
    assert [t.name for t in targets(tmp_path)] == ["gaussians", "betas", "gammas", "cms"]
    cms = targets(tmp_path)[-1]
    assert (cms.most, cms.domain) == (3, 10**18 + 1)
    assert cms.empirical(np.sort(cms.first(3, np.random.default_rng(0)))) == 0
    assert Target("x", records=np.array([1, 9])).empirical(np.array([1])) == 0.5
