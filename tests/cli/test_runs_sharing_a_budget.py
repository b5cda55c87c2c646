"""Runs that pay from one budget, what `dpgen budget FILE` shows of it, and `dpgen verify`, which finds what was changed."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import dp_accounting
import pytest
import tiny
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant

from dpgen.cli.main import main
from dpgen.config import parse_job
from dpgen.facts import Fact, Section
from dpgen.privacy.ledger import Budget, BudgetExceeded, Ledger
from dpgen.privacy.ledger_file import LedgerFile
from dpgen.privacy.shared_budget import SharedBudget
from dpgen.run import run

pytestmark = pytest.mark.usefixtures("quiet")

OPTIONS = ("--model=gaussian", "--epsilon=1", "--delta=1e-5", "--k=1", *tiny.UNLABELLED)


def arguments(directory: Path, name: str, *extra: str) -> list[str]:
    """A run of the Gaussian model on the tiny records that pays from `directory / "data.budget"`."""
    data = [a for a in tiny.arguments(directory) if a.startswith(("--data=", "--path=", "--progress_bar=", "--accelerator="))]
    given = (*data, *OPTIONS, f"--ledger={directory / 'data.budget'}", f"--run_dir={directory / name}", *extra)
    options = [a for a in given if not a.startswith(("--clusters", "--k="))]
    return list({a.partition("=")[0]: a for a in options}.values())


@pytest.fixture(scope="module")
def paid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with two runs that share a budget of epsilon 2."""
    directory = tmp_path_factory.mktemp("shared")
    SharedBudget.create(directory / "data.budget", Budget(2.0, 1e-5))
    run(parse_job(arguments(directory, "one")))
    run(parse_job(arguments(directory, "two")))
    return directory


def command(capsys: pytest.CaptureFixture[str], *given: str | Path) -> tuple[int, str]:
    """Exit code and all that was said."""
    capsys.readouterr()
    code = main([str(part) for part in given])
    return code, "".join(capsys.readouterr())


def test_every_run_states_its_own_guarantee_and_the_total(paid: Path) -> None:
    spending = SharedBudget(paid / "data.budget").spending()
    assert (spending.budget, spending.runs) == (Budget(2.0, 1e-5), 2)
    for name, runs in (("one", 1), ("two", 2)):
        statement = json.loads((paid / name / "privacy.json").read_text())
        assert statement["epsilon"] <= 1
        assert statement["shared"]["runs"] == runs
        assert statement["shared"]["spent"] == spending.upto(runs).epsilon
        text = (paid / name / "PRIVACY.md").read_text()
        assert f"is paid for by {runs} run" in text
        assert "have together (epsilon, delta) = (2, 1e-05) for the same unit" in text
    assert spending.epsilon < 2, "less than the two epsilons"


