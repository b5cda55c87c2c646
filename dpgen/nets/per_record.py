r"""Gradients per record of any module, from what its layers see and the slopes of their outputs.

| parameters of | gradient of a record |
|---|---|
| Linear; Conv2d, ConvTranspose2d, as a Linear of the patches at every position | factors in closed form, see below |
| Embedding of many codes | codes and slopes: equal codes of a record add up ("ghost") |
| LayerNorm, GroupNorm | sums over positions |
| Embedding of few codes, other convolutions and norms, other layers with one input | `torch.func`, layer by layer |
| LSTM, GRU, RNN; MultiheadAttention | opacus' layers, and an own one, stand in: linear maps on the same parameters |
| a weight that is used several times | the uses are added up as positions of one map, or multiplied out |
| all else (parameters of a module's own) | `torch.func` differentiates the whole loss, record by record |

These are not put into the module: they stand in while gradients are taken, so the module, its checkpoints and its
release stay as they were written. `torch.func` alone would do for every table row but a GRU, at several times the cost.

**Positions.** A map at T positions t of a record r, of rows or of an image, has weight gradient
:math:`\sum_{t \le T} g_{rt} a_{rt}^\top`, of `out` rows and `in` columns. Of the two ways to its norm the cheaper one is taken:

| where | what is kept | norm |
|---|---|---|
| :math:`c T^2 <` out in | the two factors, T (in + out) numbers | from T x T products of inputs and of slopes ("ghost") |
| otherwise | the gradient itself, out in numbers | its own |

**A record by itself.** `PerRecord.settle` tries random records. `torch.func.vmap` refuses code that asks for a record's values
(`if loss > 1:`); each gradient beside others, also beside odd ones (NaN, large values, other codes), must be that of the
record alone; buffers and attributes must stay. What is differentiated record by record mixes none.

Source: Goodfellow 2015; Bu, Mao, Xu 2022, section 4 (mixed ghost clipping; c = 2, for memory). Here c = `_GHOST`, for time:
what is not multiplied out is added up in float64, see `dpgen.privacy.clipping`. Yousefpour et al. 2021 (opacus).
"""

import io
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from itertools import chain
from math import prod
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import dropout, group_norm, layer_norm, pad
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from dpgen.privacy.clipping import Factor, RecordGradients, clipped_sums, full_precision

Run = Callable[..., Tensor]
"""The sum of the losses of records, whose values (b, ...) are the arguments."""

_GHOST = 64
"""Multiple c of T^2 from which on a layer of so many parameters is not multiplied out."""

MOST_POSITIONS = 4096
"""Of a factor; more are multiplied out."""

_SLICES = "_dpgen_slices"
_RECURRENT: dict[type[nn.Module], str] = {nn.LSTM: "DPLSTM", nn.GRU: "DPGRU", nn.RNN: "DPRNN"}


class UnlikeAlone(ValueError):
    """A loss whose gradient cannot be bounded record by record; the text follows the name of the method that made it."""


_FIXED: dict[str, Callable[..., float]] = {
    "randn": lambda *_: 0.5,
    "randn_like": lambda *_: 0.5,
    "normal_": lambda _, mean=0.0, std=1.0: mean + 0.5 * std,
    "rand": lambda *_: 0.3,
    "rand_like": lambda *_: 0.3,
    "uniform_": lambda _, low=0.0, high=1.0: low + 0.3 * (high - low),
    "bernoulli": lambda *_: 1.0,
    "bernoulli_": lambda *_: 1.0,
    "exponential_": lambda _, rate=1.0: 1.0 / rate,
    "normal": lambda mean=0.0, std=1.0, *_: mean + 0.5 * std,
    "randint": lambda *given: _third(*(n for n in given if isinstance(n, int))),
    "randint_like": lambda _, *given: _third(*given),
}


def _third(*ends: int) -> int:
    low, high = (0, *ends)[-2:]
    return low + (high - low) // 3


