"""Command lines and YAML files: what is typed arrives, what is wrong is said in one line that lists what is allowed."""

from pathlib import Path

import pytest
import tiny
import yaml

from dpgen.cli.jobs import Command, parse_command, parse_job, usage, written
from dpgen.data import LOADERS
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan
from dpgen.systems.local.plan import RandomizedResponseConfig
from dpgen.systems.registry import SYSTEMS


def test_defaults(tmp_path: Path) -> None:
    job = parse_job([])
    assert (job.model, job.data) == ("dpgm", "digits")
    assert job.plan == DPGMPlan()
    assert job.config == DPGMConfig()
    assert job.load(tmp_path).n == 1445
    assert job.system is SYSTEMS["dpgm"]


def test_every_way_of_writing_an_option() -> None:
    arguments = ["--epsilon", "2", "--model.hidden=7", "--sampling-rate", "0.1", "--private_logs", "--run_dir", "here"]
    job = parse_job([*arguments, "--component", "rbm", "--clusters=none"])
    assert (job.plan.epsilon, job.plan.sampling_rate) == (2.0, 0.1)
    assert (job.config.hidden, job.config.component, job.config.clusters) == (7, "rbm", "none")
    assert job.runtime.private_logs
    assert job.runtime.run_dir == Path("here")


def test_a_model_without_options_is_understood(tmp_path: Path) -> None:
    job = parse_job(["--model=randomized_response", "--data=synthetic_users"])
    assert job.config == RandomizedResponseConfig()
    path = write(tmp_path / "again.yaml", yaml.safe_dump(job.settings))
    assert parse_job(["--config", str(path)]).settings == job.settings


def test_options_reach_the_loader(tmp_path: Path) -> None:
    records = tiny.job(tmp_path, "--public_records=10", "--test_fraction=0.5").load(tmp_path)
    assert (records.n + len(records.test_x), records.image_shape, records.n_classes) == (70, (4, 4), 2)
    assert records.public_x is not None
    assert len(records.public_x) == 10


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
    path = write(tmp_path / "dpgm_digits.yaml", "privacy: {steps: 77}")
    job = parse_job([], config_root=tmp_path)
    assert (job.plan.steps, job.base) == (77, path)
    other = parse_job(["--data=mnist"], config_root=tmp_path)
    assert (other.plan.steps, other.base) == (DPGMPlan().steps, None)
    assert parse_job([]).base is None


def test_the_base_is_named_from_where_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "c.yaml", "privacy: {steps: 5}")
    assert parse_job(["--config", str(path)]).base == path
    monkeypatch.chdir(tmp_path)
    assert parse_job(["--config", str(path)]).base == Path("c.yaml")


def test_stored_settings_are_those_of_the_given_component(tmp_path: Path) -> None:
    write(tmp_path / "dpgm_digits.yaml", "privacy: {steps: 77}\nmodel: {component: rbm, hidden: 9}")
    job = parse_job(["--component=vae"], config_root=tmp_path)
    assert (job.plan.steps, job.config.component, job.config.hidden) == (77, "vae", 9)


def test_settings_are_complete_and_parse_back(tmp_path: Path) -> None:
    job = tiny.job(tmp_path, "--epsilon=1.5", "--gamma=0.02")
    path = write(tmp_path / "again.yaml", yaml.safe_dump(job.settings))
    again = parse_job(["--config", str(path)])
    assert again.settings == job.settings
    assert (again.plan, again.config, again.runtime) == (job.plan, job.config, job.runtime)
    assert again.data_options == job.data_options


