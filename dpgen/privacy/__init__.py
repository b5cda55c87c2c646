"""The door between records and releases: budgets, the curator, exact sums, noise, accountants."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
