"""Any LightningModule in three lines: what reaches its optimizer, its logs and its files, and what is refused."""

import contextlib
import copy
import json
import traceback
import warnings
from pathlib import Path
from typing import Any

import lightning as L
import own_modules
import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping, LearningRateFinder, ModelCheckpoint, WeightAveraging
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import ModelParallelStrategy
from own_modules import Classifier, D, Generator
from refusals import refused
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, TensorDataset, WeightedRandomSampler

import dpgen
from dpgen.callbacks import DPNorm
from dpgen.data import load_table
from dpgen.data.tables import VISITS, simulated_visits
from dpgen.facts import Fact
from dpgen.nets.trials import dense
from dpgen.privacy.accountants import epsilon
from dpgen.privacy.exact_sums import BoundedSum
from dpgen.privacy.ledger import Budget, BudgetExceeded, Ledger, LedgerError
from dpgen.privacy.mechanisms import allocated_gaussian_event
from dpgen.privacy.sampling import Held
from dpgen.systems.dp_sgd.plan import EPOCHS, STEPS, DPSGDConfig, DPSGDPlan
from dpgen.systems.dp_sgd.sums import COMPANY

pytestmark = [
    pytest.mark.usefixtures("quiet"),
    pytest.mark.filterwarnings("ignore:what training_step logs", "ignore:training_step mixes", "ignore::FutureWarning"),
]
N, BATCH = 64, 16
ODD = [(-100, 0.0), (2, 0.0), (0, torch.nan), (0, 1e3)]


def records() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(N, D, generator=generator)
    return TensorDataset(x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long())


def loaded(data: Any = None, **options: Any) -> "DataLoader[Any]":
    return DataLoader(records() if data is None else data, **{"batch_size": BATCH, "shuffle": True} | options)


def trainer(**options: Any) -> L.Trainer:
    silent = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    limits = {} if "max_steps" in options or "max_epochs" in options else {"max_steps": 3}
    return L.Trainer(accelerator="cpu", **silent | limits | options)


def private(module: L.LightningModule, runner: L.Trainer | None = None, data: Any = None, **options: Any) -> Any:
    options = {"epsilon": 3.0, "sampling_rate": 0.25} | options
    return dpgen.make_private(module, loaded(data), runner or trainer(), **options)


def trained(module: L.LightningModule, runner: L.Trainer | None = None, data: Any = None, **options: Any) -> L.Trainer:
    made, loader, runner = private(module, runner, data, **options)
    assert made is module
    runner.fit(module, loader)
    return runner


# -- three lines -----------------------------------------------------------------------------------------------------


def test_three_lines_train_and_release_a_classifier(tmp_path: Path) -> None:
    module, loader, runner = Classifier(hidden=5), loaded(), trainer(max_epochs=2)
    before = copy.deepcopy(module.state_dict())
    module, private_loader, runner = dpgen.make_private(module, loader, runner, epsilon=3.0, delta=1e-5)
    runner.fit(module, private_loader)
    release = dpgen.release(module, tmp_path / "model")
    assert (release.epsilon, release.delta) == (3.0, 1e-5)
    assert runner.global_step == 2 * len(private_loader)
    assert torch.equal(before["frozen.weight"], module.state_dict()["frozen.weight"])
    assert not torch.equal(before["layers.0.weight"], module.state_dict()["layers.0.weight"])
    again = dpgen.load(tmp_path / "model")
    made = again.module()
    assert isinstance(made, Classifier)
    assert made.hparams["hidden"] == 5
    assert all(torch.equal(value, made.state_dict()[name]) for name, value in module.state_dict().items())
    assert not any("step" in name for name in vars(module)), "it is its author's again"
    assert "Classifier gets one record at a time" in again.statement.to_markdown()
    assert "hyperparameters, buffers and first weights are public" in again.statement.to_markdown()
    with refused("sample", "generator"):
        again.sample(3)


