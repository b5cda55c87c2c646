"""Plants faults in privacy-critical lines and shows that the tests find them: `python -m tests.mutants`.

A fault is a snippet of a source file and what replaces it. The lists `faults/*.faults` hold them, line by line:

    = dpgen/systems/gaussian/calibration.py      the file
    ! tests/privacy/test_ranks.py              optional: test files for it that start processes: what these enter is not seen
    # the histogram gets no noise              a fault and why it is one
    @ def release_sizes                        optional: the snippet is the first after this text
    - return curator.gaussian(...)             the snippet, found exactly once; several lines are indented from the first
    + return histogram                         its replacement
    ~ the difference is rounded away           optional: why it is equivalent; it is listed, not run

A snippet that is not found, or twice, ends the command: a change of the source takes its faults along.

First the test files, but for `NOT_RUN`, run on the sources as they are, and a map is made of the functions that each test
enters. Then every fault is planted in a copy of the tree, and the tests that enter its function run, those first that enter
little else, until one fails. It prints who found what and ends with 1 if a fault survives or a test fails without any. It
uses two processes, unless told otherwise, and touches nothing in the tree itself.
"""

import argparse
import ast
import hashlib
import json
import multiprocessing
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
COPIED = ("dpgen", "papers", "tests", "scripts", "configs", "benchmarks", "pyproject.toml", "README.md", "CHANGELOG.md")
NOT_RUN = (
    "test_mutants.py",
    "test_shipped.py",
    "test_readme.py",
    "test_docs.py",
    "test_house.py",
    "test_cli.py",
    "test_crashes.py",
)
"""Test files of everything around: they start other processes, or are long."""
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["pytest", "lightning", "dp_accounting.pld", "numba", "scipy.stats", "sklearn.mixture"])
FIRST = (12, 120)  # tests before the rest
PATIENCE = 40.0  # seconds beside three times what the tests take without a fault

Map = dict[str, dict[str, Any]]


@dataclass
class Fault:
    """One entry of a list, `source`."""

    source: str
    file: str
    why: str
    after: str = ""
    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    equivalent: str = ""
    also: tuple[str, ...] = ()

    def planted(self, tree: Path) -> tuple[str, int]:
        """The source of a tree with the fault, and the line it is in.

        Raises:
            ValueError: the snippet does not occur exactly once.
        """
        source, start = (tree / self.file).read_text(), 0
        if self.after:
            if source.count(self.after) != 1:
                raise ValueError(f"{self.file}: {source.count(self.after)} times {self.after!r} ({self.why})")
            start = source.index(self.after)
        places = [place for place in _places(source, self.old[0]) if place >= start] if self.old else []
        places = [place for place in places if source.startswith(_indented(source, place, self.old), place)]
        if not places or (len(places) > 1 and not self.after):
            raise ValueError(f"{self.file}: {len(places)} times {self.old} ({self.why})")
        place, old = places[0], _indented(source, places[0], self.old)
        mutated = source[:place] + _indented(source, place, self.new) + source[place + len(old) :]
        if mutated == source:
            raise ValueError(f"{self.file}: nothing is changed by {self.old} ({self.why})")
        ast.parse(mutated)
        return mutated, source.count("\n", 0, place) + 1


def _places(source: str, text: str) -> list[int]:
    return [found.start() for found in re.finditer(re.escape(text), source)]


def _indented(source: str, place: int, lines: list[str]) -> str:
    """Lines as one text, those after the first indented like the line that the place is in."""
    start = source.rfind("\n", 0, place) + 1
    indent = source[start : len(source) - len(source[start:].lstrip(" "))]
    return f"\n{indent}".join(lines)


def read(path: Path) -> list[Fault]:
    """The faults of one list.

    Raises:
        ValueError: a line that cannot be understood.
    """
    faults: list[Fault] = []
    file, also = "", ()  # type: str, tuple[str, ...]
    for number, line in enumerate(path.read_text().splitlines(), 1):
        mark, text = line[:1], line[2:]
        if mark == "=":
            file, also = text.strip(), ()
        elif mark == "!":
            also = tuple(text.split())
        elif mark == "#":
            faults.append(Fault(path.name, file, text, also=also))
        elif mark == "@":
            faults[-1].after = text
        elif mark == "-":
            faults[-1].old.append(text)
        elif mark == "+":
            faults[-1].new.append(text)
        elif mark == "~":
            faults[-1].equivalent = text
        elif line.strip():
            raise ValueError(f"{path.name}, line {number}: {line!r} begins with none of = ! # @ - + ~")
    return faults


