"""Generative systems: each with a plan of what it may spend, a configuration, and a fit that returns a release."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
