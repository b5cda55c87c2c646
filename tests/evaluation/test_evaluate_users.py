"""The report on users' draws."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from dpgen.config import parse_job
from dpgen.data.users import Users, load_synthetic_users
from dpgen.evaluation import users as module
from dpgen.evaluation.users import evaluate, rivals
from dpgen.facts import Fact
from dpgen.privacy.curator import Curator
from dpgen.release import Draws
from dpgen.run import run
from dpgen.runtime import Runtime
from dpgen.systems.local.fit import SAMPLERS, fit
from dpgen.systems.local.model import MinimaxSampler
from dpgen.systems.local.plan import LocalConfig, LocalPlan

USERS = load_synthetic_users(n_categories=12, n_users=21)


def fitted(tmp_path: Path, users: Users = USERS, name: str = "minimax", **plan: Any) -> Draws:
    spend = LocalPlan(**({"epsilon": 2.0} | plan))
    with spend.open_ledger() as ledger:
        return fit(
            name, users, plan=spend, config=LocalConfig(), curator=Curator(ledger), runtime=Runtime(run_dir=str(tmp_path))
        )


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Draws:
    return fitted(tmp_path_factory.mktemp("run"))


def test_distances_agree_with_a_plain_loop(release: Draws) -> None:
    evaluation = evaluate(release, USERS, seed=0)
    kernel = MinimaxSampler(2.0, USERS.prior).kernel()  # type: ignore[arg-type]
    expected = [sum(abs(float(a) - float(b)) for a, b in zip(p, p @ kernel)) / 2 for p in USERS.distributions]
    scores = {score.name: score for score in evaluation.scores}
    assert scores["TV(P, Q) mean"].value == pytest.approx(sum(expected) / len(expected), rel=1e-12)
    assert scores["TV(P, Q) median"].value == pytest.approx(sorted(expected)[10], rel=1e-12)
    assert scores["TV(P, Q) worst user"].value == pytest.approx(max(expected), rel=1e-12)
    alone = [0.5 * float((p - USERS.prior).abs().sum()) for p in USERS.distributions]
    assert scores["TV(P, Q) mean"].chance == pytest.approx(sum(alone) / len(alone), rel=1e-12)


def test_in_pieces_is_the_same(release: Draws, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = evaluate(release, USERS, seed=0).scores
    monkeypatch.setattr(module, "MOST_CELLS", 30)
    assert [s.value for s in evaluate(release, USERS, seed=0).scores] == pytest.approx([s.value for s in whole])


def test_every_other_sampler_stands_beside_it(release: Draws) -> None:
    found = rivals(release.origin)
    assert next(iter(found)) == "minimax"
    assert found["minimax"] is release.origin
    assert set(found) == set(SAMPLERS)
    assert {sampler.epsilon for sampler in found.values()} == {2.0}


def test_the_files(release: Draws, tmp_path: Path) -> None:
    evaluation = evaluate(release, USERS, seed=0)
    assert evaluation.released == {}, "all of it looks at private distributions"
    evaluation.write(tmp_path)
    table = pd.read_csv(tmp_path / "samplers.csv")
    assert (table["worst"] <= table["worst_possible"] + 1e-12).all()
    assert (table["mean"] <= table["worst"]).all()
    assert table.set_index("sampler").loc["minimax", "mean"] == pytest.approx(evaluation.scores[0].value)
    assert (tmp_path / "samplers.png").read_bytes()[:4] == b"\x89PNG"


def test_all_draws_together_are_scored(tmp_path: Path) -> None:
    counts = torch.tensor([[1.0, 0.0]], dtype=torch.float64).repeat(400, 1)
    users = Users("tiny", counts, tuple(str(i) for i in range(400)), ("a", "b"))
    score = evaluate(fitted(tmp_path, users, epsilon=20.0), users, seed=0).scores[-1]
    assert score.name.startswith("TV of all draws together")
    assert (score.value, score.real, score.chance) == (0.0, 0.0, 0.5), "eps 20 tells the truth but for 1e-9"
    noisy = evaluate(fitted(tmp_path, users, epsilon=0.01), users, seed=0).scores[-1]
    assert 0.3 < noisy.value < 0.7


def test_releases_that_do_not_fit_are_refused(release: Draws) -> None:
    other = load_synthetic_users(n_categories=5)
    with pytest.raises(ValueError, match="categories"):
        evaluate(release, other, seed=0)
    with pytest.raises(ValueError, match="origin"):
        evaluate(Draws(release.to_pandas(), statement=release.statement), USERS, seed=0)


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    rows = [f"{i % 30},{'abc'[i // 7 % 3]},{i % 30 // 10},{i % 4}" for i in range(200)]
    (tmp_path / "clicks.csv").write_text("\n".join(["user_id,site,age,n", *rows, "99,a,1,0"]))
    command = (
        f"--model=minimax --data=events --path={tmp_path}/clicks.csv --user=user_id --category=site --group=age --weight=n"
    )
    return [*command.split(), f"--run_dir={tmp_path}/run"]


def test_one_draw_of_every_user_from_the_command_line(arguments: list[str], tmp_path: Path) -> None:
    outcome = run(parse_job([*arguments, "--epsilon=1.5"]))
    table = pd.read_csv(tmp_path / "run" / "draws.csv", dtype=str)
    assert table["user"].tolist() == [str(i) for i in range(30)]
    assert set(table["category"]) <= set("abc")
    assert outcome.release.statement.epsilon == pytest.approx(1.5)
    text = (tmp_path / "run" / "PRIVACY.md").read_text()
    assert Fact.ABSENT_USERS.sentence in text
    assert Fact.READ_CATEGORIES.sentence in text
    assert Fact.EVALUATED.sentence in text
    names = {path.name for path in outcome.directory.iterdir()}
    assert {"samplers.csv", "samplers.png", "privacy.json"} <= names


def test_the_table_of_the_private_users_is_no_prior(arguments: list[str], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not public"):
        run(parse_job([*arguments, f"--public_path={tmp_path}/clicks.csv"]))
    assert not list(tmp_path.rglob("draws.csv"))