class SameForEach(TorchDispatchMode):
    """Gives all rows of a batch the same random numbers, usual ones: what then still differs mixes rows."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made, name = func(*args, **(kwargs or {})), func.overloadpacket.__name__
        if name == "native_dropout":
            return args[0].clone(), torch.ones_like(args[0], dtype=torch.bool)
        if name == "randperm":  # where each is in another's place
            return made.copy_(torch.arange(len(made)).roll(1))
        return made.copy_(torch.as_tensor(_FIXED[name](*args))) if name in _FIXED else made


_ODD_VALUES, _ODD_CODES = (torch.nan, 1e3, -1e3, 0.0), (-100, -1, 2, 9)
"""Of records that others may stand beside."""

_MODULE = {*vars(nn.Module()), "_current_fx_name", "_flat_weights"}
_OF_OTHERS = {*sys.stdlib_module_names, "torch", "lightning", "pytorch_lightning"}
"""Packages whose objects a call may change: they keep no records."""


@contextmanager
def unseen() -> Iterator[None]:
    """Drop what code that looks at private records prints, and what it warns of."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def hidden(name: str, error: Exception) -> RuntimeError:
    """What may be said of an error of such code."""
    problem = f"{name} raised {type(error).__name__} for private records, whose text is hidden: it may show them"
    return RuntimeError(f"{problem}; try it on public ones")


def records_of(values: Any) -> int:
    """b of values (b, ...) in any container."""
    return len(tree_leaves(values)[0])


