"""Lightning callbacks: the privacy accountant, clipping policies, previews of the released model."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