class Reader(own_modules.Plain):
    """Rows in sequence through an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.linear = torch.nn.LSTM(16, 12, batch_first=True), torch.nn.Linear(12, 10)

    def training_step(self, batch: Any) -> Tensor:
        return cross_entropy(self(batch[0]), batch[1])

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.layer(x)[0][:, -1])

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=0.03)


class Attending(Reader):
    """Codes of the columns of a table through two layers of attention."""

    def __init__(self, codes: int) -> None:
        super().__init__()
        one = torch.nn.TransformerEncoderLayer(12, 2, 24, dropout=0.0, batch_first=True)
        self.embed, self.layer = torch.nn.Embedding(codes, 12), torch.nn.TransformerEncoder(one, 2)  # type: ignore[assignment]

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.layer(self.embed(x)).mean(1))


@pytest.mark.parametrize("kind", [Reader, Attending])
def test_sequences_of_rows_and_attention_over_columns_learn(kind: Any) -> None:
    torch.manual_seed(0)
    if kind is Reader:
        images, labels = load_digits(return_X_y=True)
        module, x, y = Reader(), torch.tensor(images).float().view(-1, 4, 16)[:, torch.randperm(4)] / 16, torch.tensor(labels)
    else:
        table: Any = load_table(path=simulated_visits(400), schema=dict(VISITS), test_fraction=0.0)
        sizes, target = torch.tensor(table.schema.domain.sizes), table.schema.domain.names.index("ward")
        x, y = (table.codes + sizes.cumsum(0) - sizes)[:, torch.arange(len(sizes)) != target], table.codes[:, target]
        module = Attending(int(sizes.sum()))
    before = cross_entropy(module(x), y).item()
    runner = trainer(max_steps=15)
    made, loader, _ = dpgen.make_private(module, loaded(TensorDataset(x, y)), runner, epsilon=8.0, sampling_rate=0.2)
    runner.fit(made, loader)
    assert cross_entropy(module(x), y).item() < 0.97 * before


class Mapped(Dataset[Any]):
    def __len__(self) -> int:
        return N

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        return {"x": torch.full((D,), float(i % 2))}


def test_a_generator_of_records_in_a_mapping(tmp_path: Path) -> None:
    module = Generator()
    trained(module, data=Mapped())
    dpgen.release(module, tmp_path)
    model = dpgen.load(tmp_path)
    assert torch.equal(model.sample(4, random_state=1), model.sample(4, random_state=1))
    assert model.samples(4).to_pandas().shape == (4, D)


@pytest.mark.parametrize("options", [{}, {"micro_batch": 5}, {"max_grad_norm": 0.05}])
def test_the_gradient_is_the_sum_of_clipped_ones_over_the_noisy_size(options: dict[str, Any]) -> None:
    module = Classifier()
    module.layers[2].p = 0.0
    before, (x, y) = copy.deepcopy(module), records().tensors
    runner = trained(module, trainer(max_steps=1), epsilon=None, noise_multiplier=1e-5, sampling_rate=1.0, **options)
    bound, names = options.get("max_grad_norm", 1.0), [n for n, v in module.named_parameters() if v.requires_grad]
    total = torch.zeros(sum(before.get_parameter(name).numel() for name in names))
    for i in range(N):
        values = [before.get_parameter(name) for name in names]
        g = torch.cat([v.flatten() for v in torch.autograd.grad(cross_entropy(before(x[i : i + 1]), y[i : i + 1]), values)])
        total += g * min(1.0, bound / float(g.norm()))
    moved = torch.cat([(before.get_parameter(name) - module.get_parameter(name)).detach().flatten() for name in names])
    counts = runner.callbacks[-1].partition.counts  # type: ignore[attr-defined]
    size = max(1.0, float(counts))
    assert size != N, "a noisy number of records"
    assert torch.allclose(moved * size, total, atol=2e-3 * float(total.abs().max()))


# -- records and modules of any form ---------------------------------------------------------------------------------


class Ragged(Dataset[Any]):
    """Sequences of words with their class."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.rows = [torch.randint(9, (1 + i % 5,), generator=generator) for i in range(N)]

    def __len__(self) -> int:
        return N

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return self.rows[i], i % 3


def padded(rows: list[Any]) -> tuple[Tensor, Tensor, Tensor]:
    words = torch.nn.utils.rnn.pad_sequence([row[0] for row in rows], batch_first=True)
    return words, torch.tensor([len(row[0]) for row in rows]), torch.tensor([row[1] for row in rows])


