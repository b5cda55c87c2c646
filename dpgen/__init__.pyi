"""Public names of dpgen, for type checkers and for `lazy_loader`, which imports each on first use."""

from . import data as data
from . import metrics as metrics
from .api import BernsteinSynthesizer as BernsteinSynthesizer
from .api import DPGANSynthesizer as DPGANSynthesizer
from .api import DPGMSynthesizer as DPGMSynthesizer
from .api import GaussianSynthesizer as GaussianSynthesizer
from .api import GridResponseSynthesizer as GridResponseSynthesizer
from .api import MarginalsSynthesizer as MarginalsSynthesizer
from .api import MBDESynthesizer as MBDESynthesizer
from .api import MERFSynthesizer as MERFSynthesizer
from .api import MERRSynthesizer as MERRSynthesizer
from .api import MinimaxSynthesizer as MinimaxSynthesizer
from .api import MollifierSynthesizer as MollifierSynthesizer
from .api import MWEMSynthesizer as MWEMSynthesizer
from .api import ParkSynthesizer as ParkSynthesizer
from .api import ProjectedKernelSynthesizer as ProjectedKernelSynthesizer
from .api import QInvariantSynthesizer as QInvariantSynthesizer
from .api import RandomizedResponseSynthesizer as RandomizedResponseSynthesizer
from .api import RelationalSynthesizer as RelationalSynthesizer
from .api import Synthesizer as Synthesizer
from .api import TablesSynthesizer as TablesSynthesizer
from .api import fit as fit
from .auditing import AuditJob as AuditJob
from .auditing import AuditOptions as AuditOptions
from .auditing import Finding as Finding
from .auditing import audit as audit
from .auditing import parse_audit as parse_audit
from .callbacks import AutomaticClipping as AutomaticClipping
from .callbacks import BoundedClipping as BoundedClipping
from .callbacks import DPNorm as DPNorm
from .callbacks import Previews as Previews
from .callbacks import PrivacyAccountant as PrivacyAccountant
from .callbacks.checkpoint import Preempted as Preempted
from .cli.dry_run import dry_run as dry_run
from .cli.evaluate import Comparison as Comparison
from .cli.evaluate import compare_runs as compare_runs
from .cli.main import OneLineParser as OneLineParser
from .cli.main import exit_code as exit_code
from .config import DataConfig as DataConfig
from .config import ModelConfig as ModelConfig
from .config import RunConfig as RunConfig
from .config import parse_job as parse_job
from .discretized import DiscretizedColumn as DiscretizedColumn
from .divergences import f_divergence as f_divergence
from .evaluation import Evaluation as Evaluation
from .evaluation import evaluate as evaluate
from .evaluation.compare import compare as compare
from .nets import CriticNetwork as CriticNetwork
from .nets import GeneratorNetwork as GeneratorNetwork
from .nets import Network as Network
from .nets import OwnBank as OwnBank
from .privacy.curator import Curator as Curator
from .privacy.distributed import RemoteFailure as RemoteFailure
from .privacy.distributed import ShareDone as ShareDone
from .privacy.exact_sums import BoundedSum as BoundedSum
from .privacy.ledger import Budget as Budget
from .privacy.ledger import BudgetExceeded as BudgetExceeded
from .privacy.ledger import Ledger as Ledger
from .privacy.ledger import LedgerError as LedgerError
from .privacy.ledger import Planned as Planned
from .privacy.sampling import PoissonLoader as PoissonLoader
from .privacy.shared_budget import SharedBudget as SharedBudget
from .release import Draws as Draws
from .release import PrivateSampler as PrivateSampler
from .release import PublicModel as PublicModel
from .release import RecordModel as RecordModel
from .release import RecordSamples as RecordSamples
from .release import Samples as Samples
from .report import report as report
from .run import Outcome as Outcome
from .run import run as run
from .runtime import Runtime as Runtime
from .runtime import quiet_training as quiet_training
from .statement import PrivacyStatement as PrivacyStatement
from .statement import guarantee as guarantee
from .statement import rounded_up as rounded_up
from .systems.dp_sgd.own_module import make_private as make_private
from .systems.dp_sgd.own_module import release as release
from .systems.dp_sgd.partition import LabelPartition as LabelPartition
from .systems.dp_sgd.plan import DPSGDConfig as DPSGDConfig
from .systems.dp_sgd.plan import DPSGDPlan as DPSGDPlan
from .systems.dp_sgd.sums import PrivateSums as PrivateSums
from .systems.dpgm.fit import DPGM as DPGM
from .systems.dpgm.model import MixtureModel as MixtureModel
from .systems.dpgm.plan import DPGMConfig as DPGMConfig
from .systems.dpgm.plan import DPGMPlan as DPGMPlan
from .systems.gaussian.plan import GaussianConfig as GaussianConfig
from .systems.gaussian.plan import GaussianPlan as GaussianPlan
from .systems.kmeans.fit import DPKMeans as DPKMeans
from .systems.kmeans.plan import KMeansPlan as KMeansPlan
from .systems.local.model import FiniteSampler as FiniteSampler
from .systems.local.model import load_mechanism as load_mechanism
from .systems.local.plan import LocalConfig as LocalConfig
from .systems.local.plan import LocalPlan as LocalPlan
from .systems.local.samplers import MinimaxSampler as MinimaxSampler
from .systems.local.samplers import ParkSampler as ParkSampler
from .systems.local.samplers import ProjectedKernel as ProjectedKernel
from .systems.local.samplers import QInvariantMinimax as QInvariantMinimax
from .systems.local.samplers import RandomizedResponse as RandomizedResponse
from .systems.local.samplers import RelativeMollifier as RelativeMollifier
from .systems.mbde.boxes import BernsteinModel as BernsteinModel
from .systems.mbde.densities import Box as Box
from .systems.mbde.densities import ClippedDensity as ClippedDensity
from .systems.mbde.densities import GaussianReference as GaussianReference
from .systems.mbde.densities import SIRSampler as SIRSampler
from .systems.mbde.densities import UniformReference as UniformReference
from .systems.mbde.fit import MBDE as MBDE
from .systems.mbde.plan import BernsteinPlan as BernsteinPlan
from .systems.mbde.plan import DrawPlan as DrawPlan
from .systems.mbde.plan import MBDEConfig as MBDEConfig
from .systems.ordered.fit import ordered_estimator as ordered_estimator
from .systems.ordered.merr import MERR as MERR
from .systems.ordered.model import OrderedDistribution as OrderedDistribution
from .systems.ordered.partition import PartitionCDF as PartitionCDF
from .systems.ordered.plan import OrderedConfig as OrderedConfig
from .systems.ordered.plan import OrderedPlan as OrderedPlan
from .systems.registry import SYSTEMS as SYSTEMS
from .systems.registry import load as load
from .systems.tables.intervals import intervals as intervals

