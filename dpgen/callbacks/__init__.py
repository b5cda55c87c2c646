"""Lightning callbacks: the privacy accountant, clipping policies, previews of the released model."""

from dpgen.callbacks.accountant import PrivacyAccountant
from dpgen.callbacks.dpnorm import DPNorm, QuantileClipping
from dpgen.callbacks.policies import AutomaticClipping, BoundedClipping, Clipping
from dpgen.callbacks.previews import Previews

__all__ = ["AutomaticClipping", "BoundedClipping", "Clipping", "DPNorm", "Previews", "PrivacyAccountant", "QuantileClipping"]
