"""The pictures of docs/tasks/table.md: simulated visits, private and synthetic, at epsilon 1.

python benchmarks/table_page.py
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from dpgen.config import parse_job
from dpgen.run import run

PICTURES = {"columns.png": "table_columns.png", "associations.png": "table_associations.png"}
DOCS = Path(__file__).parents[1] / "docs" / "tasks"


def main() -> None:
    """Run, and keep the pictures of the evaluation: the visits are simulated, so that they may be shown."""
    with TemporaryDirectory() as scratch:
        directory = Path(scratch) / "run"
        run(parse_job(["--model", "tables", "--run_dir", str(directory), "--progress_bar", "false"]))
        for source, target in PICTURES.items():
            (DOCS / target).write_bytes((directory / source).read_bytes())
            print(DOCS / target)


if __name__ == "__main__":
    main()
