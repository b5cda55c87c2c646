"""Runs `scripts/train.py` in forked children, kills each with SIGKILL at a given moment, then once to the end.

    python killed_runs.py RUN_DIR MOMENTS -- arguments of train.py

A moment is `N` (the ledger has N commits more than when the child began), or a time `0.37x`, in units of the time that a whole
run takes (the first such moment lets one run to its end, in RUN_DIR + ".whole"). After every child one line of JSON tells the
ledger's commits, a hash of the key of the split, whether the child was alive when it was shot, and what is visible and
understated (`seen.py`; where a whole run says what it should be). Forks of one process that has only imported save the imports
of all but the first; one thread (OMP_NUM_THREADS=1) keeps forks safe.
"""

import hashlib
import json
import os
import runpy
import signal
import sys
import time
from pathlib import Path

import dp_accounting.pld.privacy_loss_distribution  # noqa: F401
import matplotlib.figure  # noqa: F401
import scipy.optimize  # noqa: F401
import torch.utils.tensorboard  # noqa: F401
from seen import committed, understated

import dpgen.run  # noqa: F401
from dpgen.systems.registry import SYSTEMS

FITS = [system.fit for system in SYSTEMS.values()]  # imported here, before any fork
TRAIN = Path(__file__).parents[2] / "scripts" / "train.py"


def commits(directory: Path) -> int:
    try:
        return int(json.loads((directory / "ledger.jsonl").read_bytes())["commits"])
    except (FileNotFoundError, ValueError):
        return 0


def begin(arguments: list[str], said: Path | None = None) -> int:
    """The process id of a child that trains; what it says goes to the file `said`."""
    child = os.fork()
    if child == 0:
        if said is not None:
            file = os.open(said, os.O_WRONLY)
            os.dup2(file, 1)
            os.dup2(file, 2)
        sys.argv = ["train.py", *arguments]
        try:
            runpy.run_path(str(TRAIN), run_name="__main__")
        except SystemExit as end:
            sys.stdout.flush()
            os._exit(int(end.code or 0))
    return child


def duration(directory: Path, arguments: list[str]) -> float:
    """Seconds of a whole run, elsewhere."""
    elsewhere = [a for a in arguments if not a.startswith("--run_dir")]
    start = time.monotonic()
    os.waitpid(begin([*elsewhere, f"--run_dir={directory}.whole"]), 0)
    return time.monotonic() - start


def main() -> int:
    directory, moments, arguments = Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[4:]
    whole = duration(directory, arguments) if any(moment.endswith("x") for moment in moments) else 0.0

    def reached(moment: str, before: int, start: float) -> bool:
        if moment.endswith("x"):
            return time.monotonic() - start >= float(moment[:-1]) * whole
        return commits(directory) >= before + int(moment)

    expected, said = committed(Path(f"{directory}.whole")), Path(f"{directory}.said")
    shared = next((Path(a.partition("=")[2]) for a in arguments if a.startswith("--ledger=")), None)
    for number, moment in enumerate(moments):
        said.write_text("")
        before, start = commits(directory), time.monotonic()
        child, alive = begin(arguments, said), True
        while alive and not reached(moment, before, start):
            time.sleep(0.002)
            alive = os.waitpid(child, os.WNOHANG) == (0, 0)
        if alive:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        key = directory / "split.key"
        digest = hashlib.sha256(key.read_bytes()).hexdigest() if key.exists() else None
        finished = (directory / "metrics.json").exists()
        shot = {"moment": moment, "commits": commits(directory), "alive": alive, "finished": finished, "key": digest}
        shot["understated"] = understated(directory, expected, shared, said.read_text()) if expected else []
        print(json.dumps(shot), flush=True)
        if finished:  # begin again beside it
            directory.rename(f"{directory}.{number}")
    return os.waitstatus_to_exitcode(os.waitpid(begin(arguments), 0)[1])


if __name__ == "__main__":
    sys.exit(main())
