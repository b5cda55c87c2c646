"""Gradients per record of any module: those of one record at a time, or a refusal."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from refusals import refused
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import default_collate

from dpgen.callbacks import PerLayerClipping
from dpgen.nets import RecordGradients
from dpgen.nets.per_record import PerRecord, Singles
from dpgen.nets.trials import UnlikeAlone, dense, marks, moved, settle
from dpgen.privacy.clipping import by_layer, clipped_sums, gradient_norms, layer_norms

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

    def __init__(self, words: int = 9, **options: Any) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(words, 6, **options), nn.Linear(6, words, bias=False)
        self.norm, self.out.weight = nn.LayerNorm(6, bias=False), self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.norm(self.embed(x))).mean(1)


class Paired(nn.Module):
    """Scores by the weights of two embeddings, of which one ignores a word."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Embedding(900, 6), nn.Embedding(900, 6, padding_idx=2)
        self.out = nn.Linear(6, 900)
        self.second.weight = self.out.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.out((self.first(x) + self.second(x.flip(1)).tanh()).tanh())


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


class Packed(nn.Module):
    """Sequences of several lengths, as their collate function makes them."""

    def __init__(self, kind: str, **options: Any) -> None:
        super().__init__()
        self.embed, self.layer = nn.Embedding(9, 6), getattr(nn, kind)(6, 5, batch_first=True, **options)
        self.out = nn.Linear(options.get("proj_size", 5), 3)

    def forward(self, x: tuple[Tensor, Tensor]) -> Tensor:
        rows = pack_padded_sequence(self.embed(x[0]), x[1], batch_first=True, enforce_sorted=False)
        state = self.layer(rows)[1]
        return self.out((state[0] if isinstance(state, tuple) else state)[-1])


class Cells(nn.Module):
    """A cell in a loop over the rows of a sequence."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.cell, self.out = getattr(nn, kind)(E, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        state: Any = None
        for t in range(T):
            state = self.cell(x[:, t], state)
        return self.out(state[0] if isinstance(state, tuple) else state)


class Projected(nn.Module):
    """An LSTM whose outputs are projected."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(E, 5, num_layers=2, batch_first=True, proj_size=3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0][:, -1]


class Spelling(nn.Module):
    """Texts, letter by letter, each with a number in a mapping beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(26, 6), nn.Linear(7, 3)

    def forward(self, x: dict[str, Any]) -> Tensor:
        texts = [self.embed(torch.tensor([ord(c) - ord("a") for c in text])).mean(0) for text in x["text"]]
        return self.out(torch.cat([torch.stack(texts), x["more"]["size"][:, None].float()], 1))


class Deciding(nn.Module):
    """Another layer where a record is large."""

    def __init__(self) -> None:
        super().__init__()
        self.small, self.large = nn.Linear(E, 3), nn.Linear(E, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.large(row) if row.detach().sum() > 0 else self.small(row) for row in x])


class Sloping(nn.Module):
    """Scores with their own slope in them, by autograd."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(E, 3)

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            made = self.out(x).tanh()
            return made + torch.autograd.grad(made.square().sum(), x, create_graph=True)[0][:, :3]


class Bags(nn.Module):
    """Bags of words, each text a bag."""

    def __init__(self) -> None:
        super().__init__()
        self.bag, self.out = nn.EmbeddingBag(9, 6, mode="mean"), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.bag(x))


class Experts(nn.Module):
    """Layers of which each record has a mixture, by weights that are parameters of the module's own."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(E, 4), nn.Parameter(torch.randn(4, E, 3) / 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("be,bi,eij->bj", self.gate(x).softmax(1), x, self.experts)


class Skipping(nn.Module):
    """A small U-net with norms of groups, and a scale of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.deep = nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.norm, self.up = nn.GroupNorm(2, 4), nn.ConvTranspose2d(4, 2, 2, stride=2)
        self.scale, self.out = nn.Parameter(torch.ones(2, 1, 1)), nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        low = nn.functional.silu(self.norm(self.down(x)))
        return self.out((self.up(self.deep(low) + low) * self.scale + x).mean((2, 3)))


