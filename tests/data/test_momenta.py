"""Momenta: read from a data root, which the environment may name."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from dpgen.data.columns import Columns, load_cms, load_higgs


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder, name, column in [("cms_lepton_pt", "cms_lepton_pt", "pt"), ("higgs_11k", "higgs", "lepton_pT")]:
        (tmp_path / folder).mkdir()
        pd.DataFrame({column: [4.26219, 4.369669999999999, 0.5]}).to_csv(tmp_path / folder / f"{name}.csv.gz", index=False)
    return tmp_path


def test_momenta_keep_their_digits(root: Path) -> None:
    assert load_cms(data_root=str(root)).values["pt"].tolist() == [4262190000, 4369670000, 500000000]
    assert load_higgs(data_root=str(root), high=10, resolution=0.5).values["lepton_pT"].tolist() == [9, 9, 1]


@pytest.mark.parametrize("load", [load_cms, load_higgs])
def test_the_environment_names_the_root(root: Path, load: Callable[[], Columns], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPGEN_DATA", str(root))
    assert load().n == 3
    monkeypatch.delenv("DPGEN_DATA")
    with pytest.raises(ValueError, match="data_root is not set and neither is DPGEN_DATA"):
        load()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"higgs\.csv\.gz': there is no such file"):
        load_higgs(data_root=str(tmp_path))
