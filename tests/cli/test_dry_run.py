"""A dry run says what would be spent and needed, touches no data, and spends nothing."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tiny
from refusals import refused

from dpgen.cli.dry_run import dry_run, parse_shape
from dpgen.config import parse_job

SMALL = ["--hidden=3", "--latent=1", "--steps=7", "--component=vae"]


def test_the_plan_and_the_needs_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    job = parse_job(["--data=npy", "--path=absent.npy", "--epsilon=2", *SMALL])
    text = dry_run(job, "1000x20x3")
    assert "epsilon 2 at delta 1e-05 (add or remove one record)" in text
    assert "3 x " in text, "one model per label"
    for fact in ("sigma_sgd", "1000 x 20", "MiB", "7 steps", "no data is read"):
        assert fact in text
    assert "sigma_sgd        None" not in text, "calibrated"
    assert list(tmp_path.iterdir()) == []


def test_the_options_of_the_data_are_looked_at(tmp_path: Path) -> None:
    assert "note: path is 'absent.npy', and there is no such file here\n" in dry_run(
        parse_job(["--data=npy", "--path=absent.npy"])
    )
    assert "no such file" not in dry_run(tiny.job(tmp_path))
    with refused("test_fraction"):
        dry_run(tiny.job(tmp_path, "--test_fraction=2"))


def test_known_data_sets_need_no_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpgen.data.images.load_digits", lambda **_: pytest.fail("data was read"))
    assert "1445 x 64" in dry_run(parse_job(["--data=digits", *SMALL]))


def test_noise_without_a_budget_is_priced() -> None:
    data = ["--data=npy", "--path=absent.npy", *SMALL]
    text = dry_run(parse_job([*data, "--epsilon=null", "--sigma_sgd=1"]), "1000x20x3")
    found = re.search(r"none: this noise costs epsilon (\S+)", text)
    assert found
    again = re.search(r"sigma_sgd +(\S+)", dry_run(parse_job([*data, f"--epsilon={found[1]}"]), "1000x20x3"))
    assert again
    assert float(again[1]) == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("model", ["mollifier", "mbde", "merr"])
def test_other_systems_tell_their_plan(model: str) -> None:
    text = dry_run(parse_job(["--model", model]), "100x5")
    assert "trains no network by steps" in text


@pytest.mark.parametrize(
    "options", [["--model=dpgan", "--frequencies=5"], ["--model=dpgan", "--network=cnn"], ["--component=conv_vae"]]
)
def test_networks_that_need_images_are_foreseen(options: list[str]) -> None:
    assert "ms a step" in dry_run(parse_job(["--data=digits", "--hidden=8", *options]))
    absent = ["--data=npy", "--path=absent.npy", "--hidden=8", *options]
    assert "ms a step" in dry_run(parse_job([*absent, "--image_shape=4,4"]), "100x16x2")
    with refused("image"):
        dry_run(parse_job(absent), "100x16x2")


def test_dpgan_is_foreseen_too() -> None:
    assert "ms a step" in dry_run(parse_job(["--model=dpgan", "--data=npy", "--path=absent.npy", "--hidden=4"]), "50x6")


@pytest.mark.parametrize("text", ["12", "0x3", "axb", "3x4x5x6", "-3x4"])
def test_other_sizes_are_refused(text: str) -> None:
    with refused("dry_run"):
        parse_shape(text, "npy")


def test_what_an_engine_reads_is_said(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.parquet").write_bytes(bytes(2**20))
    options = ["--model=merr", "--data=sql", "--columns=x,y", "--low=0", "--high=9"]
    said = dry_run(parse_job([*options, f"--source={tmp_path}/*.parquet"]))
    assert f"source           {tmp_path}/*.parquet: 2 file(s), 2 MiB" in said
    assert "columns          x, y" in said
    assert "there is no such file here" not in said
    assert "there is no such file here" in dry_run(parse_job([*options, f"--source={tmp_path}/none.duckdb"]))


def test_how_much_of_its_files_an_engine_reads_is_said(tmp_path: Path) -> None:
    table = pd.DataFrame(np.random.default_rng(0).integers(0, 2**60, (2**18, 2)), columns=["x", "who"]).assign(z=0)
    table.to_parquet(tmp_path / "t.parquet", use_dictionary=False)
    options = ["--data=sql", f"--source={tmp_path}/t.parquet", "--unit=who", "--max_contributions=2"]
    said = dry_run(parse_job(["--model=merr", "--columns=x", "--low=0", "--high=9", *options]))
    assert "columns          x, who: 4 MiB of it a scan" in said
    assert "sorted by person" in said
    schema = tmp_path / "schema.json"
    schema.write_text('{"fields": [{"name": "z", "type": "boolean"}, {"name": "x", "type": "boolean"}]}')
    said = dry_run(parse_job(["--model=tables", f"--schema={schema}", *options]))
    assert "columns          z, x, who: 4 MiB of it a scan" in said
    assert "scans            one, which keeps the codes of all values, one or two bytes each, sorted by person" in said
    said = dry_run(parse_job(["--model=gaussian", *options[:2]]))
    assert "columns          all: 4 MiB of it a scan" in said
    assert "scans            one for each pass of the fit, in batches" in said
    said = dry_run(parse_job(["--model=mwem", "--data=sql_sets", "--set_column=who", "--item_column=z", options[1]]))
    assert "columns          who, z: 2 MiB of it a scan" in said