WRONG = [
    ("--stepz=5", r"unknown option 'stepz': did you mean 'steps'\? see --help"),
    ("--modle=x", "unknown option 'modle': did you mean 'model'"),
    ("--dryrun=x", "unknown option 'dryrun': did you mean 'dry_run'"),
    ("--sweep=seed=1", "option 'sweep' has no place here"),
    ("--privacy.stepz=5", r"option of privacy must be one of .*epsilon, .*, got 'stepz' \(did you mean 'steps'\?\)"),
    ("--model.name=dpgm", "option of model must be one of clusters, .*, got 'name'"),
    ("--privat.steps=5", r"block must be one of privacy, model, data, runtime, got 'privat' \(did you mean 'privacy'"),
    ("--model=dpg", r"model must be one of dpgm.*, got 'dpg' \(did you mean 'dpgm'\?\)"),
    ("--data=digit", r"data must be one of digits, mnist, .*npy, images, .*, got 'digit' \(did you mean 'digits'\?\)"),
    ("--component=gan", "component must be one of vae, rbm, got 'gan'"),
    ("--clipping=hard", "clipping must be one of auto, fixed, .*, got 'hard'"),
    ("--relation=both", "relation must be one of add_remove, replace_one, got 'both'"),
    ("--steps=many", "steps must be a whole number, got 'many'"),
    ("--steps=2.5", r"steps must be a whole number, got '2\.5'"),
    ("--steps=0", "steps must be at least 1, got 0"),
    ("--sampling_rate=1.5", r"sampling_rate must be in \(0, 1\], got 1\.5"),
    ("--sigma_sgd=0", "sigma_sgd must be positive and finite, got 0"),
    ("--sigma_sgd=-1", "sigma_sgd must be positive and finite, got -1"),
    ("--epsilon=0", "epsilon is 0.0; it must be a finite number > 0"),
    ("--epsilon=nan", "epsilon is nan; it must be finite"),
    ("--epsilon=-Infinity", "epsilon is -Infinity; it must be finite"),
    ("--epsilon=.inf", "epsilon is inf; it must be a finite number > 0"),
    ("--epsilon=1e300", r"epsilon is 1e\+300; it must be at most 1e\+06"),
    ("--steps=1000000000000000000000", "steps is 1000000000000000000000; it must be at most 1,000,000,000"),
    ("--epsilon", "epsilon has no value; write --epsilon VALUE"),
    ("--run_dir", "run_dir has no value; write --run_dir VALUE"),
    ("--model", "model has no value; write --model VALUE"),
    ("--data", "data has no value; write --data VALUE"),
    ("--config", "config has no value; write --config VALUE"),
    ("--epsilon=abc", "epsilon must be a number or null, got 'abc'"),
    ("--loggers=x", "loggers must be Lightning loggers, got 'x'"),
    ("--delta=1", r"delta is 1\.0; it must lie in \[0, 1\)"),
    ("--devices=0", "devices must be at least 1, got 0"),
    ("--run_dir=", r"run_dir is '\.'; it must name a directory"),
    ("--component=gaussian", "component must be one of vae, rbm, got 'gaussian'"),
    ("--accelerator=tpu", "accelerator must be one of 'auto', 'cpu', 'gpu', got 'tpu'"),
    ("--data=csv", "path must be given"),
    ("steps", "unexpected argument 'steps': options are written --key value"),
    ("-e", "unexpected argument '-e'"),
    ("--", "unexpected argument '--'"),
    ("--model=", "model must be one of dpgm.*, got ''"),
    ("--data=", "data must be one of digits.*, got ''"),
    ("--config=absent.yaml", r"config file 'absent\.yaml' does not exist"),
    ("--config=.", r"config file '\.' is a folder"),
]


@pytest.mark.parametrize(("argument", "match"), WRONG, ids=[argument for argument, _ in WRONG])
def test_wrong_options_are_refused_in_one_line(argument: str, match: str) -> None:
    with pytest.raises(ValueError, match=match) as raised:
        parse_job([argument])
    assert "\n" not in str(raised.value)


def test_an_option_without_a_value_stays_one_behind_the_command() -> None:
    rest = parse_command(["--progress_bar", "--epsilon", "--private_logs=false"]).job_arguments
    assert rest == ("--progress_bar", "--epsilon", "--private_logs=false")
    with pytest.raises(ValueError, match="epsilon has no value"):
        parse_job(rest)
    assert parse_job(rest[:1]).runtime.progress_bar is True


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["--epsilon", "7", "--privacy.epsilon", "1"], "epsilon"),
        (["--epsilon", "7", "--epsilon", "7"], "epsilon"),
        (["--sampling-rate", ".1", "--sampling_rate", ".2"], "sampling_rate"),
        (["--model=dpgm", "--model=mwem"], "model"),
        (["--config=a.yaml", "--config=b.yaml"], "config"),
    ],
)
def test_options_that_are_given_twice_are_refused(arguments: list[str], name: str) -> None:
    for parse in (parse_job, lambda given: parse_job(parse_command(given).job_arguments)):
        with pytest.raises(ValueError, match=f"^{name} is given twice"):
            parse(arguments)


@pytest.mark.parametrize("model", ["--model=mwem", "--model=mbde", "--model=gaussian"])
@pytest.mark.parametrize("processes", ["--devices=2", "--num_nodes=2"])
def test_only_dp_sgd_runs_on_several_processes(model: str, processes: str) -> None:
    with pytest.raises(ValueError, match="both must be 1 for this model: several processes can share the sums of DP-SGD only"):
        parse_job([model, processes])
    assert parse_job(["--model=dpgan", processes]).runtime.processes == 2


def test_an_option_of_one_network_alone_is_refused_with_the_other() -> None:
    with pytest.raises(ValueError, match="chains is 9, which only component 'rbm' uses; component is 'vae'"):
        parse_job(["--chains=9"])
    with pytest.raises(ValueError, match="latent is 3, which only component 'vae' uses; component is 'rbm'"):
        parse_job(["--component=rbm", "--latent=3"])
    job = parse_job(["--config=dpgm_digits", "--component=vae"])
    assert job.config.chains == DPGMConfig().chains, "those of the file's component go with it"
    assert parse_job(["--config=dpgm_digits"]).config.chains == 32


