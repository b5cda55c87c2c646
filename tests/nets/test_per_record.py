"""Gradients per record of any module: those of one record at a time, or a refusal."""

from collections.abc import Callable
from typing import Any

import pytest
import tiny
import torch
from refusals import refused
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dpgen.nets import RecordGradients
from dpgen.nets.per_record import PerRecord
from dpgen.nets.trials import UnlikeAlone, dense, marks, moved, settle
from dpgen.privacy.clipping import gradient_norms

B, T, E = 7, 5, 8


class Tokens(nn.Module):
    """Token ids to scores through a recurrent layer."""

    def __init__(self, kind: str, **options: Any) -> None:
        super().__init__()
        self.embed, self.layer = nn.Embedding(9, 6), getattr(nn, kind)(6, 5, batch_first=True, **options)
        self.out = nn.Linear(10 if options.get("bidirectional") else 5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.layer(x := self.embed(x))[0][:, -1])


class Attention(nn.Module):
    """Two layers of attention over rows, perhaps with positions that are parameters of the module's own."""

    def __init__(self, *, batch_first: bool = True, positions: bool = False, causal: bool = False) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(E, 2, 16, batch_first=batch_first, dropout=0.0)
        self.layers, self.out = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(E, 3)
        self.position = nn.Parameter(torch.randn(T, E)) if positions else 0.0
        self.mask = nn.Transformer.generate_square_subsequent_mask(T) if causal else None
        self.batch_first = batch_first

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.position
        made = self.layers(x if self.batch_first else x.transpose(0, 1), mask=self.mask)
        return self.out(made.mean(1 if self.batch_first else 0))


class Crossed(nn.Module):
    """Attention of some rows to others, with padding and weights of its heads."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.out = nn.MultiheadAttention(E, 4, kdim=3, vdim=2, bias=False, batch_first=True), nn.Linear(E, 3)

    def forward(self, x: Tensor) -> Tensor:
        padded = torch.zeros(x.shape[:2], dtype=torch.bool)
        padded[:, -1] = True
        made, weights = self.attention(x, x[..., :3], x[..., 3:5], key_padding_mask=padded)
        return self.out(made[:, 0]) + weights.mean((1, 2))[:, None]


class Tied(nn.Module):
    """Scores by the weights of the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm, self.out = nn.Embedding(9, 6), nn.LayerNorm(6, bias=False), nn.Linear(6, 9, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.norm(self.embed(x))).mean(1)


class Twice(nn.Module):
    """A layer that is used twice, frozen and changed in place in between."""

    def __init__(self) -> None:
        super().__init__()
        self.same, self.frozen, self.out = nn.Linear(E, E), nn.Linear(E, E).requires_grad_(False), nn.Linear(E, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.same(self.frozen(torch.relu_(self.same(x)))))


class Placed(nn.Module):
    """Embeddings of codes, and of their places, which no record has of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place, self.out = nn.Embedding(9, E), nn.Embedding(T, E), nn.Linear(E, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out((self.embed(x) + self.place(torch.arange(T))).tanh().mean(1))


class Frames(nn.Module):
    """A convolution of several pictures of each record, and norms of each picture and of frozen statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.frozen = nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.BatchNorm2d(4).eval()
        self.out = nn.Linear(144, 3)

    def forward(self, x: Tensor) -> Tensor:
        frames = self.frozen(self.norm(self.conv(x.flatten(0, 1)[:, None])))
        return self.out(frames.unflatten(0, x.shape[:2]).mean(1).flatten(1))


