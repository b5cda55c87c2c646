"""The figures of the papers, one module each: `python -m papers.acs2017 [--out DIR] [--data_root DIR] [--quick] [--seed N]`.

They are written as a user of dpgen would: they import exported names and the public modules of docs/architecture.md only.
"""

PAPERS = {
    "zamanlooy": "zamanlooy2025",
    "mollifier": "husain2020",
    "diakonikolas": "diakonikolas2015",
    "husain": "husain2018",
    "acs": "acs2017",
}
"""Modules by the short names of `scripts/reproduce.py`."""
