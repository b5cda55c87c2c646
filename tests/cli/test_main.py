"""The command `dpgen`: its table, how fast it answers, what a shell completes, and how commands end."""

import errno
import io
import json
import logging
import resource
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tiny
from documented_output import OUTPUT
from refusals import refused

import dpgen
from dpgen.auditing.lower_bounds import Finding
from dpgen.callbacks.accountant import Preempted
from dpgen.cli.completion import main as write_completion
from dpgen.cli.main import COMMANDS, OneLineParser, exit_code, main
from dpgen.options import REMOVED, keys
from dpgen.privacy.distributed import RemoteFailure
from dpgen.privacy.ledger import BudgetExceeded, LedgerError
from dpgen.run import Outcome
from dpgen.runtime import quiet_training
from dpgen.systems.registry import SYSTEMS


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_names_every_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_and_refuses_in_one_line(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([command, "--help"]) == 0
    assert "usage: dpgen" in capsys.readouterr().out
    assert main([command, "--epsilonn=1"]) == 2
    out, errors = capsys.readouterr()
    assert (out, errors.count("\n"), errors[:7]) == ("", 1, "error: ")
    assert list(tmp_path.iterdir()) == []


def test_a_misspelt_command_or_name_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, nearest in (
        (["trian"], "'train'"),
        (["train", "--model", "gausian"], "'gaussian'"),
        (["sample", "run", "--nn"], "'n'"),
    ):
        assert main(arguments) == 2
        assert f"did you mean {nearest}?" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(REMOVED))
def test_a_removed_option_says_so_and_makes_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert name not in {key for system in SYSTEMS.values() for key in (*keys(system.plan), *keys(system.config))}
    assert main(["train", "--model=dpgm", f"--{name}=x", "--run_dir=run"]) == 2
    errors = capsys.readouterr().err
    assert name in errors
    assert "CHANGELOG.md" in errors
    assert (errors.count("\n"), list(tmp_path.iterdir())) == (1, [])
    with refused(name):
        dpgen.fit("digits", "dpgan", epsilon=1.0, **{name: "x"})


def test_a_renamed_option_says_its_new_name(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["train", "--model=merr"], ["train", "--model=merr", "--data=csv"], ["schema", "x.csv"]):
        assert main([*command, "--rows_per_unit", "3"]) == 2
        assert "rows_per_unit is max_contributions now" in capsys.readouterr().err
    with pytest.raises(ValueError, match="max_contributions"):
        dpgen.fit("visits.csv", "tables", epsilon=1.0, rows_per_unit=3)


@pytest.mark.parametrize(
    "arguments", [["--help"], ["train", "--help"], ["train", "--model=gausian"], ["trian"], ["budget", "--help"], ["--version"]]
)
def test_it_answers_within_a_second_of_cpu(arguments: list[str]) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "dpgen", *arguments], capture_output=True, check=False, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.0


