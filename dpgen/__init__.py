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
    from dpgen.callbacks.preemption import Preempted as Preempted
    from dpgen.cli import Command as Command
    from dpgen.cli import Job as Job
    from dpgen.cli import parse_command as parse_command
    from dpgen.cli import parse_job as parse_job
    from dpgen.cli import usage as usage
    from dpgen.command import OneLineParser as OneLineParser
    from dpgen.command import exit_code as exit_code
    from dpgen.comparison import Comparison as Comparison
    from dpgen.comparison import compare as compare
    from dpgen.discretized import DiscretizedColumn as DiscretizedColumn
    from dpgen.divergences import f_divergence as f_divergence
    from dpgen.dry_run import dry_run as dry_run
    from dpgen.evaluation import Evaluation as Evaluation
    from dpgen.evaluation import evaluate as evaluate
    from dpgen.figures import epsilon_figure as epsilon_figure
    from dpgen.privacy.curator import Curator as Curator
    from dpgen.privacy.exact_sums import BoundedSum as BoundedSum
    from dpgen.privacy.ledger import Budget as Budget
    from dpgen.privacy.ledger import BudgetExceeded as BudgetExceeded
    from dpgen.privacy.ledger import Ledger as Ledger
    from dpgen.privacy.ledger import LedgerError as LedgerError
    from dpgen.privacy.ledger import Planned as Planned
    from dpgen.privacy.ranks import RemoteFailure as RemoteFailure
    from dpgen.privacy.sampling import PoissonLoader as PoissonLoader
    from dpgen.quiet import quiet_training as quiet_training
    from dpgen.release import Draws as Draws
    from dpgen.release import PrivateSampler as PrivateSampler
    from dpgen.release import PublicModel as PublicModel
    from dpgen.release import RecordModel as RecordModel
    from dpgen.reproduce import REPRODUCTIONS as REPRODUCTIONS
    from dpgen.run import Outcome as Outcome
    from dpgen.run import run as run
    from dpgen.runtime import Runtime as Runtime
    from dpgen.samples import RecordSamples as RecordSamples
    from dpgen.samples import Samples as Samples
    from dpgen.statement import PrivacyStatement as PrivacyStatement
    from dpgen.statement import guarantee as guarantee
    from dpgen.statement import rounded_up as rounded_up
    from dpgen.sweep import Sweep as Sweep
    from dpgen.sweep import run_sweep as run_sweep
    from dpgen.systems.clusters.kmeans import DPKMeans as DPKMeans
    from dpgen.systems.clusters.kmeans_plan import KMeansPlan as KMeansPlan
    from dpgen.systems.continuous.bernstein import BernsteinModel as BernsteinModel
    from dpgen.systems.continuous.bernstein import BernsteinPlan as BernsteinPlan
    from dpgen.systems.continuous.box import Box as Box
    from dpgen.systems.continuous.draw_plan import DrawPlan as DrawPlan
    from dpgen.systems.continuous.laws import ClippedLaw as ClippedLaw
    from dpgen.systems.continuous.laws import TiltedLaw as TiltedLaw
    from dpgen.systems.continuous.mbde import MBDE as MBDE
    from dpgen.systems.continuous.mbde_options import MBDEConfig as MBDEConfig
    from dpgen.systems.continuous.metropolis import MetropolisSampler as MetropolisSampler
    from dpgen.systems.continuous.references import GaussianReference as GaussianReference
    from dpgen.systems.continuous.references import UniformReference as UniformReference
    from dpgen.systems.continuous.references import as_reference as as_reference
    from dpgen.systems.continuous.rejection import RejectionSampler as RejectionSampler
    from dpgen.systems.continuous.sir import SIRSampler as SIRSampler
    from dpgen.systems.finite.boxes import ParkSampler as ParkSampler
    from dpgen.systems.finite.boxes import ProjectedKernel as ProjectedKernel
    from dpgen.systems.finite.boxes import QInvariantMinimax as QInvariantMinimax
    from dpgen.systems.finite.boxes import RelativeMollifier as RelativeMollifier
    from dpgen.systems.finite.kernels import MechanismSampler as MechanismSampler
    from dpgen.systems.finite.kernels import MinimaxSampler as MinimaxSampler
    from dpgen.systems.finite.kernels import RandomizedResponse as RandomizedResponse
    from dpgen.systems.finite.local_plan import LocalConfig as LocalConfig
    from dpgen.systems.finite.local_plan import LocalPlan as LocalPlan
    from dpgen.systems.finite.mollifiers import in_relative_mollifier as in_relative_mollifier
    from dpgen.systems.finite.mollifiers import is_mollifier as is_mollifier
    from dpgen.systems.finite.mollifiers import mechanism_mollifier as mechanism_mollifier
    from dpgen.systems.finite.mollifiers import mollify_density as mollify_density
    from dpgen.systems.finite.sampler import FiniteSampler as FiniteSampler
    from dpgen.systems.finite.sampler import load_mechanism as load_mechanism
    from dpgen.systems.networks.dpgm import DPGM as DPGM
    from dpgen.systems.networks.dpgm_options import DPGMConfig as DPGMConfig
    from dpgen.systems.networks.dpgm_options import DPGMPlan as DPGMPlan
    from dpgen.systems.networks.epoch_costs import GENERAL_MOMENTS as GENERAL_MOMENTS
    from dpgen.systems.networks.epoch_costs import EpochCost as EpochCost
    from dpgen.systems.networks.epoch_costs import epoch_costs as epoch_costs
    from dpgen.systems.networks.mixture import MixtureModel as MixtureModel
    from dpgen.systems.ordered.distribution import OrderedDistribution as OrderedDistribution
    from dpgen.systems.ordered.merr import MERR as MERR
    from dpgen.systems.ordered.ordered_options import OrderedConfig as OrderedConfig
    from dpgen.systems.ordered.ordered_options import OrderedPlan as OrderedPlan
    from dpgen.systems.ordered.partition_cdf import PartitionCDF as PartitionCDF
    from dpgen.systems.registry import SYSTEMS as SYSTEMS
    from dpgen.systems.registry import load_model as load_model

