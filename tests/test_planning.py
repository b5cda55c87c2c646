import pytest

from dpgen.privacy.accountants import epsilon
from dpgen.privacy.ledger import Budget
from dpgen.privacy.mechanisms import effective_multiplier, gaussian_parts
from dpgen.privacy.planning import Schedule

PLAN = {"sampling_rate": 0.01, "steps": 500, "sigma_sgd": 1.0, "delta": 1e-5}
KMEANS = {"kmeans_rounds": 5, "sigma_count": 200.0, "sigma_sum": 40.0}


def test_event_is_the_joint_schedule():
    parts = gaussian_parts(Schedule(**PLAN, **KMEANS, sigma_norm=2.0).event())
    assert parts == {(0.01, effective_multiplier(1.0, 2.0)): 500, (1.0, effective_multiplier(200.0, 40.0)): 5}
    assert gaussian_parts(Schedule(**PLAN).event(7)) == {(0.01, 1.0): 7}
    assert gaussian_parts(Schedule(**PLAN).event(0)) == {}


def test_epochs_count_as_in_the_paper():
    assert Schedule(**{**PLAN, "sampling_rate": 0.0017}).steps_per_epoch == 589
    assert Schedule(**{**PLAN, "sampling_rate": 0.1}).steps_per_epoch == 10


def test_by_epoch():
    plan = Schedule(**{**PLAN, "steps": 530}, **KMEANS)
    rows = plan.by_epoch(3)
    assert [row.steps for row in rows] == [200, 400, 500, 530]
    assert rows[-1].epoch == 5.3
    assert rows[-1].tight == plan.epsilon() == epsilon(plan.event(), 1e-5)
    for row in rows:
        assert row.tight < row.rdp < row.general_moments  # no DPNorm: the older conversion, and valid
        assert row.tight < row.replace_one
    assert [row.tight for row in rows] == sorted(row.tight for row in rows)
    assert [row.steps for row in Schedule(**{**PLAN, "steps": 0}, **KMEANS).by_epoch()] == [0]
    assert [row.steps for row in Schedule(**{**PLAN, "steps": 30}).by_epoch()] == [30]


def test_calibrated_keeps_the_budget():
    plan = Schedule(**PLAN, **KMEANS).calibrated(Budget(1.0, 1e-6))
    assert plan.delta == 1e-6
    assert 0.999 < plan.epsilon() <= 1
    with pytest.raises(ValueError, match=r"this plan reaches no less than \d"):
        Schedule(**PLAN, kmeans_rounds=20, sigma_count=5.0, sigma_sum=5.0).calibrated(Budget(1.0, 1e-5))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sampling_rate": 1.2}, r"sampling_rate is 1.2; it must lie in \(0, 1\]"),
        ({"steps": -1}, "steps is -1; it must be >= 0"),
        ({"delta": 0.0}, r"delta is 0.0; it must lie in \(0, 1\)"),
        ({"sigma_sgd": 0.0}, "sigma_sgd is 0.0; it must be a finite number > 0"),
        ({"sigma_norm": -2.0}, "sigma_norm is -2.0"),
        ({"kmeans_rounds": 3}, "kmeans_rounds is 3; give sigma_count and sigma_sum with it"),
    ],
)
def test_refuses(change, message):
    with pytest.raises(ValueError, match=message):
        Schedule(**{**PLAN, **change})