def test_help_imports_no_command() -> None:
    code = (
        "import sys\nfrom dpgen.cli.main import main\nmain([])\nassert not {'yaml', 'jsonargparse', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60)


@pytest.fixture(scope="module")
def completion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script for bash."""
    script = tmp_path_factory.mktemp("completion") / "completion.bash"
    script.write_text(write_completion(["bash"]))
    return script


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("dpgen tr", ["train"]),
        ("dpgen train --model gau", ["gaussian"]),
        ("dpgen train --sampling_r", ["--sampling_rate"]),
        ("dpgen train --config dpgm_mnist_p", ["dpgm_mnist_paper"]),
        ("dpgen sample run --clu", ["--clusters"]),
        ("dpgen audit --relation re", ["replace_one"]),
        ("dpgen audit --model ga", ["gaussian"]),
        ("dpgen audit --ledg", []),
    ],
)
def test_bash_completes(words: str, found: list[str], completion: Path) -> None:
    """After these words, the last of which is being typed."""
    typed = f'COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _shtab_dpgen; printf "%s\n" "${{COMPREPLY[@]}}"'
    ended = subprocess.run(["bash", "-c", f"source {completion}; {typed}"], capture_output=True, text=True, check=True)
    assert (ended.stderr, ended.stdout.split()) == ("", found)


@pytest.mark.parametrize("ending", ["npz", "csv", "parquet"])
def test_samples_are_drawn_from_a_run_or_from_its_model(
    ending: str, finished: Outcome, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, contents = tmp_path / f"s.{ending}", []
    for source in (finished.directory, finished.directory / "model"):
        assert main(["sample", str(source), "--n=7", f"--out={out}", "--clusters", "1", "--seed=3"]) == 0
        said = capsys.readouterr().out
        assert "7 records in" in said
        assert "already paid" in said
        contents.append(out.read_bytes())
    assert contents[0] == contents[1]
    if ending == "npz":
        with np.load(out) as arrays:
            assert (arrays["x"].shape, set(arrays["cluster"].tolist())) == ((7, tiny.D), {1})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["absent"], "holds no model"),
        (["RUN", "--n=-1"], "n is -1"),
        (["RUN", "--clusters", "9"], "[9]"),
        (["RUN", "--clusters", "1,x"], "clusters is '1,x'"),
        (["RUN", "--out=s.txt"], ".npz, .csv or .parquet"),
        (["RUN", "--out=w.duckdb::"], "w.duckdb::visits"),
        (["RUN", "--out=absent/w.duckdb::visits"], "absent"),
        (["RUN", "--out=absent/s.csv"], "absent"),
        (["DRAWS", "--n=3"], "draws.csv"),
    ],
)
def test_samples_are_refused_in_one_line(
    arguments: list[str],
    said: str,
    finished: Outcome,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "draws").mkdir()
    (tmp_path / "draws" / "draws.csv").write_text("draw,x\n0,1.5\n")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    places = {"RUN": str(finished.directory), "DRAWS": str(tmp_path / "draws")}
    assert main(["sample", *(places.get(argument, argument) for argument in arguments)]) == 2
    errors = capsys.readouterr().err
    assert (errors[:7], errors.count("\n"), said in errors) == ("error: ", 1, True)
    assert list((tmp_path / "here").iterdir()) == []


def test_samples_are_drawn_in_a_process_of_its_own(finished: Outcome, tmp_path: Path) -> None:
    """In this process every kind of model is known already; a new one has to find it."""
    command = [sys.executable, "-m", "dpgen", "sample", str(finished.directory), "--out", str(tmp_path / "s.csv")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, (tmp_path / "s.csv").exists()) == (0, True), done.stderr


@pytest.mark.parametrize("command", ["sample", "report"])
def test_an_output_that_cannot_be_written_is_refused_before_the_work(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (out := tmp_path / "taken.csv").mkdir()
    assert main([command, str(tmp_path / "absent"), "--out", str(out)]) == 2
    assert f"out '{out}' cannot be written: it is a directory" in capsys.readouterr().err


def test_a_text_is_printed_and_a_number_is_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(lambda: "done") == 0
    assert capsys.readouterr() == ("done\n", "")
    assert exit_code(lambda: 1) == 1
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ValueError("k is 0;\n  it must be 1"), 2, "error: k is 0; it must be 1\n"),
        (FileNotFoundError("no such file"), 2, "error: no such file\n"),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            75,
            "error: [Errno 28] No space left on device; free some space; nothing was spent: give the same command again\n",
        ),
        (LedgerError("damaged"), 2, "error: damaged\n"),
        (BudgetExceeded("spent"), 2, "error: spent\n"),
        (Preempted("stopped"), 75, "stopped\n"),
        (KeyboardInterrupt("stopped"), 130, "stopped\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (RemoteFailure("elsewhere"), 0, ""),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_errors_are_one_line(error: Exception, code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> int:
        raise error

    assert exit_code(fail) == code
    assert capsys.readouterr() == ("", said)


@pytest.mark.parametrize("error", [RuntimeError("a bug"), KeyError("a bug")], ids=["RuntimeError", "KeyError"])
def test_other_errors_keep_their_traceback(error: Exception) -> None:
    def fail() -> int:
        raise error

    with pytest.raises(type(error), match="a bug"):
        exit_code(fail)


def test_an_option_that_is_given_twice_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    parser = OneLineParser("dpgen sample")
    parser.add_argument("--n", type=int)
    assert exit_code(lambda: parser.parse_args(["--n", "3", "--n=4"]).n) == 2
    assert capsys.readouterr() == ("", "error: n is given twice\n")


def fails() -> None:
    with quiet_training():
        assert not logging.getLogger("lightning.pytorch").isEnabledFor(logging.INFO)
        assert logging.getLogger("lightning.pytorch").isEnabledFor(logging.WARNING)
        warnings.warn_explicit("few workers", UserWarning, "a.py", 1, module="lightning.data")
        raise RuntimeError("inside")


def test_the_logger_is_quiet_inside_and_as_before_outside_even_after_an_error() -> None:
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    heard = [logger.isEnabledFor(logging.INFO) for logger in loggers]
    with pytest.raises(RuntimeError, match="inside"):
        fails()
    assert [logger.isEnabledFor(logging.INFO) for logger in loggers] == heard


def test_warnings_of_others_are_heard() -> None:
    with pytest.warns(UserWarning, match="heard"), quiet_training():
        warnings.warn("heard", stacklevel=1)


def shown(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[dict[str, Any], int, str]:
    """The one object on standard output, the exit code, and what stands on standard error."""
    capsys.readouterr()
    code = main([*map(str, arguments), "--json"])
    out, errors = capsys.readouterr()
    found = json.loads(out)
    OUTPUT.validate(found)
    return found, code, errors


@pytest.mark.usefixtures("quiet")
def test_every_command_answers_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, model, rows = tmp_path / "run", tmp_path / "run" / "model", tmp_path / "rows.csv"
    rng = np.random.default_rng(0)
    pd.DataFrame({"x": rng.integers(0, 9, 200), "c": rng.choice(["a", "b"], 200)}).to_csv(rows, index=False)
    wanted = {
        "train": ["--model=merr", "--epsilon=1", f"--run_dir={run}", f"--ledger={tmp_path / 'budget'}"],
        "evaluate": [run],
        "verify": [run],
        "sign": ["--new_key", tmp_path / "key"],
        "report": [run],
        "sample": [model, "--n=5", "--out", tmp_path / "drawn.csv"],
        "schema": [rows],
        "compare": [rows, rows],
        "budget": [tmp_path / "budget"],
        "completion": ["bash"],
    }
    assert {*wanted, "audit"} == {*COMMANDS}
    main(["budget", str(tmp_path / "budget"), "--create", "--epsilon=2", "--relation=replace_one"])
    for command, arguments in wanted.items():
        found, code, errors = shown(capsys, command, *arguments)
        assert (found["command"], found["exit_code"], found["problem"], code) == (command, 0, None, 0), errors
        assert len(found) > 3
    found, _, _ = shown(capsys, "verify", run)
    assert (round(found["epsilon"], 5), found["fits"], found["problems"]) == (1.0, True, [])
    for arguments in (
        ["train", "--model=merr", "--print_config"],
        ["train", "--help"],
        ["budget", "--dp_sgd", "--n=600", "--batch=60", "--noise=1"],
        ["compare", rows, rows, "--out", tmp_path / "page.html"],
        ["evaluate", run, run],
        ["sign", run, "--key", tmp_path / "key"],
        ["--version"],
    ):
        found, _, _ = shown(capsys, *arguments)
        assert found["exit_code"] == 0
    found, _, _ = shown(capsys, "train", "--model=merr", "--dry_run", f"--ledger={tmp_path / 'budget'}", "--epsilon=1")
    assert found["budget"]["fits"]
    assert found["plan"][0]["count"] >= 1
    found, _, _ = shown(capsys, "evaluate", run)
    assert "privacy.json" in found["released"]
    assert {"name", "value", "real", "better"} <= {*found["scores"][0]}


@pytest.mark.usefixtures("quiet")
def test_warnings_of_a_statement_have_codes_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--model=merr", "--n_records=100", "--epsilon=1", "--relation=add_remove", "--title=Bills | 2024"]
    for delta, codes in ((0.1, ["LARGE_DELTA"]), (1e-5, [])):
        run = tmp_path / f"run{delta}"
        with warnings.catch_warnings(action="ignore"):
            found, code, _ = shown(capsys, "train", *options, f"--delta={delta}", "--evaluation=none", f"--run_dir={run}")
        assert (code, [one["code"] for one in found["warnings"]]) == (0, codes)
        assert all(one["text"] in (run / "PRIVACY.md").read_text() for one in found["warnings"])
        assert found["title"] == "Bills | 2024"
        assert "| data | Bills \\| 2024 |" in (run / "PRIVACY.md").read_text()


def test_the_schema_of_outputs_finds_what_is_missing_and_what_is_new() -> None:
    audited = OUTPUT.schema["$defs"]["audit"]["properties"]
    assert {*audited} == {*Finding.__dataclass_fields__, "violated"}
    head = {"command": "report", "exit_code": 0, "problem": None}
    good = head | {"page": "report.html", "public": False}
    assert OUTPUT.is_valid(good)
    assert OUTPUT.is_valid(head | {"exit_code": 2, "problem": "error: no", "spent": 0.0})
    wrong = ({"page": None}, {"more": 1}, {"exit_code": 9}, {"command": "repot"}, {"problem": "error: no"})
    assert not any(OUTPUT.is_valid(good | change) for change in wrong)
    assert not OUTPUT.is_valid(head)


def test_what_is_refused_is_an_object_too(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["train", "--model", "gausian"], ["sample", "nowhere", "--nn"], ["verify"], ["trian"]):
        found, code, errors = shown(capsys, *arguments)
        assert (found["exit_code"], code) == (2, 2)
        assert found["problem"].startswith("error: ")
        assert errors.strip() == found["problem"]


def test_output_is_utf8_in_every_locale(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert main(["train", "--model", "\u00fcber", "--json"]) == 2
    sys.stdout.flush()
    assert "\u00fcber" in json.loads(written.getvalue().decode("utf-8"))["problem"]
    assert main(["report", b"gr\xc3\xb6".decode("ascii", "surrogateescape")]) == 2, "as Python decodes it where ASCII is all"
    assert "PYTHONUTF8=1" in capsys.readouterr().err


def test_a_quiet_command_writes_problems_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sign", "--new_key", str(tmp_path / "key"), "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert main(["sign", "--new_key", str(tmp_path / "key"), "--quiet"]) == 2
    out, errors = capsys.readouterr()
    assert (out, errors.count("\n")) == ("", 1)
