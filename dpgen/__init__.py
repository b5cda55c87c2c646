"""dpgen: differentially private generative modelling in PyTorch Lightning."""

import sys
import warnings
from glob import escape, glob
from pathlib import Path
from types import ModuleType
from typing import Any

import lazy_loader

__version__ = "0.6.0"

_exported, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name.endswith("Synthesizer") and name not in __all__:
        raise AttributeError(f"dpgen has no {name}; write dpgen.Synthesizer(MODEL), where {name} of 0.4 stood for one MODEL")
    return _exported(name)


class _Package(ModuleType):
    """Functions that are named like their modules stay what `dpgen.NAME` is, whatever is imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, ModuleType) and name in ("release", "report", "run")):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package

if glob(f"{escape(str(Path(__file__).parents[1]))}/dpgen-*.dist-info"):  # ours is named dpgen_lightning
    warnings.warn(
        "other software named dpgen is installed in the same place and overwrites files of this package: "
        "pip uninstall dpgen, then pip install --force-reinstall --no-deps dpgen-lightning",
        RuntimeWarning,
        stacklevel=2,
    )
