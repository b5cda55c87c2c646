"""dpgen: differentially private generative modelling in PyTorch Lightning."""

import lazy_loader

__version__ = "0.4.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
