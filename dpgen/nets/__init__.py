"""Network components: k models of one architecture in one parameter matrix."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
