"""The command line of an audit."""

import pytest

from dpgen.auditing.options import QUICK, SIGMA, TRAINED, TRAINED_OFTEN, AuditOptions, parse_audit
from dpgen.cli.audit import usage
from dpgen.options import keys
from dpgen.systems.registry import systems


@pytest.mark.parametrize("model", list(systems()))
def test_every_system_can_be_audited_without_options(model: str) -> None:
    job = parse_audit(["--model", model])
    assert job.model == model
    assert isinstance(job.plan, systems()[model].plan)
    assert job.trained == (model in ("dpgm", "dpgan"))


def test_quick_options_give_way_to_given_ones() -> None:
    plan = parse_audit(["--steps=7"]).plan
    assert (plan.steps, plan.sampling_rate, plan.sigma_sgd) == (7, float(TRAINED["sampling_rate"]), float(SIGMA))
    assert parse_audit(["--epsilon=2"]).plan.sigma_sgd is None
    assert parse_audit(["--canaries=1"]).plan.steps == int(TRAINED_OFTEN["steps"])
    assert set(QUICK) <= set(systems())


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["--model=nobody"], "model must be one of dpgm"),
        (["--stepz=3"], "did you mean 'steps'"),
        (["--trainings=0"], "trainings must be at least 1"),
        (["--model="], "model must be one of dpgm.*, got ''"),
        (["--out=/"], "out '/' cannot be written: it is a directory"),
        (["--out=absent/finding.json"], "cannot be written: there is no directory absent"),
        (["--confidence=1"], "confidence must be in"),
        (["--seed=-1"], "seed must be at least 0"),
        (["--config=c.yaml"], "unknown option 'config'"),
        (["--data=digits"], "option"),
        (["--model=minimax", "--canaries=3"], "only systems that DP-SGD trains"),
    ],
)
def test_bad_arguments_are_refused(arguments: list[str], match: str) -> None:
    with pytest.raises(ValueError, match=match) as caught:
        parse_audit(arguments)
    assert "\n" not in str(caught.value)


def test_help_names_every_system_and_option() -> None:
    text = usage([])
    for name in (*systems(), *(f"--{name}" for name in keys(AuditOptions))):
        assert name in text


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--model=dpgm"], f"default: {TRAINED['steps']})"),
        (["--model=dpgm"], f"default: {SIGMA})"),
        (["--model=dpgm", "--canaries=1"], f"default: {TRAINED_OFTEN['steps']})"),
        (["--model=bernstein"], "default: 4)"),
    ],
)
def test_help_of_a_model_has_the_defaults_of_its_audit(arguments: list[str], shown: str) -> None:
    assert shown in usage(arguments)
