"""Size and shape of the code: modules, lines, names, imports, files that one fit enters, CPU seconds of the commands.

    python benchmarks/house.py [--quick] [--picture docs/house.png]

- Lines of a function: from `def` to its end, the docstring apart.
- Public names: functions and classes at the top level of a module without a leading underscore; methods are not counted.
  Of the interface: those that users may rely on, what packages export and the modules listed in docs/architecture.md hold.
- Modules reached: from the module of a system's `fit`, imports inside functions included, those for type checkers not.
- Files entered: those with a function that one tiny fit calls, seen by a profiler hook in a process of its own.
- Cycles: groups of modules that import each other, directly or through others, imports inside functions included.
- CPU seconds: user and system time of a process, median of `--repeats` (5).

Writes benchmarks/results/house.json and prints the table that docs/architecture.md shows. `--quick` leaves the processes out,
`--picture` draws the imports between packages.
"""

import argparse
import ast
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "house.json"
FITS = ("dpgm", "gaussian", "merr", "minimax", "mbde")
COMMANDS = {
    "import dpgen": ["-c", "import dpgen"],
    "--help": ["scripts/train.py", "--help"],
    "misspelt option": ["scripts/train.py", "--model", "dpgm", "--epsilonn", "1"],
}
GOALS: dict[str, tuple[str, str]] = {
    "modules": ("227", "140"),
    "lines": ("30,698", "26,000"),
    "longest module": ("394", "600"),
    "longest function": ("41", "60"),
    "public names": ("785", "300"),
    "public names of the interface": ("-", "300"),
    "classes": ("286", "200"),
    "import cycles": ("2", "0"),
    **{f"files entered: {name}": (count, "20") for name, count in zip(FITS, ("40", "26", "26", "17", "22"))},
    **{f"modules reached: {name}": (count, "35") for name, count in zip(FITS, ("57", "62", "40", "42", "43"))},
    **{f"CPU seconds: {name}": pair for name, pair in zip(COMMANDS, (("2.8", "0.5"), ("5.4", "1"), ("6-7", "1")))},
}
"""Figures of version 0.3 and goals, by the name of what is measured."""

# -- sources -----------------------------------------------------------------------------------------------------------


@cache
def trees(root: Path = ROOT) -> dict[str, ast.Module]:
    """Syntax trees of the modules of dpgen by module name; a package stands for its `__init__`."""
    found = {}
    for path in sorted((root / "dpgen").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text())
    return found


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def function_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring."""
    lines = (node.end_lineno or 0) - node.lineno + 1
    if ast.get_docstring(node) is not None:
        lines -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
    return lines


def public_names(tree: ast.Module) -> list[str]:
    """Functions and classes at the top level of a module without a leading underscore."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return [node.name for node in tree.body if isinstance(node, kinds) and not node.name.startswith("_")]