def all_faults() -> list[Fault]:
    """The faults of all lists; each is known to fit its source.

    Raises:
        ValueError: naming all that do not.
    """
    faults = [fault for path in sorted(HERE.glob("faults/*.faults")) for fault in read(path)]
    wrong = []
    for fault in faults:
        try:
            fault.planted(ROOT)
        except (ValueError, OSError, SyntaxError) as error:
            wrong.append(str(error))
    if wrong:
        raise ValueError("faults that do not fit the sources:\n" + "\n".join(wrong))
    return faults


# -- which tests reach what --------------------------------------------------------------------------------------------


def copy_tree(directory: Path) -> Path:
    """A copy of what the tests need."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, directory / name, ignore=shutil.ignore_patterns("__pycache__", "*.nbc", "*.nbi"))
        elif source.exists():
            shutil.copy(source, directory / name)
    return directory


def run_pytest(tree: Path, tests: Sequence[str], *options: str, limit: float, **more: str) -> tuple[int, str]:
    """Exit status (-1: it took too long) and output, in a process that has the large libraries imported already."""
    out = tree / "pytest.output"
    out.write_text("")
    process = FORKS.Process(target=_pytest, args=(str(tree), list(tests), options, str(out), more))
    process.start()
    process.join(limit)
    if process.is_alive():
        os.killpg(int(process.pid or 0), signal.SIGKILL)
        process.join()
        return -1, f"took more than {limit:.0f} s"
    return int(process.exitcode or 0), out.read_text()


def _pytest(tree: str, tests: list[str], options: Sequence[str], out: str, more: dict[str, str]) -> None:
    os.setsid()  # what the tests start dies with this process
    with open(out, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": tree} | more  # for scripts that tests start
    sys.dont_write_bytecode = False
    os.chdir(tree)
    sys.path[:0] = [tree, f"{tree}/tests", f"{tree}/tests/helpers", f"{tree}/tests/contracts"]
    import pytest

    status = pytest.main(["-q", "--no-header", "-p", "no:cacheprovider", *options, *tests])
    sys.stdout.flush()
    os._exit(int(status))


def test_files(patterns: Sequence[str]) -> list[str]:
    """Test files, without those of `NOT_RUN`."""
    found = [path for pattern in patterns or ("**/test_*.py",) for path in sorted(ROOT.glob(f"tests/{pattern}"))]
    return [str(path.relative_to(ROOT)) for path in found if not any(path.match(pattern) for pattern in NOT_RUN)]


def digest(files: Sequence[str]) -> str:
    """Of all sources that a map depends on."""
    sha = hashlib.sha256(repr(sorted(files)).encode())
    for path in sorted([*ROOT.glob("dpgen/**/*.py"), *ROOT.glob("tests/**/*.py")]):
        if path != Path(__file__):
            sha.update(path.read_bytes())
    return sha.hexdigest()


def make_map(trees: "Queue[Path]", files: Sequence[str], workers: int) -> Map:
    """Functions that every test enters, and its seconds.

    Raises:
        RuntimeError: the tests do not run.
    """

    parts = [files[number :: 4 * workers] for number in range(min(4 * workers, len(files)))]

    def one(part: Sequence[str]) -> Map:
        tree = trees.get()
        out = tree / "reach.json"
        out.unlink(missing_ok=True)
        status, output = run_pytest(tree, part, "-p", "reach", limit=3600, REACH=str(out))
        trees.put(tree)
        if not out.exists():
            raise RuntimeError(f"the tests of {', '.join(part)} end with {status}:\n{output[-4000:]}")
        return dict(json.loads(out.read_text()))

    with ThreadPoolExecutor(workers) as pool:
        return {test: found for part in pool.map(one, parts) for test, found in part.items()}


def function_of(source: str, line: int) -> range:
    """Lines of the innermost function around a line; empty outside functions."""
    around = range(0)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            lines = range(first, (node.end_lineno or first) + 1)
            if line in lines and (not around or len(lines) < len(around)):
                around = lines
    return around


def reaching(reach: Map, file: str, source: str, line: int) -> list[str]:
    """Tests that enter the function around a line, those first that enter few others and are quick.

    Where it is compiled, or no function: any test of the file.
    """
    lines = function_of(source, line)
    chosen = [t for t, found in reach.items() if any(f == file and at in lines for f, at in found["places"])]
    if not chosen:
        chosen = [t for t, found in reach.items() if any(f == file for f, _ in found["places"])]
    return sorted(chosen, key=lambda test: len(reach[test]["places"]) * (0.5 + float(reach[test]["seconds"])))


# -- one fault after the other -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """What became of a fault."""

    fault: Fault
    killed: bool
    by: str
    seconds: float


def judge(fault: Fault, tree: Path, reach: Map) -> Verdict:
    """Plant a fault in a copy of the tree and run the tests that reach it."""
    began, path = time.monotonic(), tree / fault.file
    original = path.read_text()
    mutated, line = fault.planted(tree)
    tests = reaching(reach, fault.file, original, line)
    times, more = path.stat(), {}
    path.write_text(mutated)
    if "numba" in original:  # what calls this file's functions is compiled anew as well
        more["NUMBA_CACHE_DIR"] = tempfile.mkdtemp(dir=tree)
    try:
        also = [test for test in reach if test.startswith(fault.also)]
        for part in (tests[: FIRST[0]], tests[FIRST[0] : FIRST[1]], tests[FIRST[1] :], also):
            if part:
                limit = PATIENCE + 3 * sum(float(reach[test]["seconds"]) for test in part)
                status, output = run_pytest(tree, part, "-x", "--tb=line", limit=limit, **more)
                if status:
                    named = [text for text in output.splitlines() if text.startswith(("FAILED", "ERROR"))]
                    by = named[0] if named else output.strip().splitlines()[-1] if output.strip() else f"status {status}"
                    return Verdict(fault, True, by[:160], time.monotonic() - began)
    finally:
        path.write_text(original)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # bytecode and numba's cache are known by it
    return Verdict(fault, False, f"{len({*tests, *also})} tests reach it", time.monotonic() - began)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 if every fault is found."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=[""], help="texts, one of which is in the list, file or reason of a fault")
    parser.add_argument("--tests", nargs="*", default=(), help="patterns of test files below tests/ to run instead of all")
    parser.add_argument("--map", type=Path, help="file that keeps the map of tests for the same sources")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--check", action="store_true", help="only see whether every snippet is found")
    options = parser.parse_args(arguments)
    try:
        faults = all_faults()
    except ValueError as error:
        print(error)
        return 2
    chosen = [f for f in faults if any(text in f"{f.source} {f.file} {f.why}" for text in options.only)]
    run = [fault for fault in chosen if not fault.equivalent]
    print(f"{len(faults)} faults in {len({fault.file for fault in faults})} files, {len(chosen)} chosen")
    if options.check:
        return 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        trees: Queue[Path] = Queue()
        for number in range(options.workers):
            trees.put(copy_tree(Path(directory) / str(number)))
        reach = load_map(options.map, trees, test_files(options.tests), options.workers)
        broken = [test for test, found in reach.items() if not found["passed"]]
        reach = {test: found for test, found in reach.items() if found["passed"]}
        print(f"{len(reach)} tests, {(time.monotonic() - began) / 60:.1f} minutes without faults", flush=True)
        for test in broken:
            print(f"BROKEN    {test} fails without any fault")

        def one(fault: Fault) -> Verdict:
            tree = trees.get()
            try:
                verdict = judge(fault, tree, reach)
            finally:
                trees.put(tree)
            word = "killed  " if verdict.killed else "SURVIVED"
            print(f"{word} {verdict.seconds:5.0f} s  {fault.file}: {fault.why}  [{verdict.by}]", flush=True)
            return verdict

        with ThreadPoolExecutor(options.workers) as pool:
            verdicts = list(pool.map(one, run))
    return report(chosen, verdicts, (time.monotonic() - began) / 60) or int(bool(broken))


def load_map(path: Path | None, trees: "Queue[Path]", files: Sequence[str], workers: int) -> Map:
    """The map in a file if it is of these sources; else a new one, kept there."""
    key = digest(files)
    if path is not None and path.exists():
        kept = json.loads(path.read_text())
        if kept["of"] == key:
            return dict(kept["tests"])
    reach = make_map(trees, files, workers)
    if path is not None:
        path.write_text(json.dumps({"of": key, "tests": reach}))
    return reach


def report(chosen: Sequence[Fault], verdicts: Sequence[Verdict], minutes: float) -> int:
    """Print the table of files and what survived; 1 if anything did."""
    killed = Counter(verdict.fault.file for verdict in verdicts if verdict.killed)
    planted = Counter(verdict.fault.file for verdict in verdicts)
    for file in sorted(planted):
        print(f"{killed[file]:4d} of {planted[file]:3d}  {file}")
    for fault in chosen:
        if fault.equivalent:
            print(f"equivalent  {fault.file}: {fault.why}: {fault.equivalent}")
    survived = [verdict for verdict in verdicts if not verdict.killed]
    for verdict in survived:
        print(f"SURVIVED  {verdict.fault.file}: {verdict.fault.why} ({verdict.by})")
    print(f"{sum(killed.values())} of {len(verdicts)} faults killed, {len(survived)} survived, {minutes:.1f} minutes")
    return int(bool(survived))


if __name__ == "__main__":
    sys.exit(main())
