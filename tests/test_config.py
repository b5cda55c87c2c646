"""From options to a run: what is given arrives with its type, and what is wrong is refused in one line that names it."""

import json
from dataclasses import replace
from pathlib import Path, PureWindowsPath
from typing import Any

import pytest
import yaml
from refusals import refused

import dpgen
from dpgen.cli.main import main
from dpgen.cli.train import split_command, usage
from dpgen.config import CONFIGS, DataConfig, ModelConfig, RunConfig, keyword_job, parse_job, written
from dpgen.data import load_digits
from dpgen.run import run
from dpgen.runtime import Runtime, quiet_training
from dpgen.systems.dpgm.plan import DPGMPlan


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_file_is_the_base_and_options_win(tmp_path: Path) -> None:
    path = write(tmp_path / "c.yaml", "privacy: {epsilon: 2, steps: 50}\nmodel: {name: dpgm, hidden: 9}\ndata: {name: digits}")
    for steps in (["--steps=60"], ["--set=privacy.steps=60", "--set", "model.name=dpgm"]):
        job = parse_job(["--config", str(path), *steps])
        assert (job.privacy.epsilon, job.privacy.steps, job.model.options.hidden) == (2.0, 60, 9)


def test_the_config_of_model_and_data_is_found_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "dpgm_digits.yaml", "privacy: {steps: 77}")
    job = parse_job([], config_root=tmp_path)
    assert (job.privacy.steps, job.base) == (77, path)
    other = parse_job(["--data=mnist"], config_root=tmp_path)
    assert (other.privacy.steps, other.base) == (DPGMPlan().steps, None)
    assert parse_job([]).base is None


def test_stored_settings_are_those_of_the_given_component(tmp_path: Path) -> None:
    write(tmp_path / "dpgm_digits.yaml", "privacy: {steps: 77}\nmodel: {component: rbm, hidden: 9}")
    job = parse_job(["--component=vae"], config_root=tmp_path)
    assert (job.privacy.steps, job.model.options.component, job.model.options.hidden) == (77, "vae", 9)


WRONG = [
    *(f"--{name}=x" for name in ("stepz", "modle", "dryrun", "privacy.steps", "model", "data", "component")),
    *(f"--{name}=" for name in ("run_dir", "model", "data")),
    *(f"--{name}" for name in ("epsilon", "run_dir", "model", "data", "config")),
    *(f"--epsilon={value}" for value in ("0", "nan", "-Infinity", ".inf", "1e300", "abc")),
    *(f"--steps={value}" for value in ("many", "2.5", "0", "1" * 22)),
    *(f"--noise_multiplier={value}" for value in ("0", "-1")),
    *("--clipping=hard", "--relation=both", "--sampling_rate=1.5", "--delta=1", "--devices=0", "--accelerator=tpu"),
    *("--axes=50", "--public_n=9", "--config=absent.yaml", "--config=."),
]


@pytest.mark.parametrize("argument", WRONG)
def test_a_wrong_option_is_refused_by_its_name(argument: str) -> None:
    with refused(argument.removeprefix("--").partition("=")[0]):
        parse_job([argument])


@pytest.mark.parametrize("path", [PureWindowsPath("C:/new/tab le.csv"), PureWindowsPath("//server/share/b c.csv")])
@pytest.mark.parametrize("options", ["--data=table --path", "--data=table --path=a.csv --schema"])
def test_paths_of_windows_stay_as_they_are(options: str, path: PureWindowsPath, tmp_path: Path) -> None:
    job = parse_job(["--model=tables", *options.split(), str(path)])
    again = parse_job(["--config", str(write(tmp_path / "c.yaml", written(job)))])
    for made in (job, again):
        assert str(path) in [str(value) for value in made.data.options.values()]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["steps"], "steps"),
        (["-e"], "-e"),
        (["--"], "--"),
        (["--data=csv"], "path"),
        (["--stepz=3"], "'steps'"),
        (["--dat=x"], "data"),
        (["--model=dpg"], "'dpgm'"),
        (["--data=digit"], "'digits'"),
        (["--config=dpgm_mnits"], "dpgm_mnist"),
        (["--path=a.csv"], "csv, parquet"),
        (["--model=marginals", "--neighbourhood=1"], "--model mollifier"),
        (["--model=randomized_response", "--reference_path=a"], "--model mbde, minimax, mollifier"),
        (["--model=mollifier", "--neighbourhood=0.5"], "neighbourhood"),
        (["--component=rbm", "--latent=3"], "latent"),
        (["--set", "privacy.epsilom=3"], "'epsilon'"),
        (["--set", "privcy.epsilon=3"], "'privacy'"),
        (["--set", "model.name=dpg"], "'dpgm'"),
        (["--set", "privacy.epsilon"], "set"),
        (["--set"], "set"),
    ],
)
def test_a_refusal_says_what_may_have_been_meant(arguments: list[str], said: str) -> None:
    with refused(said):
        parse_job(arguments)


