"""The end of a run."""

from pathlib import Path

import pytest

from dpgen.evaluation.scores import Score
from dpgen.run import summary
from dpgen.statement import UNPROTECTED

PRIVACY = {"epsilon": 2.99961, "delta": 1e-5, "relation": "add_remove", "unit": "one record"}
SCORES = [Score("train on synthetic", 0.71, 0.944, 0.142), Score("pairs", 0.25, 0.18, 0.43, "lower", "independent")]


def test_summary_says_what_a_reader_needs() -> None:
    privacy = {**PRIVACY, "epsilon_replace_one": 5.8301, "accountant": "PLD"}
    text = summary(
        "DPGM on digits",
        privacy=privacy,
        released=["model", "synthetic.npz"],
        directory="runs/7",
        scores=SCORES,
        notes=["test records are not protected", "public records are not protected"],
    )
    assert text.splitlines() == [
        "DPGM on digits",
        "privacy    epsilon 3 at delta 1e-05 (add or remove one record)",
        "           epsilon replace one: 5.831",
        "           accountant: PLD",
        "released   model, synthetic.npz",
        "where      runs/7",
        "how good   train on synthetic  0.71    (real data 0.944; chance 0.142; higher is better)",
        "           pairs               0.25    (real data 0.18; independent 0.43; lower is better)",
        f"           {UNPROTECTED}",
        "note       test records are not protected",
        "           public records are not protected",
    ]


@pytest.mark.parametrize(
    ("epsilon", "shown"),
    [(1.0, "1"), (1.00001, "1.001"), (0.9999, "0.9999"), (12345.6, "12350"), (float("inf"), "inf")],
)
def test_summary_never_rounds_epsilon_down(epsilon: float, shown: str) -> None:
    text = summary("run", privacy={**PRIVACY, "epsilon": epsilon}, released=[], directory=".")
    assert f"epsilon {shown} at" in text
    assert "released   nothing" in text
    assert float(shown) >= epsilon


def test_summary_needs_the_whole_statement() -> None:
    with pytest.raises(ValueError, match="privacy has no delta, unit: "):
        summary("run", privacy={"epsilon": 1.0, "relation": "add_remove"}, released=[], directory=".")


def test_summary_names_the_file_of_settings_that_the_run_started_from() -> None:
    text = summary("DPGM", privacy=PRIVACY, released=["model"], directory="runs/7", settings=Path("configs/a.yaml"))
    assert text.splitlines()[1] == "settings   configs/a.yaml"
