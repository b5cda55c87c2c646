"""`dpgen budget`: epsilon from noise and back, the plan that training would use, pictures, one-line errors."""

import re
from pathlib import Path

import pytest

from dpgen import DPGM, DPGMConfig, DPGMPlan
from dpgen.cli.budget import parser, planned
from dpgen.cli.main import main

COMMON = ["--sampling_rate", "0.01", "--delta", "1e-5"]


def budget(arguments: list[str]) -> int:
    return main(["budget", *arguments])


def stated(text: str, name: str) -> float:
    found = re.search(rf"\b{name} ([\d.]+)", text)
    assert found is not None, text
    return float(found[1])


def test_epsilon_from_noise_and_back(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--sigma_count", "30", "--sigma_means", "20"]
    assert budget([*COMMON, *sizes, "--epochs", "3", "--sigma_sgd", "1.5"]) == 0
    forward = capsys.readouterr().out
    assert "300 steps" in forward
    assert len(re.findall(r"^ +[\d.]+ +\d+ ", forward, re.M)) == 3
    assert "as published by Acs et al. 2017, not a guarantee" in forward
    assert budget([*COMMON, *sizes, "--steps", "300", "--epsilon", str(stated(forward, "epsilon"))]) == 0
    assert stated(capsys.readouterr().out, "sigma_sgd") == pytest.approx(1.5, rel=2e-3)


WAYS = [
    ([], {"clusters": "labels"}),
    (
        ["--clusters", "kmeans", "--adaptive", "--n_features", "8"],
        {"clusters": "kmeans", "clipping": "dpnorm", "n_features": 8},
    ),
    (["--k", "4"], {"clusters": "labels", "k": 4}),
    (["--clusters", "none", "--relation", "replace_one"], {"clusters": "none"}),
]


@pytest.mark.parametrize(("arguments", "options"), WAYS, ids=["labels", "kmeans", "four", "one model"])
def test_the_noise_is_what_training_gets(arguments: list[str], options: dict) -> None:
    """The same options, once through the script and once through the model."""
    common = ["--sampling_rate", "0.2", "--epsilon", "2", "--steps", "20", *arguments]
    plan, _ = planned(vars(parser().parse_args(common)))
    relation = "replace_one" if "replace_one" in arguments else "add_remove"
    n_classes = options.get("k", 10) if options["clusters"] == "labels" else 0
    wanted = DPGMPlan(sampling_rate=0.2, epsilon=2.0, steps=20, relation=relation)
    assert plan == DPGM(d=6, plan=wanted, config=DPGMConfig(**options, hidden=3), n_classes=n_classes).plan
    assert plan.sigma_sgd is not None


def test_defaults_are_those_of_training() -> None:
    plan, config = planned(vars(parser().parse_args(["--sigma_sgd", "1", "--sigma_count", "9", "--sigma_means", "8"])))
    assert plan == DPGMPlan(sigma_sgd=1.0, sigma_count=9.0, sigma_means=8.0)
    assert config == DPGMConfig(clusters="labels", k=10)


def test_given_noise_beyond_the_budget_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    noise = ["--epsilon", "1", "--sigma_sgd", "1", "--sigma_count", "30", "--epochs", "5", "--rows", "1"]
    assert budget([*COMMON, *noise]) == 0
    assert "training would end early, before epsilon 1 is exceeded" in capsys.readouterr().out


def test_kmeans_and_a_picture(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "epsilon.png"
    sigmas = ["--sigma_count", "200", "--sigma_sum", "40", "--sigma_norm", "10", "--sigma_sgd", "1"]
    options = ["--clusters", "kmeans", "--kmeans_rounds", "5", "--adaptive", "--k", "3"]
    assert budget([*COMMON, *sigmas, *options, "--epochs", "4", "--rows", "2", "--out", str(picture)]) == 0
    out = capsys.readouterr().out
    assert "sigma_norm 10, sigma_count 200, sigma_sum 40" in out
    assert f"picture in {picture}" in out
    assert picture.read_bytes().startswith(b"\x89PNG")


SHORT = ["--steps", "10", "--sigma_sgd", "1"]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["--steps", "10", "--sigma_sgd", "0"], "sigma_sgd"),
        (["--sampling_rate", "2", "--epochs", "1"], "sampling_rate"),
        *((["--epochs", value, "--sigma_sgd", "1"], "epochs") for value in ("nan", "1e30", "1e308")),
        (["--steps", "1" + "0" * 400, "--sigma_sgd", "1"], "1,000,000,000"),
        (["--sampling_rate", "1e-320", "--sigma_sgd", "1"], "sampling_rate"),
        (["--epsilon", "-1"], "epsilon"),
        (["--epsilon", "1", "--adaptive", "--sigma_norm", "0.1"], "reaches no less than"),
        (["--relation", "both"], "relation"),
        (["--k", "3", "--clusters", "none"], "k must"),
        (["--k", "0"], "k must"),
        (["--clusters", "kmeans", "--n_features", "0"], "n_features"),
        ([*SHORT, "--rows", "0"], "rows"),
        ([*SHORT, "--out", "x.bmpp"], "suffix"),
        ([*SHORT, "--out", "/proc/nowhere/x.png"], "No such file"),
        ([*SHORT, "--epochs", "1"], "epochs"),
        (["--steps", "ten"], "steps"),
        ([*SHORT, "--sigma", "1"], "sigma"),
    ],
)
def test_bad_values_are_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], name: str) -> None:
    common = [] if "--sampling_rate" in arguments else COMMON
    assert budget([*common, *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert name in error
    assert error.count("\n") == 1