def test_a_run_that_does_not_fit_or_differs_leaves_nothing(paid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (paid / "data.budget").read_bytes()
    with pytest.raises(BudgetExceeded, match="this plan would bring it to"):
        run(parse_job(arguments(paid, "three")))
    for extra, match in (
        ("--relation=replace_one", "relation is 'replace_one'; it must be 'add_remove'"),
        ("--delta=1e-4", "delta is 0.0001; it must be at most 1e-05"),
        ("--ledger_epsilon=3", "CHANGELOG"),
        (f"--ledger={paid / 'absent'}", r"absent' does not exist; dpgen budget"),
    ):
        code, said = command(capsys, "train", *arguments(paid, "three", extra))
        assert (code, said.count("\n")) == (2, 1)
        assert re.search(match, said)
    assert (paid / "data.budget").read_bytes() == before
    assert not (paid / "three").exists()


def test_the_table_says_who_paid_and_what_is_left(paid: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = command(capsys, "budget", paid / "data.budget")
    assert code == 0
    assert said.startswith("data.budget: epsilon 2 at delta 1e-05 (add or remove one record) in all\n")
    rows = re.findall(r"^\S+T\S+ +\S+ +gaussian +(\S+) +\w{16} +([\d.]+) +([\d.]+)$", said, re.MULTILINE)
    assert [row[0] for row in rows] == [str(paid / "one"), str(paid / "two")]
    spent = SharedBudget(paid / "data.budget").spending().epsilon
    assert float(rows[1][2]) == pytest.approx(spent, rel=1e-3)
    assert re.search(r"paid for: epsilon 1\.\d+ of 2; [\d.]+ % of what the filter grants is left", said)


def test_a_budget_is_made_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "b"
    for given, match in (
        (["--create"], "epsilon is missing; --create needs the total"),
        (["--create", "--epsilon", "-1"], "epsilon is -1.0; it must be a finite number > 0"),
        (["--create", "--epsilon", "1", "--delta", "1"], r"delta is 1.0; it must lie in \[0, 1\)"),
        ([], "does not exist; dpgen budget"),
        (["--epsilon", "1"], "the total is fixed when a budget is made"),
        (["--creat"], "option must be one of|did you mean"),
    ):
        code, said = command(capsys, "budget", file, *given)
        assert (code, said.count("\n")) == (2, 1)
        assert re.search(match, said)
        assert not file.exists()
    code, said = command(
        capsys, "budget", file, "--create", "--epsilon", "1", "--relation", "replace_one", "--unit", "one user"
    )
    assert (code, "epsilon 1 at delta 1e-05 (replace one user) in all\na run without --delta: delta 1e-07" in said) == (0, True)
    code, said = command(capsys, "budget", file, "--create", "--epsilon", "1")
    assert (code, "a ledger is already there" in said) == (2, True)


@pytest.fixture
def copied(paid: Path, tmp_path: Path) -> Path:
    """The second run, to be tampered with, and the model of the first beside it."""
    shutil.copytree(paid / "one" / "model", tmp_path / "other")
    return Path(shutil.copytree(paid / "two", tmp_path / "two"))


def test_a_run_as_it_was_left_fits(paid: Path, copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for directory in (paid / "one", paid / "two", copied):
        code, said = command(capsys, "verify", directory)
        assert (code, said.count("\n")) == (0, 1)
        assert "statement and ledger, model, files, shared budget fit" in said


def changed_statement(**fields: object) -> object:
    def change(directory: Path) -> None:
        path = directory / "privacy.json"
        values = json.loads(path.read_text())
        for name, value in fields.items():
            values[name] = value(values[name]) if callable(value) else value
        path.write_text(json.dumps(values))

    return change


def changed_file(name: str, old: bytes, new: bytes) -> object:
    def change(directory: Path) -> None:
        path = directory / name
        raw = path.read_bytes()
        assert raw.count(old) >= 1
        path.write_bytes(raw.replace(old, new, 1))

    return change


def flipped_byte(directory: Path) -> None:
    path = directory / "model" / "model.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)


def without_weights(directory: Path) -> None:
    (directory / "model" / "model.safetensors").unlink()


def cut_short(directory: Path) -> None:
    path = directory / "ledger.jsonl"
    path.write_bytes(path.read_bytes()[:-9])


def before_its_commit(directory: Path) -> None:
    file = LedgerFile(directory / "ledger.jsonl")
    file.write(file.read() | {"commits": 0})
    file.close()


def covered(facts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Facts without those of what is not covered."""
    return [one for one in facts if Fact[one["fact"]].section is not Section.NOT_COVERED]


TAMPERED = {
    "epsilon": (changed_statement(epsilon=0.5), "epsilon is 0.5 in privacy.json, the ledger says 0.99"),
    "slightly": (changed_statement(epsilon=lambda e: e * 0.9999), "epsilon is 0.99.* in privacy.json, the ledger says"),
    "delta": (changed_statement(delta=1e-7), "delta is 1e-07 in privacy.json, the ledger says 1e-05"),
    "relation": (changed_statement(relation="replace_one"), "relation is 'replace_one' in privacy.json"),
    "unit": (changed_statement(unit="one person"), "unit is 'one person' in privacy.json"),
    "replace one": (changed_statement(also={}), "replace_one is None in privacy.json"),
    "mechanism missing": (changed_statement(mechanisms=lambda m: m[:-1]), "privacy.json lacks the mechanism"),
    "mechanism made up": (changed_statement(mechanisms=lambda m: [*m, m[0] | {"note": "x"}]), "the ledger lacks the mechanism"),
    "shared spent": (changed_statement(shared=lambda s: s | {"spent": 0.1}), "spent of the shared budget is 0.1"),
    "statement": (changed_statement(accountant="none"), "privacy.json is damaged: .* its own checksum"),
    "statement in words": (changed_file("PRIVACY.md", b"epsilon", b"Epsilon"), "PRIVACY.md is not the file that was released"),
    "samples": (lambda directory: (directory / "samples.npz").write_bytes(b"others"), "samples.npz is not the file"),
    "samples gone": (lambda directory: (directory / "samples.npz").unlink(), "samples.npz is missing"),
    "more samples": (
        lambda directory: (directory / "samples.csv").write_text("a\n1\n"),
        "samples.csv is no part of the release",
    ),
    "raw data": (
        lambda directory: (directory / "customers.csv").write_text("a\n1\n"),
        "customers.csv is no part of the release",
    ),
    "raw data inside": (lambda directory: (directory / "model" / "x.npy").write_bytes(b"1"), r"model/x\.npy is no part of the"),
    "another release": (
        lambda directory: shutil.copytree(directory.parent / "other", directory / "model", dirs_exist_ok=True),
        "has noted another release of this run than",
    ),
    "shared total": (changed_statement(shared=lambda s: s | {"epsilon": 1.0}), "epsilon of the shared budget is 1.0"),
    "no shared": (changed_statement(shared=None), "privacy.json names no shared budget, the other one does"),
    "what is not covered": (changed_statement(not_covered=[], facts=covered), "carries another statement"),
    "ledger's line": (changed_file("ledger.jsonl", b'"commits":1', b'"commits":2'), r"ledger\.jsonl: .* checksum"),
    "ledger cut": (cut_short, "is damaged"),
    "ledger restored": (before_its_commit, "has seen 1 commits of this run, its ledger has 0"),
    "ledger gone": (lambda directory: (directory / "ledger.jsonl").unlink(), "cannot open the ledger"),
    "model's byte": (flipped_byte, "does not match the checksum in model.json"),
    "model's card": (changed_file("model/model.json", b'"statement"', b'"Statement"'), "does not match the checksum"),
    "model gone": (lambda directory: shutil.rmtree(directory / "model"), r"neither model/ nor draws\.csv is there"),
    "model's weights gone": (without_weights, "holds a damaged model: FileNotFoundError"),
}


@pytest.mark.parametrize("case", TAMPERED)
def test_what_was_changed_is_named(copied: Path, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    change, match = TAMPERED[case]
    change(copied)  # type: ignore[operator]
    code, said = command(capsys, "verify", copied)
    assert code == 1
    assert re.search(match, said), said
    assert all(line.startswith(f"{copied}: ") for line in said.splitlines())


def test_a_shared_budget_without_the_payment_is_named(paid: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = Path(shutil.copytree(paid, tmp_path / "moved"))
    path = directory / "two" / "ledger.jsonl"
    shared = directory / "data.budget"
    file = LedgerFile(shared)
    document = file.read()
    file.write(document | {"payments": document["payments"][:1]})
    file.close()
    with Ledger.open(path) as ledger:
        header = ledger.payer
    assert header is not None
    original = header.path.read_bytes()
    try:
        header.path.write_bytes(shared.read_bytes())  # the last payment is cut off
        code, said = command(capsys, "verify", directory / "two")
        assert code == 1
        assert "holds no payment of this run for" in said
        header.path.unlink()
        code, said = command(capsys, "verify", directory / "two")
        assert (code, "cannot open the ledger" in said) == (1, True)
    finally:
        header.path.write_bytes(original)


def test_what_is_no_finished_run_cannot_be_verified(tmp_path: Path, copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = command(capsys, "verify", tmp_path / "absent")
    assert (code, "holds no finished run and no released model" in said) == (2, True)
    (copied / "privacy.json").write_text("{")
    code, said = command(capsys, "verify", copied)
    assert (code, "privacy.json is damaged" in said, said.count("\n")) == (2, True, 1)


def test_a_model_that_was_received_alone_is_verified(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = copied / "model"
    code, said = command(capsys, "verify", model)
    assert (code, "statement and model fit" in said) == (0, True)
    changed_file("model.json", b'"epsilon"', b'"Epsilon"')(model)  # type: ignore[operator]
    code, said = command(capsys, "verify", model)
    assert code in (1, 2)
    assert "model" in said


DP_SGD = ["budget", "--dp_sgd", "--n=60000", "--batch=600", "--epochs=10"]


def test_plain_dp_sgd_costs_what_the_library_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*DP_SGD, "--noise=1.0", "--delta=1e-5"]) == 0
    step = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.0))
    accountant = PLDAccountant().compose(step, 1000)
    said = capsys.readouterr().out
    assert "1000 steps" in said
    [stated] = re.findall(r"epsilon ([\d.]+)", said)
    assert float(stated) == pytest.approx(accountant.get_epsilon(1e-5), rel=5e-3)
    assert main([*DP_SGD, f"--epsilon={stated}"]) == 0
    [noise] = re.findall(r"multiplier ([\d.]+)", capsys.readouterr().out)
    assert float(noise) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["budget"], "FILE"),
        (DP_SGD, "noise"),
        ([*DP_SGD, "--noise=1", "--epsilon=1"], "noise"),
        ([*DP_SGD, "--noise=0"], "noise"),
        ([*DP_SGD, "--noise=1", "--batch=60001"], "batch"),
        (["budget", "--dp_sgd", "--batch=6", "--noise=1"], "n is missing"),
        (["budget", "some.budget", *DP_SGD[1:], "--noise=1"], "FILE"),
    ],
)
def test_what_plain_dp_sgd_lacks_is_named(arguments: list[str], name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert name in capsys.readouterr().err
