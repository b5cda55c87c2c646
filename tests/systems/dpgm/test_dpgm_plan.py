"""Plans and configurations of DPGM: what a budget buys, epoch by epoch, and what is refused."""

import math
from dataclasses import replace
from inspect import signature
from math import prod
from typing import Any

import pytest
from refusals import refused

from dpgen.callbacks import AutomaticClipping, BoundedClipping, DPNorm
from dpgen.nets import RBMBank, VAEBank
from dpgen.privacy.accountants import epsilon
from dpgen.privacy.ledger import Budget
from dpgen.privacy.mechanisms import effective_multiplier, gaussian_parts
from dpgen.systems.dp_sgd.plan import DPSGDConfig
from dpgen.systems.dpgan.plan import DPGANPlan
from dpgen.systems.dpgm.fit import DPGM
from dpgen.systems.dpgm.plan import DPGMConfig, DPGMPlan

ONE = DPGMConfig(clusters="none", centred=False).resolved(n_classes=0)
KMEANS = DPGMConfig(clusters="kmeans", centred=False).resolved(n_classes=0)
ADAPTIVE = replace(ONE, clipping="dpnorm")
CALIBRATED = [ONE, replace(KMEANS, clipping="dpnorm")]


@pytest.mark.parametrize("config", CALIBRATED, ids=["one", "adaptive"])
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_calibration_meets_the_budget_closely(config: DPGMConfig, relation: Any) -> None:
    plan = DPGMPlan(epsilon=2.0, steps=100, relation=relation).calibrated(config)
    event = plan.event(config)
    assert 1.98 < epsilon(event, 1e-5, relation=relation) <= 2.0


def test_clustering_alone_uses_its_share() -> None:
    plan = DPGMPlan(epsilon=2.0, steps=50, partition_share=0.25)
    sizes = plan.calibrated(ONE)
    assert epsilon(sizes.clusters(ONE)[0].event, 1e-5) == pytest.approx(0.5, rel=0.01)
    rounds = plan.calibrated(KMEANS)
    assert epsilon(rounds.kmeans_plan().event("add_remove"), 1e-5) == pytest.approx(0.5, rel=0.01)


def test_given_sigmas_stay_and_mean_report_only() -> None:
    plan = DPGMPlan(noise_multiplier=1.5, sigma_count=7.0, sigma_sum=2.0)
    assert plan.budget is None
    assert plan.calibrated(replace(KMEANS, clipping="dpnorm")) == plan
    assert DPGMPlan().budget == Budget(3.0, 1e-5), "three without any wish"
    mixed = DPGMPlan(epsilon=2.0, sigma_count=50.0, steps=50).calibrated(ONE)
    assert mixed.sigma_count == 50.0
    assert mixed.noise_multiplier is not None


def test_adaptive_clipping_is_paid_with_more_noise_on_the_sums() -> None:
    plan = DPGMPlan(epsilon=2.0, steps=50, sigma_norm=4.0)
    plain, adaptive = (plan.calibrated(config).noise_multiplier for config in (ONE, ADAPTIVE))
    assert plain is not None
    assert adaptive is not None
    assert 1 / plain**2 == pytest.approx(1 / adaptive**2 + 1 / 16, rel=0.01)


BAD_PLANS: dict[str, list[Any]] = {
    "epsilon": [0.0, math.nan],
    "delta": [0.0, 1.0],
    "noise_multiplier": [0.0, -1.0],
    "sigma_norm": [math.nan],
    "sigma_count": [math.inf],
    "sigma_sum": [0.0],
    "sigma_means": [0.0],
    "sampling_rate": [0.0, 1.01, math.nan],
    "steps": [0],
    "kmeans_rounds": [0],
    "partition_share": [1.0],
    "means_share": [0.0, 1.0],
    "relation": ["both"],
}


@pytest.mark.parametrize("name", BAD_PLANS)
def test_plans_out_of_range_are_refused(name: str) -> None:
    for value in BAD_PLANS[name]:
        with refused(name):
            DPGMPlan(**{name: value})


