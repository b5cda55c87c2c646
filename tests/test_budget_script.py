import importlib.util
import re
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "budget.py"
COMMON = ["--sampling_rate", "0.01", "--delta", "1e-5"]


@pytest.fixture(scope="module")
def budget():
    spec = importlib.util.spec_from_file_location("budget_script", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_epsilon_from_noise_and_back(budget, capsys):
    assert budget.main([*COMMON, "--epochs", "3", "--sigma_sgd", "1.5"]) == 0
    forward = capsys.readouterr().out
    spent = re.search(r"epsilon ([\d.]+) at delta 1e-05", forward)[1]
    assert "300 steps" in forward
    assert len(re.findall(r"^ +[\d.]+ +\d+ ", forward, re.M)) == 3
    assert "as published by Acs et al. 2017, not a guarantee" in forward
    assert budget.main([*COMMON, "--steps", "300", "--epsilon", spent]) == 0
    sigma = float(re.search(r"sigma_sgd ([\d.]+)", capsys.readouterr().out)[1])
    assert sigma == pytest.approx(1.5, rel=2e-3)


def test_kmeans_norms_and_plot(budget, capsys, tmp_path):
    picture = tmp_path / "eps.png"
    extra = ["--kmeans_rounds", "5", "--sigma_count", "200", "--sigma_sum", "40", "--sigma_norm", "10"]
    assert (
        budget.main([*COMMON, *extra, "--epochs", "4", "--sigma_sgd", "1", "--rows", "2", "--plot", str(picture)]) == 0
    )
    assert f"picture in {picture}" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "10", "--sigma_sgd", "0"], "sigma_sgd is 0.0; it must be a finite number > 0"),
        (["--steps", "10", "--sigma_sgd", "1", "--sampling_rate", "2"], "sampling_rate is 2.0"),
        (["--epochs", "nan", "--sigma_sgd", "1"], "epochs is nan"),
        (["--steps", "10", "--epsilon", "-1"], "epsilon is -1.0; it must be a finite number > 0"),
        (["--steps", "10", "--epsilon", "1", "--sigma_norm", "0.1"], "reaches no less than"),
        (["--steps", "10", "--sigma_sgd", "1", "--rows", "0"], "rows is 0"),
        (["--steps", "10", "--sigma_sgd", "1", "--plot", "/no/such/folder/x.png"], "No such file"),
    ],
)
def test_bad_values_are_one_line(budget, capsys, arguments, message):
    assert budget.main([*COMMON, *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["--steps", "10"],
        ["--sigma_sgd", "1"],
        ["--steps", "10", "--epochs", "1", "--sigma_sgd", "1"],
        ["--steps", "10", "--sigma_sgd", "1", "--epsilon", "1"],
        ["--steps", "ten", "--sigma_sgd", "1"],
        ["--steps", "10", "--sigma_sgd", "1", "--sigma", "1"],
    ],
)
def test_bad_arguments_exit_with_2(budget, capsys, arguments):
    with pytest.raises(SystemExit, match="2"):
        budget.main([*COMMON, *arguments])
    assert capsys.readouterr().err.count("\n") == 1
