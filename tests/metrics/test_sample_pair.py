"""The base of all metrics of two samples: batches, resets, one sample without the other, and collections."""

import pytest
import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection

from dpgen import metrics
from dpgen.metrics.sample_pair import SamplePair


class Means(SamplePair):
    """Difference of means: simple enough to see what the base does."""

    def _compare(self, real: Tensor, synthetic: Tensor) -> float:
        return float(synthetic.double().mean() - real.double().mean())


def batches(x: Tensor) -> list[Tensor]:
    return list(x.split([3, len(x) - 5, 2]))


def bits(n: int, seed: int) -> Tensor:
    return torch.randint(0, 2, (n, 6), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)


def numbers(n: int, seed: int) -> Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


QUERIES = [torch.tensor([0]), torch.tensor([1, 4])]
ON_RECORDS = {
    "fidelity": (metrics.SampleFidelity(k=2), lambda a, b: metrics.fidelity(a, b, k=2)._asdict()),
    "c2st": (metrics.ClassifierTwoSampleTest(), lambda a, b: metrics.classifier_two_sample_test(a, b)._asdict()),
    "frechet": (metrics.FrechetDistance(), lambda a, b: metrics.frechet_distance(a, b).distance),
    "marginals": (metrics.MarginalError(3), lambda a, b: float(metrics.marginal_errors(a, b, 3).mean())),
    "correlation": (metrics.CorrelationError(), lambda a, b: float(metrics.correlation_errors(a, b).mean())),
    "queries": (metrics.CountingQueryError(QUERIES), lambda a, b: float(metrics.relative_errors(a, b, QUERIES).mean())),
}
ON_NUMBERS = {
    "kolmogorov": (metrics.KolmogorovDistance(), metrics.kolmogorov_distance),
    "wasserstein": (metrics.WassersteinDistance(), metrics.wasserstein_distance),
    "modes": (metrics.ModeCoverage(0.8), lambda a, b: metrics.sampled_mode_coverage(a, b, level=0.8)),
}


@pytest.mark.parametrize("name", [*ON_RECORDS, *ON_NUMBERS])
def test_each_class_is_its_function_of_all_batches(name: str) -> None:
    metric, function = {**ON_RECORDS, **ON_NUMBERS}[name]
    make = bits if name in ON_RECORDS else numbers
    for seed in (0, 10):  # the second round shows that a reset forgets the first
        real, synthetic = make(20, seed), make(16, seed + 1)
        for batch in batches(real):
            metric.update(real=batch)
        for batch in batches(synthetic):
            metric.update(synthetic=batch)
        expected, found = function(real, synthetic), metric.compute()
        if isinstance(expected, dict):
            assert {key: float(value) for key, value in found.items()} == pytest.approx(expected, abs=1e-12)
        else:
            assert found.dtype == torch.float64
            assert float(found) == pytest.approx(expected, abs=1e-12)
        metric.reset()


def test_forward_gives_the_batch_and_keeps_it() -> None:
    metric = Means()
    assert float(metric(torch.tensor([0.0]), torch.tensor([1.0]))) == 1
    assert float(metric(torch.tensor([0.0]), torch.tensor([4.0, 6.0]))) == 5
    assert float(metric.compute()) == pytest.approx(11 / 3)


def test_a_collection_computes_all_from_one_update() -> None:
    pair = {"means": Means(), "k": metrics.KolmogorovDistance()}
    collection = MetricCollection(pair)
    for _ in range(2):
        collection.update(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 2.0]))
    assert {name: float(value) for name, value in collection.compute().items()} == {"means": 1.0, "k": 0.5}


@pytest.mark.filterwarnings("ignore:The ``compute`` method of metric:UserWarning")
@pytest.mark.parametrize("missing", ["real", "synthetic"])
def test_one_sample_alone_is_refused(missing: str) -> None:
    metric = Means()
    metric.update(**{{"real": "synthetic", "synthetic": "real"}[missing]: torch.ones(2)})
    with pytest.raises(ValueError, match=f"{missing} has no samples: update the metric with both"):
        metric.compute()


def test_every_metric_class_says_which_way_is_better() -> None:
    classes = [value for name in metrics.__all__ if isinstance(value := getattr(metrics, name), type)]
    found = [value for value in classes if issubclass(value, Metric)]
    assert len(found) == 13
    assert all(isinstance(value.higher_is_better, bool) for value in found)