def test_the_plan_of_a_gan_has_no_numbers_that_it_ignores() -> None:
    options = set(signature(DPGANPlan).parameters)
    assert set(signature(DPGMPlan).parameters) - options == {"sigma_norm", "kmeans_rounds", "sigma_sum"}
    plan, usual = DPGANPlan(epsilon=2.0, steps=50), DPGMPlan(epsilon=2.0, steps=50)
    assert plan.calibrated(DPSGDConfig()).noise_multiplier == usual.calibrated(ONE).noise_multiplier


@pytest.mark.parametrize(
    ("plan", "names"),
    [
        (DPGMPlan(epsilon=1e-5), ("partition_share", "no less than", "raise epsilon")),
        (DPGMPlan(epsilon=0.2, sigma_count=1.0, steps=5), ("no less than 4.", "raise epsilon")),
        (
            DPGMPlan(epsilon=0.2, noise_multiplier=1.0, sigma_count=1.0),
            ("steps of the given noise cost", "or noise_multiplier"),
        ),
        (DPGMPlan(epsilon=8.0, noise_multiplier=1.0, steps=10_000), ("steps of the given noise cost", "or noise_multiplier")),
    ],
)
def test_an_unreachable_budget_says_what_is_reachable_and_what_to_change(plan: DPGMPlan, names: tuple[str, ...]) -> None:
    with refused(*names):
        plan.calibrated(ONE)


@pytest.mark.parametrize("config", [ONE, KMEANS])
def test_uncalibrated_plans_have_no_events(config: DPGMConfig) -> None:
    for event in (DPGMPlan().step_event, DPGMPlan().clusters):
        with refused("calibrated"):
            event(config)


# -- configuration ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "n_classes", "clusters", "k"),
    [
        (DPGMConfig(), 7, "labels", 7),
        (DPGMConfig(), 0, "kmeans", 10),
        (DPGMConfig(k=4), 0, "kmeans", 4),
        (DPGMConfig(clusters="kmeans", k=4), 7, "kmeans", 4),
        (DPGMConfig(clusters="none"), 7, "none", 1),
        (DPGMConfig(clusters="labels", k=7), 7, "labels", 7),
    ],
)
def test_clusters_and_k_are_decided_by_the_data_shape(config: DPGMConfig, n_classes: int, clusters: str, k: int) -> None:
    resolved = config.resolved(n_classes=n_classes)
    assert (resolved.clusters, resolved.k) == (clusters, k)


@pytest.mark.parametrize(
    ("names", "options"),
    [
        (["k"], {"k": 0}),
        (["micro_batch"], {"micro_batch": 0}),
        (["lr"], {"lr": 0.0}),
        (["lr"], {"lr": math.inf}),
        (["clip_bound"], {"clip_bound": 0.0}),
        (["component"], {"component": "gaussian"}),
        (["frequencies", "centred"], {"centred": False, "frequencies": 9}),
        (["frequencies", "component"], {"component": "conv_vae", "frequencies": 9}),
        (["frequencies"], {"frequencies": -1}),
        (["off_below", "component"], {"off_below": 0.1}),
        (["off_below"], {"off_below": 1.0, "component": "rbm"}),
        (["component", "network"], {"network": "a:B", "component": "rbm"}),
        (["hidden", "network"], {"network": "a:B", "hidden": 7}),
        (["network_options"], {"network_options": {"hidden": 3}}),
        (["clusters", "label"], {"clusters": "labels"}),
        (["k", "clusters"], {"clusters": "none", "k": 3}),
    ],
)
def test_options_out_of_range_or_in_contradiction_are_refused(names: list[str], options: dict[str, Any]) -> None:
    with refused(*names):
        DPGMConfig(**options).resolved(n_classes=0)


@pytest.mark.parametrize("component", ["vae", "rbm"])
@pytest.mark.parametrize("option", ["hidden", "latent"])
def test_bad_network_sizes_are_refused_and_so_are_those_of_the_other_network(component: Any, option: str) -> None:
    with refused("latent is 0, which only" if (component, option) == ("rbm", "latent") else f"{option}=0"):
        DPGMConfig(component=component, k=2, **{option: 0}).bank(6, 0)  # type: ignore[arg-type]


