"""The command for GPUs, dry: every kind of part runs on the CPU, and what it found is in one file."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import gpu


@pytest.mark.slow
def test_the_dry_run_writes_what_ran_with_device_and_versions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "gpu.json"
    assert gpu.main(["--dry", "--data_root", str(tmp_path), "--out", str(out)]) == 0, capsys.readouterr().out
    found: dict[str, Any] = json.loads(out.read_text())
    assert {name: part.get("status") for name, part in found["parts"].items()} == {
        "tests": 0,
        "DPGAN, convolutions, 2 steps": 0,
        "VAE, convolutions, 2 steps": 0,
        "ranks": None,
    }
    assert "left out" in found["parts"]["ranks"]
    assert found["dry"]
    assert found["machine"]["versions"]["torch"]


def test_a_part_that_fails_or_takes_too_long_is_seen() -> None:
    assert gpu.run(gpu.Part(("-c", "print('said'); raise SystemExit(3)"), 60))["status"] == 3
    assert gpu.run(gpu.Part(("-c", "import time; time.sleep(60)"), 0.5))["status"] == 124


def test_without_a_gpu_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main(["--data_root", str(tmp_path), "--out", str(tmp_path / "gpu.json")]) == 2
    assert capsys.readouterr().err == "error: no GPU: torch.cuda.is_available() is False; --dry runs on the CPU\n"
    assert not (tmp_path / "gpu.json").exists()
