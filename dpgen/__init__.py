"""dpgen: differentially private generative modelling in PyTorch Lightning."""

from typing import TYPE_CHECKING

from dpgen.lazy import export

if TYPE_CHECKING:
    from dpgen import data as data
    from dpgen import metrics as metrics
    from dpgen.auditing import AuditJob as AuditJob
    from dpgen.auditing import AuditOptions as AuditOptions
    from dpgen.auditing import Finding as Finding
    from dpgen.auditing import audit as audit
    from dpgen.auditing import audit_usage as audit_usage
    from dpgen.auditing import parse_audit as parse_audit
    from dpgen.callbacks import AutomaticClipping as AutomaticClipping
    from dpgen.callbacks import BoundedClipping as BoundedClipping
    from dpgen.callbacks import DPNorm as DPNorm
    from dpgen.callbacks import Previews as Previews
    from dpgen.callbacks import PrivacyAccountant as PrivacyAccountant
    from dpgen.callbacks import QuantileClipping as QuantileClipping
    from dpgen.callbacks.checkpoint import Preempted as Preempted
    from dpgen.cli.command import OneLineParser as OneLineParser
    from dpgen.cli.command import exit_code as exit_code
    from dpgen.cli.command import quiet_training as quiet_training
    from dpgen.cli.comparison import Comparison as Comparison
    from dpgen.cli.comparison import compare as compare
    from dpgen.cli.dry_run import dry_run as dry_run
    from dpgen.cli.jobs import Command as Command
    from dpgen.cli.jobs import Job as Job
    from dpgen.cli.jobs import parse_command as parse_command
    from dpgen.cli.jobs import parse_job as parse_job
    from dpgen.cli.jobs import usage as usage
    from dpgen.cli.sweep import Sweep as Sweep
    from dpgen.cli.sweep import run_sweep as run_sweep
    from dpgen.discretized import DiscretizedColumn as DiscretizedColumn
    from dpgen.divergences import f_divergence as f_divergence
    from dpgen.evaluation import Evaluation as Evaluation
    from dpgen.evaluation import evaluate as evaluate
    from dpgen.figures import epsilon_figure as epsilon_figure
    from dpgen.privacy.curator import Curator as Curator
    from dpgen.privacy.distributed import RemoteFailure as RemoteFailure
    from dpgen.privacy.exact_sums import BoundedSum as BoundedSum
    from dpgen.privacy.ledger import Budget as Budget
    from dpgen.privacy.ledger import BudgetExceeded as BudgetExceeded
    from dpgen.privacy.ledger import Ledger as Ledger
    from dpgen.privacy.ledger import LedgerError as LedgerError
    from dpgen.privacy.ledger import Planned as Planned
    from dpgen.privacy.sampling import PoissonLoader as PoissonLoader
    from dpgen.release import Draws as Draws
    from dpgen.release import PrivateSampler as PrivateSampler
    from dpgen.release import PublicModel as PublicModel
    from dpgen.release import RecordModel as RecordModel
    from dpgen.release import RecordSamples as RecordSamples
    from dpgen.release import Samples as Samples
    from dpgen.reproduce import REPRODUCTIONS as REPRODUCTIONS
    from dpgen.run import Outcome as Outcome
    from dpgen.run import run as run
    from dpgen.runtime import Runtime as Runtime
    from dpgen.statement import PrivacyStatement as PrivacyStatement
    from dpgen.statement import guarantee as guarantee
    from dpgen.statement import rounded_up as rounded_up
    from dpgen.systems.dpgm.costs import GENERAL_MOMENTS as GENERAL_MOMENTS
    from dpgen.systems.dpgm.costs import EpochCost as EpochCost
    from dpgen.systems.dpgm.costs import epoch_costs as epoch_costs
    from dpgen.systems.dpgm.fit import DPGM as DPGM
    from dpgen.systems.dpgm.model import MixtureModel as MixtureModel
    from dpgen.systems.dpgm.plan import DPGMConfig as DPGMConfig
    from dpgen.systems.dpgm.plan import DPGMPlan as DPGMPlan
    from dpgen.systems.kmeans.fit import DPKMeans as DPKMeans
    from dpgen.systems.kmeans.plan import KMeansPlan as KMeansPlan
    from dpgen.systems.local.boxes import ParkSampler as ParkSampler
    from dpgen.systems.local.boxes import ProjectedKernel as ProjectedKernel
    from dpgen.systems.local.boxes import QInvariantMinimax as QInvariantMinimax
    from dpgen.systems.local.boxes import RelativeMollifier as RelativeMollifier
    from dpgen.systems.local.kernels import MechanismSampler as MechanismSampler
    from dpgen.systems.local.kernels import MinimaxSampler as MinimaxSampler
    from dpgen.systems.local.kernels import RandomizedResponse as RandomizedResponse
    from dpgen.systems.local.mollifiers import in_relative_mollifier as in_relative_mollifier
    from dpgen.systems.local.mollifiers import is_mollifier as is_mollifier
    from dpgen.systems.local.mollifiers import mechanism_mollifier as mechanism_mollifier
    from dpgen.systems.local.mollifiers import mollify_density as mollify_density
    from dpgen.systems.local.plan import LocalConfig as LocalConfig
    from dpgen.systems.local.plan import LocalPlan as LocalPlan
    from dpgen.systems.local.sampler import FiniteSampler as FiniteSampler
    from dpgen.systems.local.sampler import load_mechanism as load_mechanism
    from dpgen.systems.mbde.bernstein import BernsteinModel as BernsteinModel
    from dpgen.systems.mbde.densities import Box as Box
    from dpgen.systems.mbde.densities import ClippedLaw as ClippedLaw
    from dpgen.systems.mbde.densities import TiltedLaw as TiltedLaw
    from dpgen.systems.mbde.model import MBDE as MBDE
    from dpgen.systems.mbde.plan import BernsteinPlan as BernsteinPlan
    from dpgen.systems.mbde.plan import DrawPlan as DrawPlan
    from dpgen.systems.mbde.plan import MBDEConfig as MBDEConfig
    from dpgen.systems.mbde.references import GaussianReference as GaussianReference
    from dpgen.systems.mbde.references import UniformReference as UniformReference
    from dpgen.systems.mbde.references import as_reference as as_reference
    from dpgen.systems.mbde.samplers import MetropolisSampler as MetropolisSampler
    from dpgen.systems.mbde.samplers import RejectionSampler as RejectionSampler
    from dpgen.systems.mbde.samplers import SIRSampler as SIRSampler
    from dpgen.systems.ordered.merr import MERR as MERR
    from dpgen.systems.ordered.model import OrderedDistribution as OrderedDistribution
    from dpgen.systems.ordered.partition import PartitionCDF as PartitionCDF
    from dpgen.systems.ordered.plan import OrderedConfig as OrderedConfig
    from dpgen.systems.ordered.plan import OrderedPlan as OrderedPlan
    from dpgen.systems.registry import SYSTEMS as SYSTEMS
    from dpgen.systems.registry import load_model as load_model

