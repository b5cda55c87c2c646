r"""Gradients per record of any module, from what its layers see and the slopes of their outputs.

| parameters of | gradient of a record |
|---|---|
| Linear; Conv2d, ConvTranspose2d, as a Linear of the patches at every position | factors in closed form, see below |
| Embedding of many codes | codes and slopes: equal codes of a record add up ("ghost") |
| LayerNorm, GroupNorm | sums over positions |
| Embedding of few codes, other convolutions and norms, other layers with one input | `torch.func`, layer by layer |
| LSTM, GRU, RNN; MultiheadAttention | opacus' layers, and an own one, stand in: linear maps on the same parameters |
| a weight of several uses, such as an embedding that is the last layer, too | positions of one map, or multiplied out |
| all else (parameters of a module's own) | `torch.func` differentiates the whole loss, record by record |

These are not put into the module: they stand in while gradients are taken, so the module, its checkpoints and its
release stay as they were written. `torch.func` alone would do for every table row but a GRU, at several times the cost.

**Positions.** A map at T positions t of a record r, of rows or of an image, has weight gradient
:math:`\sum_{t \le T} g_{rt} a_{rt}^\top`, of `out` rows and `in` columns. Of the two ways to its norm the cheaper one is taken:

| where | what is kept | norm |
|---|---|---|
| :math:`c T^2 <` out in | the two factors, T (in + out) numbers | from T x T products of inputs and of slopes ("ghost") |
| otherwise | the gradient itself, out in numbers | its own |

**Uses of the same parameters in one module** are joined:

| uses of a weight (out, in) by a record | what is kept |
|---|---|
| looked up as an embedding | codes (T,) and slopes (T, in) |
| as a linear map, at S positions | slopes (S, out) and inputs (S, in) |
| both: tied weights | both, two factors of one weight, see `dpgen.privacy.clipping` |
| any of these, where it is cheaper | the gradient itself (out, in), never larger for tied weights than what is kept otherwise |

**A record by itself.** The code runs under `torch.func.vmap`, where it sees one record, as a batch of one, whatever it
computes; layers underneath get all records at once. So a loss is a function of its record by construction, also one that
divides by what a batch holds, or that changes in a later epoch, and so is the slope of every output:

| in the code | what happens |
|---|---|
| a mean over the batch, its share of a class, other records as negatives, mixup | a record meets itself alone |
| a question to the data (`if loss > 1:`), `torch.autograd.grad`, `LSTMCell` | vmap refuses them: one record after the other |
| an `autograd.Function` with a `vmap` of its own | refused: that is given all records; `generate_vmap_rule` is none |
| a rule of `torch.library.register_vmap` | is taken at its word: it must keep rows apart |
| code that fails for some records, for a code out of range | these count for nothing, see `PerRecord.of_private` |

**One record after the other.** Code that vmap refuses asks for lengths (`pack_padded_sequence`), loops over the steps of a
sequence, asks whether a value is large, or gets texts. It sees batches of one record by plain autograd, so a gradient is a
function of its record as long as nothing is kept between two:

| in the code | what happens |
|---|---|
| parameters, buffers and their data are changed | compared after the records, and refused |
| other things that the module keeps are changed | refused, see `dpgen.nets.trials.marks` |
| a number is taken out of real ones (`loss.item()`, `tolist`, `numpy`) | refused: it could end in a log or a file |
| numbers are drawn | from a secret seed, also NumPy's and Python's own; a generator of the code's own is state |
| codes, lengths and masks are read, a condition is asked (`if loss > 1:`) | allowed |

Source: Goodfellow 2015; Bu, Mao, Xu 2022, section 4 (mixed ghost clipping; c = 2, for memory). Here c = 64, for time:
what is not multiplied out is added up in float64, see `dpgen.privacy.clipping`. Yousefpour et al. 2021 (opacus).
"""

import io
import pickle
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from itertools import product
from math import prod
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import dropout, group_norm, layer_norm, pad
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from dpgen.privacy.clipping import Factor, full_precision

_functorch = torch._C._functorch

T = TypeVar("T")

Run = Callable[..., Tensor]
"""The sum of the losses of records, whose values (b, ...) are the arguments."""


# -- records -----------------------------------------------------------------------------------------------------------


def records_of(values: Any) -> int:
    """b of values (b, ...) in any container."""
    return len(tree_leaves(values)[0])