class Penalised(nn.Module):
    """Scores with the slope of a layer in them, which is called under another transform of torch.func."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(E, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x) + torch.func.grad(lambda x: self.out(x).square().sum())(x)[:, :3]


IDS, ROWS, FLAT = (torch.randint(9, (B, T)), torch.randn(B, T, E), torch.randn(B, E))
PICTURES = torch.randn(B, 2, 8, 8)
ARCHITECTURES: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(E, 9), nn.ReLU(inplace=True), nn.Linear(9, 3, bias=False)), FLAT),
    "rows": (
        lambda: nn.Sequential(nn.Linear(E, 40), nn.Tanh(), nn.Linear(40, 3), nn.AdaptiveAvgPool2d((1, 3)), nn.Flatten()),
        ROWS,
    ),
    "cnn": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(64, 3)),
        PICTURES,
    ),
    "few positions": (
        lambda: nn.Sequential(nn.Conv2d(2, 40, (7, 8), padding=(0, 1)), nn.ReLU(), nn.Flatten(), nn.Linear(240, 3)),
        PICTURES,
    ),
    "dilated": (lambda: nn.Sequential(nn.Conv2d(2, 3, 3, dilation=2), nn.Tanh(), nn.Flatten(), nn.Linear(48, 3)), PICTURES),
    "groups": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, (1, 3), groups=2), nn.InstanceNorm2d(4, affine=True), nn.Flatten(1), nn.Linear(192, 3)
        ),
        PICTURES,
    ),
    "cnn twice": (
        lambda: nn.Sequential(same := nn.Conv2d(2, 2, 3, padding=1), nn.Tanh(), same, nn.Flatten(), nn.Linear(128, 3)),
        PICTURES,
    ),
    "transposed": (
        lambda: nn.Sequential(nn.ConvTranspose2d(2, 3, 4, stride=2, padding=1), nn.PReLU(), nn.AvgPool2d(16), nn.Flatten()),
        PICTURES,
    ),
    "conv1d": (
        lambda: nn.Sequential(nn.Conv1d(T, 3, 3), nn.LayerNorm((3, 6)), nn.RMSNorm(6), nn.Flatten(), nn.Linear(18, 3)),
        ROWS,
    ),
    "lstm": (lambda: Tokens("LSTM"), IDS),
    "deep lstm": (lambda: Tokens("LSTM", num_layers=2, bidirectional=True), IDS),
    "gru": (lambda: Tokens("GRU"), IDS),
    "rnn": (lambda: Tokens("RNN", nonlinearity="relu", bias=False), IDS),
    "attention": (Attention, ROWS),
    "causal": (lambda: Attention(causal=True), ROWS),
    "positions": (lambda: Attention(positions=True), ROWS),
    "batch second": (lambda: Attention(batch_first=False), ROWS),
    "crossed": (Crossed, ROWS),
    "many words": (lambda: nn.Sequential(nn.Embedding(900, 6, padding_idx=1), nn.Flatten(), nn.Linear(6 * T, 3)), IDS),
    "tied": (Tied, IDS),
    "twice": (Twice, FLAT),
    "places": (Placed, IDS),
    "penalised": (Penalised, FLAT),
    "frames": (Frames, PICTURES),
}


def made(name: str) -> tuple[nn.Module, Tensor, Tensor, Any]:
    torch.manual_seed(0)
    build, x = ARCHITECTURES[name]
    module = build()
    return module, x, torch.arange(B) % 3, lambda x, y: cross_entropy(module(x), y, reduction="sum")


@pytest.mark.parametrize("name", ARCHITECTURES)
class TestContract:
    """What holds of every architecture."""

    def test_the_gradients_are_those_of_one_record_at_a_time(self, name: str) -> None:
        module, x, y, run = made(name)
        own = PerRecord(module)
        settle(own, run, x, y)
        assert own.whole == (name == "penalised"), "the other ones have factors of their layers"
        gradients = RecordGradients(own.factors(run, x, y), [0, B])
        found = tiny.one_by_one(gradients, 1, own.p).float()
        values = [value for value in module.parameters() if value.requires_grad]
        slow = [
            torch.cat([g.flatten() for g in torch.autograd.grad(run(x[i : i + 1], y[i : i + 1]), values)]) for i in range(B)
        ]
        for fast, wanted in zip(found, slow, strict=True):
            assert float((fast - wanted).norm() / wanted.norm()) < 1e-5
        norms = gradient_norms(gradients)
        assert bool((norms >= found.norm(dim=1)).all())
        assert torch.allclose(norms, found.norm(dim=1), rtol=1e-3)

    def test_the_module_stays_as_it_was(self, name: str) -> None:
        module, x, y, run = made(name)
        kinds, before = [type(part) for part in module.modules()], run(x, y)
        own = PerRecord(module)
        settle(own, run, x, y)
        own.factors(run, x, y)
        assert [type(part) for part in module.modules()] == kinds
        assert torch.equal(run(x, y), before)
        assert all(value.grad is None for value in module.parameters())
        assert not any(part._forward_hooks for part in module.modules())


@pytest.mark.parametrize("words", [9, 900])
def test_doubles_and_rows_that_a_layer_leaves_alone(words: int) -> None:
    module = nn.Sequential(nn.Embedding(words, 6, padding_idx=0), nn.Flatten(), nn.Linear(6 * T, 3)).double()
    own = PerRecord(module)
    settle(own, lambda x: module(x).square().sum(), IDS)
    assert not own.whole
    made = RecordGradients(own.factors(lambda x: module(x).square().sum(), IDS), [0, B])
    found = tiny.one_by_one(made, 1, own.p)
    assert not found[:, :6].any()
    assert found.any()


def test_attention_of_a_record_that_is_all_padding_is_finite() -> None:
    layer, x = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), torch.randn(3, 4, 8)
    padding = torch.zeros(3, 4, dtype=torch.bool)
    padding[1], padding[2, 2:] = True, True
    wanted = layer(x, src_key_padding_mask=padding)
    with PerRecord(layer).standing_in():
        found = layer(x, src_key_padding_mask=padding)
    there = wanted.isfinite()  # before torch 2.5 all but the padding
    assert torch.allclose(found[there], wanted[there], atol=1e-5)
    found.square().sum().backward()
    assert all(value.grad is not None and bool(torch.isfinite(value.grad).all()) for value in layer.parameters())


def test_what_a_module_holds_deep_inside_is_looked_at() -> None:
    module: Any = nn.Linear(2, 2)
    module.kept, module.meter, module.kind = {"a": [1, torch.zeros(2)]}, Meter(), Made
    for name, change in (
        ("kept", lambda: module.kept["a"].__setitem__(0, 3)),
        ("kept", lambda: module.kept["a"][1].fill_(1.0)),
        ("meter", lambda: setattr(module.meter, "total", 2.0)),
        ("meter", lambda: module.meter.all.append(1)),
    ):
        before = marks(module)
        assert moved(before, marks(module)) is None
        change()
        assert moved(before, marks(module)) == name


class Kind(type):
    pass


class Made(metaclass=Kind):
    pass


class Meter:
    def __init__(self) -> None:
        self.total, self.all = 0.0, list[int]()


def test_a_convolution_at_few_positions_keeps_its_factors() -> None:
    module, x, y, run = made("few positions")
    factors = PerRecord(module).factors(run, x, y)
    assert [f.outputs.ndim for f in factors if f.weight == slice(0, 4480)] == [3]


def test_no_records_have_no_gradients() -> None:
    module, x, y, run = made("mlp")
    own = PerRecord(module)
    assert own.factors(run, x[:0], y[:0])[0].outputs.shape == (0, own.p)


def test_what_is_drawn_for_records_may_be_random() -> None:
    module = nn.Sequential(nn.Linear(E, 6), nn.Dropout(0.5), nn.Linear(6, 3))
    own = PerRecord(module)
    settle(own, lambda x: (module(x) + torch.randn(len(x), 3)).square().sum(), FLAT)
    assert not own.whole


LINEAR = nn.Linear(E, 3)
FAULTY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "a sum over the batch": lambda x, y: cross_entropy(LINEAR(x), y, reduction="sum") * len(x),
    "records that are compared": lambda x, y: cross_entropy(LINEAR(x - x.mean(0)), y) * len(x),
    "weights of the batch": lambda x, y: cross_entropy(LINEAR(x), y, weight=torch.tensor([1.0, 2.0, 5.0])) * len(x),
    "a question to the data": lambda x, y: cross_entropy(LINEAR(x), y) * len(x) * (1 if x.sum() > -1e9 else 2),
    "no finite loss": lambda x, y: cross_entropy(LINEAR(x), y) / 0.0,
    "nothing to learn": lambda x, y: cross_entropy(LINEAR(x).detach(), y) * len(x),
    "a failure": lambda x, y: LINEAR(x[:, :2]).sum(),
}


@pytest.mark.parametrize("fault", FAULTY)
def test_a_loss_that_is_no_mean_over_records_is_refused(fault: str) -> None:
    with refused(error=UnlikeAlone):
        settle(PerRecord(LINEAR), FAULTY[fault], FLAT, torch.arange(B) % 3)


def test_half_precision_changes_gradients_by_its_rounding_alone() -> None:
    module, x, y, run = made("attention")
    own = PerRecord(module)
    precise = dense(own, run, x, y)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = dense(own, run, x, y)
    assert 1e-5 < float((rough - precise).norm() / precise.norm()) < 0.1