def test_the_options_reach_the_banks() -> None:
    vae = DPGMConfig(k=3, hidden=5, latent=4).bank(8, 2)
    rbm = DPGMConfig(component="rbm", k=3, hidden=5).bank(8, 0)
    assert isinstance(vae, VAEBank)
    assert isinstance(rbm, RBMBank)
    sizes = {"k": 3, "d": 8, "hidden": 5, "latent": 4, "depth": 1, "categories": 2}
    assert vae.architecture() == sizes | {"label_weight": 10.0, "centred": True, "frequencies": None, "image_shape": None}
    assert rbm.architecture().items() >= {"k": 3, "d": 8, "hidden": 5}.items()


@pytest.mark.parametrize("component", ["vae", "rbm"])
def test_networks_of_large_images_are_of_frequencies(component: Any) -> None:
    """None is the rule; 0 are pixels, and of what is no image there is nothing else."""

    def made(shape: tuple[int, ...] | None, **options: Any) -> Any:
        d = 400 if shape is None else prod(shape)
        return DPGMConfig(component=component, k=2, hidden=3, **options).bank(d + 2, 2, shape).architecture()["frequencies"]

    assert [made(shape) for shape in ((20, 20), (3, 20, 20), (19, 20), None)] == [100, 100, None, None]
    assert made((20, 20), frequencies=0) is None
    assert made((20, 20), centred=False) is None
    assert made((4, 5), frequencies=20) == 20
    for shape, frequencies in (((4, 5), 21), (None, 9)):
        with refused(f"frequencies is {frequencies}"):
            made(shape, frequencies=frequencies)


def test_clipping_policies_carry_the_plan() -> None:
    plan = DPGMPlan(noise_multiplier=1.0, sigma_norm=4.0)
    made = {name: DPGMConfig(clipping=name, clip_bound=3.0).clipping_callback(plan) for name in ("auto", "fixed", "dpnorm")}
    kinds = [AutomaticClipping, BoundedClipping, DPNorm]
    assert [type(policy) for policy in made.values()] == kinds
    for name, policy in made.items():
        assert policy.noise_multiplier == (4.0 if DPGMConfig(clipping=name).adaptive else None)


BY_LABEL = DPGMConfig(clusters="labels").resolved(n_classes=4)
BY_KMEANS = DPGMConfig(clusters="kmeans", clipping="dpnorm", k=4).resolved(n_classes=0)
ALONE = DPGMConfig(clusters="none", k=1).resolved(n_classes=0)
SIGMAS = {"noise_multiplier": 1.0, "sigma_count": 200.0, "sigma_sum": 40.0, "sigma_means": 30.0}
GIVEN: dict[str, Any] = {"sampling_rate": 0.01, "steps": 530} | SIGMAS


def test_a_plan_by_hand() -> None:
    parts = gaussian_parts(DPGMPlan(**GIVEN, sigma_norm=2.0, kmeans_rounds=5).event(BY_KMEANS))
    assert parts == {
        (0.01, effective_multiplier(1.0, 2.0)): 530,
        (1.0, effective_multiplier(200.0, 40.0)): 5,
        (1.0, 200.0): 1,
        (1.0, 30.0): 1,
    }


@pytest.mark.parametrize("config", [BY_LABEL, BY_KMEANS, ALONE], ids=["labels", "kmeans", "none"])
def test_the_plan_that_is_priced_is_the_plan_that_is_trained(config: DPGMConfig) -> None:
    plan = DPGMPlan(epsilon=2.0, sampling_rate=0.1, steps=40)
    n_classes = 4 if config.clusters == "labels" else 0
    module = DPGM(d=6, plan=plan, config=config, n_classes=n_classes)
    planned = plan.calibrated(config)
    assert module.plan == planned
    assert 1.98 < epsilon(planned.event(config), planned.delta) <= 2.0