__version__ = "0.3.0"

__all__ = export(
    __name__,
    {
        "AuditJob": "dpgen.auditing",
        "AuditOptions": "dpgen.auditing",
        "AutomaticClipping": "dpgen.callbacks",
        "BernsteinModel": "dpgen.systems.mbde.bernstein",
        "BernsteinPlan": "dpgen.systems.mbde.plan",
        "BoundedClipping": "dpgen.callbacks",
        "BoundedSum": "dpgen.privacy.exact_sums",
        "Box": "dpgen.systems.mbde.densities",
        "Budget": "dpgen.privacy.ledger",
        "BudgetExceeded": "dpgen.privacy.ledger",
        "ClippedLaw": "dpgen.systems.mbde.densities",
        "Command": "dpgen.cli.jobs",
        "Comparison": "dpgen.cli.comparison",
        "Curator": "dpgen.privacy.curator",
        "DPGM": "dpgen.systems.dpgm.fit",
        "DPGMConfig": "dpgen.systems.dpgm.plan",
        "DPGMPlan": "dpgen.systems.dpgm.plan",
        "DPKMeans": "dpgen.systems.kmeans.fit",
        "DPNorm": "dpgen.callbacks",
        "DiscretizedColumn": "dpgen.discretized",
        "DrawPlan": "dpgen.systems.mbde.plan",
        "Draws": "dpgen.release",
        "EpochCost": "dpgen.systems.dpgm.costs",
        "Evaluation": "dpgen.evaluation",
        "Finding": "dpgen.auditing",
        "FiniteSampler": "dpgen.systems.local.sampler",
        "GENERAL_MOMENTS": "dpgen.systems.dpgm.costs",
        "GaussianReference": "dpgen.systems.mbde.references",
        "Job": "dpgen.cli.jobs",
        "KMeansPlan": "dpgen.systems.kmeans.plan",
        "Ledger": "dpgen.privacy.ledger",
        "LedgerError": "dpgen.privacy.ledger",
        "LocalConfig": "dpgen.systems.local.plan",
        "LocalPlan": "dpgen.systems.local.plan",
        "MBDE": "dpgen.systems.mbde.model",
        "MBDEConfig": "dpgen.systems.mbde.plan",
        "MERR": "dpgen.systems.ordered.merr",
        "MechanismSampler": "dpgen.systems.local.kernels",
        "MetropolisSampler": "dpgen.systems.mbde.samplers",
        "MinimaxSampler": "dpgen.systems.local.kernels",
        "MixtureModel": "dpgen.systems.dpgm.model",
        "OneLineParser": "dpgen.cli.command",
        "OrderedConfig": "dpgen.systems.ordered.plan",
        "OrderedDistribution": "dpgen.systems.ordered.model",
        "OrderedPlan": "dpgen.systems.ordered.plan",
        "Outcome": "dpgen.run",
        "ParkSampler": "dpgen.systems.local.boxes",
        "PartitionCDF": "dpgen.systems.ordered.partition",
        "Planned": "dpgen.privacy.ledger",
        "PoissonLoader": "dpgen.privacy.sampling",
        "Preempted": "dpgen.callbacks.checkpoint",
        "Previews": "dpgen.callbacks",
        "PrivacyAccountant": "dpgen.callbacks",
        "PrivacyStatement": "dpgen.statement",
        "PrivateSampler": "dpgen.release",
        "ProjectedKernel": "dpgen.systems.local.boxes",
        "PublicModel": "dpgen.release",
        "QInvariantMinimax": "dpgen.systems.local.boxes",
        "QuantileClipping": "dpgen.callbacks",
        "REPRODUCTIONS": "dpgen.reproduce",
        "RandomizedResponse": "dpgen.systems.local.kernels",
        "RejectionSampler": "dpgen.systems.mbde.samplers",
        "RelativeMollifier": "dpgen.systems.local.boxes",
        "RemoteFailure": "dpgen.privacy.distributed",
        "RecordModel": "dpgen.release",
        "Runtime": "dpgen.runtime",
        "SIRSampler": "dpgen.systems.mbde.samplers",
        "SYSTEMS": "dpgen.systems.registry",
        "RecordSamples": "dpgen.release",
        "Samples": "dpgen.release",
        "Sweep": "dpgen.cli.sweep",
        "TiltedLaw": "dpgen.systems.mbde.densities",
        "UniformReference": "dpgen.systems.mbde.references",
        "as_reference": "dpgen.systems.mbde.references",
        "audit": "dpgen.auditing",
        "audit_usage": "dpgen.auditing",
        "compare": "dpgen.cli.comparison",
        "data": "dpgen.data",
        "dry_run": "dpgen.cli.dry_run",
        "epoch_costs": "dpgen.systems.dpgm.costs",
        "epsilon_figure": "dpgen.figures",
        "evaluate": "dpgen.evaluation",
        "exit_code": "dpgen.cli.command",
        "f_divergence": "dpgen.divergences",
        "guarantee": "dpgen.statement",
        "in_relative_mollifier": "dpgen.systems.local.mollifiers",
        "is_mollifier": "dpgen.systems.local.mollifiers",
        "load_mechanism": "dpgen.systems.local.sampler",
        "load_model": "dpgen.systems.registry",
        "mechanism_mollifier": "dpgen.systems.local.mollifiers",
        "metrics": "dpgen.metrics",
        "mollify_density": "dpgen.systems.local.mollifiers",
        "parse_audit": "dpgen.auditing",
        "parse_command": "dpgen.cli.jobs",
        "parse_job": "dpgen.cli.jobs",
        "quiet_training": "dpgen.cli.command",
        "rounded_up": "dpgen.statement",
        "run": "dpgen.run",
        "run_sweep": "dpgen.cli.sweep",
        "usage": "dpgen.cli.jobs",
    },
)
