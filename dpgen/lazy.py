"""Packages that import what they export when it is first used: planning a budget needs no torch."""

import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


class LazyPackage(ModuleType):
    """A package with a table `_home` of exported names, each with the module that holds it."""

    _home: Mapping[str, str]

    def __getattr__(self, name: str) -> Any:
        if name not in self._home:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        setattr(self, name, import_module(self._home[name]))
        return self.__dict__[name]

    def __setattr__(self, name: str, value: Any) -> None:
        # Python binds an imported submodule here, too: `dpgen.run` must stay the function of the module dpgen.run.
        if isinstance(value, ModuleType) and self._home.get(name) == value.__name__:
            value = getattr(value, name, value)
        super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *self._home})


def export(package: str, home: Mapping[str, str]) -> list[str]:
    """Let `package` import each name of `home` from its module on first use (the name of a submodule: that module).

    Returns the names, for `__all__`.
    """
    module = sys.modules[package]
    module.__dict__["_home"] = home
    module.__class__ = LazyPackage
    return sorted(home)