FILES = [
    ("privacy: [1, 2", "is not valid YAML"),
    ("- privacy", "must hold the blocks privacy, model, data, runtime"),
    ("privacy: 3", "must hold the blocks"),
    ("privat: {steps: 3}", "block must be one of privacy, model, data, runtime, got 'privat'"),
    ("privacy: {stepz: 3}", r"option of privacy must be one of .*, got 'stepz' \(did you mean 'steps'"),
    ("privacy: {epsilon: 1, epsilon: 2}", "is not valid YAML: epsilon is given twice"),
    ("privacy: {epsilon: 2020-01-01}", r"privacy\.epsilon is '2020-01-01'; it must be made of numbers, texts"),
    ("model: {name: ''}", "model must be one of dpgm.*, got ''"),
    ("model: {name: null, hidden: no}", "hidden must be a whole number, got False"),
    ("3", "must hold the blocks"),
    ("0", "must hold the blocks"),
    ("model: {name: gan}", "model must be one of dpgm.*, got 'gan'"),
    ("model: {name: [dpgm]}", "model must be one of dpgm"),
    ("data: {name: digits, path: x}", "option of data must be one of test_fraction, .*, got 'path'"),
    ("privacy: {steps: many}", "steps must be a whole number, got 'many'"),
    ("privacy: {steps: [3]}", r"steps must be a whole number, got \[3\]"),
    ("runtime: {seed: -3}", r"seed must be in \[0, 2\^32\), got -3"),
]


@pytest.mark.parametrize(("text", "match"), FILES, ids=[text for text, _ in FILES])
def test_wrong_files_are_refused_in_one_line(tmp_path: Path, text: str, match: str) -> None:
    path = write(tmp_path / "c.yaml", text)
    with pytest.raises(ValueError, match=match) as raised:
        parse_job(["--config", str(path)])
    assert "\n" not in str(raised.value)


def test_usage_in_general_names_every_system_and_loader_and_no_option_of_a_run() -> None:
    text = usage()
    for name in [*SYSTEMS, *(name for named in LOADERS.values() for name in named), "--config", "--sweep_jobs", "--dry_run"]:
        assert name in text
    assert len(text.splitlines()) < 50
    assert "--epsilon" not in text


def test_usage_of_a_model_shows_its_options_with_the_defaults_that_hold(tmp_path: Path) -> None:
    path = write(tmp_path / "dpgm_digits.yaml", "privacy: {steps: 77}")
    text = usage(["--model=dpgm", "--whatever=3"], config_root=tmp_path)
    assert text.startswith(f"usage: dpgen train --model dpgm --data digits [--key value ...]\n\ndefaults as in {path}\n")
    assert "--steps              77           training steps T\n" in text
    assert "--loggers" not in text
    lines = text.splitlines()
    assert lines[lines.index("model dpgm:") + 1].startswith("  --component ")
    for other in (["--data=mnist"], ["--config", str(path)]):
        assert "--split_seed" in usage(other)
    assert "--draws_by" in usage(["--model=mbde"])
    with pytest.raises(ValueError, match="model must be one of"):
        usage(["--model=gan"])


def test_a_command_tells_the_scripts_options_from_the_jobs() -> None:
    command = parse_command(["--model", "dpgm", "--sweep", "k=1,2", "--sweep-jobs=3", "--config=c.yaml"])
    assert command.job_arguments == ("--model=dpgm", "--config=c.yaml")
    assert command.sweep is not None
    assert (command.sweep.fixed, command.sweep.jobs) == (command.job_arguments, 3)
    assert parse_command(["--dry_run"]).dry_run == ""
    assert parse_command(["--dry-run=3x4", "--k=2"]) == Command(("--k=2",), dry_run="3x4")
    assert parse_command(["--k=2"]) == Command(("--k=2",))
    assert parse_command(["-h", "--model=dpgm"]) == parse_command(["--model=dpgm", "--help"])
    assert parse_command(["-h"]).help


@pytest.mark.parametrize("other", ["--sweep=k=1", "--sweep_jobs=2"])
def test_a_dry_run_of_a_sweep_is_refused(other: str) -> None:
    with pytest.raises(ValueError, match=r"dry_run and sweep.* are both given: dry_run is of one run"):
        parse_command(["--dry_run", other])


def test_the_settings_are_printed_as_a_file_that_is_read_back(tmp_path: Path) -> None:
    command = parse_command(["--model=gaussian", "--print_config"])
    assert command == Command(("--model=gaussian",), print_config=True)
    job = parse_job(command.job_arguments)
    assert parse_job(["--config", str(write(tmp_path / "c.yaml", written(job)))]).settings == job.settings
    with pytest.raises(ValueError, match="print_config is '3'; it takes no value"):
        parse_command(["--print_config=3"])


def test_the_configurations_that_are_shipped_have_names() -> None:
    job = parse_job(["--config=dpgm_mnist_paper", "--steps=3"])
    assert (job.data, job.base) == ("mnist", parse_job(["--config=dpgm_mnist_paper.yaml"]).base)
    assert job.base is not None
    assert job.base.name == "dpgm_mnist_paper.yaml"
    with pytest.raises(ValueError, match=r"config file 'dpgm_mnits' does not exist \(did you mean dpgm_mnist\?\)"):
        parse_job(["--config=dpgm_mnits"])


@pytest.mark.parametrize("text", ["4,4", "[4,4]", "[4, 4]"])
def test_a_list_is_written_with_commas(text: str, tmp_path: Path) -> None:
    assert tiny.job(tmp_path, f"--image_shape={text}").data_options["image_shape"] == (4, 4)


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