__version__ = "0.3.0"

__all__ = export(
    __name__,
    {
        "AuditJob": "dpgen.auditing",
        "AuditOptions": "dpgen.auditing",
        "AutomaticClipping": "dpgen.callbacks",
        "BernsteinModel": "dpgen.systems.continuous.bernstein",
        "BernsteinPlan": "dpgen.systems.continuous.bernstein",
        "BoundedClipping": "dpgen.callbacks",
        "BoundedSum": "dpgen.privacy.exact_sums",
        "Box": "dpgen.systems.continuous.box",
        "Budget": "dpgen.privacy.ledger",
        "BudgetExceeded": "dpgen.privacy.ledger",
        "ClippedLaw": "dpgen.systems.continuous.laws",
        "Command": "dpgen.cli",
        "Comparison": "dpgen.comparison",
        "Curator": "dpgen.privacy.curator",
        "DPGM": "dpgen.systems.networks.dpgm",
        "DPGMConfig": "dpgen.systems.networks.dpgm_options",
        "DPGMPlan": "dpgen.systems.networks.dpgm_options",
        "DPKMeans": "dpgen.systems.clusters.kmeans",
        "DPNorm": "dpgen.callbacks",
        "DiscretizedColumn": "dpgen.discretized",
        "DrawPlan": "dpgen.systems.continuous.draw_plan",
        "Draws": "dpgen.release",
        "EpochCost": "dpgen.systems.networks.epoch_costs",
        "Evaluation": "dpgen.evaluation",
        "Finding": "dpgen.auditing",
        "FiniteSampler": "dpgen.systems.finite.sampler",
        "GENERAL_MOMENTS": "dpgen.systems.networks.epoch_costs",
        "GaussianReference": "dpgen.systems.continuous.references",
        "Job": "dpgen.cli",
        "KMeansPlan": "dpgen.systems.clusters.kmeans_plan",
        "Ledger": "dpgen.privacy.ledger",
        "LedgerError": "dpgen.privacy.ledger",
        "LocalConfig": "dpgen.systems.finite.local_plan",
        "LocalPlan": "dpgen.systems.finite.local_plan",
        "MBDE": "dpgen.systems.continuous.mbde",
        "MBDEConfig": "dpgen.systems.continuous.mbde_options",
        "MERR": "dpgen.systems.ordered.merr",
        "MechanismSampler": "dpgen.systems.finite.kernels",
        "MetropolisSampler": "dpgen.systems.continuous.metropolis",
        "MinimaxSampler": "dpgen.systems.finite.kernels",
        "MixtureModel": "dpgen.systems.networks.mixture",
        "OneLineParser": "dpgen.command",
        "OrderedConfig": "dpgen.systems.ordered.ordered_options",
        "OrderedDistribution": "dpgen.systems.ordered.distribution",
        "OrderedPlan": "dpgen.systems.ordered.ordered_options",
        "Outcome": "dpgen.run",
        "ParkSampler": "dpgen.systems.finite.boxes",
        "PartitionCDF": "dpgen.systems.ordered.partition_cdf",
        "Planned": "dpgen.privacy.ledger",
        "PoissonLoader": "dpgen.privacy.sampling",
        "Preempted": "dpgen.callbacks.preemption",
        "Previews": "dpgen.callbacks",
        "PrivacyAccountant": "dpgen.callbacks",
        "PrivacyStatement": "dpgen.statement",
        "PrivateSampler": "dpgen.release",
        "ProjectedKernel": "dpgen.systems.finite.boxes",
        "PublicModel": "dpgen.release",
        "QInvariantMinimax": "dpgen.systems.finite.boxes",
        "QuantileClipping": "dpgen.callbacks",
        "REPRODUCTIONS": "dpgen.reproduce",
        "RandomizedResponse": "dpgen.systems.finite.kernels",
        "RejectionSampler": "dpgen.systems.continuous.rejection",
        "RelativeMollifier": "dpgen.systems.finite.boxes",
        "RemoteFailure": "dpgen.privacy.ranks",
        "RecordModel": "dpgen.release",
        "Runtime": "dpgen.runtime",
        "SIRSampler": "dpgen.systems.continuous.sir",
        "SYSTEMS": "dpgen.systems.registry",
        "RecordSamples": "dpgen.samples",
        "Samples": "dpgen.samples",
        "Sweep": "dpgen.sweep",
        "TiltedLaw": "dpgen.systems.continuous.laws",
        "UniformReference": "dpgen.systems.continuous.references",
        "as_reference": "dpgen.systems.continuous.references",
        "audit": "dpgen.auditing",
        "audit_usage": "dpgen.auditing",
        "compare": "dpgen.comparison",
        "data": "dpgen.data",
        "dry_run": "dpgen.dry_run",
        "epoch_costs": "dpgen.systems.networks.epoch_costs",
        "epsilon_figure": "dpgen.figures",
        "evaluate": "dpgen.evaluation",
        "exit_code": "dpgen.command",
        "f_divergence": "dpgen.divergences",
        "guarantee": "dpgen.statement",
        "in_relative_mollifier": "dpgen.systems.finite.mollifiers",
        "is_mollifier": "dpgen.systems.finite.mollifiers",
        "load_mechanism": "dpgen.systems.finite.sampler",
        "load_model": "dpgen.systems.registry",
        "mechanism_mollifier": "dpgen.systems.finite.mollifiers",
        "metrics": "dpgen.metrics",
        "mollify_density": "dpgen.systems.finite.mollifiers",
        "parse_audit": "dpgen.auditing",
        "parse_command": "dpgen.cli",
        "parse_job": "dpgen.cli",
        "quiet_training": "dpgen.quiet",
        "rounded_up": "dpgen.statement",
        "run": "dpgen.run",
        "run_sweep": "dpgen.sweep",
        "usage": "dpgen.cli",
    },
)