def rows(values: Any, first: int, last: int) -> Any:
    """Some rows of values (b, ...) in any container."""
    return tree_map(lambda v: v[first:last], values)


class Singles:
    """Records of any form, b of them, in the place of a tensor (b, ...); `collate` makes a batch of some of them.

    >>> some = Singles([{"text": "ab"}, {"text": "c"}], list)
    >>> len(some), some[1:].batch()
    (2, [{'text': 'c'}])
    """

    def __init__(self, records: Sequence[Any], collate: Callable[[list[Any]], Any], device: Any = "cpu") -> None:
        self.records, self.collate, self.device = list(records), collate, torch.device(device)

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, chosen: slice | Tensor) -> "Singles":
        found = self.records[chosen] if isinstance(chosen, slice) else [self.records[i] for i in chosen.tolist()]
        return Singles(found, self.collate, self.device)

    def to(self, target: Any, *_: Any, **__: Any) -> "Singles":
        """On another device, once they are a batch."""
        return Singles(self.records, self.collate, target)

    def split(self, n: int) -> Iterator[Tensor]:
        """Bytes of n records at a time, which tell whether two processes hold the same."""
        for first in range(0, len(self), n):
            yield torch.frombuffer(bytearray(pickle.dumps(self.records[first : first + n])), dtype=torch.uint8)

    def batch(self) -> Any:
        """Arguments of the code."""
        made = self.collate(list(self.records))
        if self.device.type == "cpu":
            return made
        from lightning.fabric.utilities.apply_func import move_data_to_device  # of an extra, which tables do without

        return move_data_to_device(made, self.device)

    def filled(self, chosen: Tensor, other: "Singles") -> "Singles":
        """The first one of others in the place of the chosen (b,) records."""
        kept = [other.records[0] if left_out else record for left_out, record in zip(chosen.tolist(), self.records)]
        return Singles(kept, self.collate, self.device)


def repeated(values: Any) -> Any:
    """The first record, twice."""
    return tree_map(lambda v: v[torch.tensor([0, 0])] if isinstance(v, Singles) else torch.cat([v[:1], v[:1]]), values)


# -- gradients ---------------------------------------------------------------------------------------------------------


@contextmanager
def unseen() -> Iterator[None]:
    """Drop what code that looks at private records prints, and what it warns of."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def hidden(name: str, error: Exception) -> RuntimeError:
    """Public words of an error of such code."""
    problem = f"{name} raised {type(error).__name__} for private records, whose text is hidden: it may show them"
    return RuntimeError(f"{problem}; try it on public ones")


def in_one_line(error: Exception) -> str:
    """The text of an error that may be told."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def of_all_records(function: Callable[..., Tensor], *values: Tensor, shared: Tensor | None = None) -> Tensor:
    """Value of a function of rows (n, width, ...) that torch keeps apart: under vmap of the rows of all records, in one call.

    A `shared` value of the function must be that of all records; where each has its own, records are taken one by one.
    """
    levels = {_functorch.maybe_get_level(v) if _functorch.is_batchedtensor(v) else 0 for v in values}
    own = shared is not None and _functorch.is_batchedtensor(shared)
    if own or len(levels) > 1 or 0 in levels or values[0].ndim < 2:
        return function(*values)
    below = [_functorch.get_unwrapped(v).movedim(_functorch.maybe_get_bdim(v), 0) for v in values]
    made = function(*(v.flatten(0, 1) for v in below))
    found: Tensor = _functorch._add_batch_dim(made.unflatten(0, below[0].shape[:2]), 0, *levels)
    return found


@contextmanager
def no_rules_of_functions() -> Iterator[None]:
    """Refuse an `autograd.Function` with a rule of its own for vmap: it would get all records at once."""
    plain = vars(torch.autograd.Function)["apply"]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if cls.vmap is not torch.autograd.Function.vmap:
            raise ValueError(f"{cls.__name__} has a vmap of its own, which is given all records: set generate_vmap_rule = True")
        return plain.__func__(cls, *args, **kwargs)

    torch.autograd.Function.apply = classmethod(apply)
    try:
        yield
    finally:
        torch.autograd.Function.apply = plain