@pytest.mark.filterwarnings("ignore:records are taken one after the other")
@pytest.mark.parametrize("example", [(torch.tensor([1, 2, 3]), 2), lambda: (torch.randint(9, (3,)), 1)], ids=["one", "made"])
def test_records_of_several_lengths_are_clipped_one_by_one(example: Any) -> None:
    module = own_modules.Packed()
    before = copy.deepcopy(module)
    runner, loader = trainer(max_steps=1), DataLoader(Ragged(), batch_size=BATCH, collate_fn=padded)
    options: Any = {"noise_multiplier": 1e-5, "sampling_rate": 1.0, "max_grad_norm": 0.1}
    module, loader, runner = dpgen.make_private(module, loader, runner, example=example, **options)
    runner.fit(module, loader)
    total = torch.zeros(sum(value.numel() for value in before.parameters()))
    for row in map(Ragged().__getitem__, range(N)):
        g = torch.cat([v.flatten() for v in torch.autograd.grad(before.training_step(padded([row])), [*before.parameters()])])
        total += g * min(1.0, 0.1 / float(g.norm()))
    moved = torch.cat([(a - b).detach().flatten() for a, b in zip(before.parameters(), module.parameters())])
    size = max(1.0, float(runner.callbacks[-1].partition.counts))  # type: ignore[attr-defined]
    assert torch.allclose(moved * size, total, atol=2e-3 * float(total.abs().max()))


@pytest.mark.parametrize(
    ("example", "word"),
    [
        (None, "example="),
        (lambda: 1 / 0, "ZeroDivisionError"),
        ((torch.zeros(3).long(),), "fails"),
    ],
)
def test_examples_that_are_no_records_are_refused(example: Any, word: str) -> None:
    loader = DataLoader(Ragged(), batch_size=BATCH, collate_fn=padded)
    with refused(word):
        dpgen.make_private(own_modules.Packed(), loader, trainer(), epsilon=1.0, sampling_rate=0.5, example=example)


@pytest.mark.parametrize(
    "example", [(torch.zeros(D), torch.tensor(1.0)), (torch.zeros(D + 1), torch.tensor(1)), torch.zeros(D)]
)
def test_an_example_of_another_form_than_the_records_is_refused(example: Any) -> None:
    with refused("example"):
        private(Classifier(), example=example)
    private(Classifier(), example=(torch.ones(D), torch.tensor(1)))


class Module(L.LightningDataModule):
    """Data that are there after `setup` only."""

    def setup(self, stage: str) -> None:
        self.data = records()

    def train_dataloader(self) -> Any:
        return loaded(self.data)


class OfItsOwn(Module):
    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        return batch


@pytest.mark.parametrize("named", [True, False])
def test_a_data_module_comes_back_with_private_draws(named: bool) -> None:
    module, data, runner = dpgen.make_private(Classifier(), Module(), trainer(), epsilon=3.0, sampling_rate=0.25)
    assert isinstance(data, Module)
    runner.fit(module, datamodule=data) if named else runner.fit(module, data)
    assert runner.callbacks[-1].steps == 3
    with refused("on_after_batch_transfer"):
        dpgen.make_private(Classifier(), OfItsOwn(), trainer(), epsilon=3.0, sampling_rate=0.25)


def test_metrics_in_a_step_see_no_record() -> None:
    module = own_modules.Metered()
    trained(module)
    assert not module.accuracy.update_called
    with refused("not finite"):
        private(own_modules.Learnt())


@pytest.mark.parametrize("several", [0, 1, 2, 3])
def test_groups_of_parameters_have_one_optimizer(several: int) -> None:
    module = own_modules.Grouped()
    module.several = several
    if not several:
        assert [group["lr"] for group in trained(module).optimizers[0].param_groups] == [0.5, 1.0]
        return
    with refused("2 optimizers", "groups of parameters"):
        trained(module)


def test_a_compiled_module_is_trained_as_it_was_written() -> None:
    module = Classifier()
    made, loader, runner = private(torch.compile(module))  # type: ignore[arg-type]
    assert made is module
    runner.fit(made, loader)


def test_averaged_weights_a_scheduler_and_an_adaptive_bound_are_as_ever() -> None:
    module = Classifier()
    runner = trained(module, trainer(max_epochs=2, callbacks=[WeightAveraging(), DPNorm(c_max=4.0)]))
    assert runner.optimizers[0].param_groups[0]["lr"] == 0.25
    assert runner.global_step == 8


def test_bfloat16() -> None:
    module = Classifier()
    trained(module, trainer(precision="bf16-mixed"))
    assert all(value.dtype == torch.float32 and bool(torch.isfinite(value).all()) for value in module.parameters())


