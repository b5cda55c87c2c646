"""Charges behind what anybody can see of a run, counted from what is seen alone, and what its files say of them."""

import json
import os
from collections import Counter
from pathlib import Path

from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from dpgen.callbacks.accountant import SealedCheckpointIO

FREE = {"config.yaml", "versions.yaml", "ledger.jsonl", "split.key"}
"""Names of files that depend on no noise."""

STEPS = "training steps"


def committed(directory: Path) -> Counter[str]:
    """Charges in the ledger file, by their notes."""
    try:
        document = json.loads((directory / "ledger.jsonl").read_bytes())
    except (FileNotFoundError, ValueError):
        return Counter()
    counts: Counter[str] = Counter()
    for number, count in document["charges"]:
        counts[document["mechanisms"][number]["note"]] += count
    return counts


def seen(directory: Path, whole: Counter[str]) -> Counter[str]:
    """The least charges that explain what is visible, where a complete run is charged `whole`.

    Hidden files are not seen. A checkpoint and entries of a log need the steps that they state and all that comes before
    training, everything else needs the complete run.
    """
    steps = 0
    names = {path.name for path in directory.iterdir() if not path.name.startswith(".")} if directory.is_dir() else set()
    if names - FREE - {"last.ckpt", "tensorboard"}:
        return whole
    if "last.ckpt" in names:
        steps = SealedCheckpointIO().load_checkpoint(directory / "last.ckpt")["global_step"]
    for path in directory.glob("tensorboard/events*"):
        for entry in EventFileLoader(str(path)).Load():
            tags = [value.tag for value in entry.summary.value]
            if any(tag.startswith(("final", "_hparams_")) for tag in tags):
                return whole
            steps = max(steps, entry.step + any(tag.startswith("privacy/") for tag in tags))
    return Counter(
        {note: min(count, steps) if note == STEPS else count for note, count in whole.items()} if names - FREE else {}
    )


def understated(directory: Path, whole: Counter[str], shared: Path | None = None, said: str = "") -> list[str]:
    """What is visible of a run, or was `said`, and is not in its ledger, or not noted in the shared budget."""
    needed = whole if "released" in said else seen(directory, whole)
    missing = needed - committed(directory)
    found = [f"{count} x {note!r} not in the ledger" for note, count in missing.items()]
    if needed and shared is not None:
        ledger, budget = json.loads((directory / "ledger.jsonl").read_bytes()), json.loads(shared.read_bytes())
        run, names = ledger["shared"]["run"], os.listdir(directory)
        if not any(payment["run"] == run and not payment["returned"] for payment in budget["payments"]):
            found.append("nothing paid into the shared budget")
        noted = budget["committed"].get(run, {"commit": 0, "released": ""})
        if noted["commit"] < max(1, ledger["commits"] - 1) or ("privacy.json" in names and not noted["released"]):
            found.append("not noted in the shared budget")
    return found
