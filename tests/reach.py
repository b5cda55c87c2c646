"""A pytest plugin: which functions of the package every test enters, and how long it takes; written to $REACH as JSON."""

import json
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

PACKAGE = str(Path.cwd() / "dpgen") + os.sep

Place = tuple[str, int]
"""File and first line of a function."""


class Reach:
    """Functions that are entered, in any thread; those of a shared fixture count for every test that uses it."""

    def __init__(self) -> None:
        self.entered: set[CodeType] = set()
        self.fixtures: dict[str, set[Place]] = defaultdict(set)
        self.tests: dict[str, dict[str, Any]] = {}

    def _trace(self, frame: FrameType, kind: str, value: Any) -> None:
        self.entered.add(frame.f_code)  # and returning None: no line of it is looked at

    def places(self) -> set[Place]:
        """What has been entered since the last call."""
        entered, self.entered = self.entered, set()
        return {
            (code.co_filename[len(PACKAGE) - 6 :], code.co_firstlineno)
            for code in entered
            if code.co_filename.startswith(PACKAGE)
        }

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        outer = self.places()
        result = yield
        self.fixtures[fixturedef.argname] |= self.places()
        self.entered = set()
        self.outer |= outer
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[Any]:
        self.outer: set[Place] = set()
        self.entered, self.passed, self.seconds = set(), True, 0.0
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        try:
            result = yield
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
        places = self.outer | self.places()
        for name in getattr(item, "fixturenames", ()):
            places |= self.fixtures[name]
        self.tests[item.nodeid] = {"seconds": self.seconds, "passed": self.passed, "places": sorted(places)}
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds += report.duration
        self.passed &= report.passed

    def pytest_sessionfinish(self) -> None:
        Path(os.environ["REACH"]).write_text(json.dumps(self.tests))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Reach())
