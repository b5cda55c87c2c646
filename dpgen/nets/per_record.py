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

**A record by itself.** The code runs under `torch.func.vmap`, where it sees one record, as a batch of one, whatever it
computes; layers underneath get all records at once. So a loss is a function of its record by construction, also one that
divides by what a batch holds, or that changes in a later epoch, and so is the slope of every output:

| in the code | what happens |
|---|---|
| a mean over the batch, its share of a class, other records as negatives, mixup | a record meets itself alone |
| a question to the data (`if loss > 1:`), `torch.autograd.grad`, `LSTMCell` | vmap refuses them; see `dpgen.nets.one_by_one` |
| an `autograd.Function` with a `vmap` of its own | refused: that is given all records; `generate_vmap_rule` is none |
| a rule of `torch.library.register_vmap` | is taken at its word: it must keep rows apart |
| code that fails for some records, for a code out of range | these count for nothing, see `PerRecord.of_private` |

Source: Goodfellow 2015; Bu, Mao, Xu 2022, section 4 (mixed ghost clipping; c = 2, for memory). Here c = 64, for time:
what is not multiplied out is added up in float64, see `dpgen.privacy.clipping`. Yousefpour et al. 2021 (opacus).
"""

import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from itertools import product
from math import prod
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import dropout, group_norm, layer_norm, pad
from torch.utils._pytree import tree_leaves, tree_map

from dpgen.nets import one_by_one
from dpgen.nets.one_by_one import Run, Singles, records_of
from dpgen.nets.uses import joined_uses, multiplied_out
from dpgen.privacy.clipping import Factor, full_precision

T = TypeVar("T")
_SLICES = "_dpgen_slices"
_RECURRENT: dict[type[nn.Module], str] = {nn.LSTM: "DPLSTM", nn.GRU: "DPGRU", nn.RNN: "DPRNN"}


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


_functorch = torch._C._functorch


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
        apart: whether records are taken one at a time by plain autograd, see `dpgen.nets.one_by_one`; None: never.
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
            return one_by_one.losses(self, run, *inputs)
        with self.standing_in():
            return self._one_by_one(lambda _, *record: run(*record), *inputs)

    def factors(self, run: Run, *inputs: Any) -> list[Factor]:
        """Factors of the gradients of every record's own loss; parameters that no loss needs are in none."""
        if not (b := records_of(inputs)):
            return [Factor(torch.zeros(0, self.p, device=tree_leaves(inputs)[0].device), None, None, slice(0, self.p))]
        if self.apart:
            return [Factor(one_by_one.gradients(self, run, *inputs), None, None, slice(0, self.p))]
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
        """Which records (b,) the code fails for."""
        try:
            taken(run, *self.public)
        except Exception as error:
            raise RuntimeError(f"{name} fails on public records: {in_one_line(error)}") from None
        failing = torch.zeros(records_of(inputs), dtype=torch.bool, device=tree_leaves(inputs)[0].device)
        for i in range(len(failing)):
            try:
                taken(run, *one_by_one.rows(inputs, i, i + 1))
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


# -- what opacus' layers stand in for ------------------------------------------------------------------------------------


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
        rows = [x if self.batch_first else x.transpose(0, 1) for x in (query, key, value)]
        if self.qkv is not None and query is key is value:
            parts = self.qkv(rows[0]).chunk(3, 2)
        else:
            parts = tuple(f(x) for f, x in zip((self.q, self.k, self.v), rows))
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in parts)
        padding = None if key_padding_mask is None else key_padding_mask[:, None, None]
        masks = [mask for mask in (padding, attn_mask) if mask is not None]
        scores = self._masked(q @ k.mT * q.shape[-1] ** -0.5, masks)
        if need_weights or not masks:
            weights = scores.softmax(-1)
        else:  # torch gives 0 where nothing may be looked at
            nothing = scores.isneginf().all(-1, keepdim=True)
            weights = scores.masked_fill(nothing, 0.0).softmax(-1).masked_fill(nothing, 0.0)
        weights = dropout(weights, self.dropout, self.training)
        made = self.out_proj((weights @ v).transpose(1, 2).flatten(2))
        made = made if self.batch_first else made.transpose(0, 1)
        return made, (weights.mean(1) if average_attn_weights else weights) if need_weights else None

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


# -- a pass ----------------------------------------------------------------------------------------------------------------


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
                    found.setdefault(cast(slice, f.weight or f.bias).start, []).append(f)
            return [f for uses in found.values() for f in joined_uses(uses)]

    def _of_layer(self, layer: nn.Module, columns: dict[str, slice], x: Tensor, g: Tensor) -> Iterator[Factor]:
        """Factors of one call of a layer with inputs x (b, ...) and slopes g (b, ...)."""
        weight, bias = columns.get("weight"), columns.get("bias")
        if weight is not None and (positions := _positions(layer, x, g)) is not None:
            outputs, inputs, total = positions
            if isinstance(layer, nn.Linear) and outputs.shape[1] == 1 and self._alone(columns):
                yield Factor(outputs[:, 0], inputs[:, 0], weight, bias)
                return
            yield Factor(outputs, inputs, weight, None)
            if bias is not None:
                yield Factor(total, None, None, bias)
            return
        if type(layer) is nn.Embedding and not layer.scale_grad_by_freq:
            codes = x.flatten(1)
            if not (self._alone(columns) and multiplied_out(codes.shape[1], layer.weight.numel())):
                left = torch.eq(codes, -1 if layer.padding_idx is None else layer.padding_idx)
                yield Factor(codes, g.reshape(*codes.shape, -1).masked_fill(left[..., None], 0.0), weight, None)
                return
        for name, values in _sampled(layer, x, g).items():
            if name in columns:
                yield Factor(full_precision(values.detach()).flatten(1), None, None, columns[name])

    def _alone(self, columns: dict[str, slice]) -> bool:
        """Whether no other call uses these parameters."""
        own = {part.start for part in columns.values()}
        return sum(any(part.start in own for part in call.columns.values()) for call in self._calls) == 1


def _positions(layer: Any, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """Rows (b, T, out) and (b, T, in) whose products are gradients of a weight, and those (b, out) of the bias; or None."""
    if isinstance(layer, nn.Linear):
        outputs, inputs = (v.reshape(len(v), -1, v.shape[-1]) for v in (g, x))
        return outputs, inputs, outputs.sum(1)
    turned = type(layer) is nn.ConvTranspose2d and not any(layer.output_padding)
    plain = (turned or type(layer) is nn.Conv2d) and layer.groups == 1 and layer.padding_mode == "zeros"
    if not plain or layer.dilation != (1, 1) or isinstance(layer.padding, str):
        return None
    b, (small, image) = len(x), (v.reshape(-1, *v.shape[-3:]) for v in ((x, g) if turned else (g, x)))
    (height, width), (down, right), (high, wide) = layer.kernel_size, layer.stride, layer.padding
    patches = pad(image, (wide, wide, high, high)).unfold(2, height, down).unfold(3, width, right)
    patches = patches.permute(0, 1, 4, 5, 2, 3).flatten(1, 3).flatten(2).mT
    outputs = small.flatten(2).mT
    total = g.reshape(b, -1, *g.shape[-3:]).sum((1, 3, 4))
    return outputs.reshape(b, -1, outputs.shape[-1]), patches.reshape(b, -1, patches.shape[-1]), total


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
