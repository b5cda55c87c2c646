"""Command lines and YAML files: what is typed arrives, what is wrong is said in one line that lists what is allowed."""

from pathlib import Path

import pytest
import tiny
import yaml

from dpgen.cli import parse_job, usage
from dpgen.data import LOADERS
from dpgen.systems import SYSTEMS, DPGMConfig, DPGMPlan


def test_defaults() -> None:
    job = parse_job([])
    assert (job.model, job.data) == ("dpgm", "digits")
    assert job.plan == DPGMPlan()
    assert job.config == DPGMConfig()
    assert job.load().n == 1438
    assert job.system is SYSTEMS["dpgm"]


def test_every_way_of_writing_an_option() -> None:
    arguments = ["--epsilon", "2", "--model.hidden=7", "--sampling-rate", "0.1", "--private_logs", "--run_dir", "here"]
    job = parse_job([*arguments, "--component", "rbm", "--clusters=none"])
    assert (job.plan.epsilon, job.plan.sampling_rate) == (2.0, 0.1)
    assert (job.config.hidden, job.config.component, job.config.clusters) == (7, "rbm", "none")
    assert job.runtime.private_logs
    assert job.runtime.run_dir == Path("here")


def test_options_reach_the_loader(tmp_path: Path) -> None:
    records = tiny.job(tmp_path, "--public_records=10", "--test_fraction=0.5").load()
    assert (records.n, records.image_shape, records.n_classes) == (30, (4, 4), 2)
    assert records.public_x is not None


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_file_is_the_base_and_options_win(tmp_path: Path) -> None:
    path = write(tmp_path / "c.yaml", "privacy: {epsilon: 2, steps: 50}\nmodel: {name: dpgm, hidden: 9}\ndata: {name: digits}")
    job = parse_job(["--config", str(path), "--steps=60"])
    assert (job.plan.epsilon, job.plan.steps, job.config.hidden) == (2.0, 60, 9)


def test_options_of_another_loader_in_the_file_are_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "c.yaml", "data: {name: mnist, data_root: there}")
    assert parse_job(["--config", str(path)]).data_options["data_root"] == "there"
    assert parse_job(["--config", str(path), "--data=digits"]).data == "digits"


def test_the_config_of_model_and_data_is_found_by_name(tmp_path: Path) -> None:
    write(tmp_path / "dpgm_digits.yaml", "privacy: {steps: 77}")
    assert parse_job([], config_root=tmp_path).plan.steps == 77
    assert parse_job(["--data=mnist"], config_root=tmp_path).plan.steps == DPGMPlan().steps


def test_settings_are_complete_and_parse_back(tmp_path: Path) -> None:
    job = tiny.job(tmp_path, "--epsilon=1.5", "--gamma=0.02")
    path = write(tmp_path / "again.yaml", yaml.safe_dump(job.settings))
    again = parse_job(["--config", str(path)])
    assert again.settings == job.settings
    assert (again.plan, again.config, again.runtime) == (job.plan, job.config, job.runtime)
    assert again.data_options == job.data_options