@pytest.mark.parametrize("rate", [0.25, None])
def test_an_epoch_of_random_allocation_has_every_record_once_and_is_charged_as_one(rate: float | None, tmp_path: Path) -> None:
    ledger, module = Ledger(Budget(3.0, 1e-5)), Classifier()
    module, loader, runner = private(module, trainer(max_epochs=3), sampling_rate=rate, sampling="allocation", ledger=ledger)
    steps = len(loader)
    rows = [batch.x.values[0] for batch in loader]
    assert torch.equal(torch.cat(rows).sort(0).values, records().tensors[0].sort(0).values)
    runner.fit(module, loader)
    assert runner.global_step == 3 * steps
    (line,) = (line for line in ledger.promised() if line.note == EPOCHS)
    (entry,) = (entry for entry in ledger.entries() if entry.note == EPOCHS)
    assert (line.count, entry.count, entry.event) == (3, 3, line.event)
    assert line.event == allocated_gaussian_event(steps, line.event.event.noise_multiplier)
    assert Fact.SECRET_ALLOCATION.sentence in dpgen.release(module, tmp_path).statement.assumptions


def test_allocation_costs_no_more_than_poisson_draws() -> None:
    about: Any = {"sampling_rate": 0.25, "steps": 12, "noise_multiplier": 1.0, "sigma_count": 9.0}
    found = [DPSGDPlan(**about, sampling=sampling) for sampling in ("poisson", "allocation")]
    poisson, allocated = (epsilon(plan.event(DPSGDConfig()), 1e-5, relation="add_remove") for plan in found)
    assert allocated < poisson


# -- what leaves -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Diffusion", "Sampling"])
def test_random_numbers_of_a_record_by_itself_are_its_own_affair(kind: str) -> None:
    module = getattr(own_modules, kind)()
    runner = trained(module, loss_noise=10.0)
    assert not runner.callbacks[-1].bank.per_record.whole  # type: ignore[attr-defined]


def test_double_precision() -> None:
    x, y = records().tensors
    module = own_modules.Guarding().double()
    trained(module, trainer(precision="64-true"), TensorDataset(x.double(), y))
    assert module.linear.weight.dtype == torch.float64


