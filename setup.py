"""Packages of the wheel: dpgen, and `configs` inside of it."""

import sys

from setuptools import find_packages, setup

if sys.version_info < (3, 11):  # noqa: UP036  where constraints are given with an extra, pip speaks of other packages
    sys.exit(f"dpgen needs Python 3.11 or newer; this is {sys.version.split()[0]}: python3.11 -m venv .venv makes another")

setup(
    packages=[*find_packages(include=["dpgen*"]), "dpgen.configs"],
    package_dir={"dpgen.configs": "configs"},
)