class PerRecord:
    """Gradients of the parameters of a module that need one, as factors of a flat vector of all of them.

    Attributes:
        values: these parameters, by name.
        shapes: of them.
        columns: where each is in the vector.
        whole: whether `torch.func` differentiates the whole loss, see `dpgen.nets.trials`.
        apart: whether records are taken one at a time by plain autograd, see `dpgen.nets.per_record`; None: never.
        randomness: "different", or "same" where `torch.func` can draw but one number for all records.
        public: public records, in a tuple, on which code may fail aloud.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module, self.whole, self.randomness = module, False, "different"
        self.apart: bool | None = None
        self.public: tuple[Any, ...] = ()
        self.values = {name: value for name, value in module.named_parameters() if value.requires_grad}
        self.shapes = {name: tuple(value.shape) for name, value in self.values.items()}
        self.columns: dict[str, slice] = {}
        for name, shape in self.shapes.items():
            self.columns[name] = slice(self.p, self.p + prod(shape))
        self._frozen = _frozen_norms(module)
        self._stand_ins = {name: made for name, layer in module.named_modules() if (made := _stand_in(layer)) is not None}

    @property
    def p(self) -> int:
        """Number of parameters."""
        return max((part.stop for part in self.columns.values()), default=0)

    def losses(self, run: Run, *inputs: Any) -> Tensor:
        """Losses (b,) of records, each of that record alone: `run` gets batches of one."""
        if self.apart:
            with torch.no_grad():
                return self._each(run, lambda loss: loss, *inputs)
        with self.standing_in():
            return self._one_by_one(lambda _, *record: run(*record), *inputs)

    def factors(self, run: Run, *inputs: Any) -> list[Factor]:
        """Factors of the gradients of every record's own loss; parameters that no loss needs are in none."""
        if not (b := records_of(inputs)):
            return [Factor(torch.zeros(0, self.p, device=tree_leaves(inputs)[0].device), None, None, slice(0, self.p))]
        if self.apart:
            with torch.enable_grad():
                return [Factor(self._each(run, self.slopes, *inputs), None, None, slice(0, self.p))]
        if self.whole:
            return [Factor(self._differentiated(run, *inputs), None, None, slice(0, self.p))]
        tape = _Tape(self, b)

        def alone(zero: Tensor, *record: Any) -> Tensor:
            tape.zero = zero
            return run(*record)

        with self.standing_in():
            with torch.enable_grad(), tape:
                total = self._one_by_one(alone, *inputs).sum()
            return tape.factors(total)

    def _one_by_one(self, run: Callable[..., Tensor], *inputs: Any) -> Tensor:
        """Results (b,) of `run` for a zero and a batch of each record alone."""
        zeros = torch.zeros(records_of(inputs), device=tree_leaves(inputs)[0].device)

        def alone(zero: Tensor, *record: Any) -> Tensor:
            return run(zero, *tree_map(lambda v: v[None], record))

        with warnings.catch_warnings(), no_rules_of_functions():
            warnings.simplefilter("ignore")
            made: Tensor = vmap(alone, randomness=self.randomness)(zeros, *inputs)
        return made

    def _differentiated(self, run: Run, *inputs: Any) -> Tensor:
        """Gradients (b, p) of the losses by `torch.func`."""
        bound = Bound(self.module, run)
        own = {f"module.{name}": value.detach() for name, value in self.values.items()}

        def loss(values: dict[str, Tensor], *record: Any) -> Tensor:
            made: Tensor = functional_call(bound, values, tree_map(lambda v: v[None], record), tie_weights=True)
            return made

        with warnings.catch_warnings(), self._keeping_frozen(), no_rules_of_functions():
            warnings.simplefilter("ignore")
            found = vmap(grad(loss), (None, *[0] * len(inputs)), randomness=self.randomness)(own, *inputs)
        return torch.cat([found[f"module.{name}"].flatten(1) for name in self.shapes], 1).detach()

    def _each(self, run: Run, taken: Callable[[Tensor], Tensor], *inputs: Any) -> Tensor:
        """Values `taken` of each record's loss, one record after the other."""
        with self.standing_in(), _unchanged(self.module), _NoReading(), _secret_numbers():
            made = [taken(run(*rows(inputs, i, i + 1))).detach() for i in range(records_of(inputs))]
        return torch.stack(made)

    def slopes(self, loss: Tensor) -> Tensor:
        """The gradient (p,) of a loss by autograd."""
        values = list(self.values.values())
        found = torch.autograd.grad(loss, values, allow_unused=True) if loss.requires_grad else [None] * len(values)
        return torch.cat([(torch.zeros_like(v) if g is None else g).flatten() for v, g in zip(values, found)])

    # -- private records -----------------------------------------------------------------------------------------------

    def of_private(self, taken: Callable[..., T], name: str, run: Run, *inputs: Any) -> T:
        """Factors or losses that are `taken` of private records: those that the code `name` fails for get NaN.

        Raises:
            RuntimeError: the code fails for public records as well, or for no record alone. No text of an error that private
                records caused is in it.
        """
        try:
            return taken(run, *inputs)
        except Exception as error:
            if not self.public:
                raise hidden(name, error) from None
        failing = self._failing(taken, name, run, *inputs)

        def filled(value: Any, public: Any) -> Any:
            if isinstance(value, Singles):
                return value.filled(failing, public)
            return torch.where(_like(failing, value), public[:1].to(value.device), value)

        try:
            made = taken(run, *tree_map(filled, inputs, self.public))
        except Exception as error:
            raise hidden(name, error) from None
        for f in [made] if isinstance(made, Tensor) else cast(list[Factor], made):
            values = f if isinstance(f, Tensor) else f.outputs if f.outputs.is_floating_point() else cast(Tensor, f.inputs)
            values.masked_fill_(_like(failing, values), torch.nan)
        return made

    def _failing(self, taken: Callable[..., Any], name: str, run: Run, *inputs: Any) -> Tensor:
        """Whether the code fails for each record, (b,)."""
        try:
            taken(run, *self.public)
        except Exception as error:
            raise RuntimeError(f"{name} fails on public records: {in_one_line(error)}") from None
        failing = torch.zeros(records_of(inputs), dtype=torch.bool, device=tree_leaves(inputs)[0].device)
        for i in range(len(failing)):
            try:
                taken(run, *rows(inputs, i, i + 1))
            except Exception:
                failing[i] = True
        return failing

    # -- layers --------------------------------------------------------------------------------------------------------

    @contextmanager
    def _keeping_frozen(self) -> Iterator[None]:
        """Let frozen norms stay so, whatever `train()` has said since."""
        modes = [layer.training for layer in self._frozen]
        try:
            for layer in self._frozen:
                layer.training = False
            yield
        finally:
            for layer, mode in zip(self._frozen, modes):
                layer.training = mode

    @contextmanager
    def standing_in(self) -> Iterator[None]:
        """Let opacus' layers stand in, on parameters as they are now."""
        plain = {name: self.module.get_submodule(name) for name in self._stand_ins}
        try:
            for name, made in () if self.apart else self._stand_ins.items():
                _share(plain[name], made)
                self._place(name, made)
            with self._keeping_frozen():
                yield
        finally:
            for name, layer in plain.items():
                self._place(name, layer)

    def _place(self, name: str, layer: nn.Module) -> None:
        parent, _, own = name.rpartition(".")
        self.module.get_submodule(parent)._modules[own] = layer

    def layers(self) -> Iterator[tuple[nn.Module, dict[str, slice]]]:
        """Layers with parameters of their own, and the columns of each, also of those that stand in for others."""
        of = {id(self.values[name]): part for name, part in self.columns.items()}
        for layer in self.module.modules():
            own = {name: of[id(value)] for name, value in layer._parameters.items() if id(value) in of}
            for name, (value, first) in getattr(layer, _SLICES, {}).items():
                if id(value) in of:
                    start = of[id(value)].start + value[:first].numel()
                    own[name] = slice(start, start + getattr(layer, name).numel())
            if own and type(layer).__name__ not in _RECURRENT.values():  # their maps are layers of their own
                yield layer, own


