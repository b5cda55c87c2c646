"""Private data and their loaders; each loader takes keyword options only and returns the kind of data it is listed under."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
