"""The front door: what people type first in Python works, gives back what came in, and refuses in one line."""

import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator
from torch.utils.data import TensorDataset

import dpgen
from dpgen.api import job_of
from dpgen.facts import Fact
from dpgen.privacy.ledger import Budget, BudgetExceeded, Ledger
from dpgen.privacy.shared_budget import SharedBudget
from dpgen.release import PublicModel
from dpgen.systems.registry import SYSTEMS

RNG = np.random.default_rng(0)
N = 300


def bits() -> pd.DataFrame:
    """0/1 columns of many types, every name of which needs care."""
    x = RNG.integers(0, 2, (N, 6))
    columns = ["tea", 7, "x", "c", "b", "o"]
    frame = pd.DataFrame(x, columns=pd.Index(columns, dtype=object))
    types: dict[Any, Any] = {7: "bool", "x": "float64", "c": "category", "b": "uint8", "o": "Int64"}
    return frame.astype(types)


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return bits()


def test_the_first_five_lines(frame: pd.DataFrame, tmp_path: Path) -> None:
    release = dpgen.fit(frame, "gaussian", epsilon=1.0, dtypes="public")
    rows = release.sample(500)
    assert rows.columns.tolist() == frame.columns.tolist()
    assert rows.dtypes.tolist() == frame.dtypes.tolist()
    assert len(rows) == 500
    assert 0 < release.epsilon <= 1.0
    assert (release.delta, release.statement.delta) == (1e-5, 1e-5)
    assert release.statement.says(Fact.PUBLIC_CONTAINER)
    release.save(tmp_path / "model")
    loaded = dpgen.load(tmp_path / "model")
    assert loaded.sample(10, random_state=3).equals(release.sample(10, random_state=3))
    assert repr(release).startswith("GaussianMixtureModel(6 columns, epsilon 1 at delta 1e-05")


def test_the_estimator_of_scikit_learn(frame: pd.DataFrame) -> None:
    made = clone(dpgen.Synthesizer(model="gaussian", epsilon=2.0)).fit(frame)
    with pytest.raises(AttributeError, match=r"dpgen\.Synthesizer"):
        _ = dpgen.GaussianSynthesizer
    assert made.sample(7).columns.tolist() == frame.columns.tolist()
    assert 1.0 < made.release_.epsilon <= 2.0
    assert made.n_features_in_ == 6
    assert np.isfinite(made.score(frame))
    assert pickle.loads(pickle.dumps(made)).get_params() == {"model": "gaussian", "epsilon": 2.0}


def test_random_states_are_those_of_scikit_learn(frame: pd.DataFrame) -> None:
    release = dpgen.fit(frame, "gaussian", epsilon=1.0)
    for make in (lambda: 5, lambda: np.random.default_rng(5), lambda: np.random.RandomState(5)):
        assert release.sample(9, make()).equals(release.sample(9, make()))
    generator = np.random.default_rng(5)
    assert not release.sample(50, generator).equals(release.sample(50, generator)), "it moves on"
    assert not release.sample(50).equals(release.sample(50))
    with refused("random_state is 'x'"):
        release.sample(3, "x")  # type: ignore[arg-type]


TABLE = pd.DataFrame(RNG.integers(0, 2, (60, 3)), columns=list("abc"))

REFUSED: list[tuple[str, Any, dict[str, Any], str]] = [
    ("gausian", TABLE, {}, "'gaussian'"),
    ("gaussian", TABLE, {"epsiln": 1}, "'epsilon'"),
    *(("gaussian", TABLE, {name: value}, name) for name, value in (("axes", "many"), ("axes", 0), ("epsilon", None))),
    *(("gaussian", TABLE, {name: value}, name) for name, value in (("epsilon", -1.0), ("seed", object()), ("path", "x"))),
    ("gaussian", TABLE, {"missing": "ignore"}, "missing"),
    ("gaussian", TABLE * 3, {}, "column 'a' has another value in row"),
    ("gaussian", np.eye(4, dtype="uint8").reshape(4, 2, 2), {}, "grey"),
    ("gaussian", np.full((4, 2, 2), 1.5), {}, "in row 1"),
    ("gaussian", np.ones((4, 3, 2, 2)), {}, "shape (3, 2, 2)"),
    ("gaussian", TensorDataset(torch.ones(3, 2), torch.tensor([0.0, 1.5, 1.0])), {}, "whole labels"),
    ("gaussian", np.ma.array(np.eye(4), mask=np.eye(4)), {}, "masked"),
    ("gaussian", TABLE[:0], {}, "empty"),
    ("gaussian", TABLE[[]], {}, "columns"),
    ("gaussian", TABLE.assign(d="x"), {"label_column": "e"}, "'e'"),
    ("gaussian", dpgen.data.load_digits(), {"path": "x"}, "path"),
    ("merr", dpgen.data.load_digits(), {}, "'merr' works on columns"),
    ("merr", [{"a"}], {}, "'merr' works on columns"),
    ("merr", TABLE, {}, "low and high"),
    ("merr", TABLE == 1, {"low": 0, "high": 1}, "True"),
    ("merr", pd.DataFrame({"x": ["1_0", "2"]}), {"low": 0, "high": 9}, "value in row 1"),
    ("bernstein", TABLE, {}, "bounds"),
    ("minimax", TABLE, {"user": "a"}, "'category'"),
    ("minimax", TABLE.to_numpy(), {}, "'minimax' works on users"),
    ("mbde", "absent.csv", {"bounds": "0,1"}, "path"),
]