def test_checkpoints_and_logs_hold_released_values_alone_and_follow_their_charges(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    path = tmp_path / "ledger.json"

    class Looking(CSVLogger):
        def log_metrics(self, metrics: Any, step: int | None = None) -> None:
            steps = sum(count for _, count in ledger._shown)
            seen.append((steps, step or 0))
            assert not any("train_loss" in name for name in metrics)
            super().log_metrics(metrics, step)

    ledger = Ledger(Budget(3.0, 1e-5), path=path)
    saves, logger = ModelCheckpoint(tmp_path, every_n_train_steps=2, save_top_k=-1), Looking(tmp_path)
    runner = trainer(max_epochs=3, callbacks=[saves], log_every_n_steps=1, logger=logger, enable_checkpointing=True)
    trained(Classifier(), runner, ledger=ledger, loss_noise=5.0)
    assert seen
    assert all(charged > step for charged, step in seen), "the sizes, and every step that a line may show"
    assert len(list(tmp_path.glob("*.ckpt"))) == 6


def test_a_noisy_loss_is_paid_for_and_stops_early() -> None:
    module, stop = Classifier(), EarlyStopping("released/loss", patience=1, min_delta=100.0, check_on_train_epoch_end=True)
    runner = trained(module, trainer(max_epochs=20, callbacks=[stop]), loss_noise=20.0, epsilon=20.0)
    assert 0 < runner.global_step < 40
    cheap, dear = (private(Classifier(), epsilon=None, noise_multiplier=2.0, loss_noise=s)[2] for s in (50.0, 1.0))
    costs = [next(c for c in r.callbacks if isinstance(c, dpgen.callbacks.PrivacyAccountant)) for r in (cheap, dear)]
    for made in (cheap, dear):
        made.fit(*reversed_pair(made))
    assert costs[0].ledger.epsilon() < costs[1].ledger.epsilon()


def test_a_noisy_loss_has_the_noise_of_what_other_records_change_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    own, seen = private(own_modules.Plain(), loss_noise=10.0)[2].callbacks[-1], list[BoundedSum]()

    class Drawn:
        def gaussian(self, _: str, sums: BoundedSum) -> Tensor:
            seen.append(sums)
            return sums.values

    own.serve(own.accountant.curator)
    monkeypatch.setattr(own, "losses", lambda x: torch.full((len(x),), 0.5, dtype=torch.float64) + 1e-6 * len(x))
    own.noisy_loss(own.records[torch.arange(5)], Drawn())
    change = 1e-6 * (COMPANY - 1)
    assert seen[0].sensitivity == pytest.approx(1.0 + 2.0**-20 + 10.0 * change * own.measure(1).records)


def test_a_step_and_its_loss_have_secret_seeds_of_their_own() -> None:
    seeds: list[int] = []

    class Seeing(own_modules.Plain):
        def training_step(self, batch: Any) -> Tensor:
            seeds.append(torch.initial_seed())
            return super().training_step(batch)

    for _ in range(2):
        torch.manual_seed(0)
        trained(Seeing(), trainer(max_steps=3), loss_noise=10.0)
    assert len({*seeds} - {0}) == 2 * 3 * 2


def reversed_pair(runner: L.Trainer) -> tuple[Any, Any]:
    own = runner.callbacks[-1]  # type: ignore[attr-defined]
    return own.module, own.loader


def test_a_rate_that_is_bought_is_in_the_file_before_anybody_sees_it(tmp_path: Path) -> None:
    private(Classifier(), sampling_rate=None, ledger=tmp_path / "ledger.json")
    assert json.loads((tmp_path / "ledger.json").read_text())["charges"] == [[0, 1]]


def test_a_rate_that_is_bought_costs_no_more_than_the_budget() -> None:
    _, loader, runner = private(Classifier(), sampling_rate=None)
    ledger = next(c for c in runner.callbacks if isinstance(c, dpgen.callbacks.PrivacyAccountant)).ledger
    (line,) = (line for line in ledger.promised() if line.note == STEPS)
    assert ledger.epsilon() == 3.0
    assert ledger.allowance(line.event) < 0.1 * line.count, "the noise is not larger than it must be"
    assert loader.sampling_rate != BATCH / N, "the true number is not shown"


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_a_rate_that_is_bought_from_a_larger_budget_costs_what_was_asked_for(relation: Any) -> None:
    ledger, asked = Ledger(Budget(10.0, 1e-5), relation=relation), Ledger(Budget(1.0, 1e-5), relation=relation)
    private(Classifier(), sampling_rate=None, epsilon=1.0, ledger=ledger, relation=relation)
    for line in ledger.promised():
        asked.declare([line])  # which this budget grants, the steps in the light of the sizes
    reporting = Ledger(None, delta=1e-5)
    with refused("no budget"):
        private(Classifier(), sampling_rate=None, ledger=reporting)
    assert not reporting.entries()


@pytest.mark.parametrize("cost", [{"epsilon": 3.0}, {"epsilon": None, "noise_multiplier": 4.0}], ids=["epsilon", "noise"])
def test_the_guarantee_is_that_of_the_relation_and_delta_that_were_asked_for(cost: dict[str, Any]) -> None:
    _, _, runner = private(Classifier(), relation="replace_one", delta=1e-6, **cost)
    ledger = next(c for c in runner.callbacks if isinstance(c, dpgen.callbacks.PrivacyAccountant)).ledger
    assert (ledger.relation, ledger.delta) == ("replace_one", 1e-6)


# -- resume ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "sampling", "saved_at", "steps"),
    [(0.25, "poisson", 2, 4), (None, "poisson", 2, 4), (0.25, "allocation", 4, 8), (0.25, "allocation", 3, 4)],
)
def test_a_training_goes_on_with_its_ledger(
    tmp_path: Path, rate: float | None, sampling: str, saved_at: int, steps: int
) -> None:
    path, saved, most = tmp_path / "ledger.json", tmp_path / "last.ckpt", 6 if sampling == "poisson" else 8
    options: Any = {"sampling_rate": rate, "sampling": sampling, "ledger": path}
    module, loader, runner = private(Classifier(), trainer(max_steps=most), **options)
    runner.callbacks.append(Interrupting(saved, saved_at))  # type: ignore[attr-defined]
    with pytest.raises(SystemExit):
        runner.fit(module, loader)
    del runner.callbacks[-1]  # type: ignore[attr-defined]
    next(c for c in runner.callbacks if isinstance(c, dpgen.callbacks.PrivacyAccountant)).ledger.drop()  # as a kill does
    other = {"sampling": "poisson" if sampling == "allocation" else "allocation", "sampling_rate": 0.25}
    for changed in ({"sampling_rate": 0.25, "epsilon": None, "noise_multiplier": 9.0}, other):
        with refused("ledger", error=(ValueError, BudgetExceeded)):
            private(Classifier(), trainer(max_steps=most), **options | changed)
    assert "training_step" not in vars(module), "it is as it was"
    again = Classifier()
    again, loader, runner = private(again, trainer(max_steps=most), **options)
    runner.fit(again, loader, ckpt_path=saved, weights_only=True)
    assert runner.callbacks[-1].steps == steps, "what may have been shown after the checkpoint stays counted"  # type: ignore[attr-defined]
    assert dpgen.release(again, tmp_path / "model").epsilon <= 3.0
    fresh = private(Classifier(), trainer(max_steps=6))
    with refused(error=(LedgerError, ValueError)):
        fresh[2].fit(fresh[0], fresh[1], ckpt_path=saved, weights_only=True)