def test_an_evaluation_may_name_the_share_that_is_held_out(tmp_path: Path) -> None:
    frame = write(tmp_path / "t.csv", "a,b\n" + "1,x\n2,y\n" * 50)
    job = parse_job(["--model=tables", f"--path={frame}", "--evaluation=holdout=0.05"])
    assert (job.runtime.evaluation, job.data.options["test_fraction"]) == ("quick", 0.05)
    assert parse_job(["--model=tables", f"--path={frame}", "--evaluation=none"]).data.options.get("test_fraction") == 0.0
    in_python = keyword_job("tables", {"evaluation": "holdout=0.3"}, data="table", private=str(frame))
    assert in_python.data.options["test_fraction"] == 0.3
    for share in ("0", "1", "much", ""):
        with refused("evaluation", f"holdout={share}", "(0, 1)", "holdout=0.05"):
            parse_job(["--model=tables", f"--path={frame}", f"--evaluation=holdout={share}"])
    with refused("holdout=0.05", "test_fraction 0.1", "leave one"):
        parse_job(["--model=tables", f"--path={frame}", "--evaluation=holdout=0.05", "--test_fraction=0.1"])
    with refused("evaluation", "none, quick or full", "ring"):
        parse_job(["--model=mbde", "--data=ring", "--evaluation=holdout=0.05"])


def test_an_option_without_a_value_stays_one_behind_the_command() -> None:
    _, rest = split_command(["--progress_bar", "--epsilon", "--evaluation=none"])
    assert rest == {"progress_bar": "true", "epsilon": "true", "evaluation": "none"}
    with refused("epsilon has no value"):
        parse_job(rest)
    assert parse_job(["--progress_bar"]).runtime.progress_bar is True


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["--epsilon", "7", "--epsilon", "7"], "epsilon"),
        (["--sampling-rate", ".1", "--sampling_rate", ".2"], "sampling_rate"),
        (["--model=dpgm", "--model=mwem"], "model"),
        (["--set", "privacy.epsilon=7", "--epsilon=8"], "epsilon"),
        (["--config=a.yaml", "--config=b.yaml"], "config"),
    ],
)
def test_options_that_are_given_twice_are_refused(arguments: list[str], name: str) -> None:
    for parse in (parse_job, lambda given: parse_job(split_command(given)[1])):
        with refused(f"{name} is given twice"):
            parse(arguments)


@pytest.mark.parametrize("processes", ["--devices=2", "--num_nodes=2"])
def test_only_dp_sgd_runs_on_several_processes(processes: str) -> None:
    for model in ("mwem", "mbde", "gaussian"):
        with refused("devices"):
            parse_job([f"--model={model}", processes])
    assert parse_job(["--model=dpgan", processes]).runtime.processes == 2


FILES = [
    ("privacy: [1, 2", "YAML"),
    ("- privacy", "blocks"),
    ("privacy: 3", "blocks"),
    ("3", "blocks"),
    ("0", "blocks"),
    ("privat: {steps: 3}", "'privacy'"),
    ("privacy: {stepz: 3}", "'steps'"),
    ("privacy: {hidden: 3}", "hidden"),
    ("privacy: {epsilon: 1, epsilon: 2}", "epsilon is given twice"),
    ("privacy: {epsilon: 2020-01-01}", "epsilon"),
    ("privacy: {steps: many}", "steps"),
    ("privacy: {steps: [3]}", "steps"),
    ("privacy: {delta: null}", "delta"),
    ("model: {name: ''}", "model"),
    ("model: {name: null, hidden: no}", "hidden"),
    ("model: {name: gan}", "model"),
    ("model: {name: [dpgm]}", "model"),
    ("data: {name: digits, path: x}", "path"),
    ("runtime: {seed: -3}", "seed"),
    ("runtime: {seed: null}", "seed"),
    *((text, "c.yaml") for text in ("a: 2020-13-45", "[" * 999, b"\xff\xfe\x00bad")),
]