@pytest.mark.parametrize(("model", "data", "options", "word"), REFUSED)
def test_what_is_wrong_is_said_in_one_line(model: str, data: Any, options: dict[str, Any], word: str) -> None:
    with refused(word):
        dpgen.fit(data, model, **({"epsilon": 1.0} | options))


VALUES = st.one_of(
    st.sampled_from([0, 1]), st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.binary(max_size=2),
    st.dates(), st.datetimes(), st.decimals(), st.timedeltas(), st.lists(st.integers(), max_size=2), st.just(10**30),
    st.just(pd.NA),
)  # fmt: skip
PLAIN = st.sampled_from([0, 1])
NAMES = st.one_of(st.text(max_size=2), st.integers(-2, 2), st.none(), st.booleans(), st.tuples(st.integers(0, 1)))
TYPES = st.sampled_from(["object", "category", "Int64", "boolean", "string", "float32", "uint8", "bool", "Sparse[int]"])
FUZZED: dict[str, dict[str, Any]] = {
    "gaussian": {},
    "marginals": {},
    "merr": {"low": 0, "high": 10},
    "bernstein": {"bounds": [[-10, 10]], "degree": 4},
    "grid_response": {"bounds": "0,1"},
    "minimax": {"user": "c0", "category": "c1"},
}


@st.composite
def frames(draw: st.DrawFn) -> pd.DataFrame:
    """Empty, one row, all missing, mixed types, equal names, huge numbers, dates, bytes."""
    n, d = draw(st.integers(0, 6)), draw(st.integers(0, 3))
    columns = []
    for _ in range(d):
        values = pd.Series(draw(st.lists(draw(st.sampled_from([PLAIN, PLAIN, VALUES])), min_size=n, max_size=n)), dtype=object)
        with suppress(ValueError, TypeError, ArithmeticError):
            values = values.astype(draw(TYPES))
        columns.append(values)
    frame = pd.concat(columns, axis=1) if columns else pd.DataFrame(index=range(n))
    odd = draw(st.integers(0, 3)) == 0
    frame.columns = pd.Index([draw(NAMES) for _ in range(d)] if odd else [f"c{i}" for i in range(d)], dtype=object)
    return frame


@pytest.mark.filterwarnings("ignore:delta is")
@given(frames(), st.sampled_from(list(FUZZED)), st.sampled_from(["error", "drop", "category"]))
def test_any_table_is_released_or_refused_in_one_line(frame: pd.DataFrame, model: str, missing: str) -> None:
    ledger = SYSTEMS[model].plan(epsilon=1.0).open_ledger()
    refused = ""
    try:
        release = dpgen.fit(frame, model, epsilon=1.0, missing=missing, ledger=ledger, **FUZZED[model])
    except (ValueError, TypeError) as error:
        refused = str(error)
    assert bool(ledger.entries()) != bool(refused), "nothing is spent where the data are refused"
    if refused:
        assert "\n" not in refused
        return
    back = release.sample(2) if isinstance(release, PublicModel) else release.sample()
    assert set(back.columns) <= set(frame.columns)
    assert isinstance(back, pd.DataFrame)


def test_dropping_incomplete_rows_is_part_of_the_statement() -> None:
    holes = TABLE.astype(float)
    holes.iloc[3, 1] = np.nan
    for missing in ("error", "category"):
        with refused("column 'b' has no value in row 4", "missing=drop"):
            dpgen.fit(holes, "marginals", epsilon=1.0, missing=missing)
    for relation in ("add_remove", "replace_one"):
        dropping = dpgen.fit(holes, "marginals", epsilon=1.0, missing="drop", relation=relation)
        assert dropping.statement.says(Fact.MISSING_DROPPED)
    assert not dpgen.fit(TABLE, "marginals", epsilon=1.0).statement.says(Fact.MISSING_DROPPED)


