"""Momenta of leptons, recorded and simulated: two public columns of particle physics."""

from dpgen.data.column_files import load_columns_csv
from dpgen.data.columns import Columns
from dpgen.data.table_files import data_folder


def load_cms(*, data_root: str | None = None, high: float = 1e9, resolution: float = 1e-9) -> Columns:
    """138,556 transverse momenta of leptons that CMS recorded, in GeV, on a grid of 10^18 values.

    Arguments:
        data_root: folder with ``cms_lepton_pt/cms_lepton_pt.csv.gz`` (CMS open data, CC BY 4.0); without it DPGEN_DATA counts.
        high: public upper bound in GeV; the lower one is 0.
        resolution: public step of the grid in GeV.

    Raises:
        ValueError: the file is missing or malformed, or has momenta above ``high``.
    """
    path = data_folder("cms_lepton_pt/", data_root) / "cms_lepton_pt" / "cms_lepton_pt.csv.gz"
    return load_columns_csv(path=str(path), columns=["pt"], low=0.0, high=high, resolution=resolution)


def load_higgs(*, data_root: str | None = None, high: float = 1e9, resolution: float = 1e-9) -> Columns:
    """10,984 simulated lepton momenta of the UCI HIGGS set, whose 11 million Diakonikolas et al. 2015 used, on 10^18 values.

    Arguments:
        data_root: folder with ``higgs_11k/higgs.csv.gz``; without it the environment variable DPGEN_DATA counts.
        high: public upper bound; the lower one is 0.
        resolution: public step of the grid.

    Raises:
        ValueError: the file is missing or malformed, or has momenta above ``high``.
    """
    path = data_folder("higgs_11k/", data_root) / "higgs_11k" / "higgs.csv.gz"
    return load_columns_csv(path=str(path), columns=["lepton_pT"], low=0.0, high=high, resolution=resolution)
