"""The size of the house: modules, lines, complexity, circles, and the files and functions that five runs enter.

    python benchmarks/house.py [--source] [--names]

`--source` leaves the five runs out; `--names` prints what is behind the counts. A function's complexity is 1 and one for each
loop, branch, `except`, `case`, conditional expression, `for` and `if` of a comprehension, and each operand after the first of
`and` and `or`, lambdas included and nested functions apart. A code line holds something beside blanks, comments and docstrings.
A room is a folder of the package, or a module at its top.
"""

import ast
import io
import json
import subprocess
import sys
import tokenize
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "dpgen"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.match_case, ast.IfExp, ast.comprehension)

RUNS = {
    "tables": """
import numpy as np, pandas as pd
rng = np.random.default_rng(0)
towns = rng.choice(["Ulm", "Bern"], 5000)
frame = {"spent": rng.lognormal(4, 1, 5000).round(2), "town": towns, "member": rng.random(5000) < 0.3}
pd.DataFrame(frame).to_csv("c.csv", index=False)
from dpgen.cli.main import main
begin()
main(["train", "c.csv", "--epsilon", "1", "--run_dir", "run"])
""",
    "merr": """
from dpgen.cli.main import main
begin()
main(["train", "--model", "merr", "--epsilon", "1", "--run_dir", "run"])
""",
    "dpgm": """
from dpgen.cli.main import main
begin()
main(["train", "--model", "dpgm", "--data", "digits", "--epsilon", "1", "--steps", "4", "--run_dir", "run"])
""",
    "make_private": """
import lightning, torch
from torch.utils.data import DataLoader, TensorDataset
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    def training_step(self, batch, index):
        return torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1])
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
data = TensorDataset(torch.randn(256, 8), torch.randint(2, (256,)))
off = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
trainer = lightning.Trainer(max_steps=8, accelerator="cpu", **off)
begin()
import dpgen
module, loader, trainer = dpgen.make_private(Module(), DataLoader(data, 32, shuffle=True), trainer, epsilon=3.0)
trainer.fit(module, loader)
dpgen.release(module, "model")
""",
    "relational": """
from dpgen.data.toy import simulated_patients
for name, table in simulated_patients(100).items():
    table.to_csv(name + ".csv", index=False)
from dpgen.cli.main import main
begin()
options = ["--people_path", "patients.csv", "--person", "patient", "--order", "date", "--max_rows", "5"]
main(["train", "visits.csv", "--model", "relational", "--epsilon", "1", "--run_dir", "run", *options])
""",
}
"""Scripts of one run each, which call `begin()` where counting begins; imports of dpgen after it count as they come."""

TRACED = """
import json, sys, threading, warnings
warnings.simplefilter("ignore")
entered = {{}}
def trace(frame, event, arg):
    if event == "call":
        code = frame.f_code
        if code.co_filename.startswith({package!r}) and code.co_name != "<module>":
            entered[code] = entered.get(code, 0) + 1
def begin():
    threading.setprofile(trace)
    sys.setprofile(trace)
try:
{body}
finally:
    sys.setprofile(None)
    named = {{(c.co_filename, c.co_qualname) for c in entered if not c.co_name.startswith("<")}}
    found = {{"files": len({{c.co_filename for c in entered}}), "functions": len(named), "calls": sum(entered.values())}}
    print("\\n" + json.dumps(found))
"""


def entered(name: str) -> dict[str, int]:
    """Files and functions of dpgen that a run of `RUNS` enters, and its calls, in a process of its own."""
    body = "".join(f"    {line}\n" for line in RUNS[name].strip().splitlines())
    with TemporaryDirectory() as scratch:
        script = Path(scratch) / "traced.py"
        script.write_text(TRACED.format(package=f"{PACKAGE}/", body=body))
        ended = subprocess.run([sys.executable, str(script)], cwd=scratch, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"{name}: {ended.stderr}")
    return json.loads(ended.stdout.splitlines()[-1])


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS))


def complexity(function: ast.AST) -> int:
    """Ways through a function, as the page's head says."""
    found, left = 1, list(ast.iter_child_nodes(function))
    while left:
        node = left.pop()
        if isinstance(node, FUNCTIONS):
            continue
        found += isinstance(node, BRANCHES)
        found += len(node.ifs) if isinstance(node, ast.comprehension) else 0
        found += len(node.values) - 1 if isinstance(node, ast.BoolOp) else 0
        left.extend(ast.iter_child_nodes(node))
    return found


def arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Number of arguments, without `self` and `cls`."""
    of = function.args
    named = [*of.posonlyargs, *of.args, *of.kwonlyargs, *(a for a in (of.vararg, of.kwarg) if a)]
    return sum(a.arg not in ("self", "cls") for a in named)


def code_lines(source: str) -> int:
    """Lines with something beside blanks, comments and docstrings."""
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in skipped and token.type != tokenize.ENDMARKER:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or 0) + 1))
    return len(lines)


def room(module: str) -> str:
    """`dpgen.data.images` -> `data`; of a system its folder, `systems.tables`."""
    parts = module.split(".")[1:]
    return ".".join(parts[: 2 if parts[:1] == ["systems"] and len(parts) > 1 else 1])


def imports(trees: dict[str, ast.AST]) -> dict[str, set[str]]:
    """Modules of the package that each module imports anywhere, for types alone as well."""
    found: dict[str, set[str]] = {}
    for name, tree in trees.items():
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        named = [(str(node.module), alias.name) for node in nodes for alias in node.names]
        modules = {f"{module}.{own}" if f"{module}.{own}" in trees else module for module, own in named}
        found[name] = {module for module in modules if module in trees} - {name}
    return found


def circles(of: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other, also through others."""

    def reached(name: str) -> set[str]:
        seen, left = set(), [name]
        while left:
            new = of[left.pop()] - seen
            seen |= new
            left.extend(new)
        return seen

    every = {name: reached(name) for name in of}
    groups = {tuple(sorted({name} | {other for other in every[name] if name in every[other]})) for name in of}
    return [list(group) for group in sorted(groups) if len(group) > 1]


def main() -> None:
    parser = ArgumentParser(description="The size of the house.")
    parser.add_argument("--source", action="store_true", help="leave the five runs out")
    parser.add_argument("--names", action="store_true", help="print what is behind the counts")
    options = parser.parse_args()
    paths = sorted(PACKAGE.rglob("*.py"))
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in paths]
    sources = {name: path.read_text() for name, path in zip(names, paths)}
    trees: dict[str, ast.AST] = {name: ast.parse(source) for name, source in sources.items()}
    every = [(name, function) for name, tree in trees.items() for function in functions(tree)]
    hard = sorted(((complexity(f), f"{name}:{f.name}") for name, f in every), reverse=True)
    wide = sorted(((arguments(f), f"{name}:{f.name}") for name, f in every if arguments(f) > 8), reverse=True)
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text())
    shown = sum(len(node.names) for node in stub.body if isinstance(node, ast.ImportFrom))
    imported = imports(trees)
    pairs = {(room(name), room(other)) for name, others in imported.items() for other in others}
    both = sorted(pair for pair in pairs if pair[0] < pair[1] and pair[::-1] in pairs)
    figures = {
        "modules": len(paths),
        "modules at the top": sum(name.count(".") == 1 and path.stem != "__init__" for name, path in zip(sources, paths)),
        "lines": sum(source.count("\n") for source in sources.values()),
        "code lines": sum(map(code_lines, sources.values())),
        "functions": len(every),
        "classes": sum(isinstance(node, ast.ClassDef) for tree in trees.values() for node in ast.walk(tree)),
        "complexity > 10": sum(value > 10 for value, _ in hard),
        "complexity > 20": sum(value > 20 for value, _ in hard),
        "arguments > 8": len(wide),
        "names at the top": shown,
        "rooms that import each other": len(both),
        "circles of modules": len(circles(imported)),
        "lines of tests": sum(path.read_text().count("\n") for path in (ROOT / "tests").rglob("*.py")),
    }
    for name, value in figures.items():
        print(f"{name:<30} {value:>8,}")
    for name in () if options.source else RUNS:
        print(f"{name:<30} " + ", ".join(f"{value:,} {unit}" for unit, value in entered(name).items()), flush=True)
    if options.names:
        lists = {
            "complexity > 10": [h for h in hard if h[0] > 10],
            "arguments > 8": wide,
            "each other": both,
            "circles": [(len(c), ", ".join(c)) for c in circles(imported)],
        }
        for title, found in lists.items():
            print(f"\n{title}", *(f"  {first:>3}  {second}" for first, second in found), sep="\n")


if __name__ == "__main__":
    main()