def interface(root: Path = ROOT) -> list[str]:
    """Public names that users may rely on: the exports of packages, and the modules in the table of docs/architecture.md."""
    exported = [
        alias.name
        for stub in sorted((root / "dpgen").rglob("__init__.pyi"))
        for node in ast.parse(stub.read_text()).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    listed = re.findall(r"^\| `(dpgen[\w.]*)` \|", (root / "docs" / "architecture.md").read_text(), re.MULTILINE)
    return [*exported, *(name for module in listed for name in public_names(trees(root)[module]))]


def sizes(root: Path = ROOT) -> dict[str, Any]:
    """Counts that can be read from the sources."""
    modules = trees(root)
    lines = {path: path.read_text().count("\n") for path in (root / "dpgen").rglob("*.py")}
    longest = max(lines, key=lambda path: lines[path])
    functions = [(function_lines(node), f"{name}.{node.name}") for name, tree in modules.items() for node in _functions(tree)]
    classes = [node for tree in modules.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return {
        "modules": len(modules),
        "lines": sum(lines.values()),
        "longest module": lines[longest],
        "which module": str(longest.relative_to(root)),
        "longest function": max(functions)[0],
        "which function": max(functions)[1],
        "public names": sum(len(public_names(tree)) for tree in modules.values()),
        "public names of the interface": len(interface(root)),
        "classes": len(classes),
    }


# -- imports -----------------------------------------------------------------------------------------------------------


def _imported(node: ast.AST, package: str) -> Iterator[str]:
    """Names that the statements under a node import, in functions too, without what type checkers alone see."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - child.level + 1] if child.level else []
            base = ".".join([*above, *([child.module] if child.module else [])])
            yield from (f"{base}.{alias.name}" for alias in child.names)
        else:
            yield from _imported(child, package)


@cache
def graph(root: Path = ROOT) -> dict[str, set[str]]:
    """Modules of dpgen that each of its modules imports, anywhere in it."""
    modules = trees(root)
    edges: dict[str, set[str]] = {}
    for name, tree in modules.items():
        package = name if (root / name.replace(".", "/")).is_dir() else name.rpartition(".")[0]
        targets = {found if found in modules else found.rpartition(".")[0] for found in _imported(tree, package)}
        edges[name] = (targets & set(modules)) - {name}
    return edges


def reached(start: str, root: Path = ROOT) -> set[str]:
    """Modules that a module imports, directly or through others, without itself."""
    edges, found, todo = graph(root), set[str](), [start]
    while todo:
        new = edges[todo.pop()] - found
        found |= new
        todo += new
    return found - {start}


def cycles(root: Path = ROOT) -> list[list[str]]:
    """Groups of modules that reach each other."""
    reach = {name: reached(name, root) for name in graph(root)}
    groups = {tuple(sorted({name, *(other for other in reach[name] if name in reach[other])})) for name in reach}
    return sorted(list(group) for group in groups if len(group) > 1)


def fit_module(name: str) -> str:
    """Module of a system's `fit`."""
    from dpgen import SYSTEMS

    name = name if name in SYSTEMS else "dpgm"
    path: str = SYSTEMS[name].fit_path
    return "dpgen.systems.gaussian.fit" if name == "dpgm" != name else path.partition(":")[0]


# -- processes ---------------------------------------------------------------------------------------------------------


def _tiny(name: str) -> tuple[Any, str, dict[str, Any], dict[str, Any]]:
    """Data, system, plan and configuration of the smallest fit."""
    from dpgen import SYSTEMS, data

    match name:
        case "dpgm":
            return data.load_digits(), "dpgm", {"steps": 2, "sampling_rate": 0.1}, {"hidden": 4}
        case "gaussian" if "gaussian" not in SYSTEMS:
            return data.load_digits(), "dpgm", {}, {"component": "gaussian"}
        case "gaussian":
            return data.load_digits(), "gaussian", {}, {}
        case "merr":
            return data.load_mixture(), "merr", {}, {"method": "points"}
        case "minimax":
            return data.load_synthetic_users(n_categories=5, n_users=4), "minimax", {}, {}
    return data.load_ring(n_points=100), "mbde", {}, {"steps": 2}


def entered(name: str) -> list[str]:
    """Files of dpgen with a function that one fit calls; to be run in a process of its own."""
    from dpgen import SYSTEMS, Curator, Runtime, quiet_training

    records, system, plan_options, config_options = _tiny(name)
    row = SYSTEMS[system]
    plan, config, fit = row.plan(**plan_options), row.config(**config_options), row.fit
    house, seen = str(ROOT / "dpgen"), set[str]()

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_flags & 1 and code.co_filename.startswith(house):  # 1: a function, no class body
            seen.add(str(Path(code.co_filename).relative_to(ROOT)))

    with tempfile.TemporaryDirectory() as directory, quiet_training():
        runtime = Runtime(run_dir=Path(directory), accelerator="cpu", progress_bar=False)
        curator = Curator(plan.open_ledger())
        threading.setprofile(note)
        sys.setprofile(note)
        fit(records, plan=plan, config=config, curator=curator, runtime=runtime)
        sys.setprofile(None)
    return sorted(seen)


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def entered_elsewhere(name: str) -> list[str]:
    """`entered` in a new process."""
    command = [sys.executable, str(Path(__file__)), "--fit", name]
    ended = subprocess.run(command, capture_output=True, text=True, env=_environment(), cwd=ROOT, check=True)
    files: list[str] = json.loads(ended.stdout.splitlines()[-1])
    return files


def cpu_seconds(arguments: list[str], repeats: int) -> float:
    """User and system seconds of a Python process, median."""
    seconds = []
    for _ in range(repeats):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], capture_output=True, env=_environment(), cwd=ROOT, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return round(statistics.median(seconds), 2)


# -- picture -----------------------------------------------------------------------------------------------------------

GROUPS = {"run": "run", "api": "run", "__main__": "cli", "release": "release", "statement": "release", "pictures": "report"}
GROUPS |= {"fields": "schema", "constraints": "schema"}
GROUPS |= dict.fromkeys(  # used everywhere, not drawn
    ("files", "figures", "divergences", "discretized", "containers", "cosines", "progress"), "dpgen"
)


def group_of(module: str) -> str:
    """Box of the picture that a module belongs to: its package, or the group of a single module."""
    parts = module.split(".")
    return "dpgen" if len(parts) == 1 else GROUPS.get(parts[1], parts[1])


def levels(arrows: Counter[tuple[str, str]], boxes: list[str]) -> dict[str, int]:
    """Row of each box: above everything that it imports, where two import each other the one with more imports above."""
    down: dict[str, set[str]] = {box: set() for box in boxes}
    for (above, below), count in arrows.items():
        if count > arrows[below, above] or (count == arrows[below, above] and above < below):
            down[above].add(below)
    rows: dict[str, int] = dict.fromkeys(boxes, 0)
    for _ in boxes:
        for box in boxes:
            rows[box] = min(max([0, *(rows[below] + 1 for below in down[box])]), len(boxes))
    return rows


def picture(path: Path, root: Path = ROOT) -> None:
    """Draw the packages, with the number of modules of one that import a module of another on each arrow."""
    from dpgen.figures import new_figure, save_figure

    arrows: Counter[tuple[str, str]] = Counter()
    for name, targets in graph(root).items():
        pairs = {(group_of(name), group_of(target)) for target in targets}
        arrows.update((above, below) for above, below in pairs if above != below and "dpgen" not in (above, below))
    modules = Counter(group_of(name) for name in trees(root))
    boxes = sorted(box for box in modules if box != "dpgen")
    rows = levels(arrows, boxes)
    places: dict[str, tuple[float, float]] = {}
    for row in range(max(rows.values()) + 1):
        inside = [box for box in boxes if rows[box] == row]
        shift = (-1) ** row if len(inside) == 1 else 0  # so that longer arrows pass by
        places |= {box: (10 * (i + 0.5) / len(inside) + shift, 1.4 * row) for i, box in enumerate(inside)}
    figure = new_figure(8.0, 0.9 * max(rows.values()) + 1.0)
    axes = figure.add_subplot()
    for (above, below), count in sorted(arrows.items()):
        _arrow(axes, places[above], places[below], count)
    for box, (x, y) in places.items():
        label = f"{box}\n{modules[box]} module{'s' if modules[box] > 1 else ''}"
        frame = {"boxstyle": "round,pad=0.5", "facecolor": "#e8eef7", "edgecolor": "#334466"}
        axes.text(x, y, label, ha="center", va="center", fontsize=9, bbox=frame, zorder=3)
    axes.set(xlim=(0, 10), ylim=(-0.7, 1.4 * max(rows.values()) + 0.7))
    axes.set_axis_off()
    save_figure(figure, path)


_LABEL = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none"}


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float], count: int) -> None:
    (x, y), (to_x, to_y) = start, end
    bend = 0.0 if abs(to_y - y) < 1.5 else (0.12 if to_x >= x else -0.12)
    style = {"arrowstyle": "-|>", "color": "#99a", "linewidth": min(0.8 + count / 12, 3), "shrinkA": 18, "shrinkB": 24}
    axes.annotate("", end, start, arrowprops=style | {"connectionstyle": f"arc3,rad={bend}"})
    at_x, at_y = x + 0.3 * (to_x - x) + bend * (to_y - y) * 0.42, y + 0.3 * (to_y - y) - bend * (to_x - x) * 0.42
    axes.text(at_x, at_y, str(count), fontsize=7, color="#334466", ha="center", va="center", zorder=2, bbox=_LABEL)