@pytest.mark.parametrize("model", ["marginals", "merr"])
def test_dropping_gives_what_the_complete_rows_give(model: str) -> None:
    """Were a row dropped in the light of others, a neighbour would change more than its own row."""
    options: dict[str, Any] = {"low": 0, "high": 1} if model == "merr" else {}
    holes = TABLE.astype(float)
    holes.iloc[::7, 1] = np.nan
    jobs = [job_of(model, holes, {"epsilon": 1.0, "missing": "drop"} | options)]
    jobs += [job_of(model, holes.dropna(), {"epsilon": 1.0} | options)]
    one, other = (job.load(Path()) for job in jobs)
    if model == "merr":
        assert all(values.tolist() == other.values[name].tolist() for name, values in one.values.items())
    else:
        assert one.x.tolist() == other.x.tolist()


def test_missing_values_may_be_a_category() -> None:
    answers = pd.DataFrame({"a": ["yes", None, "no", "yes"] * 20})
    drawn = dpgen.fit(answers, "merr", epsilon=5.0, categories=["yes", "no"], missing="category").sample(200, 0)
    assert set(drawn["a"]) == {"yes", "no", "missing"}
    labelled = TABLE.assign(y=pd.Series([1, None] * 30, dtype="Int64"))
    records = job_of("marginals", labelled, {"epsilon": 1.0, "label_column": "y", "missing": "category"}).load(Path())
    assert records.class_names == ("1", "missing")
    clicks = pd.DataFrame({"user": ["u", "u", "v"], "category": ["x", None, "y"]})
    users = job_of("minimax", clicks, {"epsilon": 1.0, "missing": "category"}).load(Path())
    assert users.categories == ("missing", "x", "y")
    assert job_of("minimax", clicks, {"epsilon": 1.0, "missing": "drop"}).load(Path()).counts.sum() == 2


def test_all_rows_are_private_unless_a_part_is_asked_for(tmp_path: Path) -> None:
    assert job_of("gaussian", TABLE, {"epsilon": 1.0}).load(tmp_path).n == len(TABLE)
    half = job_of("gaussian", TABLE, {"epsilon": 1.0, "test_fraction": 0.5}).load(tmp_path)
    assert half.n + len(half.test_x) == len(TABLE)
    assert 0 < half.n < len(TABLE)


def test_a_ledger_is_charged_and_has_to_fit() -> None:
    plan = SYSTEMS["marginals"].plan(epsilon=1.0)
    ledger = plan.open_ledger()
    release = dpgen.fit(TABLE, "marginals", epsilon=1.0, ledger=ledger)
    assert release.epsilon == ledger.epsilon()
    with pytest.raises(BudgetExceeded, match="budget epsilon 1"):
        dpgen.fit(TABLE, "marginals", epsilon=1.0, ledger=ledger)
    other: tuple[tuple[str, dict[str, Any]], ...] = (
        ("relation", {"relation": "replace_one"}),
        ("delta", {"delta": 1e-6}),
        ("run_dir", {"run_dir": "here"}),
    )
    for name, options in other:
        with refused(name):
            dpgen.fit(TABLE, "marginals", epsilon=1.0, ledger=plan.open_ledger(), **options)
    with refused("ledger has unit"):
        dpgen.fit(TABLE, "grid_response", epsilon=1.0, bounds="0,1", ledger=Ledger(Budget(1.0, 0.0), relation="replace_one"))
    replacing = SYSTEMS["marginals"].plan(epsilon=1.0, relation="replace_one")
    dropping: dict[str, Any] = {"epsilon": 1.0, "relation": "replace_one", "missing": "drop"}
    with refused("always_used"):
        dpgen.fit(TABLE, "marginals", **dropping, ledger=replacing.open_ledger())
    assert dpgen.fit(TABLE, "marginals", **dropping, ledger=replacing.open_ledger(gaps=True)).epsilon <= 1.0
    assert dpgen.fit(TABLE, "marginals", epsilon=1.0, missing="drop", ledger=plan.open_ledger()).epsilon <= 1.0


def test_refused_data_pay_nothing(tmp_path: Path) -> None:
    with refused("0 and 1"):
        dpgen.fit(TABLE * 3, "marginals", epsilon=1.0, ledger=SharedBudget.create(tmp_path / "b", dpgen.Budget(2.0, 1e-5)).path)
    assert SharedBudget(tmp_path / "b").spending().payments == ()


