"""Attacks on synthetic rows: they find copies, and nothing where there is nothing to find."""

import json
from collections.abc import Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpgen.cli.main import main
from dpgen.evaluation.attacks import UNFOUND, _area, _Bound, _encoded, attack_scores
from dpgen.evaluation.column import Column
from dpgen.evaluation.compare import compare
from dpgen.evaluation.scores import Score


def rows(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    z, kind = rng.normal(size=n), rng.choice(list("abcdef"), n)
    return pd.DataFrame(
        {
            "x": z.round(3),
            "y": (2 * z + rng.normal(size=n)).round(2),
            "u": rng.random(n).round(4),
            "w": np.where(rng.random(n) < 0.1, np.nan, rng.integers(0, 100, n)),
            "kind": kind,
            "like": np.where(rng.random(n) < 0.8, kind, rng.choice(list("abcdef"), n)),
            "high": z + rng.normal(size=n) > 0,
        }
    )


def columns(own: pd.DataFrame, held: pd.DataFrame, made: pd.DataFrame) -> Mapping[str, Column]:
    return {name: Column.of({"own": own[name], "held": held[name], "made": made[name]}) for name in own}


def found(made: pd.DataFrame, epsilon: float | None = 1.0) -> dict[str, Score]:
    scores = attack_scores(columns(OWN, HELD, made), epsilon=epsilon, delta=1e-5)
    return {
        score.name if "AUC" in score.name else score.name.partition(" of ")[0].partition(" by")[0]: score for score in scores
    }


OWN, HELD = rows(900, 0), rows(600, 1)


def test_a_copy_is_found_by_every_attack_and_above_the_bound() -> None:
    scores = found(OWN)
    assert all(score.value > 0.95 for name, score in scores.items() if "AUC" in name)
    assert next(score.value for name, score in scores.items() if "nearer" in name) > 0.75, "600 of 900 are members"
    for name, least in (("attack: inference", 0.95), ("attack: linkability", 0.8), ("attack: singling out", 0.4)):
        assert scores[name].value > least
        assert scores[name].value > 4 * (scores[name].real or 0.0)
    for score in scores.values():
        assert score.chance is None or score.value > score.chance
        assert score.private


def test_rows_that_are_unlike_are_told_apart() -> None:
    alike, dealt = (
        list(found(made).values())[-1] for made in (rows(900, 2), OWN.apply(lambda column: column.sample(frac=1).to_numpy()))
    )
    assert alike.real is not None
    assert alike.value < 0.05 + alike.real
    far = list(found(rows(900, 2).assign(u=2.0, kind="a")).values())[-1]
    assert far.value > 0.8
    assert dealt.value < 0.1, "a regression sees no dependence"


def test_fresh_rows_give_nothing_away() -> None:
    for name, score in found(rows(900, 2)).items():
        assert score.real is not None
        noise = 6 * (0.25 / 300) ** 0.5  # of a rate of 300 rows, six standard deviations; an AUC has less
        usual = 0.5 if "AUC" in name or "nearer" in name else score.real
        assert abs(score.value - usual) < noise
        assert score.chance is None or score.value < score.chance + noise


def test_without_epsilon_no_bound_stands_beside() -> None:
    assert {score.chance for score in found(OWN, epsilon=None).values()} == {None}


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (1.0, 0.0), (2.5, 0.1), (0.0, 0.3), (40.0, 1e-5)])
def test_the_area_of_the_bound_is_that_of_its_curve(epsilon: float, delta: float) -> None:
    alpha = np.linspace(0.0, 1.0, 200_001)
    odds = np.exp(epsilon)
    curve = np.clip(np.minimum(odds * alpha + delta, 1.0 - (1.0 - delta - alpha) / odds), 0.0, 1.0)
    middle = (curve[1:] + curve[:-1]).mean() / 2
    assert _Bound(epsilon, delta).area == pytest.approx(middle, abs=1e-5)


def test_areas_and_nearest_rows_are_those_of_their_definitions() -> None:
    rng = np.random.default_rng(3)
    one, two = (rng.integers(0, 9, size).astype(np.float32) for size in (40, 60))
    assert _area(one, two) == pytest.approx(np.mean([(x > y) + (x == y) / 2 for x in one for y in two]))
    coded = _encoded(columns(OWN[:30], HELD[:20], OWN[30:90]))
    known = [0, 3, 4]
    far, place = coded["own"].nearest(coded["made"], known)
    for i, row in enumerate(coded["own"].x):
        apart = {c: np.abs(coded["made"].x[:, c] - row[c]) for c in known}
        distance = sum(np.minimum(gap, 1.0) if coded["own"].ranked[c] else gap > 0 for c, gap in apart.items())
        assert far[i] == pytest.approx(distance.min(), abs=1e-6)
        assert distance[place[i]] == pytest.approx(distance.min(), abs=1e-6)


def test_gaps_are_near_gaps_and_far_from_values() -> None:
    x = pd.DataFrame({"x": [0.0, np.nan, 5.0]})
    coded = _encoded(columns(x, x, x))["own"]
    far, _ = coded.nearest(coded.some(np.array([0, 2])), [0])
    assert far.tolist() == [0.0, 1.0, 0.0]


def test_compare_has_attacks_beside_its_scores(tmp_path: Path) -> None:
    result = compare(OWN, OWN, holdout=HELD, attacks=True, epsilon=1.0)
    assert [score.value for score in result.scores if "AUC" in score.name and "attack" in score.name] == pytest.approx(
        [1.0, 1.0]
    )
    assert "attack: membership" in str(result)
    assert UNFOUND in result.notes
    files = [tmp_path / f"{name}.csv" for name in ("own", "made", "held")]
    for table, path in zip((OWN, rows(900, 2), HELD), files):
        table.to_csv(path, index=False)
    first, second, third = map(str, files)
    with redirect_stdout(StringIO()) as out:
        assert main(["compare", first, second, "--holdout", third, "--attacks", "--epsilon", "1", "--json"]) == 0
    names = [score["name"] for score in json.loads(out.getvalue())["scores"]]
    assert len([name for name in names if name.startswith("attack")]) == 6
    assert "pMSE" in names[-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attacks": True}, "attacks needs holdout"),
        ({"epsilon": 1.0}, "must be left out without attacks"),
        ({"holdout": HELD[:19], "attacks": True}, "holdout has 19 rows; attacks need at least 20"),
        ({"holdout": HELD[["x"]]}, "holdout lacks the column 'y'"),
        ({"holdout": HELD, "attacks": True, "epsilon": -1.0}, "epsilon must be at least 0"),
        ({"holdout": HELD, "attacks": True, "epsilon": float("nan")}, "epsilon must be at least 0"),
        ({"holdout": HELD, "attacks": True, "epsilon": 1.0, "delta": 1.0}, r"delta in \[0, 1\)"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare(OWN, OWN, **options)
