"""Lightning callbacks: the privacy accountant, clipping policies, previews of the released model."""

from dpgen.callbacks.accountant import PrivacyAccountant
from dpgen.callbacks.clipping import AutomaticClipping, BoundedClipping, Clipping, DPNorm, PerLayerClipping
from dpgen.callbacks.loggers import Previews

__all__ = ["AutomaticClipping", "BoundedClipping", "Clipping", "DPNorm", "PerLayerClipping", "Previews", "PrivacyAccountant"]