def test_draws_are_never_charged_silently() -> None:
    points = pd.DataFrame({"x": [1, 2, 3], "y": [0.5, 0.25, 0.125]})
    ledger = SYSTEMS["grid_response"].plan(epsilon=1.0, draws=3).open_ledger()
    release = dpgen.fit(points, "grid_response", epsilon=1.0, bounds="0,4", draws=3, ledger=ledger, dtypes="public")
    before = ledger.position()
    assert release.sample().dtypes.tolist() == points.dtypes.tolist()
    assert [len(release.sample(n)) for n in (0, 2, 3)] == [0, 2, 3]
    with refused("n is 4", "[0, 3]"):
        release.sample(4)
    assert ledger.position() == before


def test_draws_of_users_come_back_under_the_names_of_the_table() -> None:
    clicks = pd.DataFrame({"site": list("xyzx"), "uid": [3, 3, 9, 11], "w": 1.0})
    drawn = dpgen.fit(clicks, "minimax", epsilon=1.0, user="uid", category="site", weight="w", draws=2).sample(6)
    assert drawn.columns.tolist() == ["site", "uid"]
    assert drawn["uid"].tolist() == [3, 3, 9, 9, 11, 11]
    assert drawn.dtypes.tolist() == clicks.dtypes.tolist()[:2]


@pytest.mark.parametrize(
    ("model", "options"),
    [("marginals", {}), ("merr", {"low": 0, "high": 1, "resolution": 0.01}), ("dpgan", {"bounds": "0,1", "steps": 1})],
)
def test_a_delta_that_allows_one_record_to_be_published_is_warned_of(model: str, options: dict[str, Any]) -> None:
    table = TABLE if model == "marginals" else pd.DataFrame({"x": RNG.random(N)})
    with pytest.warns(UserWarning, match=r"Delta is 0.05, and there are about \d+ records"):
        dpgen.fit(table, model, epsilon=8.0, delta=0.05, **options)


def test_files_and_names_are_data_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    TABLE.to_csv("t.csv", index=False)
    TABLE.to_parquet("t.parquet")
    for path in (Path("t.csv"), "t.parquet"):
        assert dpgen.fit(path, "marginals", epsilon=1.0).sample(3).dtypes.tolist() == TABLE.dtypes.tolist()
    for names in (("no", "yes"), ("3", "5")):
        TABLE.assign(y=[names[i] for i in TABLE["a"]]).to_csv("y.csv", index=False)
        labelled = dpgen.fit("y.csv", "marginals", epsilon=1.0, label_column="y").sample(30)
        assert set(labelled["y"].astype(str)) <= set(names)
        assert (labelled["y"].dtype == "int64") == (names == ("3", "5"))
    drawn = dpgen.fit("digits", "marginals", epsilon=1.0).sample(4)
    assert (drawn.x.shape, drawn.labels.shape) == ((4, 64), (4,))
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [], "nothing is left behind"


def test_a_run_directory_holds_what_the_command_leaves(tmp_path: Path) -> None:
    release = dpgen.fit(TABLE, "marginals", epsilon=1.0, run_dir=tmp_path / "run")
    assert {"model", "privacy.json", "ledger.jsonl", "config.yaml"} <= {path.name for path in (tmp_path / "run").iterdir()}
    assert dpgen.load(tmp_path / "run").sample(5, 1).equals(release.sample(5, 1))


GREY = RNG.integers(0, 256, (60, 6, 4), dtype=np.uint8)


@pytest.mark.parametrize("kind", ["uint8", "float32"])
@pytest.mark.parametrize("model", ["gaussian", "marginals"])
def test_grey_images_come_back_as_they_came(kind: str, model: str, tmp_path: Path) -> None:
    white = 255 if kind == "uint8" else 1
    release = dpgen.fit(GREY if white == 255 else (GREY / 255).astype(kind), model, epsilon=5.0)
    assert isinstance(release, PublicModel)
    release.save(tmp_path / "model")
    images = dpgen.load(tmp_path / "model").sample(50, random_state=0)
    assert (images.shape, images.dtype, images.max() <= white) == ((50, 6, 4), np.dtype(kind), True)
    assert np.array_equal(images, release.sample(50, random_state=0))
    levels = set(np.unique(images).tolist())
    assert len(levels) > 20 if model == "gaussian" else levels == {0, white}, "systems that model bits draw black and white"


