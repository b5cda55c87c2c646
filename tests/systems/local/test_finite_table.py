"""The published table of utilities is what the samplers give."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location("finite_benchmark", BENCHMARKS / "finite.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules.pop("noise", None)
    return module


def test_the_table_is_reproduced(benchmark: ModuleType) -> None:
    published = json.loads((BENCHMARKS / "results" / "finite.json").read_text())
    for key, row in benchmark.utility((10,)).items():
        assert row == pytest.approx(published["utility"][key], abs=1e-3)
    assert set(published["utility"]) == {
        f"{n} | {epsilon:g} | {users}"
        for n in (10, 100, 1000)
        for epsilon in (1, 2, 5, 8)
        for users in (*benchmark.REGIMES, "worst case")
    }
    assert published["never_worse"]["largest_excess"] <= 1e-12
