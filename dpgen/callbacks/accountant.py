"""The callback that stands between a Lightning module and its private data: ask, record, then step."""

from typing import Any

import lightning as L
import torch
from dp_accounting import DpEvent
from lightning.pytorch.callbacks import Callback

from dpgen.privacy.ledger import BudgetExceeded, Ledger


class PrivacyAccountant(Callback):
    """Holds the ledger during `Trainer.fit`: charges every step before it runs and stops before the budget is exceeded.

    What it logs is computed from public quantities: `eps` (progress bar) and `privacy/epsilon_rdp` after every step,
    which bound the truth from above, and the tight `privacy/epsilon` (tens of milliseconds to a second) after epochs.

    Formal guarantees:

    | case | what holds |
    |---|---|
    | a step would exceed the budget | it does not run, training stops, nothing is charged |
    | resume with `ckpt_path` | the ledger must extend the checkpoint's position; replayed steps stay counted |
    | crash between charge and step | the step counts although it never ran |
    | checkpoint written | the ledger is on disk first |

    Arguments:
        ledger: what has been and may be spent.
        every: epochs between two tight values, at least 1.

    Raises:
        ValueError: the trainer accumulates gradients, computes in half precision, or runs on more than one process.
        LedgerError: the ledger is not the one that the checkpoint belongs to, or was cut.
    """

    def __init__(self, ledger: Ledger, *, every: int = 1) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1, got {every}")
        self.ledger, self.every = ledger, every
        self.replayed = 0
        self.exhausted = False

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.accumulate_grad_batches != 1:
            raise ValueError(
                f"accumulate_grad_batches must be 1, got {trainer.accumulate_grad_batches}: m accumulated Poisson(q) "
                "draws are not one Poisson(m q) draw; raise sampling_rate and set the module's micro_batch instead"
            )
        if trainer.precision not in ("32-true", "64-true"):
            raise ValueError(
                f"precision must be '32-true' or '64-true', got {trainer.precision!r}: half precision understates gradient "
                "norms, and a loss scaler skips steps"
            )
        if torch.get_float32_matmul_precision() != "highest":
            raise ValueError(
                f"float32_matmul_precision must be 'highest', got {torch.get_float32_matmul_precision()!r}: TensorFloat-32 "
                "understates gradient norms"
            )
        if trainer.world_size != 1:
            raise ValueError(
                f"devices * num_nodes must be 1, got {trainer.world_size}: sharded private training is not supported yet"
            )

    def authorise(self, event: DpEvent, *, note: str, group: str | None = None) -> bool:
        """Charge one step, or refuse it: False, and nothing is charged, when the budget would be exceeded."""
        try:
            self.ledger.charge(event, note=note, group=group)
        except BudgetExceeded:
            self.exhausted = True
        return not self.exhausted

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        # The ledger never lets the total pass the budget, so the budget bounds what Renyi accounting overstates.
        limit = self.ledger.budget.epsilon if self.ledger.budget else float("inf")
        running = min(self.ledger.epsilon_rdp(), limit)
        pl_module.log("eps", running, prog_bar=True, logger=False)
        pl_module.log("privacy/epsilon_rdp", running)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if (trainer.current_epoch + 1) % self.every == 0:
            pl_module.log("privacy/epsilon", self.ledger.epsilon())

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        self.ledger.sync()

    def state_dict(self) -> dict[str, Any]:
        return {"ledger": self.ledger.position()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.replayed = self.ledger.verify_contains(state_dict["ledger"])
