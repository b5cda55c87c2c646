"""Public names of dpgen.metrics, for type checkers and for `lazy_loader`, which imports each on first use."""

from .classification import TwoSampleTest as TwoSampleTest
from .classification import chance_level as chance_level
from .classification import classifier_two_sample_test as classifier_two_sample_test
from .classification import clustering_accuracy as clustering_accuracy
from .classification import propensity_error as propensity_error
from .classification import train_on_synthetic_accuracy as train_on_synthetic_accuracy
from .classification import train_on_synthetic_auc as train_on_synthetic_auc
from .densities import Quadrature as Quadrature
from .densities import mode_coverage as mode_coverage
from .densities import negative_log_likelihood as negative_log_likelihood
from .densities import optimal_mollification as optimal_mollification
from .fidelity import Fidelity as Fidelity
from .fidelity import InceptionFeatures as InceptionFeatures
from .fidelity import LeNetFeatures as LeNetFeatures
from .fidelity import fidelity as fidelity
from .fidelity import frechet_distance as frechet_distance
from .fidelity import inception_network as inception_network
from .queries import answers as answers
from .queries import associations as associations
from .queries import conjunctions as conjunctions
from .queries import correlation_errors as correlation_errors
from .queries import independent_marginals as independent_marginals
from .queries import marginal_errors as marginal_errors
from .queries import query_errors as query_errors
from .queries import random_queries as random_queries
from .queries import relative_errors as relative_errors
