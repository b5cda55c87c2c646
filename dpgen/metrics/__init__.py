"""How good a release is: pure functions on tensors, and `torchmetrics` classes that gather batches for them."""

from typing import TYPE_CHECKING

from dpgen.lazy import export

if TYPE_CHECKING:
    from dpgen.metrics.classification import TrainOnSyntheticAccuracy as TrainOnSyntheticAccuracy
    from dpgen.metrics.classification import chance_level as chance_level
    from dpgen.metrics.classification import train_on_synthetic_accuracy as train_on_synthetic_accuracy
    from dpgen.metrics.clustering import ClusteringAccuracy as ClusteringAccuracy
    from dpgen.metrics.clustering import clustering_accuracy as clustering_accuracy
    from dpgen.metrics.densities import Quadrature as Quadrature
    from dpgen.metrics.densities import mode_coverage as mode_coverage
    from dpgen.metrics.densities import negative_log_likelihood as negative_log_likelihood
    from dpgen.metrics.densities import optimal_mollification as optimal_mollification
    from dpgen.metrics.distances import FDivergence as FDivergence
    from dpgen.metrics.distances import KolmogorovDistance as KolmogorovDistance
    from dpgen.metrics.distances import WassersteinDistance as WassersteinDistance
    from dpgen.metrics.distances import distribution_divergence as distribution_divergence
    from dpgen.metrics.distances import kolmogorov_distance as kolmogorov_distance
    from dpgen.metrics.distances import kolmogorov_distance_to as kolmogorov_distance_to
    from dpgen.metrics.distances import wasserstein_distance as wasserstein_distance
    from dpgen.metrics.fidelity import Fidelity as Fidelity
    from dpgen.metrics.fidelity import SampleFidelity as SampleFidelity
    from dpgen.metrics.fidelity import fidelity as fidelity
    from dpgen.metrics.frechet import FrechetDistance as FrechetDistance
    from dpgen.metrics.frechet import FrechetResult as FrechetResult
    from dpgen.metrics.frechet import frechet_distance as frechet_distance
    from dpgen.metrics.frechet import gaussian_frechet_distance as gaussian_frechet_distance
    from dpgen.metrics.image_features import ImageFeatures as ImageFeatures
    from dpgen.metrics.image_features import InceptionFeatures as InceptionFeatures
    from dpgen.metrics.image_features import LeNetFeatures as LeNetFeatures
    from dpgen.metrics.image_features import PCAFeatures as PCAFeatures
    from dpgen.metrics.likelihood import ModeCoverage as ModeCoverage
    from dpgen.metrics.likelihood import NegativeLogLikelihood as NegativeLogLikelihood
    from dpgen.metrics.likelihood import mean_negative_log_likelihood as mean_negative_log_likelihood
    from dpgen.metrics.likelihood import sampled_mode_coverage as sampled_mode_coverage
    from dpgen.metrics.marginals import CorrelationError as CorrelationError
    from dpgen.metrics.marginals import MarginalError as MarginalError
    from dpgen.metrics.marginals import correlation_errors as correlation_errors
    from dpgen.metrics.marginals import marginal_errors as marginal_errors
    from dpgen.metrics.queries import CountingQueryError as CountingQueryError
    from dpgen.metrics.queries import answers as answers
    from dpgen.metrics.queries import conjunctions as conjunctions
    from dpgen.metrics.queries import independent_marginals as independent_marginals
    from dpgen.metrics.queries import query_errors as query_errors
    from dpgen.metrics.queries import random_queries as random_queries
    from dpgen.metrics.queries import relative_errors as relative_errors
    from dpgen.metrics.two_sample import ClassifierTwoSampleTest as ClassifierTwoSampleTest
    from dpgen.metrics.two_sample import TwoSampleTest as TwoSampleTest
    from dpgen.metrics.two_sample import classifier_two_sample_test as classifier_two_sample_test

_HOME = {
    "classification": ("TrainOnSyntheticAccuracy", "chance_level", "train_on_synthetic_accuracy"),
    "clustering": ("ClusteringAccuracy", "clustering_accuracy"),
    "densities": ("Quadrature", "mode_coverage", "negative_log_likelihood", "optimal_mollification"),
    "distances": (
        "FDivergence",
        "KolmogorovDistance",
        "WassersteinDistance",
        "distribution_divergence",
        "kolmogorov_distance",
        "kolmogorov_distance_to",
        "wasserstein_distance",
    ),
    "fidelity": ("Fidelity", "SampleFidelity", "fidelity"),
    "frechet": ("FrechetDistance", "FrechetResult", "frechet_distance", "gaussian_frechet_distance"),
    "image_features": ("ImageFeatures", "InceptionFeatures", "LeNetFeatures", "PCAFeatures"),
    "likelihood": ("ModeCoverage", "NegativeLogLikelihood", "mean_negative_log_likelihood", "sampled_mode_coverage"),
    "marginals": ("CorrelationError", "MarginalError", "correlation_errors", "marginal_errors"),
    "queries": (
        "CountingQueryError",
        "answers",
        "conjunctions",
        "independent_marginals",
        "query_errors",
        "random_queries",
        "relative_errors",
    ),
    "two_sample": ("ClassifierTwoSampleTest", "TwoSampleTest", "classifier_two_sample_test"),
}

__all__ = export(__name__, {name: f"{__name__}.{module}" for module, names in _HOME.items() for name in names})
