"""A plain loop around a plain module: the steps are those of `make_private`, and what they cost is counted before each."""

import copy
import itertools
from pathlib import Path
from typing import Any

import lightning as L
import own_modules
import pytest
import torch
from fixed_source import fixed_entropy
from own_modules import D
from refusals import refused
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import dpgen
from dpgen.callbacks import BoundedClipping, DPNorm
from dpgen.privacy.ledger import Budget, Ledger
from dpgen.systems import private_steps
from dpgen.systems.dp_sgd.plan import STEPS

pytestmark = pytest.mark.usefixtures("quiet")
N, BATCH = 64, 16


class Net(nn.Module):
    """A layer, dropout and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.drop, self.head = nn.Linear(D, 5), nn.Dropout(0.2), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.head(self.drop(self.read(x).tanh()))
        return made


class InLightning(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = Net()

    def training_step(self, batch: Any) -> Tensor:
        return loss(self.net, batch)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.5, momentum=0.9)


def loss(net: Any, batch: Any) -> Tensor:
    return cross_entropy(net(batch[0]), batch[1])


def records(people: bool = False) -> "DataLoader[Any]":
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(N, D, generator=generator)
    columns = (x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long(), torch.arange(N) // 2)
    return DataLoader(TensorDataset(*columns[: 2 + people]), batch_size=BATCH, shuffle=True)


def made(net: nn.Module | None = None, code: Any = loss, **options: Any) -> Any:
    cost = {"noise_multiplier": 2.0} if "ledger" not in options else {"epsilon": 3.0}
    limit = {} if "epochs" in options else {"steps": 5}
    return private_steps(Net() if net is None else net, records(), code, **{"sampling_rate": 0.25} | cost | limit | options)


def charged(ledger: Ledger) -> int:
    return sum(entry.count for entry in ledger.entries() if entry.note == STEPS)


@pytest.mark.parametrize(
    "options",
    [
        {"noise_multiplier": 2.0, "sampling_rate": 0.25, "loss_noise": 8.0},
        {"epsilon": 3.0, "max_grad_norm": 0.05, "micro_batch": 5},
        {"noise_multiplier": 2.0, "sampling_rate": 0.25, "sampling": "allocation"},
        {"noise_multiplier": 2.0, "sampling_rate": 0.25, "people": 2, "max_contributions": 2},
    ],
    ids=["loss", "bought", "allocation", "people"],
)
def test_the_steps_are_those_of_a_trainer(options: dict[str, Any]) -> None:
    policies: Any = [DPNorm(noise_multiplier=9.0) if "loss_noise" in options else BoundedClipping(bound=0.3) for _ in range(2)]
    torch.manual_seed(0)
    module, data = InLightning(), records("people" in options)
    net = copy.deepcopy(module.net)
    silent = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    runner = L.Trainer(accelerator="cpu", max_epochs=2, callbacks=policies[:1], **silent)
    with fixed_entropy("loop"):
        dpgen.make_private(module, data, runner, **options)
        own = runner.callbacks[-1]  # type: ignore[attr-defined]
        runner.fit(module, own.loader)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
    with fixed_entropy("loop"):
        steps = private_steps(net, data, loss, epochs=2, clipping=policies[1], **options)
        losses = [float(optimizer.step() or value) for value in steps]
    assert len(steps) == len(losses) == runner.global_step == 2 * steps.per_epoch
    assert all(torch.equal(a, b) for a, b in zip(module.net.parameters(), net.parameters()))
    assert any(losses) == ("loss_noise" in options)


def test_a_step_is_in_the_file_before_its_gradient_and_stays_there_after_a_break(tmp_path: Path) -> None:
    ledger, net = Ledger(Budget(3.0, 1e-5), path=tmp_path / "ledger.json"), Net()
    steps, optimizer = made(net, ledger=ledger), torch.optim.Adam(net.parameters())
    assert [line.count for line in ledger.promised() if line.note == STEPS] == [5], "the whole plan comes first"
    for taken, _ in enumerate(itertools.islice(steps, 2), 1):
        assert charged(ledger) == taken
        assert sum(count for _, count in ledger._shown) >= taken
        assert all(value.grad is not None for value in net.parameters())
        optimizer.step()
    release = dpgen.release(net, tmp_path / "model")
    assert release.epsilon == pytest.approx(3.0, rel=1e-3), "of all five"
    assert "the network test_plain_loop:Net gets" in release.statement.to_markdown()
    again = dpgen.load(tmp_path / "model", networks=[Net]).module()
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), net.parameters()))
    assert sum(1 for _ in steps if optimizer.step() is None) == 3, "it goes on"
    assert not list(steps)
    with refused("another ledger"):
        made(net)


def test_a_loop_that_was_killed_goes_on_and_loses_what_was_shown(tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    net = Net()
    steps, optimizer = made(net, ledger=path), torch.optim.SGD(net.parameters(), lr=0.1)
    for taken, _ in enumerate(steps, 1):
        optimizer.step()
        if taken == 2:
            saved = copy.deepcopy((steps.state_dict(), net.state_dict()))
        if taken == 4:
            break
    steps._training.accountant.ledger.drop()  # as a kill does
    net = Net()
    steps, optimizer = made(net, ledger=path), torch.optim.SGD(net.parameters(), lr=0.1)
    steps.load_state_dict(saved[0])
    net.load_state_dict(saved[1])
    with pytest.warns(UserWarning, match="ended training after 3 steps"):
        assert sum(1 for _ in steps if optimizer.step() is None) == 1
    assert charged(steps._training.accountant.ledger) == 5
    assert dpgen.release(net, tmp_path / "model").epsilon == pytest.approx(3.0, rel=1e-3)


def test_gradients_without_noise_do_not_join_those_of_a_step() -> None:
    net = Net()
    batch = next(iter(records()))
    steps = iter(made(net))
    next(steps)
    with pytest.raises(ValueError, match="backward"):
        loss(net, batch).backward()
    steps.close()
    loss(net, batch).backward()  # afterwards it is nobody's affair


@pytest.mark.parametrize("body", [lambda optimizer: None, lambda optimizer: (optimizer.zero_grad(), optimizer.step())])
def test_a_step_that_no_optimizer_uses_is_said_to_be_lost(body: Any) -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    steps = iter(made(net))
    next(steps)
    body(optimizer)
    with pytest.warns(UserWarning, match=r"no weight was changed in step 1.*optimizer\.step"):
        next(steps)


def test_weights_that_are_lost_end_the_loop() -> None:
    net = Net()
    steps = iter(made(net))
    next(steps)
    nn.init.constant_(net.head.weight, torch.nan)
    with pytest.raises(ValueError, match="not finite after step 1"):
        next(steps)


SEEN: list[Tensor] = []


def keeping(net: Any, batch: Any) -> Tensor:
    SEEN.append(batch[0].detach().mean())
    return loss(net, batch)


def summed(net: Any, batch: Any) -> Tensor:
    return cross_entropy(net(batch[0]), batch[1], reduction="sum")


def test_what_a_trainer_would_refuse_is_refused_before_anything_is_spent() -> None:
    ledger = Ledger(Budget(3.0, 1e-5))
    fabric = L.Fabric(accelerator="cpu", devices=1)
    bad: list[tuple[str, Any, Any, dict[str, Any]]] = [
        ("fabric.setup_optimizers", fabric.setup_module(Net()), loss, {}),
        ("nn.Module", "Net", loss, {}),
        ("loss(module, batch)", Net(), nn.CrossEntropyLoss(), {}),
        ("its loss", Net(), summed, {}),
        ("its loss", Net(), keeping, {}),
        ("BatchNorm1d", nn.Sequential(nn.Linear(D, 3), nn.BatchNorm1d(3)), loss, {}),
        ("no parameter", nn.Tanh(), loss, {}),
        ("exactly one", Net(), loss, {"epochs": 1, "steps": 2}),
        ("steps is 0", Net(), loss, {"steps": 0}),
        ("epochs is True", Net(), loss, {"epochs": True}),
        ("get_extra_state", own_modules.Stateful(), loss, {}),
        ("max_grad_norm", Net(), loss, {"max_grad_norm": -1.0}),
        ("max_norm", Net(), loss, {"max_norm": 1.0}),
    ]
    for word, net, code, options in bad:
        with refused(word):
            made(net, code, ledger=ledger, **options)
    with refused("private_steps(model, loader"):
        private_steps(Net(), fabric.setup_dataloaders(records()), loss, steps=1, epsilon=1.0)
    assert (ledger.entries(), ledger.promised()) == ([], [])


def test_an_optimizer_of_fabric_takes_the_steps() -> None:
    fabric, net = L.Fabric(accelerator="cpu", devices=1), Net()
    optimizer = fabric.setup_optimizers(torch.optim.SGD(net.to(fabric.device).parameters(), lr=0.5))
    before = copy.deepcopy(net.state_dict())
    assert sum(1 for _ in made(net) if optimizer.step() is None) == 5
    assert not any(torch.equal(before[name], value) for name, value in net.state_dict().items())
