"""Draw records from a released model: `python scripts/sample.py RUN_OR_MODEL_DIR --n 1000 --out synthetic.csv`."""

import argparse
import sys
from pathlib import Path
from typing import NoReturn

from dpgen import RecordModel, load_model


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}\n")


def main() -> int:
    parser = Parser(description="Draw synthetic records from a released model; this costs no privacy.")
    parser.add_argument("model", type=Path, help="directory of a run or of a released model")
    parser.add_argument("--n", type=int, default=1000, help="number of records (default 1000)")
    parser.add_argument("--out", type=Path, default=Path("synthetic.npz"), help="file to write: .npz, .csv or .parquet")
    parser.add_argument("--clusters", type=int, nargs="+", help="draw from these clusters only")
    parser.add_argument("--seed", type=int, help="for reproducible draws")
    options = parser.parse_args()
    try:
        nested = options.model / "model"
        model = load_model(nested if nested.is_dir() else options.model)
        if options.clusters is not None and not isinstance(model, RecordModel):
            raise ValueError(f"--clusters is for mixtures of records; {options.model} holds a {model.kind} model")
        chosen = {} if options.clusters is None else {"clusters": options.clusters}
        model.sample(options.n, seed=options.seed, **chosen).save(options.out)
    except (ValueError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    statement = model.statement
    print(f"{options.n} records in {options.out} (eps {statement.epsilon:.4g}, delta {statement.delta:g}, already paid)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
