"""A loss of somebody else's moves the sum of a step by no more than is stated, whatever it mixes and whenever it begins to."""

import warnings
from typing import Any, NamedTuple

import lightning as L
import pytest
import torch
from losses import ROWS, Data, Module, Row, masked_tokens, wide_words
from refusals import refused
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import dpgen
from dpgen.callbacks import BoundedClipping
from dpgen.nets.per_record import PerRecord, _Call, _Tape
from dpgen.privacy.clipping import Factor
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.sampling import Batch, Held
from dpgen.runtime import quiet_training

pytestmark = pytest.mark.usefixtures("quiet")
TRAINED, REFUSED = [row for row in ROWS if row.outcome != "refused"], [row for row in ROWS if row.outcome == "refused"]
IN_TRAINING = (
    *("batch_norm", "penalised_by_autograd", "normed_slopes"),
    *("centred_by_what_was_seen", "centred_by_the_last", "logged_by_itself"),
)
"""Losses and layers that cannot be trained at all: no trial is needed to refuse them."""


def made_private(row: Row) -> tuple[Any, list[str]]:
    """The training of a loss, and what is said of it."""
    torch.manual_seed(1)
    silent = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    module, runner = Module(row.loss, row.build), L.Trainer(accelerator="cpu", max_steps=3, **silent)
    data = TensorDataset(*(torch.cat(pair) for pair in zip(row.data.usual, row.data.others)))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        dpgen.make_private(module, DataLoader(data, batch_size=4), runner, epsilon=3.0, sampling_rate=1.0)
    return runner.callbacks[-1], [str(w.message) for w in told if w.category is UserWarning]  # type: ignore[attr-defined]


class Shown:
    """A draw that shows what it would add noise to."""

    def gaussian(self, _: str, sums: BoundedSum, factor: Any = None) -> Tensor:
        self.sums = sums
        return sums.values


def sums_of(training: Any, bound: float, later: bool, records: list[Tensor]) -> BoundedSum:
    """The clipped sums of a step that has all records, in the first step or in a later one."""
    runner, shown, n = training.trainer, Shown(), len(records[0])
    runner.fit_loop.epoch_progress.current.completed = int(later)
    runner.fit_loop.epoch_loop.automatic_optimization.optim_progress.optimizer.step.total.completed = int(later)
    training.bank.index = 3 if later else 0
    policy = BoundedClipping(bound=bound)
    policy.begin(1)
    training.clip_by(policy)
    training.serve(training.accountant.curator)
    training.partition.load_state_dict({"counts": torch.tensor([float(n)])})
    training.partitioned, training._change, training.bank.live = True, 0.0, True  # the least that is ever stated
    nowhere = torch.zeros(n, dtype=torch.int64)
    with training.bank.quiet(runner):
        training.noisy_sums(Batch(Held(records), nowhere, nowhere, (n,)), shown)  # type: ignore[arg-type]
    return shown.sums


class Tried(NamedTuple):
    """A row, its training, and what was said when it was made."""

    row: Row
    training: Any
    told: list[str]

    def most_moved(self) -> float:
        """The most that a record moves the sums, over what is stated: at three bounds, and later in a training."""
        worst, usual = 0.0, list(self.row.data.usual)
        own = float(sums_of(self.training, 1e6, False, usual).values.norm()) * 1e6 / len(usual[0]) or 1.0
        for bound, later in ((0.01 * own, False), (own, False), (own, True), (10.0 * own, False)):
            less = sums_of(self.training, bound, later, usual)
            for i in range(len(self.row.data.others[0])):
                more = [torch.cat([a, b[i : i + 1]]) for a, b in zip(usual, self.row.data.others)]
                moved = sums_of(self.training, bound, later, more).values.double() - less.values.double()
                worst = max(worst, float(moved.norm()) / less.sensitivity)
        return worst


@pytest.fixture(scope="module", params=TRAINED, ids=str)
def tried(request: pytest.FixtureRequest) -> Tried:
    with quiet_training():
        return Tried(request.param, *made_private(request.param))


def test_records_that_are_taken_alone_are_said_to_be(tried: Tried) -> None:
    assert any("mixes records" in text for text in tried.told) == (tried.row.outcome == "alone")


def test_no_record_moves_the_sums_by_more_than_is_stated(tried: Tried) -> None:
    assert tried.most_moved() <= 1.0


def test_code_that_gets_the_whole_batch_is_found(tried: Tried, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that takes the slopes of the batch's loss, as that of 0.5.0 did."""

    def together(own: PerRecord, run: Any, *inputs: Any) -> list[Factor]:
        tape, outputs = _Tape(own, len(inputs[0][0])), list[Tensor]()

        def keep(columns: dict[str, slice]) -> Any:
            def hook(layer: Any, args: Any, out: Tensor) -> None:
                tape._calls.append(_Call(layer, columns, args[0].detach(), 0, args[0]._version, None, 0))
                outputs.append(out)

            return hook

        hooks = [layer.register_forward_hook(keep(columns)) for layer, columns in own.layers()]
        with torch.enable_grad():
            slopes = torch.autograd.grad(run(*inputs), outputs)
        for hook in hooks:
            hook.remove()
        return [f for c, g in zip(tape._calls, slopes) for f in tape._of_layer(c.layer, c.columns, c.x, g)]

    monkeypatch.setattr(PerRecord, "factors", together)
    if tried.row.outcome in ("alone", "unseen"):
        assert tried.most_moved() > 1.0


@pytest.mark.parametrize("row", REFUSED, ids=str)
def test_a_loss_that_means_something_else_is_refused(row: Row) -> None:
    with refused():
        made_private(row)


@pytest.mark.parametrize("row", REFUSED, ids=str)
def test_the_guarantee_needs_no_trial(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial that finds nothing lets losses in that mean something else; each record is still taken by itself."""
    monkeypatch.setattr("dpgen.systems.dp_sgd.module_training.settle", lambda own, run, *inputs: setattr(own, "public", inputs))
    if {row.loss.__name__, row.build.__name__}.isdisjoint(IN_TRAINING):
        assert Tried(row, *made_private(row)).most_moved() <= 1.0
        return
    with pytest.raises((ValueError, RuntimeError)):
        Tried(row, *made_private(row)).most_moved()


def test_a_long_text_beside_short_ones_moves_a_step_by_no_more_than_is_stated() -> None:
    """64 texts of one word, and one of 128: a mean over the words of a batch moved the sum by 19 bounds in 0.5.0."""
    texts = torch.randint(100, (1, 128), generator=torch.Generator().manual_seed(0))
    first = torch.where(torch.arange(128) == 0, texts, -100)
    row = Row(masked_tokens, Data((texts.repeat(64, 1), first.repeat(64, 1)), (texts.flip(1), texts)), "alone", wide_words)
    training, told = made_private(row)
    assert any("mixes records" in text for text in told)
    less, more = (sums_of(training, 10.0, False, r) for r in (list(row.data.usual), [torch.cat(p) for p in zip(*row.data[:2])]))
    assert float((more.values.double() - less.values.double()).norm()) <= less.sensitivity