def _frozen_norms(module: nn.Module) -> list[nn.Module]:
    """Norms over the batch that use released statistics, in eval mode; others are refused."""
    frozen: list[nn.Module] = []
    for name, layer in module.named_modules():
        instance = isinstance(layer, nn.modules.instancenorm._InstanceNorm)
        if not isinstance(layer, nn.modules.batchnorm._NormBase) or (instance and not layer.track_running_stats):
            continue
        if layer.training or layer.running_mean is None:
            raise ValueError(
                f"layer {name!r} is a {type(layer).__name__}, which mixes the records of a batch; use GroupNorm or LayerNorm, "
                "or freeze it by eval(), so that it keeps the statistics that it has"
            )
        frozen.append(layer)
    return frozen


def _like(chosen: Tensor, values: Tensor) -> Tensor:
    """Records (b,) in a shape that goes with values (b, ...)."""
    return chosen.to(values.device).view(-1, *[1] * (values.ndim - 1))


class Bound(nn.Module):
    """Lets `functional_call` reach any function of a module."""

    def __init__(self, module: nn.Module, run: Run) -> None:
        super().__init__()
        self.module, self.run = module, run

    def forward(self, *args: Any) -> Tensor:
        return self.run(*args)


# -- what opacus' layers stand in for ----------------------------------------------------------------------------------