# -- command -----------------------------------------------------------------------------------------------------------


def table(figures: dict[str, Any]) -> str:
    """The figures beside those of version 0.3 and the goals."""
    rows = ["| | 0.3 | goal (at most) | now |", "|---|---|---|---|"]
    for name, (before, goal) in GOALS.items():
        if name in figures:
            value = figures[name]
            rows.append(f"| {name} | {before} | {goal} | {f'{value:,}' if isinstance(value, int) else value} |")
    return "\n".join(rows)


def measure(*, quick: bool, repeats: int) -> dict[str, Any]:
    """All figures by name."""
    figures = sizes() | {"import cycles": len(cycles()), "cycles": cycles()}
    figures |= {f"modules reached: {name}": len(reached(fit_module(name))) for name in FITS}
    if not quick:
        files = {name: entered_elsewhere(name) for name in FITS}
        figures |= {f"files entered: {name}": len(found) for name, found in files.items()} | {"which files": files}
        figures |= {f"CPU seconds: {name}": cpu_seconds(arguments, repeats) for name, arguments in COMMANDS.items()}
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="what is read from the sources only; nothing is written")
    parser.add_argument("--repeats", type=int, default=5, help="processes of which CPU seconds are the median")
    parser.add_argument("--picture", type=Path, metavar="PNG", help="draw the imports between packages")
    parser.add_argument("--fit", choices=FITS, help="print the files that one fit enters, and end")
    options = parser.parse_args()
    if options.fit:
        print(json.dumps(entered(options.fit)))
        return 0
    if options.picture:
        picture(options.picture)
        return 0
    figures = measure(quick=options.quick, repeats=options.repeats)
    if not options.quick:
        RESULTS.write_text(json.dumps({"python": sys.version.split()[0], **figures}, indent=2) + "\n")
    print(table(figures))
    print("longest:", figures["which module"], figures["which function"])
    for group in figures["cycles"]:
        print("cycle:", ", ".join(group))
    return 0


if __name__ == "__main__":
    sys.exit(main())
