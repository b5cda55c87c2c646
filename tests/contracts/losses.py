"""Losses as people write them, and what becomes of each: rows of a table that `test_losses.py` walks."""

from collections.abc import Callable
from typing import Any, NamedTuple

import lightning as L
import torch
from torch import Tensor, nn
from torch.nn.functional import (
    binary_cross_entropy_with_logits,
    cosine_embedding_loss,
    cross_entropy,
    ctc_loss,
    mse_loss,
    normalize,
    one_hot,
    triplet_margin_loss,
)

D, CLASSES, LENGTH, WORDS = 6, 4, 8, 12
Loss = Callable[[Any, Tensor, Tensor], Tensor]


class Module(L.LightningModule):
    """One layer, or what `build` makes, and a loss of its module, inputs and targets."""

    def __init__(self, loss: Loss, build: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.layer, self.loss = build(), loss
        self.register_buffer("seen", torch.zeros(D))

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.layer(x)
        return made

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.loss(self, *batch) if self.loss is not by_batch_idx else by_batch_idx(self, *batch, batch_idx)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=1.0)


def linear() -> nn.Module:
    return nn.Linear(D, CLASSES)


def embedded() -> nn.Module:
    return nn.Sequential(nn.Embedding(WORDS, 5), nn.Linear(5, WORDS))


def wide_words() -> nn.Module:
    return nn.Sequential(nn.Embedding(100, 16), nn.Linear(16, 100))


def frozen_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(D, D), nn.BatchNorm1d(D).eval(), nn.Linear(D, CLASSES))


def batch_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(D, D), nn.BatchNorm1d(D), nn.Linear(D, CLASSES))


# -- records: many equal ones, whose gradients point in one direction, and some that are unlike them -------------------------

N = 24
_PUBLIC = torch.Generator().manual_seed(0)


class Data(NamedTuple):
    """Equal records, and others."""

    usual: tuple[Tensor, Tensor]
    others: tuple[Tensor, Tensor]


def _alike(values: Tensor) -> Tensor:
    return values[:1].repeat(N, *[1] * (values.ndim - 1))


def points(*, targets: Tensor, others: Tensor, odd: float = 50.0) -> Data:
    x = torch.randn(len(others), D, generator=_PUBLIC)
    return Data((_alike(x), _alike(targets)), (torch.cat([x[:1], odd * x[1:]]), others))


CLASSED = points(targets=torch.tensor([0]), others=torch.tensor([3, 3, 1, 0]))
VALUED = points(targets=torch.ones(1, CLASSES), others=torch.tensor([[-1.0, -1, -1, -1], [9.0, 9, 9, 9], [0, 0, 0, 0]]))
PARTLY = points(
    targets=torch.tensor([[5.0, -1, -1, -1]]), others=torch.tensor([[-1.0, -1, -1, -1], [2.0, 2, 2, 2], [0, 0, 0, 0]])
)
_FIRST = torch.where(torch.arange(LENGTH) == 0, 7, -100)
_TEXT = torch.arange(LENGTH)
PADDED = Data(
    (torch.full((N, LENGTH), 3), _FIRST.repeat(N, 1)),
    (torch.stack([_TEXT, torch.full_like(_TEXT, 5)]), torch.stack([_TEXT, _FIRST])),
)
SPELT = Data(
    (torch.full((N, LENGTH), 3), torch.ones(N, 2).long()),
    (torch.arange(2 * LENGTH).view(2, -1) % WORDS, torch.tensor([[2, 3], [4, 4]])),
)
FILLED = Data(
    (torch.where(torch.arange(N)[:, None] < 4, torch.ones(N, D), 99.0), torch.ones(N, CLASSES)),
    (torch.ones(2, D), torch.tensor([[100.0], [-100.0]]).expand(2, CLASSES)),
)


# -- losses --------------------------------------------------------------------------------------------------------------