_SLICES = "_dpgen_slices"
_RECURRENT: dict[type[nn.Module], str] = {nn.LSTM: "DPLSTM", nn.GRU: "DPGRU", nn.RNN: "DPRNN"}


def _stand_in(layer: nn.Module) -> nn.Module | None:
    """A layer of opacus that computes the same from linear maps; None where there is none, or no need of one."""
    if isinstance(layer, nn.RNNBase) and type(layer) in _RECURRENT and not layer.proj_size:
        options = {name: getattr(layer, name) for name in ("num_layers", "bias", "batch_first", "dropout", "bidirectional")}
        if isinstance(layer, nn.RNN):
            options["nonlinearity"] = layer.nonlinearity
        from opacus import layers  # here and below: of an extra, which other networks do without

        with torch.random.fork_rng(devices=[]):
            return cast(nn.Module, getattr(layers, _RECURRENT[type(layer)])(layer.input_size, layer.hidden_size, **options))
    if type(layer) is nn.MultiheadAttention and layer.bias_k is None and not layer.add_zero_attn:
        return _Attention(layer)
    return None


class _Attention(nn.Module):
    """`nn.MultiheadAttention` by three linear maps; opacus' one mixes heads with positions where the batch comes first."""

    in_proj_bias = None  # so that no encoder takes a path of its own around it

    def __init__(self, layer: nn.MultiheadAttention) -> None:
        super().__init__()
        self.heads, self.batch_first, self.dropout, width = layer.num_heads, layer.batch_first, layer.dropout, layer.embed_dim
        with torch.random.fork_rng(devices=[]):
            self.q, self.k, self.v = (nn.Linear(n, width) for n in (width, layer.kdim or width, layer.vdim or width))
            self.qkv = None if layer.in_proj_weight is None else nn.Linear(width, 3 * width)  # of a sequence to itself
        self.out_proj = layer.out_proj

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        q, k, v = self._projected(query, key, value)
        padding = None if key_padding_mask is None else key_padding_mask[:, None, None]
        masks = [mask for mask in (padding, attn_mask) if mask is not None]
        scores = self._masked(q @ k.mT * q.shape[-1] ** -0.5, masks)
        if need_weights or not masks:
            weights = scores.softmax(-1)
        else:  # torch gives 0 where nothing may be looked at
            nothing = scores.isneginf().all(-1, keepdim=True)
            weights = scores.masked_fill(nothing, 0.0).softmax(-1).masked_fill(nothing, 0.0)
        weights = dropout(weights, self.dropout, self.training)
        made = self._turned(self.out_proj((weights @ v).transpose(1, 2).flatten(2)))
        return made, (weights.mean(1) if average_attn_weights else weights) if need_weights else None

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> Iterator[Tensor]:
        """Queries, keys and values (b, heads, P, width)."""
        if self.qkv is not None and query is key is value:
            parts = self.qkv(self._turned(query)).chunk(3, 2)
        else:
            parts = tuple(f(self._turned(x)) for f, x in zip((self.q, self.k, self.v), (query, key, value)))
        return (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in parts)

    def _turned(self, x: Tensor) -> Tensor:
        """Values with records first, or such values as they came."""
        return x if self.batch_first else x.transpose(0, 1)

    def _masked(self, scores: Tensor, masks: Sequence[Tensor]) -> Tensor:
        """Scores (b, heads, P, Q) with -inf where a mask is true, or with the masks added."""
        for mask in masks:
            mask = mask.unflatten(0, (-1, self.heads)) if mask.ndim == 3 else mask
            scores = scores.masked_fill(mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        return scores


def _share(layer: Any, made: Any) -> None:
    """Give a stand-in the parameters and the mode of its layer."""
    made.train(layer.training)
    if isinstance(layer, nn.RNNBase):
        for cell, values in zip(made.cells, layer.all_weights):
            for (kind, part), value in zip(product(("weight", "bias"), (cell.ih, cell.hh)), values):
                setattr(part, kind, value)
        return
    made.out_proj, weight = layer.out_proj, layer.in_proj_weight
    if made.qkv is not None:
        made.qkv.weight, made.qkv.bias = weight, layer.in_proj_bias
    for i, (name, part) in enumerate((("q", made.q), ("k", made.k), ("v", made.v))):
        _alias(part, "weight", getattr(layer, f"{name}_proj_weight") if weight is None else weight, 0 if weight is None else i)
        if layer.in_proj_bias is not None:
            _alias(part, "bias", layer.in_proj_bias, i)
        else:
            part.bias = None


def _alias(part: nn.Linear, name: str, value: nn.Parameter, place: int) -> None:
    """Let a linear map use its rows of a parameter that holds those of several."""
    first = place * part.out_features
    part._parameters.pop(name, None)
    part.__dict__[name] = value[first : first + part.out_features]
    part.__dict__.setdefault(_SLICES, {})[name] = value, first


# -- a pass ------------------------------------------------------------------------------------------------------------


class _Call(NamedTuple):
    """A call of a layer: its input, and where its output is in the graph; values are of all records, in some dimension."""

    layer: nn.Module
    columns: dict[str, slice]
    x: Tensor
    of_x: int | None
    version: int
    edge: Any
    place: int


class _Tape:
    """Keeps the inputs and the gradient edges of the outputs of all layers with parameters, while it is entered.

    Layers are called under vmap. What is kept is underneath: rows of all records, each made of one record.
    """

    zero: Tensor  # of a record, under the vmap that layers are called under

    def __init__(self, of: PerRecord, records: int) -> None:
        self.of, self.records = of, records
        self._calls: list[_Call] = []
        self._hooks: list[Any] = []

    def __enter__(self) -> None:
        for layer, columns in self.of.layers():
            self._hooks.append(layer.register_forward_hook(self._hook(columns), with_kwargs=True))

    def __exit__(self, *_: object) -> None:
        while self._hooks:
            self._hooks.pop().remove()

    def _hook(self, columns: dict[str, slice]) -> Callable[..., Tensor | None]:
        def keep(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Tensor | None:
            given = tree_leaves((args, kwargs)) if kwargs else args
            if not isinstance(output, Tensor) or len(given) != 1 or not isinstance(given[0], Tensor):
                raise ValueError(f"a {type(layer).__name__} has parameters and several inputs or outputs")
            below, place = self._below(output)
            if place is None:  # of no record: one for each
                output = output + self.zero.to(output.dtype)
                below, place = self._below(output)
                assert place is not None
            if below.requires_grad:
                x, of_x = self._below(given[0])
                edge = torch.autograd.graph.get_gradient_edge(below)  # stays that of this output, whatever is done in place
                self._calls.append(_Call(layer, columns, x, of_x, x._version, edge, place))
            return output

        return keep

    def _below(self, value: Tensor) -> tuple[Tensor, int | None]:
        """The values of all records, and the dimension that counts records; None: a value that none of them has."""
        level = _functorch.maybe_get_level(value)
        if level <= 0:
            return value, None
        if level != _functorch.maybe_get_level(self.zero):
            raise ValueError("a layer is called under another transform of torch.func")
        return _functorch.get_unwrapped(value), _functorch.maybe_get_bdim(value)

    def factors(self, total: Tensor) -> list[Factor]:
        """Factors of the gradients of a sum of losses of this pass."""
        slopes = torch.autograd.grad(total, [call.edge for call in self._calls], allow_unused=True)
        found: dict[int, list[Factor]] = {}
        with torch.autocast(total.device.type, enabled=False), torch.no_grad():
            for call, g in zip(self._calls, slopes):
                if g is None:
                    continue
                if call.x._version != call.version:
                    raise ValueError(f"the input of a {type(call.layer).__name__} is changed in place after it was used")
                x = call.x.expand(self.records, *call.x.shape) if call.of_x is None else call.x.movedim(call.of_x, 0)
                slope = full_precision(g.movedim(call.place, 0))
                for f in self._of_layer(call.layer, call.columns, full_precision(x.detach()), slope):
                    found.setdefault(f.columns.start, []).append(f)
            return [f for uses in found.values() for f in joined_uses(uses)]

    def _of_layer(self, layer: nn.Module, columns: dict[str, slice], x: Tensor, g: Tensor) -> Iterator[Factor]:
        """Factors of one call of a layer with inputs x (b, ...) and slopes g (b, ...)."""
        weight, bias = columns.get("weight"), columns.get("bias")
        if weight is not None and (positions := _positions(layer, x, g)) is not None:
            outputs, inputs, total = positions
            if isinstance(layer, nn.Linear) and outputs.shape[1] == 1 and self._alone(columns):
                yield Factor(outputs[:, 0], inputs[:, 0], weight, bias)
            else:
                yield Factor(outputs, inputs, weight, None)
                yield from [] if bias is None else [Factor(total, None, None, bias)]
        elif self._stays_coded(layer, columns, x):
            yield Factor(*_looked_up(cast(nn.Embedding, layer), x, g), weight, None)
        else:
            for name, values in _sampled(layer, x, g).items():
                if name in columns:
                    yield Factor(full_precision(values.detach()).flatten(1), None, None, columns[name])

    def _stays_coded(self, layer: nn.Module, columns: dict[str, slice], x: Tensor) -> bool:
        """Whether a layer is an embedding whose codes and slopes are cheaper than its gradient."""
        if type(layer) is not nn.Embedding or layer.scale_grad_by_freq:
            return False
        return not (self._alone(columns) and multiplied_out(x[0].numel(), layer.weight.numel()))

    def _alone(self, columns: dict[str, slice]) -> bool:
        """Whether no other call uses these parameters."""
        own = {part.start for part in columns.values()}
        return sum(any(part.start in own for part in call.columns.values()) for call in self._calls) == 1


def _looked_up(layer: nn.Embedding, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """Codes (b, T) that an embedding is asked for, and slopes (b, T, width), 0 where a code is left out."""
    codes = x.flatten(1)
    left = torch.eq(codes, -1 if layer.padding_idx is None else layer.padding_idx)
    return codes, g.reshape(*codes.shape, -1).masked_fill(left[..., None], 0.0)


def _positions(layer: Any, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """Rows (b, T, out) and (b, T, in) whose products are gradients of a weight, and those (b, out) of the bias; or None."""
    if isinstance(layer, nn.Linear):
        outputs, inputs = (v.reshape(len(v), -1, v.shape[-1]) for v in (g, x))
        return outputs, inputs, outputs.sum(1)
    turned = type(layer) is nn.ConvTranspose2d
    if not _maps_patches(layer):
        return None
    b, (small, image) = len(x), (v.reshape(-1, *v.shape[-3:]) for v in ((x, g) if turned else (g, x)))
    (height, width), (down, right), (high, wide) = layer.kernel_size, layer.stride, layer.padding
    patches = pad(image, (wide, wide, high, high)).unfold(2, height, down).unfold(3, width, right)
    patches = patches.permute(0, 1, 4, 5, 2, 3).flatten(1, 3).flatten(2).mT
    outputs = small.flatten(2).mT
    total = g.reshape(b, -1, *g.shape[-3:]).sum((1, 3, 4))
    return outputs.reshape(b, -1, outputs.shape[-1]), patches.reshape(b, -1, patches.shape[-1]), total


def _maps_patches(layer: Any) -> bool:
    """Whether a layer is a convolution that is one linear map of the patches at every position, or its transpose."""
    if type(layer) not in (nn.Conv2d, nn.ConvTranspose2d) or any(layer.output_padding):
        return False
    plain = layer.groups == 1 and layer.padding_mode == "zeros" and layer.dilation == (1, 1)
    return plain and not isinstance(layer.padding, str)


def _sampled(layer: Any, x: Tensor, g: Tensor) -> Mapping[str, Tensor]:
    """Gradients (b, ...) of a layer's own parameters, by name."""
    if isinstance(layer, nn.LayerNorm):
        most = g.ndim - layer.weight.ndim
        both = (layer_norm(x, layer.normalized_shape, eps=layer.eps) * g, g)
        return dict(zip(("weight", "bias"), (v.flatten(1, most - 1).sum(1) if most > 1 else v for v in both)))
    if isinstance(layer, nn.GroupNorm) and g.ndim > 3:  # (b, n, channels, ...)
        both = ((group_norm(x.flatten(0, 1), layer.num_groups, eps=layer.eps).view_as(x) * g), g)
        return {name: v.flatten(3).sum((1, 3)) for name, v in zip(("weight", "bias"), both)}
    own = {name: value.detach() for name, value in layer._parameters.items() if value is not None}

    def weighed(values: dict[str, Tensor], x: Tensor, g: Tensor) -> Tensor:
        made: Tensor = (functional_call(layer, values, (x,)) * g).sum()
        return made

    with torch.enable_grad():
        return cast(dict[str, Tensor], vmap(grad(weighed), (None, 0, 0))(own, x, g))


# -- uses of the same parameters ---------------------------------------------------------------------------------------

_GHOST = 64
"""Multiple c of T^2 from which on a layer of so many parameters is not multiplied out."""

MOST_POSITIONS = 4096
"""Positions of all uses, at most; more are multiplied out."""


def multiplied_out(positions: int, size: int) -> bool:
    """Whether the gradient of so many parameters, a sum over positions, is cheaper than its factors."""
    return positions > MOST_POSITIONS or _GHOST * positions**2 >= size


def joined_uses(uses: list[Factor]) -> list[Factor]:
    """Factors of all uses of the same parameters: one of the positions of all, and one of codes, or what they multiply out to.

    Codes are multiplied out together with outputs where that is the cheaper way and needs no more memory than they do.
    """
    first, columns = uses[0], uses[0].columns
    if len(uses) == 1 and (first.inputs is None or first.inputs.ndim == 2):
        return uses
    dense, joined = [f.outputs for f in uses if f.inputs is None], _side_by_side(uses, columns)
    if not dense and _stay(joined, columns.stop - columns.start, alone=len(uses) == 1):
        return joined
    values = [*dense, *(_product(f, columns) for f in joined)]
    return [Factor(torch.stack(values).sum(0) if len(values) > 1 else values[0], None, None, columns)]


def _stay(joined: list[Factor], size: int, *, alone: bool) -> bool:
    """Whether factors of so many parameters stay factors."""
    coded = any(not f.outputs.is_floating_point() for f in joined)
    positions = sum(f.outputs.shape[1] for f in joined)
    held = sum(v[:1].numel() for f in joined for v in (f.outputs, f.inputs) if v is not None)
    small = not coded or (not alone and size <= held)
    return positions <= MOST_POSITIONS and not (small and multiplied_out(positions, size))


def _side_by_side(uses: list[Factor], columns: slice) -> list[Factor]:
    """One factor of the positions of all look-ups, and one of those of all maps."""
    joined = list[Factor]()
    for map_ in (False, True):
        own = [f for f in uses if f.inputs is not None and f.outputs.is_floating_point() == map_]
        if len(own) > 1:
            outputs, inputs = zip(*(f[:2] for f in own))
            own = [Factor(torch.cat(outputs, 1), torch.cat(inputs, 1), columns, None)]
        joined += own
    return joined


def _product(f: Factor, columns: slice) -> Tensor:
    """Gradients (b, out * in) of a factor of positions."""
    g, a = f.outputs, cast(Tensor, f.inputs)
    if g.is_floating_point():
        return (g.mT @ a).flatten(1)
    words = (columns.stop - columns.start) // a.shape[2]
    rows = (g + words * torch.arange(len(g), device=g.device)[:, None]).flatten()
    return a.new_zeros(len(g) * words, a.shape[2]).index_add(0, rows, a.flatten(0, 1)).view(len(g), -1)


# -- one record after the other ----------------------------------------------------------------------------------------

_READ = {getattr(Tensor, name) for name in ("item", "tolist", "numpy", "__float__", "__array__")}


class _NoReading(TorchFunctionMode):
    """Refuses to make real numbers of a tensor numbers of Python."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _READ and args[0].is_floating_point():
            raise ValueError(f"{func.__name__}() takes a number out of a tensor, which could be kept: leave it there")
        return func(*args, **(kwargs or {}))


@contextmanager
def _unchanged(module: nn.Module) -> Iterator[None]:
    """Refuse code that changes a parameter or a buffer, which is then what it was before."""
    before = {name: value.detach().clone() for name, value in (*module.named_parameters(), *module.named_buffers())}
    try:
        yield
    finally:
        changed = None
        with torch.no_grad():
            for name, value in (*module.named_parameters(), *module.named_buffers()):
                if name in before and not _same(value, before[name]):
                    value.data.copy_(before[name])
                    changed = name
        if changed is not None:
            raise ValueError(f"changes {changed}, which would carry records into the release")


@contextmanager
def _secret_numbers() -> Iterator[None]:
    """Let numbers of NumPy and Python follow PyTorch's, whose seed is secret: known ones would tell who stands where."""
    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    seed = int(torch.randint(2**32, ()))
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002


def _same(value: Tensor, before: Tensor) -> bool:
    return value.shape == before.shape and torch.equal(value.detach().nan_to_num(7.0), before.nan_to_num(7.0))
