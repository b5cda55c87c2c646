"""People as units of a training: their gradients are clipped together, and move a step by what is stated."""

import copy
from typing import Any

import lightning as L
import own_modules
import pytest
import torch
from own_modules import D
from refusals import refused
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import dpgen
from dpgen.nets.per_record import PerRecord
from dpgen.privacy.clipping import Factor, clipped_sums, flat_coefficients, gradient_norms
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.privacy.sampling import Held
from dpgen.systems.dp_sgd.module_training import grouped, of_people, records_of_people

pytestmark = [pytest.mark.usefixtures("quiet"), pytest.mark.filterwarnings("ignore::FutureWarning", "ignore:records are taken")]
N, MOST, BOUND = 40, 3, 0.5
_PUBLIC = torch.Generator().manual_seed(0)
X, Y, WHO = torch.randn(N, D, generator=_PUBLIC), torch.arange(N) % 3, torch.randint(12, (N,), generator=_PUBLIC)


def trainer() -> L.Trainer:
    silent = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    return L.Trainer(accelerator="cpu", max_steps=1, **silent)


def private(module: L.LightningModule, data: Any, **options: Any) -> Any:
    usual = {"epsilon": 3.0, "sampling_rate": 1.0, "max_contributions": MOST, "max_grad_norm": BOUND}
    return dpgen.make_private(module, DataLoader(data, batch_size=8), trainer(), **usual | options)


