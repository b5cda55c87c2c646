"""Metrics of releases, as functions of tensors."""

from typing import TYPE_CHECKING

from dpgen.lazy import export

if TYPE_CHECKING:
    from dpgen.metrics.classification import TwoSampleTest as TwoSampleTest
    from dpgen.metrics.classification import chance_level as chance_level
    from dpgen.metrics.classification import classifier_two_sample_test as classifier_two_sample_test
    from dpgen.metrics.classification import clustering_accuracy as clustering_accuracy
    from dpgen.metrics.classification import train_on_synthetic_accuracy as train_on_synthetic_accuracy
    from dpgen.metrics.densities import Quadrature as Quadrature
    from dpgen.metrics.densities import mean_negative_log_likelihood as mean_negative_log_likelihood
    from dpgen.metrics.densities import mode_coverage as mode_coverage
    from dpgen.metrics.densities import negative_log_likelihood as negative_log_likelihood
    from dpgen.metrics.densities import optimal_mollification as optimal_mollification
    from dpgen.metrics.densities import sampled_mode_coverage as sampled_mode_coverage
    from dpgen.metrics.distances import distribution_divergence as distribution_divergence
    from dpgen.metrics.distances import kolmogorov_distance as kolmogorov_distance
    from dpgen.metrics.distances import kolmogorov_distance_to as kolmogorov_distance_to
    from dpgen.metrics.distances import wasserstein_distance as wasserstein_distance
    from dpgen.metrics.fidelity import Fidelity as Fidelity
    from dpgen.metrics.fidelity import FrechetResult as FrechetResult
    from dpgen.metrics.fidelity import ImageFeatures as ImageFeatures
    from dpgen.metrics.fidelity import InceptionFeatures as InceptionFeatures
    from dpgen.metrics.fidelity import LeNetFeatures as LeNetFeatures
    from dpgen.metrics.fidelity import PCAFeatures as PCAFeatures
    from dpgen.metrics.fidelity import fidelity as fidelity
    from dpgen.metrics.fidelity import frechet_distance as frechet_distance
    from dpgen.metrics.fidelity import gaussian_frechet_distance as gaussian_frechet_distance
    from dpgen.metrics.queries import answers as answers
    from dpgen.metrics.queries import conjunctions as conjunctions
    from dpgen.metrics.queries import correlation_errors as correlation_errors
    from dpgen.metrics.queries import independent_marginals as independent_marginals
    from dpgen.metrics.queries import marginal_errors as marginal_errors
    from dpgen.metrics.queries import query_errors as query_errors
    from dpgen.metrics.queries import random_queries as random_queries
    from dpgen.metrics.queries import relative_errors as relative_errors

_HOME = {
    "classification": (
        "TwoSampleTest",
        "chance_level",
        "classifier_two_sample_test",
        "clustering_accuracy",
        "train_on_synthetic_accuracy",
    ),
    "densities": (
        "Quadrature",
        "mean_negative_log_likelihood",
        "mode_coverage",
        "negative_log_likelihood",
        "optimal_mollification",
        "sampled_mode_coverage",
    ),
    "distances": (
        "distribution_divergence",
        "kolmogorov_distance",
        "kolmogorov_distance_to",
        "wasserstein_distance",
    ),
    "fidelity": (
        "Fidelity",
        "FrechetResult",
        "ImageFeatures",
        "InceptionFeatures",
        "LeNetFeatures",
        "PCAFeatures",
        "fidelity",
        "frechet_distance",
        "gaussian_frechet_distance",
    ),
    "queries": (
        "answers",
        "conjunctions",
        "correlation_errors",
        "independent_marginals",
        "marginal_errors",
        "query_errors",
        "random_queries",
        "relative_errors",
    ),
}

__all__ = export(__name__, {name: f"{__name__}.{module}" for module, names in _HOME.items() for name in names})