def test_a_training_without_a_budget_goes_on_as_often_as_it_is_killed(tmp_path: Path) -> None:
    path, saved = tmp_path / "ledger.json", tmp_path / "last.ckpt"
    for kill in range(3):
        module, loader, runner = private(
            Classifier(), trainer(max_steps=4), epsilon=None, noise_multiplier=2.0, sampling_rate=0.25, ledger=path
        )
        if not kill:
            runner.callbacks.append(Interrupting(saved, 1))  # type: ignore[attr-defined]
        with contextlib.suppress(SystemExit):
            runner.fit(module, loader, ckpt_path=saved if kill else None, weights_only=True if kill else None)
        ledger = next(c for c in runner.callbacks if isinstance(c, dpgen.callbacks.PrivacyAccountant)).ledger
        ledger.drop()
    assert [line.count for line in ledger.promised() if line.note == STEPS] == [4 + 3 + 3]


class Interrupting(L.Callback):
    def __init__(self, path: Path, saved_at: int) -> None:
        self.path, self.saved_at = path, saved_at

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.global_step == self.saved_at:
            trainer.save_checkpoint(self.path)
        if trainer.global_step == 4:
            raise SystemExit


# -- refused ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("Batched", "BatchNorm1d"),
        ("Summed", "mean"),
        ("Averaging", "meter"),
        ("Stateful", "get_extra_state"),
        ("Mixing", "mean"),
        ("Writing", "training_step"),
        ("Manual", "automatic_optimization"),
        ("Moving", "on_after_batch_transfer"),
        ("Frozen", "no parameter"),
    ],
)
def test_modules_that_cannot_be_private_are_refused_before_anything_is_spent(kind: str, word: str) -> None:
    ledger = Ledger(Budget(3.0, 1e-5))
    with refused(word):
        private(getattr(own_modules, kind)(), ledger=ledger)
    assert (ledger.entries(), ledger.promised()) == ([], [])


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"loader": loaded(shuffle=False, sampler=WeightedRandomSampler([1.0] * N, N))}, "sampler"),
        ({"loader": loaded(Mapped(), collate_fn=lambda rows: rows)}, "example"),
        ({"loader": [1, 2]}, "loader"),
        ({"loader": loaded([torch.zeros(D), torch.zeros(D + 1)])}, "shape"),
        ({"trainer": trainer(accumulate_grad_batches=2)}, "accumulate_grad_batches"),
        ({"trainer": trainer(max_epochs=-1)}, "max_steps"),
        ({"trainer": trainer(detect_anomaly=True)}, "detect_anomaly"),
        ({"trainer": trainer(gradient_clip_val=1.0)}, "gradient_clip_val"),
        ({"trainer": trainer(overfit_batches=2)}, "overfit_batches"),
        ({"trainer": trainer(callbacks=[LearningRateFinder()])}, "LearningRateFinder"),
        ({"trainer": trainer(devices=2, strategy="ddp_spawn")}, "ddp_spawn"),
        ({"trainer": trainer(devices=2, strategy="ddp")}, "use_distributed_sampler"),
        (
            {"trainer": trainer(devices=2, strategy="ddp", use_distributed_sampler=False), "sampling_rate": None},
            "sampling_rate",
        ),
        ({"trainer": trainer(devices=2, strategy=ModelParallelStrategy())}, "FSDP2"),
        ({"module": torch.nn.Linear(2, 2)}, "LightningModule"),
        ({"ledger": Ledger(Budget(3.0, 1e-5), relation="replace_one")}, "relation"),
        ({"ledger": Ledger(Budget(3.0, 1e-5), rows=2)}, "rows"),
        ({"ledger": Ledger(Budget(3.0, 1e-6))}, "delta"),
        ({"epsilon": None}, "epsilon"),
        ({"noise_multiplier": 1.0}, "noise_multiplier"),
        ({"epsilon": None, "noise_multiplier": 1.0, "sampling_rate": None}, "sampling_rate"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"sampling_rate": 2.0}, "sampling_rate"),
        ({"max_grad_norm": 0.0}, "max_grad_norm"),
        ({"loss_noise": -1.0}, "loss_noise"),
        ({"sampling": "shuffled"}, "allocation"),
        ({"sampling": "allocation", "sampling_rate": 0.3}, "sampling_rate"),
        ({"sampling": "allocation", "relation": "replace_one"}, "relation"),
        ({"sampling": "allocation", "trainer": trainer(limit_train_batches=2)}, "limit_train_batches"),
        ({"micro_batch": 0}, "micro_batch"),
    ],
    ids=lambda value: value if isinstance(value, str) else " and ".join(value),
)
def test_settings_that_cannot_be_private_are_refused(given: dict[str, Any], word: str) -> None:
    usual = {"module": Classifier(), "loader": loaded(), "trainer": trainer(), "epsilon": 3.0, "sampling_rate": 0.25}
    with refused(word):
        dpgen.make_private(**usual | given)