def test_a_dataset_of_grey_images_with_labels_is_read_as_such() -> None:
    pixels, labels = torch.from_numpy(GREY)[:, None] / 255, torch.arange(60) % 2 + 300
    images, classes = dpgen.fit(TensorDataset(pixels, labels), "gaussian", epsilon=5.0).sample(40, random_state=0).tensors
    assert (images.shape, images.dtype, classes.dtype) == ((40, 1, 6, 4), torch.float32, torch.int64)
    assert set(classes.tolist()) == {300, 301}
    assert len(images.unique()) > 20


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_fit_returns_or_raises_is_committed(fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the reservation of a release that somebody holds could be given back."""

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    if fails:
        monkeypatch.setattr("dpgen.statement.PrivacyStatement.extended", fail)
    shared = SharedBudget.create(tmp_path / "b", dpgen.Budget(2.0, 1e-5))
    with suppress(ZeroDivisionError):
        dpgen.fit(
            np.random.default_rng(0).integers(0, 2, (50, 3)), "marginals", epsilon=1.0, delta=1e-6, ledger=shared.path
        )  # fmt: skip
    (payment,) = shared.spending().payments
    with refused("committed"):
        shared.give_back(payment.run)


BITS = pd.DataFrame(np.random.default_rng(0).integers(0, 2, (80, 4)), columns=list("abcd"))

MESSAGES = "the error is ours: it names column, row and value"
CONTAINERS = "an error of type: such arrays are no numbers"
DOES_NOT_APPLY = {
    "check_complex_data": CONTAINERS,
    "check_dtype_object": CONTAINERS,
    "check_estimators_empty_data_messages": MESSAGES,
    "check_estimators_nan_inf": MESSAGES,
    "check_fit2d_1sample": MESSAGES,
}
NOT_BITS = "feeds real numbers, and the data of this system are 0 and 1"
FED_NUMBERS = (
    "check_fit_score_takes_y", "check_estimators_overwrite_params", "check_dont_overwrite_parameters",
    "check_estimators_fit_returns_self", "check_readonly_memmap_input", "check_n_features_in_after_fitting",
    "check_positive_only_tag_during_fit", "check_estimators_dtypes", "check_pipeline_consistency", "check_estimators_pickle",
    "check_f_contiguous_array_estimator", "check_methods_sample_order_invariance", "check_methods_subset_invariance",
    "check_fit2d_1feature", "check_dict_unchanged", "check_fit_idempotent", "check_fit_check_is_fitted", "check_n_features_in",
    "check_fit2d_predict1d", "check_estimator_sparse_tag",
)  # fmt: skip
EXPECTED: list[tuple[Any, dict[str, str]]] = [
    (
        dpgen.Synthesizer("bernstein", bounds="-1000,1000", out_of_range="clamp", degree=3),
        DOES_NOT_APPLY | {"check_fit1d": "numbers (n,) are one column"},
    ),
    (dpgen.Synthesizer(), DOES_NOT_APPLY | dict.fromkeys(FED_NUMBERS, NOT_BITS)),
]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize(("made", "expected"), EXPECTED, ids=["bernstein", "gaussian"])
def test_the_checks_of_scikit_learn(made: Any, expected: dict[str, str]) -> None:
    results = check_estimator(made, on_fail=None, on_skip=None)
    failed = {result["check_name"] for result in results if result["status"] == "failed"}
    known = {result["check_name"] for result in results}  # of this version
    assert failed == set(expected) & known, "neither more nor fewer"
    assert sum(result["status"] == "passed" for result in results) >= 12


def test_parameters_reach_the_fit_which_refuses_wrong_ones() -> None:
    made = dpgen.Synthesizer("marginals", epsilon=1.0, delta=1e-6).set_params(relation="replace_one").fit(BITS)
    assert (made.release_.delta, made.release_.statement.relation) == (1e-6, "replace_one")
    for wrong, nearest in (({"relatoin": "add_remove"}, "'relation'"), ({"model": "gausian"}, "'gaussian'")):
        with refused(nearest):
            clone(made).set_params(**wrong).fit(BITS)


def test_draws_and_scores() -> None:
    points = pd.DataFrame({"x": np.linspace(0, 1, 50)})
    drawing = dpgen.Synthesizer("grid_response", bounds="0,1", draws=3).fit(points)
    assert len(drawing.sample(2)) == 2
    with refused("Draws"):
        drawing.score(points)
    density = dpgen.Synthesizer("bernstein", bounds="0,1", degree=4).fit(points)
    assert abs(density.score(points)) < 1.0, "about uniform"
    with refused("2 features"):
        density.score(points.assign(y=0.5))
