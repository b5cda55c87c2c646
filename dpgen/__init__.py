"""dpgen: differentially private generative modelling in PyTorch Lightning."""

from typing import TYPE_CHECKING

from dpgen.lazy import export

if TYPE_CHECKING:
    from dpgen import data as data
    from dpgen import metrics as metrics
    from dpgen.callbacks import AutomaticClipping as AutomaticClipping
    from dpgen.callbacks import BoundedClipping as BoundedClipping
    from dpgen.callbacks import DPNorm as DPNorm
    from dpgen.callbacks import Previews as Previews
    from dpgen.callbacks import PrivacyAccountant as PrivacyAccountant
    from dpgen.callbacks import QuantileClipping as QuantileClipping
    from dpgen.cli import Job as Job
    from dpgen.cli import parse_job as parse_job
    from dpgen.cli import usage as usage
    from dpgen.evaluation import Evaluation as Evaluation
    from dpgen.evaluation import evaluate as evaluate
    from dpgen.privacy.ledger import Budget as Budget
    from dpgen.privacy.ledger import BudgetExceeded as BudgetExceeded
    from dpgen.privacy.ledger import Ledger as Ledger
    from dpgen.privacy.ledger import LedgerError as LedgerError
    from dpgen.privacy.sampling import PoissonLoader as PoissonLoader
    from dpgen.release import Draws as Draws
    from dpgen.release import PrivateSampler as PrivateSampler
    from dpgen.release import PublicModel as PublicModel
    from dpgen.release import Samples as Samples
    from dpgen.report import epsilon_figure as epsilon_figure
    from dpgen.reproduce import REPRODUCTIONS as REPRODUCTIONS
    from dpgen.run import Outcome as Outcome
    from dpgen.run import run as run
    from dpgen.runtime import Runtime as Runtime
    from dpgen.statement import PrivacyStatement as PrivacyStatement
    from dpgen.systems.budget import GENERAL_MOMENTS as GENERAL_MOMENTS
    from dpgen.systems.budget import EpochCost as EpochCost
    from dpgen.systems.budget import epoch_costs as epoch_costs
    from dpgen.systems.dpgm import DPGM as DPGM
    from dpgen.systems.dpgm_options import DPGMConfig as DPGMConfig
    from dpgen.systems.dpgm_options import DPGMPlan as DPGMPlan
    from dpgen.systems.kmeans import DPKMeans as DPKMeans
    from dpgen.systems.kmeans_plan import KMeansPlan as KMeansPlan
    from dpgen.systems.mixture import MixtureModel as MixtureModel
    from dpgen.systems.registry import SYSTEMS as SYSTEMS
    from dpgen.systems.registry import load_model as load_model

__version__ = "0.1.0"

__all__ = export(
    __name__,
    {
        "AutomaticClipping": "dpgen.callbacks",
        "BoundedClipping": "dpgen.callbacks",
        "Budget": "dpgen.privacy.ledger",
        "BudgetExceeded": "dpgen.privacy.ledger",
        "DPGM": "dpgen.systems.dpgm",
        "DPGMConfig": "dpgen.systems.dpgm_options",
        "DPGMPlan": "dpgen.systems.dpgm_options",
        "DPKMeans": "dpgen.systems.kmeans",
        "DPNorm": "dpgen.callbacks",
        "Draws": "dpgen.release",
        "EpochCost": "dpgen.systems.budget",
        "Evaluation": "dpgen.evaluation",
        "GENERAL_MOMENTS": "dpgen.systems.budget",
        "Job": "dpgen.cli",
        "KMeansPlan": "dpgen.systems.kmeans_plan",
        "Ledger": "dpgen.privacy.ledger",
        "LedgerError": "dpgen.privacy.ledger",
        "MixtureModel": "dpgen.systems.mixture",
        "Outcome": "dpgen.run",
        "PoissonLoader": "dpgen.privacy.sampling",
        "Previews": "dpgen.callbacks",
        "PrivacyAccountant": "dpgen.callbacks",
        "PrivacyStatement": "dpgen.statement",
        "PrivateSampler": "dpgen.release",
        "PublicModel": "dpgen.release",
        "QuantileClipping": "dpgen.callbacks",
        "REPRODUCTIONS": "dpgen.reproduce",
        "Runtime": "dpgen.runtime",
        "SYSTEMS": "dpgen.systems.registry",
        "Samples": "dpgen.release",
        "data": "dpgen.data",
        "epoch_costs": "dpgen.systems.budget",
        "epsilon_figure": "dpgen.report",
        "evaluate": "dpgen.evaluation",
        "load_model": "dpgen.systems.registry",
        "metrics": "dpgen.metrics",
        "parse_job": "dpgen.cli",
        "run": "dpgen.run",
        "usage": "dpgen.cli",
    },
)
