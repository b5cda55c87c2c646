"""A system of another distribution gets the command line, the ledger, the statement, the evaluation and the audit."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import tiny
import torch

import dpgen
from dpgen.auditing import audit, parse_audit
from dpgen.cli.train import usage
from dpgen.config import parse_job
from dpgen.evaluation import evaluate
from dpgen.facts import Fact
from dpgen.privacy.ledger import Ledger
from dpgen.release import PublicModel, Release
from dpgen.run import run
from dpgen.systems import registry

THIRD_PARTY = Path(__file__).parent / "third_party"
MOST_LINES = 60


def distribution(site: Path, monkeypatch: pytest.MonkeyPatch, entry: str) -> None:
    """Install a distribution with one entry point."""
    info = site / "noisy_bits-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: noisy-bits\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[dpgen.systems]\n{entry}\n")
    monkeypatch.syspath_prepend(site)
    monkeypatch.syspath_prepend(THIRD_PARTY)
    registry.installed.cache_clear()


@pytest.fixture(autouse=True)
def afterwards() -> Iterator[None]:
    yield
    for kind in [kind for kind, model in PublicModel.kinds.items() if model.__module__.startswith("noisy_bits")]:
        del PublicModel.kinds[kind]
    registry.installed.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "noisy_bits"]:
        del sys.modules[name]


def test_a_system_of_another_distribution_is_one_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(tmp_path / "site", monkeypatch, "noisy_bits = noisy_bits:SYSTEM")
    assert "noisy_bits" in usage({})
    assert "--margin MARGIN" in usage({"model": "noisy_bits"})
    with pytest.raises(ValueError, match="did you mean 'epsilon'"):
        parse_job(["--model=noisy_bits", "--epsiln=3"])
    tiny.arguments(tmp_path)  # writes the file
    options = ["--data=npy", f"--path={tmp_path}/tiny.npy", f"--run_dir={tmp_path}/run", "--progress_bar=false"]
    outcome = run(parse_job(["--model=noisy_bits", *options, "--epsilon=2", "--margin=0.05"]))
    with Ledger.open(tmp_path / "run" / "ledger.jsonl") as ledger:
        assert [entry.note for entry in ledger.entries()] == ["counts of ones"]
    assert json.loads((tmp_path / "run" / "privacy.json").read_text())["epsilon"] == pytest.approx(2.0)
    assert Fact.ONE_RECORD.sentence in (tmp_path / "run" / "PRIVACY.md").read_text()
    assert outcome.scores
    assert (tmp_path / "run" / "METRICS.md").is_file()
    assert registry.load(tmp_path / "run").samples(5, random_state=0).x.shape == (5, tiny.D + 1)
    few = ["--model=noisy_bits", "--trainings=60", "--workers=1", "--progress_bar=false"]
    assert not audit(parse_audit([*few, f"--confidence={1 - 1e-6}"])).violated
    fit = registry.systems()["noisy_bits"].fit

    def leaking(data: Any, **options: Any) -> Release:
        release: Any = fit(data, **options)
        release.counts = release.counts + 100 * data.x.sum()
        return release

    monkeypatch.setattr("noisy_bits.fit.fit", leaking)
    assert audit(parse_audit(few)).violated


def test_it_fits_a_frame_and_gives_one_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(tmp_path / "site", monkeypatch, "noisy_bits = noisy_bits:SYSTEM")
    frame = pd.DataFrame({"tea": [True, False] * 20, "rum": [False] * 40})
    release = dpgen.fit(frame, "noisy_bits", epsilon=1.0, dtypes="public")
    release.save(tmp_path / "model")
    for model in (release, dpgen.load(tmp_path / "model")):
        rows = model.sample(5, random_state=0)
        assert rows.dtypes.to_dict() == frame.dtypes.to_dict()
    release.columns = None  # the twin whose samples bear no names
    with pytest.raises(ValueError, match=r"samples have the columns x0, x1 ...; they must bear the names .*, tea, rum ..."):
        release.sample(5)


def test_a_release_of_no_family_is_not_evaluated() -> None:
    class Other:
        pass

    with pytest.raises(
        TypeError, match="release is an Other, which has no size; for an evaluation on records it must be a RecordModel"
    ):
        evaluate(Other(), dpgen.data.load_digits())
    x, labels = torch.zeros(2, 8, 8, 1, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64)
    images = dpgen.data.Images("one", x, labels, x[:1], labels[:1])
    with pytest.raises(TypeError, match="for an evaluation on images it must be an ImageModel"):
        evaluate(Other(), images)


def test_it_is_small() -> None:
    sources = [path.read_text() for path in THIRD_PARTY.glob("noisy_bits/*.py")]
    assert len(sources) == 3
    assert sum(bool(line.strip()) for source in sources for line in source.splitlines()) <= MOST_LINES


@pytest.mark.parametrize(
    ("entry", "match"),
    [
        ("merr = noisy_bits:SYSTEM", "'merr' .* has the name of another system; rename or uninstall it"),
        ("broken = noisy_bits:ABSENT", "'broken' .* cannot be imported: .*ABSENT"),
        ("broken = absent_package:SYSTEM", "'broken' .* cannot be imported: .*absent_package"),
        ("broken = noisy_bits.plan:BitsPlan", "'broken' .* is type; it must be a System"),
    ],
)
def test_a_wrong_entry_point_is_named(entry: str, match: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(tmp_path, monkeypatch, entry)
    with pytest.raises(ValueError, match=rf"entry point {match}"):
        registry.systems()
