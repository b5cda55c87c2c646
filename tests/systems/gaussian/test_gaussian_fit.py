"""The Gaussian system from records to release: the budget, the public rules, both sides of utility, and bad input."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import torch
from refusals import refused

from dpgen.data import load_digits
from dpgen.data.records import Records, split_records
from dpgen.data.split import Split
from dpgen.facts import Fact
from dpgen.nets.cosines import lowest_frequencies
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.release import RecordModel
from dpgen.runtime import Runtime
from dpgen.systems.gaussian.fit import Inputs, fit
from dpgen.systems.gaussian.model import GaussianMixtureModel, Warp
from dpgen.systems.gaussian.plan import GaussianConfig, GaussianPlan, sizes
from dpgen.systems.gaussian.releases import NOTES
from dpgen.systems.marginals.model import ProductMixture


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes of frequent items are fitted in `test_set_mixture`."""
    monkeypatch.setattr("dpgen.systems.gaussian.sets._STEPS", 5)


def two_classes(n: int = 4000, d: int = 12) -> Records:
    """Class 0 has its first half of bits on, class 1 its second; within a class bits come in three correlated groups."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n) % 2
    groups = torch.rand(n, 3, generator=generator).repeat_interleave(d // 3, 1)
    likely = torch.where((torch.arange(d) < d // 2)[None] ^ labels.bool()[:, None], 0.85, 0.15)
    flips = torch.rand(n, d, generator=generator) < 0.05
    x = ((groups < likely) ^ flips).to(torch.uint8)
    return split_records("two classes", x, split=Split.public(0), labels=labels, n_classes=2)


def fitted(records: Any, *, epsilon: float = 5.0, ledger: Ledger | None = None, **options: Any) -> RecordModel:
    spend = {name: options.pop(name) for name in ("relation",) if name in options}
    plan = GaussianPlan(epsilon=epsilon, **spend)
    runtime = Runtime(run_dir=Path("."), accelerator="cpu")
    config = GaussianConfig(**options)
    return fit(records, plan=plan, config=config, curator=Curator(ledger or plan.open_ledger()), runtime=runtime)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"subclusters": 3},
        {"clusters": "kmeans", "k": 4},
        {"clusters": "none"},
        {"form": "sizes", "clusters": "none"},
    ],
    ids=str,
)
def test_the_ledger_holds_the_whole_budget_and_the_statement_says_so(options: dict[str, Any], relation: str) -> None:
    ledger = Ledger(Budget(2.0, 1e-5), relation=relation)  # type: ignore[arg-type]
    model = fitted(two_classes(600), epsilon=2.0, ledger=ledger, relation=relation, **options)
    assert 1.99 < ledger.epsilon() <= 2.0
    assert ledger.epsilon() == model.statement.epsilon
    [plan] = ledger.promised()
    made = sum(entry.count * entry.event.noise_multiplier**-2 for entry in ledger.entries())
    assert made == pytest.approx(plan.event.noise_multiplier**-2), "nothing is left unused, whatever was not released"
    assert {entry.note for entry in ledger.entries()} <= set(NOTES.values())


def test_samples_teach_a_classifier_and_noise_is_there() -> None:
    records = two_classes()
    samples = fitted(records, epsilon=5.0).samples(3000, random_state=0)
    assert samples.labels is not None
    means = torch.stack([samples.x[samples.labels == c].double().mean(0) for c in (0, 1)])
    real = torch.stack([records.x[records.labels == c].double().mean(0) for c in (0, 1)])
    assert float((means - real).abs().max()) < 0.12
    a, b = (fitted(records, epsilon=0.5).samples(4000, random_state=0).x.double().mean(0) for _ in range(2))
    assert float((a - b).abs().max()) > 0.0, "too good: fits of the same records with the same seed never agree"


def test_images_of_the_default_data_are_fitted_in_a_moment() -> None:
    model = fitted(load_digits(), epsilon=8.0)
    assert isinstance(model, GaussianMixtureModel)
    assert model.calibration.marginals is not None
    records = load_digits()
    assert records.test_labels is not None
    assert float((model.classify(records.test_x) == records.test_labels).double().mean()) > 0.6


@pytest.mark.parametrize(("shape", "smooth"), [((20, 20), True), ((8, 8), False)])
def test_axes_of_large_images_lie_among_their_lowest_frequencies(shape: tuple[int, int], smooth: bool) -> None:
    """Smaller images, and codes, have axes of any frequency."""
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(600, shape[0] * shape[1], generator=generator) < 0.4).to(torch.uint8)
    x[:300, : shape[0] * shape[1] // 2] = 1
    records = split_records("halves", x, split=Split.public(0), image_shape=shape)
    model = fitted(records, epsilon=50.0, axes=5, clusters="none")
    assert isinstance(model, GaussianMixtureModel)
    axes = model.subspace.axes[: len(x[0])]
    rows = lowest_frequencies(shape, 10).double()
    assert (float((axes - rows.T @ rows @ axes).norm()) < 1e-6) == smooth


# -- options and public rules --------------------------------------------------------------------------------------------


def test_more_signal_never_gives_fewer_axes_or_clusters() -> None:
    found = [sizes(mu, 60_000, d=784, k=10) for mu in (0.01, 0.1, 0.268, 0.5, 1.0, 2.0, 10.0)]
    assert [s.axes for s in found] == sorted(s.axes for s in found)
    assert [s.subclusters for s in found] == sorted(s.subclusters for s in found)
    assert found[-1].subclusters == 10
    assert sizes(2.0, 10**9, d=16, k=1).axes == 8, "at most half of the features"
    hopeless = [sizes(0.1, n, d=d, k=10) for n, d in ((1.0, 2), (-50.0, 1), (10.0, 784))]
    assert all(found.axes >= 1 and found.subclusters == 1 for found in hopeless)


def inputs(d: int = 16, *, n_classes: int = 2, shape: tuple[int, int] | None = None, **options: Any) -> Inputs:
    return Inputs(values=[], bits=[], d=d, config=GaussianConfig(**options), n_classes=n_classes, image_shape=shape)


def test_auto_is_a_public_rule() -> None:
    assert [inputs(d, n_classes=k).form for d, k in ((16, 0), (1303, 0), (1303, 2))] == ["latent", "sizes", "latent"]
    assert inputs(1600, n_classes=0, shape=(40, 40)).form == "latent"
    assert inputs(shape=(4, 4)).warp == Warp.of_strength(0.8, (4, 4))
    assert inputs().warp is None


# -- bad input -------------------------------------------------------------------------------------------------------


def noise_records(n: int, d: int) -> Records:
    x = (torch.rand(n, d, generator=torch.Generator().manual_seed(0)) < 0.5).to(torch.uint8)
    return split_records("noise", x, split=Split.public(0), labels=torch.arange(n) % 2, n_classes=2)


def test_more_features_than_the_data_allow_fall_back_to_marginals_and_say_what_is_needed() -> None:
    # noise alone passes the edge in about one fit of six
    models = (fitted(noise_records(60, 200), epsilon=0.5) for _ in range(12))
    model = next(model for model in models if isinstance(model, ProductMixture))
    assert "times the records" in tiny.told(model.statement)[Fact.INDEPENDENT_BITS]["why"]
    assert model.statement.epsilon <= 0.5


def test_a_class_of_a_handful_takes_the_distribution_of_all() -> None:
    records = two_classes(3000)
    assert records.labels is not None
    labels = torch.where(torch.arange(records.n) < 3, 2, records.labels)
    model = fitted(replace(records, labels=labels, n_classes=3), epsilon=2.0)
    assert isinstance(model, GaussianMixtureModel)
    assert tiny.told(model.statement)[Fact.POOLED_CLASSES]["classes"] == "2"
    assert set(model.samples(20_000, clusters=[2]).labels.tolist()) == {2}  # type: ignore[union-attr]


def first(n: int, records: Records) -> Any:
    """The first n records, which may be none."""
    assert records.labels is not None
    return SimpleNamespace(
        **{name: getattr(records, name) for name in ("n_classes", "image_shape", "columns", "grey_threshold")},
        x=records.x[:n],
        labels=records.labels[:n],
        grey=None if records.grey is None else records.grey[:n],
    )


@pytest.mark.parametrize("n", [0, 1, 5])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"subclusters": 3},
        {"clusters": "kmeans", "k": 4},
        {"form": "sizes", "clusters": "none"},
    ],
    ids=str,
)
@pytest.mark.parametrize("epsilon", [0.05, 500.0])
def test_how_many_records_there_are_refuses_nothing(options: dict[str, Any], n: int, epsilon: float) -> None:
    """With hardly any noise small counts are seen as they are, 0 among them."""
    samples = fitted(first(n, two_classes(100)), epsilon=epsilon, **options).samples(50, random_state=0)
    assert samples.x.shape == (50, 12)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("axes", {"axes": 13}),
        ("k must be", {"clusters": "labels", "k": 3}),
    ],
)
def test_what_is_wrong_is_refused_before_anything_is_declared(name: str, options: dict[str, Any]) -> None:
    records, ledger = first(100, two_classes(200)), Ledger(Budget(1.0, 1e-5))
    with refused(name):
        fitted(records, epsilon=1.0, ledger=ledger, **options)
    assert not ledger.promised()


@pytest.mark.parametrize(("planned", "held"), [("replace_one", "add_remove"), ("add_remove", "replace_one")])
def test_a_ledger_of_another_relation_is_refused(planned: str, held: str) -> None:
    """Replace-one events say less about added and removed records than the noise costs them."""
    ledger = Ledger(Budget(5.0, 1e-5), relation=held)  # type: ignore[arg-type]
    with refused("relation"):
        fitted(two_classes(100), ledger=ledger, relation=planned)
    assert not ledger.entries()