WRONG = [
    ("--stepz=5", r"option must be one of .*steps.*, got 'stepz' \(did you mean 'steps'\?\)"),
    ("--privacy.stepz=5", r"option of privacy must be one of epsilon, .*, got 'stepz' \(did you mean 'steps'\?\)"),
    ("--model.name=dpgm", "option of model must be one of .*component, .*, got 'name'"),
    ("--privat.steps=5", r"block must be one of privacy, model, data, runtime, got 'privat' \(did you mean 'privacy'"),
    ("--model=dpg", r"model must be one of dpgm.*, got 'dpg' \(did you mean 'dpgm'\?\)"),
    ("--data=digit", r"data must be one of digits, mnist, .*npy, got 'digit' \(did you mean 'digits'\?\)"),
    ("--component=gan", r"model\.component.*'vae', 'rbm'.*gan"),
    ("--clipping=hard", r"model\.clipping.*'auto', 'fixed', .*hard"),
    ("--relation=both", r"privacy\.relation.*'add_remove', 'replace_one'.*both"),
    ("--steps=many", r"privacy\.steps.*int.*many"),
    ("--steps=2.5", r"privacy\.steps.*int.*2\.5"),
    ("--steps=0", "steps and kmeans_rounds must be at least 1, got 0"),
    ("--sampling_rate=1.5", r"sampling_rate must be in \(0, 1\], got 1\.5"),
    ("--sigma_sgd=0", "sigma_sgd must be positive and finite, got 0"),
    ("--sigma_sgd=-1", "sigma_sgd must be positive and finite, got -1"),
    ("--epsilon=0", "epsilon is 0.0; it must be a finite number > 0"),
    ("--epsilon=nan", r"privacy\.epsilon.*nan"),
    ("--epsilon=inf", "epsilon.*inf"),
    ("--epsilon", r"privacy\.epsilon.*true"),
    ("--delta=1", r"delta is 1\.0; it must lie in \[0, 1\)"),
    ("--devices=0", "devices must be at least 1, got 0"),
    ("--accelerator=tpu", "accelerator must be one of 'auto', 'cpu', 'gpu', got 'tpu'"),
    ("--data=csv", r"data.*path"),
    ("steps", "unexpected argument 'steps': options are written --key value"),
    ("-e", "unexpected argument '-e'"),
    ("--", "unexpected argument '--'"),
    ("--config=absent.yaml", r"config file 'absent\.yaml' does not exist"),
]


@pytest.mark.parametrize(("argument", "match"), WRONG, ids=[argument for argument, _ in WRONG])
def test_wrong_options_are_refused_in_one_line(argument: str, match: str) -> None:
    with pytest.raises(ValueError, match=match) as raised:
        parse_job([argument])
    assert "\n" not in str(raised.value)


FILES = [
    ("privacy: [1, 2", "is not valid YAML"),
    ("- privacy", "must hold the blocks privacy, model, data, runtime"),
    ("privacy: 3", "must hold the blocks"),
    ("privat: {steps: 3}", "block must be one of privacy, model, data, runtime, got 'privat'"),
    ("privacy: {stepz: 3}", r"option of privacy must be one of .*, got 'stepz' \(did you mean 'steps'"),
    ("model: {name: gan}", "model must be one of dpgm.*, got 'gan'"),
    ("model: {name: [dpgm]}", "model must be one of dpgm"),
    ("data: {name: digits, path: x}", "option of data must be one of test_fraction, .*, got 'path'"),
    ("privacy: {steps: many}", r"privacy\.steps"),
    ("privacy: {steps: [3]}", r"privacy\.steps"),
    ("runtime: {seed: -3}", r"seed must be in \[0, 2\^32\), got -3"),
]


@pytest.mark.parametrize(("text", "match"), FILES, ids=[text for text, _ in FILES])
def test_wrong_files_are_refused_in_one_line(tmp_path: Path, text: str, match: str) -> None:
    path = write(tmp_path / "c.yaml", text)
    with pytest.raises(ValueError, match=match) as raised:
        parse_job(["--config", str(path)])
    assert "\n" not in str(raised.value)


def test_usage_lists_every_option() -> None:
    text = usage()
    for name in [*SYSTEMS, *LOADERS, *LOADERS["records"], "--epsilon", "--component", "--data_root", "--run_dir", "--config"]:
        assert name in text


def test_a_null_where_a_value_is_needed_is_refused(tmp_path: Path) -> None:
    for text, name in (("runtime: {seed: null}", r"runtime\.seed"), ("privacy: {delta: null}", r"privacy\.delta")):
        path = write(tmp_path / "c.yaml", text)
        with pytest.raises(ValueError, match=f"{name} is null; it needs a value"):
            parse_job(["--config", str(path)])
    assert parse_job(["--config", str(write(tmp_path / "c.yaml", "privacy: {sigma_sgd: null}"))]).plan.sigma_sgd is None


def test_a_config_that_is_no_text_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(b"\xff\xfe\x00bad")
    with pytest.raises(ValueError, match=r"c\.yaml' is not valid YAML"):
        parse_job(["--config", str(path)])