def wanted(before: Any) -> Tensor:
    """The sum of people's clipped gradients, one person after the other."""
    total = torch.zeros(sum(value.numel() for value in before.parameters()))
    for who in WHO.unique():
        rows = (who == WHO).nonzero()[:, 0]
        rows = rows[torch.arange(MOST) * len(rows) // MOST] if len(rows) > MOST else rows
        losses = [cross_entropy(before.linear(X[i : i + 1]), Y[i : i + 1]) for i in rows]
        own = [torch.cat([g.flatten() for g in torch.autograd.grad(loss, [*before.parameters()])]) for loss in losses]
        norm = max(float(sum(own).norm()), sum(float(g.norm()) for g in own) / MOST)  # type: ignore[union-attr, arg-type]
        total += sum(own) * min(1.0, BOUND / norm)  # type: ignore[arg-type]
    return total


class Classes(own_modules.Plain):
    def training_step(self, batch: Any) -> Tensor:
        x, y = batch["x" if isinstance(batch, dict) else 0], batch["y" if isinstance(batch, dict) else 1]
        return cross_entropy(self.linear(x), y)


class Asking(Classes):
    """Is taken one record after the other."""

    def training_step(self, batch: Any) -> Tensor:
        made = super().training_step(batch)
        return made if bool(made >= 0) else -made


TABLE = TensorDataset(X, WHO, Y)
MAPPED = [{"x": x, "who": f"person {who}", "y": y} for x, who, y in zip(X, WHO.tolist(), Y)]


@pytest.mark.parametrize(
    ("data", "people", "options"),
    [
        (TABLE, 1, {}),
        (TABLE, 1, {"micro_batch": 7}),
        (TensorDataset(X, Y), WHO, {}),
        (MAPPED, "who", {}),
        ([tuple(row.values()) for row in MAPPED], 1, {}),
    ],
)
@pytest.mark.parametrize("kind", [Classes, Asking])
def test_gradients_of_a_person_are_added_up_and_clipped_together(kind: Any, data: Any, people: Any, options: Any) -> None:
    module = kind()
    before = copy.deepcopy(module)
    module, loader, runner = private(module, data, people=people, epsilon=None, noise_multiplier=1e-6, **options)
    runner.fit(module, loader)
    moved = torch.cat([(a - b).detach().flatten() for a, b in zip(before.parameters(), module.parameters())])
    training = runner.callbacks[-1]
    assert training.bank.per_record.apart == (kind is Asking)
    assert len(loader.table) == len(WHO.unique())
    assert torch.allclose(moved * max(1.0, float(training.partition.counts)), wanted(before), atol=1e-4)
    assert "at most 3 rows" in training.statement().unit


def test_a_person_is_one_unit_of_the_ledger_and_of_the_margin() -> None:
    (_, _, one), (_, _, several) = private(Classes(), TensorDataset(X, Y)), private(Classes(), TABLE, people=1)
    trainings = [runner.callbacks[-1] for runner in (one, several)]
    assert trainings[0].plan.noise_multiplier == trainings[1].plan.noise_multiplier
    for training in trainings:
        training.serve(training.accountant.curator)
        training._change = 1e-8
    records = [training.measure(1).records for training in trainings]
    assert records[1] == MOST * records[0]


WORDS = torch.randint(9, (N, 5), generator=_PUBLIC)


class Tied(nn.Module):
    """Scores by the weights of the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(5000, 6), nn.Linear(6, 5000, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.embed(x).tanh().mean(1))


NETS: dict[str, tuple[Any, Tensor]] = {
    "maps": (lambda: nn.Sequential(nn.Linear(D, 20), nn.Tanh(), nn.Linear(20, 3, bias=False)), X),
    "pictures": (
        lambda: nn.Sequential(
            nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 40, 2), nn.GroupNorm(2, 40), nn.Flatten(), nn.Linear(80, 3)
        ),
        X,
    ),
    "words": (lambda: nn.Sequential(nn.Embedding(900, 6), nn.Flatten(), nn.Linear(30, 3)), WORDS),
    "tied": (Tied, WORDS),
    "texts": (lambda: nn.Sequential(nn.Embedding(20, 6), nn.LayerNorm(6), nn.Flatten(), nn.Linear(30, 3)), WORDS),
}


@pytest.mark.parametrize("name", NETS)
def test_records_are_positions_of_their_person(name: str) -> None:
    build, x = NETS[name]
    module = build()
    own, people = PerRecord(module), grouped(Held([x, Y]), WHO, MOST)
    records, places = records_of_people(people, 4)
    made = own.factors(lambda values: cross_entropy(module(values[0]), values[1], reduction="sum"), records.values)
    found = of_people(made, places, people.values[1], [0, len(people)])
    eye = torch.eye(len(people))
    sums = torch.cat([clipped_sums(found, weights, torch.zeros(1, own.p)) for weights in eye])
    for row, total, norm in zip(range(len(people)), sums, gradient_norms(found)):
        losses = cross_entropy(module(people.values[0][0][row]), people.values[0][1][row], reduction="none")
        slow = torch.autograd.grad(losses[people.values[1][row]].sum(), [*module.parameters()])
        assert torch.allclose(total, torch.cat([g.flatten() for g in slow]), atol=1e-5)
        assert float(norm) >= float(total.norm())


@pytest.mark.parametrize("faulty", [False, True])
def test_gradients_that_cancel_are_changed_by_others_as_far_as_is_stated(faulty: bool) -> None:
    """Two gradients of 1e5 bounds that are opposite, of which others change one by 1e-5 of its norm."""
    rows, there, change = torch.tensor([[1e5, 0.0], [-1e5, 0.1]]), torch.ones(1, 2, dtype=torch.bool), 1e-5

    def term(rows: Tensor) -> Tensor:
        made = of_people([Factor(rows, None, None, slice(0, 2))], torch.arange(2), there, [0, 1])
        made = made._replace(least=None) if faulty else made
        return clipped_sums(made, flat_coefficients(gradient_norms(made), torch.tensor(1.0)), torch.zeros(1, 2))

    moved = float((term(rows) - term(rows * torch.tensor([[1.0 + change], [1.0]]))).norm())
    assert (moved <= 2 * 2 * change) != faulty


def test_a_record_without_a_finite_gradient_leaves_the_others_of_its_person() -> None:
    rows = torch.tensor([[torch.nan, 1.0], [0.3, 0.4], [torch.inf, 0.0]])
    there = torch.tensor([[True, True], [True, False]])
    made = of_people([Factor(rows, None, None, slice(0, 2))], torch.tensor([0, 1, 2]), there, [0, 2])
    assert torch.allclose(gradient_norms(made), torch.tensor([0.5, 0.0]), atol=1e-5)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"people": "who"}, "people"),
        ({"people": 7}, "people"),
        ({"people": WHO[:5]}, "length 5"),
        ({"people": [None, *range(N - 1)]}, "missing"),
        ({"people": 1, "max_contributions": 0}, "max_contributions"),
        ({"people": 1, "ledger": Ledger(Budget(3.0, 1e-5))}, "one record"),
    ],
)
def test_people_that_are_none_are_refused(options: Any, word: str) -> None:
    with refused(word):
        private(Classes(), TensorDataset(X, Y) if word in ("length 5", "missing") else TABLE, **options)


def test_a_ledger_of_people_goes_on_with_people_alone() -> None:
    ledger = Ledger(Budget(3.0, 1e-5), unit="one person (people) with at most 3 rows")
    private(Classes(), TABLE, people=1, ledger=ledger)
    with refused("one person"):
        private(Classes(), TensorDataset(X, Y), ledger=ledger)