def test_clipping_that_the_trainer_is_given_later_is_refused_before_a_step() -> None:
    module, loader, runner = private(Classifier())
    runner.gradient_clip_val = 0.5
    with refused("gradient_clip_val", "0.5"):
        runner.fit(module, loader)
    assert runner.global_step == 0


@pytest.mark.parametrize(
    ("kind", "options", "word"),
    [
        ("Thawing", {}, "frozen"),
        ("Replacing", {}, "layers.3.weight"),
        ("Exploding", {}, "not finite"),
        ("Classifier", {"optimizer": "LBFGS"}, "LBFGS"),
        ("Sharpening", {}, "several gradients"),
        ("Late", {}, "centre"),
    ],
)
def test_what_only_training_shows_ends_it_in_one_line(kind: str, options: dict[str, Any], word: str) -> None:
    with refused(word, paid=kind != "Classifier"):
        trained(getattr(own_modules, kind)(**options), trainer(max_epochs=2))


@pytest.mark.parametrize("loss_noise", [None, 1e-5])
def test_a_record_that_the_code_fails_for_counts_for_nothing(loss_noise: float | None) -> None:
    x, y = records().tensors
    data = [TensorDataset(x, torch.where(torch.arange(N) == 9, code, y)) for code in (0, 99)]
    with refused("some of the records"):
        private(own_modules.Coded(), data=data[1])
    found = list[Tensor]()
    for kept in (data[1], TensorDataset(*(torch.cat([t[:9], t[10:]]) for t in data[0].tensors))):
        torch.manual_seed(0)
        module, loader, runner = private(
            own_modules.Coded(), data=data[0], epsilon=None, noise_multiplier=1e-6, sampling_rate=1.0, loss_noise=loss_noise
        )
        loader.table.x, loader.table.cluster = Held(list(kept.tensors)), torch.zeros(len(kept), dtype=torch.int64)
        runner.callbacks[-1].partition.load_state_dict({"counts": torch.tensor([64.0])})
        runner.callbacks[-1].partitioned = True
        runner.fit(module, loader)
        found.append(torch.cat([value.detach().flatten() for value in module.parameters()]))
    assert torch.allclose(*found, atol=1e-4)


class Stopping(own_modules.Plain):
    """Fails at its second step, for public records, too; or, if it counts, once for all records of a batch."""

    calls, most = 0, 10**9

    def training_step(self, batch: Any) -> Tensor:
        if self.global_step == 1:
            if self.most == 10**9:
                raise KeyError("what the code says")
            Stopping.calls += 1
            if Stopping.calls in (1, self.most):
                raise KeyError(f"secret {batch}")
        return super().training_step(batch)


def test_an_error_of_code_is_told_and_one_of_private_records_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="what the code says"):
        trained(Stopping())
    monkeypatch.setattr(Stopping, "most", 1 + 1 + N + 1)  # all, public ones, each, all without those that fail
    with pytest.raises(RuntimeError, match="raised KeyError") as raised:
        trained(Stopping(), sampling_rate=1.0)
    assert "secret [" not in "".join(traceback.format_exception(raised.value))


