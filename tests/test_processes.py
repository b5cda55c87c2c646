"""A script that trains on two processes: the first one releases, the other one is told that its share is done."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
from pathlib import Path
import dpgen

if __name__ == "__main__":
    out = Path(sys.argv[1])
    runtime = {"devices": 2, "accelerator": "cpu", "run_dir": str(out / "run"), "evaluation": "none", "progress_bar": False}
    model = {"name": "dpgm", "component": "rbm", "hidden": 4, "clusters": "labels"}
    try:
        outcome = dpgen.run(dpgen.RunConfig(model, "digits", {"epsilon": 3.0, "steps": 2}, runtime))
    except dpgen.privacy.ShareDone:
        (out / "other").write_text("done")
        raise
    (out / "first").write_text(str(outcome.release.epsilon))
"""


def test_the_first_process_releases_and_the_other_one_ends(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(tmp_path)]
    subprocess.run(command, check=True, timeout=300, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True)
    assert float((tmp_path / "first").read_text()) <= 3.0
    assert (tmp_path / "other").read_text() == "done"