@pytest.mark.parametrize(("text", "word"), FILES, ids=[str(text[:40]) for text, _ in FILES])
def test_a_wrong_file_is_refused_by_what_is_wrong(tmp_path: Path, text: str | bytes, word: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with refused(word):
        parse_job(["--config", str(path)])


def test_text_beyond_the_basic_plane_arrives(tmp_path: Path) -> None:
    schema = {"fields": [{"name": "\U0001f600", "type": "string", "constraints": {"enum": ["\U0001f389", "b"]}}]}
    assert keyword_job("tables", {"schema": schema, "path": "x.csv"}, data="table").data.options["schema"] == schema
    job = parse_job(["--model=tables", "--data=table", "--path=\U0001f600.csv", f"--schema={json.dumps(schema)}"])
    path = write(tmp_path / "again.yaml", written(job))
    assert parse_job(["--config", str(path)]).data.options == job.data.options
    assert (job.data.options["path"], job.data.options["schema"]) == ("\U0001f600.csv", schema)


def test_usage_of_a_model_shows_its_options_with_the_defaults_that_hold(tmp_path: Path) -> None:
    path = write(tmp_path / "dpgm_digits.yaml", "privacy: {steps: 77}")
    text = " ".join(usage({"model": "dpgm", "whatever": "3"}, config_root=tmp_path).split())
    assert f"defaults as in {path}".replace(" ", "") in text.replace(" ", "")
    assert "--steps STEPS training steps T" in text
    assert "default: 77)" in text
    assert text.index("--epsilon") < text.index("--steps") < text.index("--component") < text.index("--run_dir")
    assert "--data_root" in usage({"data": "mnist"})
    assert "--split_seed" in usage({"config": str(path)})
    assert "--codebook" in usage({"model": "mbde"})
    with refused("model"):
        usage({"model": "gan"})


def test_a_command_tells_the_scripts_options_from_the_jobs() -> None:
    own, given = split_command(["--model", "dpgm", "--select", "k=1,2", "--select-runs=3", "--config=c.yaml"])
    assert (own, given) == ({"select": "k=1,2", "select_runs": "3"}, {"model": "dpgm", "config": "c.yaml"})
    assert split_command(["--dry-run", "--k=2"]) == ({"dry_run": "true"}, {"k": "2"})
    assert split_command(["-h", "--model=dpgm"]) == split_command(["--model=dpgm", "--help"])


def test_the_settings_are_printed_as_a_file_that_is_read_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--model=gaussian", "--print_config"]) == 0
    path = write(tmp_path / "c.yaml", capsys.readouterr().out)
    assert parse_job(["--config", str(path)]).settings == parse_job(["--model=gaussian"], config_root=CONFIGS).settings
    for wrong in ("--print_config=3", "--dry_run=3x4"):
        assert main(["train", wrong]) == 2
        assert wrong[2:].partition("=")[0] in capsys.readouterr().err


def test_a_run_on_data_that_are_loaded(tmp_path: Path) -> None:
    records = replace(load_digits(test_fraction=0.0), name="mine")
    job = parse_job(["--model=marginals", "--data=csv", "--path=absent.csv", f"--run_dir={tmp_path / 'run'}"])
    with quiet_training():
        outcome = run(replace(job, runtime=replace(job.runtime, evaluation="none", progress_bar=False)), records)
    assert outcome.release.epsilon <= 1.0
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["data"] == {"name": "mine"}
    people = parse_job(["--model=marginals", "--data=csv", "--path=absent.csv", "--unit=who"])
    with refused("unit"):
        run(people, records)


def test_nothing_but_the_commands_imports_the_command_line() -> None:
    package = Path(dpgen.__file__).parent
    modules = [path for path in package.rglob("*.py") if "cli" not in path.relative_to(package).parts]
    assert [str(path) for path in modules if "dpgen.cli" in path.read_text() and path.name != "__main__.py"] == []


def test_a_command_line_yaml_and_python_build_the_same_run(tmp_path: Path) -> None:
    argv = parse_job(["--model=gaussian", "--data=digits", "--epsilon=2", "--frequencies=8", f"--run_dir={tmp_path / 'run'}"])
    made = [
        RunConfig(
            {"name": "gaussian", "frequencies": 8},  # type: ignore[arg-type]
            "digits",  # type: ignore[arg-type]
            {"epsilon": 2.0},  # type: ignore[arg-type]
            {"run_dir": str(tmp_path / "run")},  # type: ignore[arg-type]
        ),
        RunConfig(
            ModelConfig("gaussian", argv.system.config(frequencies=8)),
            DataConfig("digits"),
            argv.system.plan(epsilon=2.0),
            Runtime(run_dir=tmp_path / "run"),
        ),
        parse_job(["--config", str(write(tmp_path / "c.yaml", written(argv)))]),
    ]
    for config in made:
        assert replace(config, base=None) == argv
        assert config.settings == argv.settings


@pytest.mark.parametrize(
    ("blocks", "named"),
    [
        (("gausian", "digits", {}), "gaussian"),
        (({"name": "gaussian", "frequencis": 8}, "digits", {}), "frequencies"),
        (({"frequencies": 8}, "digits", {}), "name"),
        (("gaussian", "digit", {}), "digits"),
        (("gaussian", {"name": "digits", "test_share": 0.1}, {}), "test_share"),
        (("gaussian", "digits", {"epsilon": "much"}), "epsilon"),
        (("gaussian", "digits", {}, {"device": 2}), "devices"),
    ],
)
def test_a_wrong_block_is_refused_by_name(blocks: Any, named: str) -> None:
    with refused(named):
        RunConfig(*blocks)