__version__: str

__all__ = [
    "DPGM",
    "MBDE",
    "MERR",
    "SYSTEMS",
    "AuditJob",
    "AuditOptions",
    "AutomaticClipping",
    "BernsteinModel",
    "BernsteinPlan",
    "BernsteinSynthesizer",
    "BoundedClipping",
    "BoundedSum",
    "Box",
    "Budget",
    "BudgetExceeded",
    "ClippedDensity",
    "Comparison",
    "CriticNetwork",
    "Curator",
    "DPGANSynthesizer",
    "DPGMConfig",
    "DPGMPlan",
    "DPGMSynthesizer",
    "DPKMeans",
    "DPNorm",
    "DPSGDConfig",
    "DPSGDPlan",
    "DataConfig",
    "DiscretizedColumn",
    "DrawPlan",
    "Draws",
    "Evaluation",
    "Finding",
    "FiniteSampler",
    "GaussianConfig",
    "GaussianPlan",
    "GaussianReference",
    "GaussianSynthesizer",
    "GeneratorNetwork",
    "GridResponseSynthesizer",
    "KMeansPlan",
    "LabelPartition",
    "Ledger",
    "LedgerError",
    "LocalConfig",
    "LocalPlan",
    "MBDEConfig",
    "MBDESynthesizer",
    "MERFSynthesizer",
    "MERRSynthesizer",
    "MWEMSynthesizer",
    "MarginalsSynthesizer",
    "MinimaxSampler",
    "MinimaxSynthesizer",
    "MixtureModel",
    "ModelConfig",
    "MollifierSynthesizer",
    "Network",
    "OneLineParser",
    "OrderedConfig",
    "OrderedDistribution",
    "OrderedPlan",
    "Outcome",
    "OwnBank",
    "ParkSampler",
    "ParkSynthesizer",
    "PartitionCDF",
    "Planned",
    "PoissonLoader",
    "Preempted",
    "Previews",
    "PrivacyAccountant",
    "PrivacyStatement",
    "PrivateSampler",
    "PrivateSums",
    "ProjectedKernel",
    "ProjectedKernelSynthesizer",
    "PublicModel",
    "QInvariantMinimax",
    "QInvariantSynthesizer",
    "RandomizedResponse",
    "RandomizedResponseSynthesizer",
    "RecordModel",
    "RecordSamples",
    "RelationalSynthesizer",
    "RelativeMollifier",
    "RemoteFailure",
    "RunConfig",
    "Runtime",
    "SIRSampler",
    "Samples",
    "ShareDone",
    "SharedBudget",
    "Synthesizer",
    "TablesSynthesizer",
    "UniformReference",
    "audit",
    "compare",
    "compare_runs",
    "data",
    "dry_run",
    "evaluate",
    "exit_code",
    "f_divergence",
    "fit",
    "guarantee",
    "intervals",
    "load",
    "load_mechanism",
    "make_private",
    "metrics",
    "ordered_estimator",
    "parse_audit",
    "parse_job",
    "quiet_training",
    "release",
    "report",
    "rounded_up",
    "run",
]
