"""dpgen: differentially private generative modelling in PyTorch Lightning."""

from dpgen import data, metrics
from dpgen.callbacks import (
    AutomaticClipping,
    BoundedClipping,
    DPNorm,
    Previews,
    PrivacyAccountant,
    QuantileClipping,
)
from dpgen.cli import Job, parse_job, usage
from dpgen.evaluate import evaluate
from dpgen.privacy.ledger import Budget, BudgetExceeded, Ledger, LedgerError
from dpgen.privacy.sampling import PoissonLoader
from dpgen.release import PrivacyStatement, PublicModel, Samples, load_model
from dpgen.run import Outcome, run
from dpgen.runtime import Runtime
from dpgen.systems import DPGM, SYSTEMS, DPGMConfig, DPGMPlan, DPKMeans, MixtureModel

__version__ = "0.1.0"

__all__ = [
    "DPGM",
    "SYSTEMS",
    "AutomaticClipping",
    "BoundedClipping",
    "Budget",
    "BudgetExceeded",
    "DPGMConfig",
    "DPGMPlan",
    "DPKMeans",
    "DPNorm",
    "Job",
    "Ledger",
    "LedgerError",
    "MixtureModel",
    "Outcome",
    "PoissonLoader",
    "Previews",
    "PrivacyAccountant",
    "PrivacyStatement",
    "PublicModel",
    "QuantileClipping",
    "Runtime",
    "Samples",
    "data",
    "evaluate",
    "load_model",
    "metrics",
    "parse_job",
    "run",
    "usage",
]
