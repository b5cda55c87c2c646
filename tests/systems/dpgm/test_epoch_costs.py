"""Costs of a plan, epoch by epoch: they are the plan's own event under each accountant, and what training gets."""

import math
from typing import Any

import pytest
import torch

from dpgen.privacy.accountants import epsilon
from dpgen.privacy.mechanisms import effective_multiplier, gaussian_parts
from dpgen.privacy.moments import general_moments_epsilon
from dpgen.privacy.sampling import PoissonLoader
from dpgen.systems.dpgm.fit import DPGM
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan, epoch_cost, epoch_costs, general_moments

LABELS = DPGMConfig(clusters="labels").resolved(n_classes=4)
KMEANS = DPGMConfig(clusters="kmeans", clipping="dpnorm", k=4).resolved(n_classes=0)
ONE = DPGMConfig(clusters="none", k=1).resolved(n_classes=0)
SIGMAS = {"sigma_sgd": 1.0, "sigma_count": 200.0, "sigma_sum": 40.0, "sigma_means": 30.0}
GIVEN: dict[str, Any] = {"sampling_rate": 0.01, "steps": 530} | SIGMAS


def test_rows_are_whole_epochs_and_the_end() -> None:
    plan = DPGMPlan(**GIVEN)
    rows = epoch_costs(plan, LABELS, rows=3)
    assert [row.steps for row in rows] == [200, 400, 500, 530]
    assert rows[-1].epoch == 5.3
    assert [row.tight for row in rows] == sorted(row.tight for row in rows)
    assert rows[-1] == epoch_cost(plan, LABELS)
    assert [row.steps for row in epoch_costs(DPGMPlan(**{**GIVEN, "steps": 30}), LABELS)] == [30]
    with pytest.raises(ValueError, match="rows is 0; it must be >= 1"):
        epoch_costs(plan, LABELS, rows=0)


@pytest.mark.parametrize("config", [LABELS, KMEANS], ids=["labels", "kmeans"])
def test_readings_are_ordered_and_the_tight_one_is_the_event(config: DPGMConfig) -> None:
    plan = DPGMPlan(**GIVEN)
    cost = epoch_cost(plan, config)
    event = plan.event(config)
    assert cost.tight == epsilon(event, 1e-5)
    assert cost.tight < cost.rdp
    assert cost.tight < cost.replace_one


def test_a_plan_by_hand() -> None:
    parts = gaussian_parts(DPGMPlan(**GIVEN, sigma_norm=2.0, kmeans_rounds=5).event(KMEANS))
    assert parts == {
        (0.01, effective_multiplier(1.0, 2.0)): 530,
        (1.0, effective_multiplier(200.0, 40.0)): 5,
        (1.0, 200.0): 1,
        (1.0, 30.0): 1,
    }


def test_published_accounting_is_blind_to_sizes() -> None:
    plan = DPGMPlan(**GIVEN)
    blind = general_moments_epsilon(sampling_rate=0.01, steps=530, sigma_sgd=1.0, delta=1e-5)
    assert general_moments(plan, LABELS) == general_moments(plan, ONE) == blind
    both = general_moments_epsilon(
        sampling_rate=0.01,
        steps=530,
        sigma_sgd=1.0,
        sigma_norm=10.0,
        kmeans_rounds=5,
        sigma_kmeans=40.0,
        sigma_count=200.0,
        delta=1e-5,
    )
    assert general_moments(plan, KMEANS) == both
    with pytest.raises(ValueError, match="call calibrated"):
        general_moments(DPGMPlan(), LABELS)


@pytest.mark.parametrize("config", [LABELS, KMEANS, ONE], ids=["labels", "kmeans", "none"])
def test_the_plan_that_is_priced_is_the_plan_that_is_trained(config: DPGMConfig) -> None:
    plan = DPGMPlan(epsilon=2.0, sampling_rate=0.1, steps=40)
    n_classes = 4 if config.clusters == "labels" else 0
    module = DPGM(d=6, plan=plan, config=config, n_classes=n_classes)
    planned = plan.calibrated(config)
    assert module.plan == planned
    cost = epoch_cost(planned, config)
    assert 1.98 < cost.tight <= 2.0
    assert general_moments(module.plan, module.config) == cost.general_moments


@pytest.mark.parametrize("rate", [0.0017, 0.1, 1 / 3, 1.0])
def test_epochs_are_those_of_the_loader(rate: float) -> None:
    loader = PoissonLoader(torch.zeros(4, 2), sampling_rate=rate)
    assert DPGMPlan(sampling_rate=rate).steps_per_epoch == len(loader.poisson) == math.ceil(round(1 / rate, 6))
