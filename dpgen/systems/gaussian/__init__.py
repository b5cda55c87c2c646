"""The Gaussian component of DPGM: noisy moments in a DP-PCA space, no training, seconds."""

from typing import TYPE_CHECKING

from dpgen.lazy import export

if TYPE_CHECKING:
    from dpgen.systems.gaussian.fit_rule import sizes as sizes
    from dpgen.systems.gaussian.gaussian_fit import fit as fit
    from dpgen.systems.gaussian.gaussian_fit import fit_task as fit_task
    from dpgen.systems.gaussian.gaussian_model import GaussianMixtureModel as GaussianMixtureModel
    from dpgen.systems.gaussian.gaussian_options import GaussianOptions as GaussianOptions
    from dpgen.systems.gaussian.gaussian_task import Task as Task
    from dpgen.systems.gaussian.product_mixture import ProductMixture as ProductMixture
    from dpgen.systems.gaussian.record_stream import RecordStream as RecordStream

_HOME = {
    "fit_rule": ("sizes",),
    "gaussian_fit": ("fit", "fit_task"),
    "gaussian_model": ("GaussianMixtureModel",),
    "gaussian_options": ("GaussianOptions",),
    "gaussian_task": ("Task",),
    "product_mixture": ("ProductMixture",),
    "record_stream": ("RecordStream",),
}

__all__ = export(__name__, {name: f"{__name__}.{module}" for module, names in _HOME.items() for name in names})
