"""Audits: empirical lower bounds on what the systems leak, beside what they claim."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