class FrozenNorm(own_modules.Plain):
    """A pretrained norm keeps its statistics, also where a hook turns the whole module to training."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(D).eval()
        self.norm.running_mean.fill_(0.5)  # type: ignore[union-attr]

    def training_step(self, batch: Any) -> Tensor:
        return cross_entropy(self.linear(self.norm(batch[0])), batch[1])

    def on_train_epoch_start(self) -> None:
        self.train()


def test_a_frozen_norm_stays_frozen(tmp_path: Path) -> None:
    module = FrozenNorm()
    trained(module, trainer(max_epochs=2))
    assert float(module.norm.num_batches_tracked) == 0  # type: ignore[arg-type]
    assert bool((module.norm.running_mean == 0.5).all())
    assert not torch.equal(module.norm.weight, torch.ones(D)), "its weights are trained"
    dpgen.release(module, tmp_path)
    with refused("BatchNorm1d", "eval()"):
        private(FrozenNorm().train())


def test_records_that_do_not_stack_are_not_shown() -> None:
    class Ragged(Dataset[Tensor]):
        def __len__(self) -> int:
            return N

        def __getitem__(self, i: int) -> Tensor:
            return torch.zeros(3 + 4 * (i == 9))

    with pytest.raises(ValueError, match="stack") as raised:
        private(Classifier(), data=Ragged())
    assert not any(number in str(raised.value) for number in "79")


def test_other_loaders_are_refused() -> None:
    module, _, runner = private(Classifier())
    with refused("make_private"):
        runner.fit(module, loaded())
    with refused("private before"):
        private(module, runner)


def test_what_is_released_was_trained_and_nothing_else_changed(tmp_path: Path) -> None:
    with refused("make_private"):
        dpgen.release(Classifier(), tmp_path)
    module = private(Classifier())[0]
    with refused("not been trained"):
        dpgen.release(module, tmp_path)
    changed = own_modules.Patient()
    trained(changed)
    with refused("frozen.weight"):
        dpgen.release(changed, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_module_that_was_trained_twice_is_not_released_for_the_price_of_one(tmp_path: Path) -> None:
    module = Classifier()
    trained(module)
    with refused("trained privately before"):
        private(module)
    trainer().fit(module, loaded())
    with refused("another trainer"):
        dpgen.release(module, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("kind", "code", "value"),
    [
        *((k, *odd) for k in ("Plain", "Guarding", "Capping", "Masking") for odd in ODD),
        *((k, -1, 0.0) for k in ("Guarding", "Capping", "Masking")),  # to Plain it is no label
    ],
)
def test_an_odd_record_changes_no_other_gradient(kind: str, code: int, value: float) -> None:
    module = getattr(own_modules, kind)()
    bank = private(module)[2].callbacks[-1].bank
    x, y = (t[:8].clone() for t in records().tensors)
    usual = dense(bank.per_record, bank.total, [x, y])[1:]
    x[0], y[0] = value, code
    assert torch.allclose(dense(bank.per_record, bank.total, [x, y])[1:], usual, rtol=1e-5, atol=1e-7)


def test_a_step_tells_nobody_how_many_records_it_sees(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[dict[str, float]] = []

    class Looking(CSVLogger):
        def log_metrics(self, metrics: Any, step: int | None = None) -> None:
            seen.append(metrics)

    with warnings.catch_warnings(record=True) as told:
        trained(own_modules.Printing(), trainer(max_steps=3, logger=Looking(tmp_path), log_every_n_steps=1))
    assert {metrics["batch"] for metrics in seen if "batch" in metrics} == {1.0}
    assert "secret" not in "".join((*capfd.readouterr(), *(str(warning.message) for warning in told)))


def test_a_step_is_in_the_file_before_a_callback_sees_it(tmp_path: Path) -> None:
    counted, path = list[int](), tmp_path / "ledger.json"

    class Looking(L.Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            counted.append(json.loads(path.read_text())["charges"][-1][1])

    trained(Classifier(), trainer(max_steps=3, callbacks=[Looking()]), ledger=path)
    assert counted == [1, 2, 3]


def test_records_without_finite_losses_count_for_nothing() -> None:
    x, y = records().tensors
    module = Classifier()
    trained(module, data=TensorDataset(torch.where(torch.arange(N)[:, None] % 2 == 0, torch.nan, x), y))
    assert all(bool(torch.isfinite(value).all()) for value in module.parameters())


def test_empty_draws_release_noise() -> None:
    module = Classifier()
    runner = trained(module, data=TensorDataset(*(t[:1] for t in records().tensors)), sampling_rate=0.01, loss_noise=10.0)
    assert runner.global_step == 3
