"""Public names of dpgen.callbacks, for type checkers and for `lazy_loader`, which imports each on first use."""

from .accountant import PrivacyAccountant as PrivacyAccountant
from .clipping import AutomaticClipping as AutomaticClipping
from .clipping import BoundedClipping as BoundedClipping
from .clipping import Clipping as Clipping
from .clipping import DPNorm as DPNorm
from .clipping import PerLayerClipping as PerLayerClipping
from .loggers import Previews as Previews