class LowRank(nn.Module):
    """A frozen map with an adapter of low rank beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.fixed, self.a = nn.Linear(E, 3).requires_grad_(False), nn.Linear(E, 2, bias=False)
        self.b = nn.Linear(2, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.fixed(x) + 0.5 * self.b(self.a(x))


def padded(rows: list[Tensor]) -> tuple[Tensor, Tensor]:
    return pad_sequence(rows, batch_first=True), torch.tensor([len(row) for row in rows])


IDS, ROWS, FLAT = (torch.randint(9, (B, T)), torch.randn(B, T, E), torch.randn(B, E))
PICTURES = torch.randn(B, 2, 8, 8)
RAGGED = Singles([IDS[i % B, : 1 + i % T] for i in range(B)], padded)
TEXTS = Singles([{"text": "abcdefgh"[i:], "more": {"size": 0.1 * i}} for i in range(B)], default_collate)
ARCHITECTURES: dict[str, tuple[Callable[[], nn.Module], Any]] = {
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
    "tied, many words": (lambda: Tied(900, padding_idx=1), IDS),
    "tied, two embeddings": (lambda: nn.Sequential(Paired(), nn.Flatten(), nn.Linear(900 * T, 3)), IDS),
    "twice": (Twice, FLAT),
    "places": (Placed, IDS),
    "penalised": (Penalised, FLAT),
    "frames": (Frames, PICTURES),
    "bags": (Bags, IDS),
    "experts": (Experts, FLAT),
    "skipping": (Skipping, PICTURES),
    "low rank": (LowRank, FLAT),
    "conv3d": (lambda: nn.Sequential(nn.Conv3d(2, 3, (1, 3, 3)), nn.Flatten(), nn.Linear(108, 3)), PICTURES[:, :, None]),
    "weight norm": (
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(E, 9)), nn.GELU(), nn.Linear(9, 3)),
        FLAT,
    ),
    "one norm": (
        lambda: nn.Sequential(nn.Linear(E, 9), nn.RMSNorm(9), nn.SELU(), nn.Linear(9, 3)),
        FLAT,
    ),
    "lstm cell": (lambda: Cells("LSTMCell"), ROWS),
    "gru cell": (lambda: Cells("GRUCell"), ROWS),
    "rnn cell": (lambda: Cells("RNNCell"), ROWS),
    "projected": (Projected, ROWS),
    "packed lstm": (lambda: Packed("LSTM"), RAGGED),
    "packed projected": (lambda: Packed("LSTM", proj_size=2), RAGGED),
    "packed gru": (lambda: Packed("GRU", num_layers=2), RAGGED),
    "texts": (Spelling, TEXTS),
    "deciding": (Deciding, FLAT),
    "sloping": (Sloping, FLAT),
}
WHOLE = {"penalised", "bags", "weight norm"}
APART = {"lstm cell", "gru cell", "rnn cell", "projected", "packed lstm", "packed projected", "packed gru", "texts", "deciding"}
APART |= {"sloping"}


def made(name: str) -> tuple[nn.Module, Tensor, Tensor, Any]:
    torch.manual_seed(0)
    build, x = ARCHITECTURES[name]
    module = build()
    return module, x, torch.arange(B) % 3, lambda x, y: cross_entropy(module(batch_of(x)), y, reduction="sum")


def batch_of(x: Any) -> Any:
    return x.batch() if isinstance(x, Singles) else x


def clipped_apart(gradients: RecordGradients, columns: dict[str, slice], slow: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The sum of gradients whose layers have bounds of their own, by factors and by the gradients themselves."""
    policy, bound = PerLayerClipping(bound=0.3), 0.3
    layers = policy.layers(columns)
    policy.begin(1)
    split, owner = by_layer(gradients, layers)
    norms = layer_norms(split, owner, len(layers))
    weights = policy.coefficients(norms, torch.zeros(B, dtype=torch.int64))[:, owner]
    found = clipped_sums(split, weights, torch.full((1, len(slow[0])), torch.nan))[0]
    wanted, share = torch.zeros_like(found), len(layers) ** -0.5
    for row, own in zip(slow, norms):
        for layer, norm in zip(layers, own.tolist()):
            for part in layer.columns:
                wanted[part] += share * row.detach()[part] / max(bound * share, norm)
            exact = torch.cat([row.detach()[part] for part in layer.columns]).norm()
            assert exact <= norm <= 1e-6 + 1.001 * exact, "never understated"
    assert len(layers) == len({name.rpartition(".")[0] for name in columns})
    return found, wanted


@pytest.mark.parametrize("name", ARCHITECTURES)
class TestContract:
    """What holds of every architecture."""

    def test_the_gradients_are_those_of_one_record_at_a_time(self, name: str) -> None:
        module, x, y, run = made(name)
        own = PerRecord(module)
        own.apart = isinstance(x, Singles)
        settle(own, run, x, y)
        assert (own.whole, own.apart) == (name in WHOLE, name in APART), "the other ones have factors of their layers"
        gradients = RecordGradients(own.factors(run, x, y), [0, B])
        found = tiny.one_by_one(gradients, 1, own.p).float()
        values = [value for value in module.parameters() if value.requires_grad]
        alone = [torch.autograd.grad(run(x[i : i + 1], y[i : i + 1]), values, allow_unused=True) for i in range(B)]
        slow = [torch.cat([(0 * v if g is None else g).flatten() for v, g in zip(values, grads)]) for grads in alone]
        for fast, wanted in zip(found, slow, strict=True):
            assert float((fast - wanted).detach().norm() / wanted.detach().norm()) < 1e-5
        norms = gradient_norms(gradients)
        assert bool((norms >= found.norm(dim=1)).all())
        assert torch.allclose(norms, found.norm(dim=1), rtol=1e-3)
        apart, wanted = clipped_apart(gradients, own.columns, slow)
        assert float((apart - wanted).norm() / wanted.norm()) < 1e-5, "layers with bounds of their own"

    def test_the_module_stays_as_it_was(self, name: str) -> None:
        module, x, y, run = made(name)
        kinds, before = [type(part) for part in module.modules()], run(x, y)
        own = PerRecord(module)
        own.apart = name in APART
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


def test_numbers_of_numpy_and_python_are_secret_where_records_are_taken_one_by_one() -> None:
    """Known ones would tell who stands where; the streams of the code around go on as they were."""

    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 1)

        def forward(self, x: Any) -> Any:
            return self.layer(x * np.random.standard_normal() + random.random()).square().sum()  # noqa: NPY002

    own = PerRecord(Noisy())
    own.apart = True

    def found(secret: int) -> Any:
        torch.manual_seed(secret)
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002
        gradients = own.factors(own.module, torch.ones(4, 2))[0].outputs
        return gradients, random.random(), np.random.standard_normal()  # noqa: NPY002

    first, again, other = found(0), found(0), found(1)
    assert torch.equal(first[0], again[0])
    assert not torch.allclose(first[0], other[0])
    assert len({float(row[0]) for row in first[0]}) == 4
    assert first[1:] == again[1:] == other[1:]
