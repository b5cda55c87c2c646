"""How good released records are: pure functions on tensors."""

from dpgen.metrics.classification import chance_level, train_on_synthetic_accuracy
from dpgen.metrics.clustering import clustering_accuracy
from dpgen.metrics.densities import Quadrature, mode_coverage, negative_log_likelihood, optimal_mollification
from dpgen.metrics.queries import (
    answers,
    conjunctions,
    independent_marginals,
    query_errors,
    random_queries,
    relative_errors,
)

__all__ = [
    "Quadrature",
    "answers",
    "chance_level",
    "clustering_accuracy",
    "conjunctions",
    "independent_marginals",
    "mode_coverage",
    "negative_log_likelihood",
    "optimal_mollification",
    "query_errors",
    "random_queries",
    "relative_errors",
    "train_on_synthetic_accuracy",
]
