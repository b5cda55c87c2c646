"""A data set of 80 records and the smallest runs on it, for tests of everything around training."""

from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from dpgen.callbacks import AutomaticClipping
from dpgen.callbacks.accountant import SealedCheckpointIO
from dpgen.config import RunConfig, parse_job
from dpgen.data import Records
from dpgen.data.records import split_records
from dpgen.data.split import Split
from dpgen.facts import Fact, said
from dpgen.nets import RecordGradients, VAEBank
from dpgen.privacy.clipping import clipped_sums
from dpgen.privacy.curator import Curator
from dpgen.privacy.distributed import Ranks
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.sampling import Batch, PoissonMask
from dpgen.release import RecordLayout
from dpgen.statement import PrivacyStatement
from dpgen.systems.dp_sgd.sums import PrivateSums
from dpgen.systems.dpgm.model import MixtureModel

N, D, CLASSES = 80, 16, 2
KEY = b"key of the tests of small runs.."
"""A key of the split that everybody knows, so that what is tested does not change."""

SMALL = ("--hidden=3", "--latent=1", "--steps=3", "--sampling_rate=0.5", "--progress_bar=false", "--accelerator=cpu")


def table() -> np.ndarray:
    """80 rows of 16 bits and a label: class 0 is mostly ones, class 1 mostly zeros."""
    labels = np.arange(N) % CLASSES
    bits = np.random.default_rng(0).random((N, D)) < np.where(labels[:, None] == 0, 0.8, 0.2)
    return np.column_stack([bits, labels]).astype(np.uint8)


def records(*, labelled: bool = True) -> Records:
    values = torch.from_numpy(table())
    labels = values[:, D].to(torch.int64) if labelled else None
    n_classes = CLASSES if labelled else 0
    bits = values[:, :D].contiguous()
    return split_records("tiny", bits, split=Split(key=KEY), labels=labels, n_classes=n_classes, image_shape=(4, 4))


def arguments(directory: Path, *extra: str) -> list[str]:
    """A command line for the smallest run in `directory / "run"`, split by `KEY`; options in `extra` win."""
    path = directory / "tiny.npy"
    if not path.exists():
        np.save(path, table())
    key = directory / "tiny.key"
    key.write_bytes(KEY)
    data = ("--data=npy", f"--path={path}", f"--label_column={D}", "--image_shape=[4,4]", f"--run_dir={directory / 'run'}",
            f"--split_key={key}")  # fmt: skip
    given = {key: f"{key}{equals}{value}" for key, equals, value in (a.partition("=") for a in (*data, *SMALL, *extra))}
    return list(given.values())


UNLABELLED = ("--label_column=null", "--image_shape=null", "--clusters=none")
"""Options for records without labels: a run that trains no classifier to evaluate itself."""


def closed_form(directory: Path, model: str, *extra: str) -> list[str]:
    """The smallest run of a model that trains nothing, on records without labels."""
    given = (f"--model={model}", *UNLABELLED[:2], *extra)
    networks = ("--hidden", "--latent", "--steps", "--sampling_rate", "--accelerator", "--image_shape")
    return [argument for argument in arguments(directory, *given) if not argument.startswith(networks)]


def released(
    module: PrivateSums,
    batch: Batch,
    *,
    ranks: Ranks | None = None,
    silent: bool = False,
    policy: AutomaticClipping | None = None,
) -> Tensor:
    """The private release of a step outside of a trainer, granted by a ledger that only reports.

    Arguments:
        silent: latent noise is 0, so that every gradient is known.
        policy: clips in place of the module's own.
    """
    if policy is not None:
        module.policy = policy
    curator = module.curator or Curator(Ledger(None, delta=1e-5), ranks=ranks)
    module.serve(curator)
    if silent:
        module.latents = lambda *shape: torch.zeros(shape)  # type: ignore[method-assign]
    draw = curator.draw("training steps", PoissonMask(module.plan.sampling_rate), module.parts())
    assert draw is not None
    with torch.no_grad(), draw:
        return module.noisy_sums(batch, draw)


def one_by_one(gradients: RecordGradients, k: int, p: int) -> Tensor:
    """What every record's factors multiply out to, (b, p), in float64."""
    factors = [
        f._replace(
            outputs=f.outputs.double() if f.outputs.is_floating_point() else f.outputs,
            inputs=None if f.inputs is None else f.inputs.double(),
        )
        for f in gradients.factors
    ]
    double = gradients._replace(factors=factors, offset=None if gradients.offset is None else gradients.offset.double())
    rows = torch.eye(gradients.bounds[-1]).double()
    return torch.stack([clipped_sums(double, row, torch.zeros(k, p).double()).sum(0) for row in rows])


def job(directory: Path, *extra: str) -> RunConfig:
    return parse_job(arguments(directory, *extra))


def told(data: Any) -> dict[Fact, dict[str, Any]]:
    """Facts of data, or of a statement, with their values."""
    return {one.fact: dict(one.values) for one in said(data.facts)}


def statement() -> PrivacyStatement:
    return PrivacyStatement(
        epsilon=1.25,
        delta=1e-5,
        relation="add_remove",
        unit="one record",
        accountant="tightest",
        also={"replace_one": 2.5},
        mechanisms=({"note": "training steps", "event": "Gaussian(2.0)", "count": 3},),
        facts=(Fact.ASSUMED(text="the noise source is secure"), Fact.UNCOVERED(text="the test records")),
    )


def mixture(*, labelled_by: str | None = "cluster", categories: int = 0) -> MixtureModel:
    """An untrained mixture of three components, one of them with a negative noisy size."""
    bank = VAEBank(3, D + categories, hidden=4, latent=2, categories=categories)
    with torch.no_grad():
        bank.initialize(torch.Generator().manual_seed(0))
    counts = torch.tensor([30.0, -4.0, 10.0])
    n_classes = categories or (3 if labelled_by == "cluster" else 0)
    layout = RecordLayout(n_classes, image_shape=(4, 4))
    return MixtureModel(bank, counts=counts, statement=statement(), layout=layout, labelled_by=labelled_by)


def trainer(*callbacks: Callback, steps: int = 4) -> L.Trainer:
    """A plain trainer without files."""
    return L.Trainer(
        max_steps=steps,
        max_epochs=-1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        plugins=[SealedCheckpointIO()],
        use_distributed_sampler=False,
        callbacks=list(callbacks),
    )
