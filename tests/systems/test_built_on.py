"""Runs that are built on releases: they cost at least what the statements of these say, in every way of reading one."""

import inspect
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import tiny
from refusals import refused

import dpgen
from dpgen.cli.main import main
from dpgen.config import RunConfig, parse_job
from dpgen.data import load_ring
from dpgen.data.kinds import KINDS, loader_of
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.mechanisms import approximate_event, gaussian_event
from dpgen.privacy.shared_budget import SharedBudget
from dpgen.release import PublicModel
from dpgen.runtime import Runtime
from dpgen.statement import PrivacyStatement
from dpgen.systems.built_on import NOTE, find_release, names_files
from dpgen.systems.registry import SYSTEMS

pytestmark = pytest.mark.usefixtures("quiet")

QUIET = ("--evaluation=none", "--progress_bar=false")
BUDGET = ("--epsilon=9", "--delta=4e-5")
"""Of runs that are built on a release."""


def records(directory: Path) -> tuple[str, ...]:
    """Options of the tiny records."""
    np.save(directory / "tiny.npy", tiny.table())
    return ("--model=gaussian", "--data=npy", f"--path={directory / 'tiny.npy'}", f"--label_column={tiny.D}", *QUIET)


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Directories of finished runs: of one fit; of a selection, whose fit states less than it costs; and of draws."""
    place = tmp_path_factory.mktemp("releases")
    among = ("--select=epsilon=1,2", "--select_runs=6")
    assert main(["train", *records(place), "--epsilon=1", f"--run_dir={place / 'fit'}"]) == 0
    assert main(["train", *records(place), *among, f"--run_dir={place / 'selected'}"]) == 0
    assert main(["train", "--model=mollifier", f"--run_dir={place / 'draws'}", *QUIET]) == 0
    found = {"fit": place / "fit", "selection": place / "selected", "draws": place / "draws"}
    for directory in found.values():
        np.save(directory / "rows.npy", tiny.table())
        (directory / "schema").write_text(json.dumps({"fields": []}))
    return found


NAMES = ("fit", "selection", "draws")


def stated(directory: Path) -> PrivacyStatement:
    statement = PrivacyStatement.from_dict(json.loads((directory / "privacy.json").read_text()))
    return replace(statement, files={})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("file", ["", "rows.npy", "samples.csv", "model/model.json", "below/here/a.csv"])
def test_a_release_is_found_from_whatever_lies_in_it(name: str, file: str, releases: dict[str, Path]) -> None:
    found = find_release(releases[name] / file)
    assert found is not None
    assert found.statement == stated(releases[name])
    assert find_release(releases["fit"].parent / "tiny.npy") is None


def test_a_release_whose_parts_say_different_things_is_refused(releases: dict[str, Path], tmp_path: Path) -> None:
    run = shutil.copytree(releases["selection"], tmp_path / "run")
    text = (run / "privacy.json").read_text()
    (run / "privacy.json").write_text(json.dumps(json.loads(text) | {"epsilon": 1.0}))
    with refused("edited"):
        find_release(run)
    (run / "privacy.json").write_text(text)
    card = run / "model" / "model.json"
    card.write_text(card.read_text().replace('"epsilon":', '"epsilon": 1.0, "earlier":', 1))
    with refused("checksum"):
        find_release(run / "model")


WAYS = {
    *("path", "test_path", "data_root"),
    *("people_path", "items_path", "categories_path", "prior_path", "public_path", "schema", "reference_path", "prior"),
}
"""Options that name files or directories."""

NEEDED = {"path": "absent", "bounds": "[[0,1]]", "columns": "x"}
"""Values of options that data need."""


def options() -> Iterator[tuple[str, str, str]]:
    """Every (system, loader, option) that names files or directories: of each configuration and loader once."""
    seen = set()
    for model, system in SYSTEMS.items():
        sources: list[tuple[str, Any]] = [("", system.config), ("", system.plan)]
        sources += [(name, loader) for kind in system.kinds for name, loader in KINDS[kind].loaders.items()]
        for data, source in sources:
            for key, parameter in inspect.signature(source.options if data else source).parameters.items():
                named = (names_files(key) or "Path" in str(parameter.annotation)) and key != "split_key"  # which is secret
                if named and (source, key) not in seen:
                    seen.add((source, key))
                    yield model, data, key


OPTIONS = list(options())


def test_every_option_that_names_files_is_a_row() -> None:
    assert {key for *_, key in OPTIONS} == WAYS


def job_of(model: str, data: str, option: str, value: Path, *extra: str) -> RunConfig:
    system = SYSTEMS[model]
    data = data or {"users": "events", "table": "table"}.get(system.kinds[0], "csv")
    parameters = inspect.signature(loader_of(system.kinds, data).options).parameters
    needed = {key for key, p in parameters.items() if p.default is p.empty or (key, option) == ("path", "schema")}
    budget = [text for text in BUDGET if text[2:].partition("=")[0] in inspect.signature(system.plan).parameters]
    others = [f"--{key}={NEEDED[key]}" for key in needed - {option}]
    return parse_job([f"--model={model}", f"--data={data}", f"--{option}={value}", *others, *budget, *extra])


def covered(job: RunConfig, earlier: PrivacyStatement) -> bool:
    """Whether a job is refused, or pays what a statement says and has that much less for itself."""
    try:
        own = job.own_plan
    except ValueError:
        return True
    price = approximate_event(earlier.epsilon, earlier.delta)
    assert own.epsilon is not None
    assert job.privacy.epsilon is not None
    paid = price in [release.planned.event for release in job.built_on if release.planned is not None]
    return paid and own.epsilon + price.epsilon <= job.privacy.epsilon


@pytest.mark.parametrize(("model", "data", "option"), OPTIONS)
def test_every_way_of_reading_a_release_costs_what_it_states(
    model: str, data: str, option: str, releases: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NAMES:
        value = releases[name] / {"reference_path": "", "data_root": "", "schema": "schema"}.get(option, "rows.npy")
        assert covered(job_of(model, data, option, value), stated(releases[name]))
        public = job_of(model, data, option, value, "--release_origin=public")
        assert public.own_plan == public.privacy
        assert [release.planned for release in public.built_on] == [None]
        with monkeypatch.context() as faulty:  # the price of one fit, as a model may have it
            faulty.setattr(
                "dpgen.systems.built_on.approximate_event", lambda epsilon, delta: approximate_event(epsilon / 2, delta)
            )
            job = job_of(model, data, option, value)
            try:
                _ = job.own_plan
            except ValueError:
                continue
            assert not covered(job, stated(releases[name])), "the test sees a price that is not the statement's"


@pytest.mark.parametrize("pattern", ["rows.np?", "*.npy", "../selected/rows.npy", "**/*.npy"])
def test_patterns_and_other_spellings_are_seen_through(pattern: str, releases: dict[str, Path]) -> None:
    job = parse_job(["--model=gaussian", "--data=npy", f"--path={releases['selection'] / pattern}", *BUDGET])
    assert covered(job, stated(releases["selection"]))
    assert job.built_on


def test_the_directory_of_the_run_itself_is_no_release(releases: dict[str, Path]) -> None:
    job = parse_job([f"--path={releases['fit'] / 'rows.npy'}", "--data=npy", f"--run_dir={releases['fit']}"])
    assert job.built_on == ()


@pytest.mark.parametrize(
    ("extra", "word"),
    [
        (("--relation=replace_one",), "relation"),
        (("--unit=who",), "unit"),
        (("--unit=who", "--max_contributions=3"), "unit"),
        (("--epsilon=2", "--delta=1e-4"), "epsilon"),
        (("--delta=1e-5",), "delta"),
    ],
)
def test_what_one_statement_cannot_cover_is_refused(extra: tuple[str, ...], word: str, releases: dict[str, Path]) -> None:
    given = {key: f"{key}={value}" for key, _, value in (a.partition("=") for a in (*BUDGET, *extra))}
    job = parse_job(["--model=gaussian", "--data=csv", f"--path={releases['selection'] / 'rows.csv'}", *given.values()])
    (releases["selection"] / "rows.csv").touch()
    with refused(word):
        _ = job.own_plan


@pytest.mark.parametrize(
    ("model", "name"),
    [("gaussian", "selection"), ("marginals", "fit"), ("mwem", "fit"), ("dpgm", "selection"), ("dpgan", "fit")],
)
def test_the_new_statement_holds_both(model: str, name: str, releases: dict[str, Path], tmp_path: Path) -> None:
    earlier, run = stated(releases[name]), tmp_path / "run"
    small = tiny.SMALL[:4] if model in ("dpgm", "dpgan") else ()
    data = ("--data=npy", f"--path={releases[name] / 'rows.npy'}", *QUIET)
    assert main(["train", f"--model={model}", *data, *small, *BUDGET, f"--run_dir={run}"]) == 0
    found = stated(run)
    assert earlier.epsilon < found.epsilon <= 9.0
    assert found.delta == 4e-5
    prices = [m for m in found.mechanisms if m["note"].startswith(NOTE)]
    assert [(m["event"], m["count"]) for m in prices] == [(str(approximate_event(earlier.epsilon, earlier.delta)), 1)]
    assert set(earlier.assumptions) <= set(found.assumptions)
    assert set(earlier.not_covered) <= set(found.not_covered)
    assert main(["verify", str(run)]) == 0


def test_settings_that_a_selection_chose_are_built_on_it(releases: dict[str, Path], tmp_path: Path) -> None:
    place = f"--run_dir={tmp_path / 'run'}"
    chosen, fixed = (parse_job([f"--config={releases[n] / 'config.yaml'}", place, *BUDGET]) for n in ("selection", "fit"))
    assert chosen.built_on
    assert covered(chosen, stated(releases["selection"]))
    assert fixed.built_on == (), "they were there before anything was released"


@pytest.mark.parametrize("data", ["ring", "npy"])
def test_no_release_of_the_same_data_is_public(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "points.npy", np.random.default_rng(0).random((50, 2)))
    file = [f"--path={tmp_path / 'points.npy'}", "--bounds=[[0,1],[0,1]]"] if data == "npy" else []
    first, second = tmp_path / "first", tmp_path / "second"
    given = ["train", f"--data={data}", *file, *QUIET]
    assert main([*given, "--model=bernstein", "--degree=3", f"--run_dir={first}"]) == 0
    given += ["--model=mbde", f"--reference_path={first}", f"--run_dir={second}"]
    for origin, match in (("public", "on the same data"), ("records", "whole data set")):
        assert main([*given, f"--release_origin={origin}"]) == 2
        assert match in capsys.readouterr().err
    assert not second.exists()


class Died(BaseException):
    pass


@pytest.mark.parametrize("model", ["gaussian", "dpgm"])
def test_a_run_that_died_pays_once_and_refuses_another_release(
    model: str, releases: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = tiny.SMALL[:4] if model == "dpgm" else ()
    read, run = shutil.copytree(releases["fit"], tmp_path / "read"), tmp_path / "run"
    arguments = ["train", f"--model={model}", "--data=npy", f"--path={read / 'rows.npy'}", *QUIET, *small, *BUDGET]
    arguments.append(f"--run_dir={run}")

    def die(*_: object) -> None:
        raise Died("before anything was released")

    with monkeypatch.context() as patch:
        patch.setattr(PublicModel, "files", die)
        with pytest.raises(Died, match="released"):
            main(arguments)
    for name in ("model", "privacy.json"):
        shutil.move(read / name, tmp_path / name)
        place = releases["selection"] / name
        (shutil.copytree if place.is_dir() else shutil.copy)(place, read / name)
    if model == "dpgm":  # it has committed at a checkpoint; a closed form begins again, with the release that is there now
        assert main(arguments) == 2
        assert not (run / "model").exists()
    for name in ("model", "privacy.json"):
        place = read / name
        shutil.rmtree(place) if place.is_dir() else place.unlink()
        shutil.move(tmp_path / name, place)
    assert main(arguments) == 0
    with Ledger.open(run / "ledger.jsonl") as ledger:
        assert sum(entry.count for entry in ledger.entries() if entry.note.startswith(NOTE)) == 1
        assert stated(run).epsilon == ledger.epsilon() > stated(read).epsilon


def test_what_a_shared_budget_has_paid_for_is_not_paid_for_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("b", "c"):
        SharedBudget.create(tmp_path / name, Budget(20.0, 1e-3))
    shared = (f"--ledger={tmp_path / 'b'}",)
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    assert main(["train", *records(tmp_path), *shared, "--epsilon=2", f"--run_dir={first}"]) == 0
    np.save(first / "rows.npy", tiny.table())
    read = ["train", "--model=gaussian", "--data=npy", f"--path={first / 'rows.npy'}", *QUIET, *BUDGET]
    assert main([*read, *shared, "--release_origin=public", f"--run_dir={second}"]) == 2
    assert main([*read, *shared, f"--run_dir={second}"]) == 0
    assert stated(second).mechanisms[0]["note"].startswith(NOTE)
    payments = SharedBudget(tmp_path / "b").spending().payments
    assert [any(line.note.startswith(NOTE) for line in payment.plan) for payment in payments] == [False, False]
    assert main([*read, f"--ledger={tmp_path / 'c'}", f"--run_dir={third}"]) == 0
    [payment] = SharedBudget(tmp_path / "c").spending().payments
    assert any(line.note.startswith(NOTE) for line in payment.plan), "which has paid for nothing of the earlier run"
    for directory in (first, second, third):
        assert main(["verify", str(directory), "--allow-others"]) == 0, capsys.readouterr().out
    assert main(["verify", str(first)]) == 1, "rows.npy is no part of it"


FIELDS = [{"name": "ward", "type": "string", "constraints": {"enum": ["a", "b"]}, "dpgen:source": "dp"}]
PRICE = {"epsilon": 0.5, "delta": 1e-6, "relation": "add_remove"}
ROWS = pd.DataFrame({"ward": ["a", "b"] * 50})


def test_bought_domains_are_a_part_of_the_price() -> None:
    release = dpgen.fit(ROWS, "tables", epsilon=1.5, schema={"fields": FIELDS, "dpgen:privacy": PRICE})
    assert release.statement.mechanisms[0]["event"] == str(approximate_event(0.5, 1e-6))
    assert 1.2 < release.epsilon <= 1.5
    told = dpgen.fit(ROWS, "tables", epsilon=1.0, schema={"fields": FIELDS, "dpgen:privacy": PRICE}, release_origin="public")
    assert not any(m["note"].startswith(NOTE) for m in told.statement.mechanisms)
    assert any("declared to be of other people's records" in text for text in told.statement.not_covered)


@pytest.mark.parametrize(
    ("price", "options", "word"),
    [
        (None, {}, "dpgen:privacy"),
        ({"epsilon": 0.5}, {}, "dpgen:privacy"),
        (PRICE | {"relation": "replace_one"}, {}, "relation"),
        (PRICE, {"relation": "replace_one"}, "relation"),
        (PRICE | {"unit": "id", "max_contributions": 2}, {}, "unit"),
        (PRICE | {"epsilon": 1.0}, {}, "epsilon"),
    ],
)
def test_bought_domains_of_another_guarantee_are_refused(price: Any, options: dict[str, str], word: str) -> None:
    schema = {"fields": FIELDS} | ({} if price is None else {"dpgen:privacy": price})
    with refused(word):
        dpgen.fit(ROWS, "tables", epsilon=1.0, schema=schema, **options)


def test_a_shared_budget_pays_for_domains_once(tmp_path: Path) -> None:
    table, schema, budget = (str(tmp_path / name) for name in ("t.parquet", "s.json", "b"))
    pd.DataFrame({"ward": ["a", "b"] * 1000}).to_parquet(table)
    assert main(["budget", budget, "--create", "--epsilon=9", "--delta=1e-3"]) == 0
    assert main(["schema", table, "--epsilon=1", f"--ledger={budget}", f"--out={schema}"]) == 0
    fit = ["train", "--model=tables", f"--path={table}", f"--schema={schema}", f"--ledger={budget}", *QUIET]
    assert main([*fit, "--epsilon=2", f"--run_dir={tmp_path / 'run'}"]) == 0
    assert main(["verify", str(tmp_path / "run")]) == 0
    bought, fitted = SharedBudget(Path(budget)).spending().payments
    assert bought.model == "schema"
    assert not any(line.note.startswith(NOTE) for line in fitted.plan)
    assert stated(tmp_path / "run").mechanisms[0]["note"].startswith(NOTE)


def test_a_system_reads_no_release_that_its_curator_was_not_told_of(releases: dict[str, Path], tmp_path: Path) -> None:
    ring = load_ring(n_points=40, n_test=9)
    system, directory = SYSTEMS["mbde"], tmp_path / "m"
    dpgen.fit(ring, "bernstein", epsilon=1.0, degree=3).save(directory)
    plan, config = system.plan(epsilon=1.0), system.config(reference_path=str(directory), steps=1)
    runtime = Runtime(run_dir=tmp_path, accelerator="cpu", progress_bar=False)
    ledger = plan.open_ledger()
    with refused("reference_path"):
        system.fit(ring, plan=plan, config=config, curator=Curator(ledger), runtime=runtime)
    assert ledger.promised() == []


def test_a_system_without_a_plan_cannot_be_built_on_a_release(
    releases: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def undeclared(data: Any, *, plan: Any, config: Any, curator: Curator, runtime: Runtime) -> Any:
        curator.ledger.charge(gaussian_event(20.0), note="something")
        return tiny.mixture()

    monkeypatch.setattr("dpgen.systems.registry.System.fit", property(lambda self: undeclared))
    data = ("--model=gaussian", "--data=npy", f"--path={releases['fit'] / 'rows.npy'}", *QUIET, *BUDGET)
    assert main(["train", *data, f"--run_dir={tmp_path / 'run'}"]) == 2
    assert "declares no plan" in capsys.readouterr().err
    assert not (tmp_path / "run" / "privacy.json").exists()
