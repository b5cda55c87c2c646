"""Draw records from a released model: `python scripts/sample.py RUN_OR_MODEL_DIR --n 1000 --out synthetic.csv`."""

import sys
from pathlib import Path

import dpgen


def sample(arguments: list[str]) -> str:
    parser = dpgen.OneLineParser(description="Draw synthetic records from a released model; this costs no privacy.")
    parser.add_argument("model", type=Path, help="directory of a run or of a released model")
    parser.add_argument("--n", type=int, default=1000, help="number of records (default 1000)")
    parser.add_argument("--out", type=Path, metavar="FILE", default=Path("synthetic.npz"), help=".npz, .csv or .parquet")
    parser.add_argument("--clusters", type=int, nargs="+", help="draw from these clusters only")
    parser.add_argument("--seed", type=int, help="for reproducible draws")
    options = parser.parse_args(arguments)
    nested = options.model / "model"
    model = dpgen.load_model(nested if nested.is_dir() else options.model)
    if options.clusters is not None and not isinstance(model, dpgen.RecordModel):
        raise ValueError(f"--clusters is for mixtures of records; {options.model} holds a {model.kind} model")
    chosen = {} if options.clusters is None else {"clusters": options.clusters}
    model.sample(options.n, seed=options.seed, **chosen).save(options.out)
    paid = model.statement
    spent = dpgen.guarantee(paid.epsilon, paid.delta, paid.relation, paid.unit)
    return f"{options.n} records in {options.out}; {spent}, already paid"


def main() -> int:
    return dpgen.exit_code(lambda: sample(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
