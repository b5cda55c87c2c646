"""Packages of the wheel: dpgen, and `configs` inside of it."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["dpgen*"]), "dpgen.configs"],
    package_dir={"dpgen.configs": "configs"},
)