class PerRecord:
    """Gradients of the parameters of a module that need one, as factors of a flat vector of all of them.

    Attributes:
        values: these parameters, by name.
        shapes: of them.
        columns: where each is in the vector.
        whole: whether `torch.func` differentiates the whole loss.
        randomness: "different", or "same" where `torch.func` can draw but one number for all records.
    """

    def __init__(self, module: nn.Module) -> None:
        for name, layer in module.named_modules():
            instance = isinstance(layer, nn.modules.instancenorm._InstanceNorm)
            if isinstance(layer, nn.modules.batchnorm._NormBase) and not (instance and not layer.track_running_stats):
                raise ValueError(
                    f"layer {name!r} is a {type(layer).__name__}, which mixes the records of a batch, so no record's "
                    "gradient can be bounded; use GroupNorm or LayerNorm"
                )
        self.module, self.whole, self.randomness = module, False, "different"
        self.values = {name: value for name, value in module.named_parameters() if value.requires_grad}
        self.shapes = {name: tuple(value.shape) for name, value in self.values.items()}
        self.columns: dict[str, slice] = {}
        for name, shape in self.shapes.items():
            self.columns[name] = slice(self.p, self.p + prod(shape))
        self._stand_ins = {name: made for name, layer in module.named_modules() if (made := _stand_in(layer)) is not None}

    @property
    def p(self) -> int:
        """Number of parameters."""
        return max((part.stop for part in self.columns.values()), default=0)

    # -- trials --------------------------------------------------------------------------------------------------------

    def settle(self, run: Run, *inputs: Any) -> None:
        """Choose how gradients are taken, by public records of five rows or more.

        Raises:
            UnlikeAlone: a record's gradient or loss is another one beside others, cannot be taken, or is 0 or not finite.
        """
        before = marks(self.module)
        try:
            with SameForEach(), self.standing_in(), torch.no_grad():
                several = torch.stack([run(*_rows(inputs, i, i + 1)) for i in range(3)])
                together, two = run(*_rows(inputs, 0, 3)), run(*_rows(inputs, 1, 3))
                doubled = run(*tree_map(lambda v: torch.cat([v[:1], v[:1]]), inputs))
            alone = [self._slowly(run, *_rows(inputs, i, i + 1)) for i in range(3)]
        except Exception as error:
            raise UnlikeAlone(f"fails on random records: {type(error).__name__}: {' '.join(str(error).split())}") from error
        if changed := moved(before, marks(self.module)):
            raise UnlikeAlone(f"changes {changed}, which would carry records into the release")
        for sums, wanted in ((together, several.sum()), (two, several[1:].sum()), (doubled, 2 * several[0])):
            if not torch.isfinite(sums):
                raise UnlikeAlone("is not finite on random records")
            if not torch.allclose(sums, wanted, rtol=1e-3, atol=1e-4 * max(1.0, float(several.abs().max()))):
                raise UnlikeAlone(
                    f"gives records {float(sums):.4g} together and {float(wanted):.4g} one by one: each record must count by "
                    "itself, in a mean if it is one loss (no sum over the batch, no comparison of records)"
                )
        rounding = 2e-2 if torch.is_autocast_enabled(tree_leaves(inputs)[0].device.type) else 1e-4  # half precision rounds
        most = max(float(g.abs().max()) for g in alone)
        if not most > 0 or not all(torch.isfinite(g).all() for g in alone):
            raise UnlikeAlone("has a gradient that is 0 or not finite on random records")
        try:
            with warnings.catch_warnings(), torch.no_grad(), self.standing_in():
                warnings.simplefilter("ignore")
                for self.randomness in ("different", "same"):  # numbers drawn into an empty tensor can only be the same
                    try:
                        one_by_one = vmap(lambda *r: run(*tree_map(lambda v: v[None], r)), randomness=self.randomness)
                        one_by_one(*_rows(inputs, 0, 2))
                        break
                    except RuntimeError as error:
                        if self.randomness == "same" or "inplace randomness" not in str(error):
                            raise
            for whole in (True,) if self.whole else (False, True):
                self.whole = whole
                try:
                    found = [self.dense(run, *_rows(inputs, 0, n)) for n in (4, 5)]
                except Exception:
                    if self.whole:
                        raise
                    continue
                pairs = chain(
                    ((f[i], g) for f in found for i, g in enumerate(alone)),
                    ((f[0], alone[0]) for f in self._beside_odd(run, *inputs)),
                )
                if all(torch.allclose(f, g, rtol=rounding, atol=rounding / 10 * most) for f, g in pairs):
                    return
        except Exception as error:
            raise UnlikeAlone(f"is not for torch.func, record by record: {' '.join(str(error).split())}") from error
        raise UnlikeAlone(f"gives a record another gradient beside other records ({self._furthest(found[1], alone)})")

    def _beside_odd(self, run: Run, *inputs: Any) -> Iterator[Tensor]:
        """Gradients of records of which all but the first are odd; code that raises for some is not asked about them."""
        codes = _ODD_CODES if tree_leaves(inputs)[0].device.type == "cpu" else ()  # elsewhere one out of range ends the process
        for floats, odd in (*((True, odd) for odd in _ODD_VALUES), *((False, odd) for odd in codes)):

            def changed(v: Tensor, floats: bool = floats, odd: float = odd) -> Tensor:
                v = v[:4].clone()
                if v.is_floating_point() == floats and v.dtype != torch.bool:
                    v[1:] = torch.tensor(odd).to(v.dtype)
                return v

            try:
                yield self.dense(run, *tree_map(changed, inputs))
            except (RuntimeError, ValueError, IndexError, KeyError):
                continue

    def _furthest(self, found: Tensor, alone: list[Tensor]) -> str:
        """The parameter whose gradient differs most."""
        apart = torch.stack([f - g for f, g in zip(found, alone)]).abs().amax(0)
        return max(self.columns, key=lambda name: float(apart[self.columns[name]].max()))

    def _slowly(self, run: Run, *inputs: Any) -> Tensor:
        """The gradient (p,) of the sum by autograd."""
        own = list(self.values.values())
        with torch.enable_grad(), SameForEach(), self.standing_in():
            total = run(*inputs)
            made = torch.autograd.grad(total, own, allow_unused=True) if total.requires_grad else [None] * len(own)
        return torch.cat([(torch.zeros_like(v) if g is None else g).flatten() for v, g in zip(own, made)]).float().cpu()

    def dense(self, run: Run, *inputs: Any) -> Tensor:
        """The gradients of all records (b, p), in memory; rows get equal random numbers."""
        b = records_of(inputs)
        with SameForEach():
            made = RecordGradients(self.factors(run, *inputs), [0, b])
        alone = torch.eye(b, dtype=torch.float32, device=tree_leaves(inputs)[0].device)
        return torch.cat([clipped_sums(made, weights, alone.new_zeros(1, self.p)) for weights in alone]).cpu()

    # -- gradients -----------------------------------------------------------------------------------------------------

    def factors(self, run: Run, *inputs: Any) -> list[Factor]:
        """Factors of the gradients of every record's own loss; parameters that no loss needs are in none."""
        if not (b := records_of(inputs)):
            return [Factor(torch.zeros(0, self.p, device=tree_leaves(inputs)[0].device), None, None, slice(0, self.p))]
        if self.whole:
            return [Factor(self._differentiated(run, *inputs), None, None, slice(0, self.p))]
        tape = _Tape(self, b)
        with torch.enable_grad(), self.standing_in(), tape:
            total = run(*inputs)
        return tape.factors(total)

    def _differentiated(self, run: Run, *inputs: Any) -> Tensor:
        bound = Bound(self.module, run)
        own = {f"module.{name}": value.detach() for name, value in self.values.items()}

        def loss(values: dict[str, Tensor], *record: Any) -> Tensor:
            made: Tensor = functional_call(bound, values, tree_map(lambda v: v[None], record), tie_weights=True)
            return made

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = vmap(grad(loss), (None, *[0] * len(inputs)), randomness=self.randomness)(own, *inputs)
        return torch.cat([found[f"module.{name}"].flatten(1) for name in self.shapes], 1).detach()

    @contextmanager
    def standing_in(self) -> Iterator[None]:
        """Let opacus' layers stand in, on parameters as they are now."""
        plain = {name: self.module.get_submodule(name) for name in self._stand_ins}
        try:
            for name, made in self._stand_ins.items():
                _share(plain[name], made)
                self._place(name, made)
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
        scores = q @ k.mT * q.shape[-1] ** -0.5
        for mask in (None if key_padding_mask is None else key_padding_mask[:, None, None], attn_mask):
            if mask is not None:
                mask = mask.unflatten(0, (-1, self.heads)) if mask.ndim == 3 else mask
                scores = scores.masked_fill(mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        if need_weights or (key_padding_mask is None and attn_mask is None):
            weights = scores.softmax(-1)
        else:  # torch gives 0 where nothing may be looked at
            nothing = scores.isneginf().all(-1, keepdim=True)
            weights = scores.masked_fill(nothing, 0.0).softmax(-1).masked_fill(nothing, 0.0)
        weights = dropout(weights, self.dropout, self.training)
        made = self.out_proj((weights @ v).transpose(1, 2).flatten(2))
        made = made if self.batch_first else made.transpose(0, 1)
        return made, (weights.mean(1) if average_attn_weights else weights) if need_weights else None


def _share(layer: Any, made: Any) -> None:
    """Give a stand-in the parameters and the mode of its layer."""
    made.train(layer.training)
    if isinstance(layer, nn.RNNBase):
        for cell, values in zip(made.cells, layer.all_weights):
            for (part, kind), value in zip(((p, k) for k in ("weight", "bias") for p in (cell.ih, cell.hh)), values):
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


class _Tape:
    """Keeps the inputs and the gradient edges of the outputs of all layers with parameters, while it is entered."""

    def __init__(self, of: PerRecord, rows: int) -> None:
        self.of, self.rows = of, rows
        self._calls: list[tuple[nn.Module, dict[str, slice], Tensor, int, Any]] = []
        self._hooks: list[Any] = []

    def __enter__(self) -> None:
        for layer, columns in self.of.layers():
            self._hooks.append(layer.register_forward_hook(self._hook(columns), with_kwargs=True))

    def __exit__(self, *_: object) -> None:
        while self._hooks:
            self._hooks.pop().remove()

    def _hook(self, columns: dict[str, slice]) -> Callable[..., None]:
        def keep(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            if not isinstance(output, Tensor) or len(tree_leaves((args, kwargs))) != 1:
                raise ValueError(f"a {type(layer).__name__} has parameters and several inputs or outputs")
            if output.requires_grad:
                (x,) = tree_leaves((args, kwargs))
                edge = torch.autograd.graph.get_gradient_edge(output)  # stays that of this output, whatever is done in place
                self._calls.append((layer, columns, x.detach(), x._version, edge))

        return keep

    def factors(self, total: Tensor) -> list[Factor]:
        """Factors of the gradients of a sum of losses of this pass."""
        slopes = torch.autograd.grad(total, [edge for *_, edge in self._calls], allow_unused=True)
        found: dict[int, list[Factor]] = {}
        with torch.autocast(total.device.type, enabled=False), torch.no_grad():
            for (layer, columns, x, version, _), g in zip(self._calls, slopes):
                if g is None:
                    continue
                if x._version != version:
                    raise ValueError(f"the input of a {type(layer).__name__} is changed in place after it was used")
                for f in self._of_layer(layer, columns, full_precision(x), full_precision(g)):
                    found.setdefault(cast(slice, f.weight or f.bias).start, []).append(f)
            return [_joined(uses) for uses in found.values()]

    def _of_layer(self, layer: nn.Module, columns: dict[str, slice], x: Tensor, g: Tensor) -> Iterator[Factor]:
        """Factors of one call of a layer with inputs x and slopes g."""
        weight, bias = columns.get("weight"), columns.get("bias")
        if weight is not None and (linear := self._linear(layer, x, g)) is not None:
            rows, inputs, total = linear
            if rows.ndim == 2 and self._alone(columns):
                yield Factor(rows, inputs, weight, bias)
                return
            rows, inputs = (v if v.ndim == 3 else v[:, None] for v in (rows, inputs))
            yield Factor(rows, inputs, weight, None)
            if bias is not None:
                yield Factor(total, None, None, bias)
            return
        if len(x) != self.rows:
            raise ValueError(f"a {type(layer).__name__} sees other rows than records")
        if type(layer) is nn.Embedding and not layer.scale_grad_by_freq and self._alone(columns):
            codes = x.flatten(1) if x.ndim > 1 else x[:, None]
            if not _multiplied_out(codes.shape[1], layer.weight.numel()):
                left = torch.eq(codes, -1 if layer.padding_idx is None else layer.padding_idx)
                yield Factor(codes, g.reshape(*codes.shape, -1).masked_fill(left[..., None], 0.0), weight, None)
                return
        for name, values in _sampled(layer, x, g).items():
            if name in columns:
                yield Factor(full_precision(values).flatten(1), None, None, columns[name])

    def _alone(self, columns: dict[str, slice]) -> bool:
        """Whether no other call uses these parameters."""
        own = {part.start for part in columns.values()}
        return sum(any(part.start in own for part in call[1].values()) for call in self._calls) == 1

    def _linear(self, layer: Any, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
        """Rows and columns, (b, width) or (b, T, width), whose products are gradients of a weight, and those of the bias."""
        if isinstance(layer, nn.Linear):
            g, x = self._positions(layer, g), self._positions(layer, x)
            return g, x, g if g.ndim == 2 else g.sum(1)
        turned = type(layer) is nn.ConvTranspose2d and not any(layer.output_padding)
        plain = (turned or type(layer) is nn.Conv2d) and layer.groups == 1 and layer.padding_mode == "zeros"
        if not plain or layer.dilation != (1, 1) or isinstance(layer.padding, str) or len(x) != self.rows:
            return None
        rows, image = (x, g) if turned else (g, x)
        (height, width), (down, right), (a, b) = layer.kernel_size, layer.stride, layer.padding
        patches = pad(image, (b, b, a, a)).unfold(2, height, down).unfold(3, width, right)
        return rows.flatten(2).mT, patches.permute(0, 1, 4, 5, 2, 3).flatten(1, 3).flatten(2).mT, g.flatten(2).sum(2)

    def _positions(self, layer: nn.Module, values: Tensor) -> Tensor:
        """Values (b, width) or (b, T, width) of records: of (b T, width) the rows of a record follow each other."""
        if len(values) != self.rows and (values.ndim != 2 or len(values) % self.rows):
            raise ValueError(f"a {type(layer).__name__} sees other rows than records")
        if values.ndim == 2 and len(values) == self.rows:
            return values
        return values.reshape(self.rows, -1, values.shape[-1])


def _joined(uses: list[Factor]) -> Factor:
    """One factor of all uses of the same parameters: the positions of all, or what they are multiplied out."""
    first, columns = uses[0], cast(slice, uses[0].weight or uses[0].bias)
    if len(uses) == 1 and (first.inputs is None or first.inputs.ndim == 2 or not first.outputs.is_floating_point()):
        return first
    pairs = [(f.outputs, f.inputs) for f in uses if f.inputs is not None]
    values = [f.outputs for f in uses if f.inputs is None]
    if pairs:
        g, x = (parts[0] if len(parts) == 1 else torch.cat(parts, 1) for parts in zip(*pairs))
        if not values and not _multiplied_out(g.shape[1], g.shape[2] * x.shape[2]):
            return Factor(g, x, columns, None)
        values.append((g.mT @ x).flatten(1))
    return Factor(torch.stack(values).sum(0) if len(values) > 1 else values[0], None, None, columns)


def _multiplied_out(positions: int, size: int) -> bool:
    """Whether the gradient of so many parameters, a sum over positions, is cheaper than its factors."""
    return positions > MOST_POSITIONS or _GHOST * positions**2 >= size


def _sampled(layer: Any, x: Tensor, g: Tensor) -> Mapping[str, Tensor]:
    """Gradients (b, ...) of a layer's own parameters, by name."""
    if isinstance(layer, nn.LayerNorm):
        most = g.ndim - layer.weight.ndim
        both = (layer_norm(x, layer.normalized_shape, eps=layer.eps) * g, g)
        return dict(zip(("weight", "bias"), (v.flatten(1, most - 1).sum(1) if most > 1 else v for v in both)))
    if isinstance(layer, nn.GroupNorm):
        both = (group_norm(x, layer.num_groups, eps=layer.eps) * g, g)
        return dict(zip(("weight", "bias"), (v.flatten(2).sum(2) if g.ndim > 2 else v for v in both)))
    own = {name: value.detach() for name, value in layer._parameters.items() if value is not None}

    def weighed(values: dict[str, Tensor], x: Tensor, g: Tensor) -> Tensor:
        made: Tensor = (functional_call(layer, values, (x[None],)) * g[None]).sum()
        return made

    with torch.enable_grad():
        return cast(dict[str, Tensor], vmap(grad(weighed), (None, 0, 0))(own, x, g))


# -- what a call leaves ----------------------------------------------------------------------------------------------------


def _rows(inputs: Any, first: int, last: int) -> Any:
    """Some rows of values in any container."""
    return tree_map(lambda v: v[first:last], inputs)


def marks(module: nn.Module) -> dict[str, list[Any]]:
    """What a call must leave as it is: all that a module and its plain objects hold, tensors with their versions."""
    found: dict[str, list[Any]] = {}
    for prefix, part in module.named_modules():
        for name, value in (*vars(part).items(), *part._parameters.items(), *part._buffers.items()):
            if name in _MODULE:
                continue
            if isinstance(value, Tensor | list | dict | set | deque | int | float | str | tuple):
                found[f"{prefix}.{name}".lstrip(".")] = list(_held(value))
            elif hasattr(value, "__dict__") and type(value).__module__.partition(".")[0] not in _OF_OTHERS:
                own = (_held(part) for pair in vars(value).items() for part in pair)
                found[f"{prefix}.{name}".lstrip(".")] = [value, *chain.from_iterable(own)]
    return found


def _held(value: Any) -> Iterator[Any]:
    yield value
    if isinstance(value, Tensor):
        yield value._version
    elif isinstance(value, list | dict | set | deque | tuple):
        for part in (*value.keys(), *value.values()) if isinstance(value, dict) else value:
            yield from _held(part)


def moved(before: dict[str, list[Any]], after: dict[str, list[Any]]) -> str | None:
    """The first name whose value is another one."""
    for name in {**before, **after}:
        held = before.get(name, ()), after.get(name, ())
        if len(held[0]) != len(held[1]) or not all(
            a is b or (isinstance(a, int | float | str) and a == b) for a, b in zip(*held)
        ):
            return name
    return None