def each(module: Any, x: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(module(x), y, reduction="none")


def masked_tokens(module: Any, x: Tensor, y: Tensor) -> Tensor:
    real = (y != -100).float()
    lost = cross_entropy(module(x).flatten(0, 1), y.flatten().clamp_min(0), reduction="none").view(y.shape)
    return (lost * real).sum() / real.sum().clamp_min(1)


def masked_targets(module: Any, x: Tensor, y: Tensor) -> Tensor:
    real = (y != -1).float()
    return ((module(x) - y).square() * real).sum() / real.sum()


def padded_inputs(module: Any, x: Tensor, y: Tensor) -> Tensor:
    real = (x[:, 0] != 99.0).float()
    return ((module(x) - y).square().mean(1) * real).sum() / real.sum().clamp_min(0.1)


def capped(module: Any, x: Tensor, y: Tensor) -> Tensor:
    return mse_loss(module(x), y).clamp(max=20.0)


def dice(module: Any, x: Tensor, y: Tensor) -> Tensor:
    p, t = module(x).softmax(1), one_hot(y, CLASSES)
    return 1 - (2 * p * t).sum() / (p.square() + t).sum()


def dice_of_each(module: Any, x: Tensor, y: Tensor) -> Tensor:
    p, t = module(x).softmax(1), one_hot(y, CLASSES)
    return (1 - (2 * p * t).sum(1) / (p.square() + t).sum(1)).mean()


def focal(module: Any, x: Tensor, y: Tensor) -> Tensor:
    lost = each(module, x, y)
    return ((1 - (-lost).exp()).square() * lost).mean()


def focal_by_positives(module: Any, x: Tensor, y: Tensor) -> Tensor:
    lost = binary_cross_entropy_with_logits(module(x)[:, 0], (y > 0).float(), reduction="none")
    return lost.sum() / (y > 0).sum().clamp_min(1)


def contrastive(module: Any, x: Tensor, y: Tensor) -> Tensor:
    code = normalize(module(x), dim=1)
    return cross_entropy(code @ code.T / 0.1, torch.arange(len(x)))


def pairs(module: Any, x: Tensor, y: Tensor) -> Tensor:
    code = module(x)
    return cosine_embedding_loss(code[:, :2], code[:, 2:], torch.where(y > 0, 1, -1))


def triplet(module: Any, x: Tensor, y: Tensor) -> Tensor:
    code = module(x)
    return triplet_margin_loss(code, code.roll(1, 0), code.roll(2, 0))


def class_shares(module: Any, x: Tensor, y: Tensor) -> Tensor:
    share = one_hot(y, CLASSES).float().mean(0)
    return (each(module, x, y) / share[y]).mean()


def a_rare_class(module: Any, x: Tensor, y: Tensor) -> Tensor:
    return (1 + 100 * (y == 3).float().mean()) * each(module, x, y).mean()


def a_rare_word(module: Any, x: Tensor, y: Tensor) -> Tensor:
    return masked_tokens(module, x, y) * (1 + 100 * (x == 5).float().mean())


def weighted_by_class_of_its_own(module: Any, x: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(module(x), y, weight=1 + one_hot(y, CLASSES).float().mean(0))


def smoothed(module: Any, x: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(module(x), y, label_smoothing=0.1)


def weighted(module: Any, x: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(module(x), y, weight=torch.tensor([1.0, 2.0, 3.0, 9.0]))


def spelt(module: Any, x: Tensor, y: Tensor) -> Tensor:
    told = module(x).log_softmax(2).transpose(0, 1)
    return ctc_loss(told, y, torch.full((len(x),), LENGTH), torch.full((len(x),), y.shape[1]), zero_infinity=True)


def standardised(module: Any, x: Tensor, y: Tensor) -> Tensor:
    return mse_loss(module(x), (y - y.mean(0)) / (y.std(0) + 1))


def penalised(module: Any, x: Tensor, y: Tensor) -> Tensor:
    slope = torch.func.grad(lambda x: module(x).square().sum())(x)
    return (each(module, x, y) + slope.norm(dim=1)).mean()


def penalised_by_autograd(module: Any, x: Tensor, y: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(module(x).square().sum(), x, create_graph=True)
    return (each(module, x, y) + slope.norm(dim=1)).mean()


def mixed_up(module: Any, x: Tensor, y: Tensor) -> Tensor:
    return each(module, 0.7 * x + 0.3 * x[torch.randperm(len(x))], y).mean()


def mixed_up_after_warm_up(module: Any, x: Tensor, y: Tensor) -> Tensor:
    return mixed_up(module, x, y) if module.global_step >= 1 else each(module, x, y).mean()


def by_epoch(module: Any, x: Tensor, y: Tensor) -> Tensor:
    lost = each(module, x, y)
    return (lost * (lost / lost.mean()).detach()).mean() if module.current_epoch >= 1 else lost.mean()


def by_global_step(module: Any, x: Tensor, y: Tensor) -> Tensor:
    lost = each(module, x, y)
    return (lost * (lost / lost.mean()).detach()).mean() if module.global_step >= 1 else lost.mean()


def by_batch_idx(module: Any, x: Tensor, y: Tensor, batch_idx: int = 0) -> Tensor:
    lost = each(module, x, y)
    return (lost * (lost / lost.mean()).detach()).mean() if batch_idx % 4 == 3 else lost.mean()


def straight_through(module: Any, x: Tensor, y: Tensor) -> Tensor:
    other = module(x).mean(0).square().sum()
    return each(module, x, y).mean() + other - other.detach()


def straight_through_a_class(module: Any, x: Tensor, y: Tensor) -> Tensor:
    other = 100 * module(x).mean() * (y == 3).float().sum()
    return each(module, x, y).mean() + other - other.detach()


def asking(module: Any, x: Tensor, y: Tensor) -> Tensor:
    real = y != -1
    return masked_targets(module, x, y) if bool(real.any()) else mse_loss(module(x), y)


def centred_by_what_was_seen(module: Any, x: Tensor, y: Tensor) -> Tensor:
    seen = module.get_buffer("seen")
    seen.data.mul_(0.9).add_(0.1 * x.detach().mean(0))
    return mse_loss(module(x - seen), y)


def centred_for_large_ones(module: Any, x: Tensor, y: Tensor) -> Tensor:
    seen = module.get_buffer("seen")
    if bool(((x.abs() > 20.0) & (x.abs() < 80.0)).any()):
        seen.data.add_(x.detach().mean(0))
    return mse_loss(module(x - seen), y)


def centred_by_the_last(module: Any, x: Tensor, y: Tensor) -> Tensor:
    made = mse_loss(module(x - getattr(module, "last", 0.0)), y)
    module.last = x.detach().mean(0)
    return made


def logged_by_itself(module: Any, x: Tensor, y: Tensor) -> Tensor:
    made = mse_loss(module(x), y)
    LOGGED.append(made.item())
    return made


LOGGED: list[float] = []


class _Normed(torch.autograd.Function):
    """Slopes of norm 1, those of the whole batch together: its rule for vmap says that a batch is a record."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Tensor:
        return slopes[0] / slopes[0].norm().clamp_min(1e-9)

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor) -> Any:
        return _Normed.apply(x), in_dims[0]


def normed_slopes(module: Any, x: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(_Normed.apply(module(x)), y)


class Row(NamedTuple):
    """A loss, its records, what becomes of it, and the layers.

    Outcomes: "bounded", the loss is the mean of those of its records; "alone", it is not, with odd values, and each record is
    taken by itself, which a warning says; "unseen", it is not, which no trial finds; or "refused".
    """

    loss: Loss
    data: Data
    outcome: str
    build: Callable[[], nn.Module] = linear

    def __str__(self) -> str:
        return f"{self.loss.__name__}-{self.build.__name__}"


def _mean(module: Any, x: Tensor, y: Tensor) -> Tensor:
    return each(module, x, y).mean()


def squares(module: Any, x: Tensor, y: Tensor) -> Tensor:
    return mse_loss(module(x), y)


ROWS = [
    Row(_mean, CLASSED, "bounded"),
    Row(_mean, CLASSED, "bounded", frozen_norm),
    Row(_mean, CLASSED, "refused", batch_norm),
    Row(squares, VALUED, "bounded"),
    Row(masked_tokens, PADDED, "alone", embedded),
    Row(masked_targets, PARTLY, "alone"),
    Row(padded_inputs, FILLED, "alone"),
    Row(capped, VALUED, "alone"),
    Row(dice, CLASSED, "refused"),
    Row(dice_of_each, CLASSED, "bounded"),
    Row(focal, CLASSED, "bounded"),
    Row(focal_by_positives, CLASSED, "refused"),
    Row(contrastive, CLASSED, "refused"),
    Row(pairs, CLASSED, "bounded"),
    Row(triplet, CLASSED, "refused"),
    Row(class_shares, CLASSED, "refused"),
    Row(a_rare_class, CLASSED, "unseen"),
    Row(a_rare_word, PADDED, "alone", embedded),
    Row(smoothed, CLASSED, "bounded"),
    Row(weighted, CLASSED, "bounded"),
    Row(weighted_by_class_of_its_own, CLASSED, "refused"),
    Row(spelt, SPELT, "bounded", embedded),
    Row(standardised, VALUED, "refused"),
    Row(penalised, CLASSED, "bounded"),
    Row(penalised_by_autograd, CLASSED, "refused"),
    Row(mixed_up, CLASSED, "refused"),
    Row(mixed_up_after_warm_up, CLASSED, "unseen"),
    Row(by_epoch, CLASSED, "unseen"),
    Row(by_global_step, CLASSED, "unseen"),
    Row(by_batch_idx, CLASSED, "unseen"),
    Row(straight_through, CLASSED, "refused"),
    Row(straight_through_a_class, CLASSED, "unseen"),
    Row(normed_slopes, CLASSED, "refused"),
    Row(asking, PARTLY, "alone"),
    Row(centred_by_what_was_seen, VALUED, "refused"),
    Row(centred_for_large_ones, VALUED, "unseen"),
    Row(centred_by_the_last, VALUED, "refused"),
    Row(logged_by_itself, VALUED, "refused"),
]
