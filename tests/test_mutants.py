"""The lists of planted faults: each fits the sources as they are, and none of them is empty."""

from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from mutants import ROOT, Fault, all_faults, read

FAULTS = cache(all_faults)  # read by the worker that asks, not by all that collect


def test_there_are_faults_in_every_part_of_the_package_that_touches_private_data() -> None:
    parts = Counter(fault.file.rpartition("/")[0] for fault in FAULTS() if not fault.equivalent)
    systems = ("dp_sgd", "dpgm", "gaussian", "kmeans", "local", "marginals", "mbde", "ordered")
    assert {"dpgen/privacy", "dpgen/callbacks", *(f"dpgen/systems/{system}" for system in systems)} <= set(parts)
    assert parts.total() >= 100


def test_every_fault_says_why_it_is_one_and_is_there_once() -> None:
    assert all(fault.why for fault in FAULTS())
    once = Counter((fault.file, fault.after, *fault.old, ">", *fault.new) for fault in FAULTS())
    assert [key for key, times in once.items() if times > 1] == []


def test_a_fault_that_does_not_fit_is_named() -> None:
    fault = Fault("some.faults", "dpgen/__init__.py", "no such line", old=["this is no line of it"], new=[""])
    with pytest.raises(ValueError, match=r"dpgen/__init__\.py: 0 times .* \(no such line\)"):
        fault.planted(ROOT)


def test_a_line_that_cannot_be_understood_is_named(tmp_path: Path) -> None:
    (tmp_path / "some.faults").write_text("= dpgen/__init__.py\n# a fault\nwhat is this\n")
    with pytest.raises(ValueError, match=r"some\.faults, line 3: 'what is this' begins with none of"):
        read(tmp_path / "some.faults")
