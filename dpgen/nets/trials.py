"""Trials of code by public random records, before anything is spent: whether what will be trained is what its author means.

While it is trained, code sees one record at a time (`dpgen.nets.per_record`), so nothing here bears the guarantee. Code is
refused whose loss for several random records, or the gradient of that loss, is not the sum of those of its records: a sum,
a comparison of records, a statistic of the batch. Where that is so with odd values alone (a mask of missing ones, a cap on
the mean loss), training takes the loss of every record by itself, and its author is told.
"""

import inspect
import sys
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import ctc_loss
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from dpgen.nets.per_record import PerRecord, Run, in_one_line, records_of, repeated, rows
from dpgen.privacy.clipping import RecordGradients, clipped_sums


class UnlikeAlone(ValueError):
    """Code that cannot be trained record by record, or would learn something else; begins with what follows its name.

    `of_code`: records could not be taken by `torch.func` at all.
    """

    def __init__(self, text: str, *, of_code: bool = False) -> None:
        super().__init__(text)
        self.of_code = of_code


_ODD_FLOATS = (torch.nan, 1e3, -1e3, 0.0, -1.0, -100.0, -999.0, 99.0)
_ODD_CODES = (-100, -1, 0, 2, 9, 99, -999)
"""Values that loss functions treat in another way."""

_AT_ONCE = 256
"""Records in memory."""

_FAILURES = (RuntimeError, ValueError, IndexError, KeyError)
"""Errors of code for an odd value, which is then left out: it may be a code out of range."""


def settle(own: PerRecord, run: Run, *inputs: Any) -> str | None:
    """Try code by public records of five rows or more, see `choose`; odd values that mix records, in words, or None.

    Raises:
        UnlikeAlone: the loss of several records, or its gradient, is not the sum of those of each; and as `choose`.
    """
    alone, close = choose(own, run, *inputs)
    for first in range(5, records_of(inputs) - 2, 3):
        _require_sums(own, run, *rows(inputs, first, first + 3))
    together = _by_autograd(own, run, *rows(inputs, 0, 3))
    if not close(together / 3, alone.mean(0)):
        apart = _furthest(own, together, alone.sum(0))
        raise UnlikeAlone(f"gives records another gradient together than one by one ({apart}): each must count by itself")
    mixes, first_alone = None, alone[0].clone()
    del alone, together  # as long as all parameters
    for text, odd in _odd_records(inputs):
        try:
            same, adds_up = _beside(own, run, lambda found: close(found, first_alone), *odd)
        except _FAILURES:
            continue
        if not same:
            raise UnlikeAlone(f"gives a record another gradient beside {text}")
        mixes = mixes or (None if adds_up else text)
    return mixes


def _beside(own: PerRecord, run: Run, close: Callable[[Tensor], bool], *inputs: Any) -> tuple[bool, bool]:
    """Whether the gradient of the first record is still close, and whether the gradients of all add up."""
    with _InRange():
        together = _by_autograd(own, run, *inputs)
    found = dense(own, run, *inputs)
    most = max(float(row.nan_to_num(0.0, 0.0, 0.0).abs().max()) for row in found)
    return close(found[0]), torch.allclose(together, found.sum(0), rtol=1e-2, atol=1e-3 * most, equal_nan=True)


def choose(own: PerRecord, run: Run, *inputs: Any) -> tuple[Tensor, Callable[..., bool]]:
    """Choose how gradients are taken; those of three records (3, p), and whether others are close to them.

    Raises:
        UnlikeAlone: code that keeps something, or whose gradients cannot be taken one by one, are others beside other records,
            or are 0 or not finite.
    """
    own.public = rows(inputs, 0, 5)
    try:
        return _chosen(own, run, *inputs)
    except UnlikeAlone as error:
        if own.apart is not False or not error.of_code:
            raise
    own.apart, own.whole = True, False
    try:
        return _chosen(own, run, *inputs)
    except UnlikeAlone:
        own.apart = False
        raise


def _chosen(own: PerRecord, run: Run, *inputs: Any) -> tuple[Tensor, Callable[..., bool]]:
    """See `choose`; of records that `torch.func` takes, or of those that are taken apart."""
    alone = _require_sums(own, run, *inputs)
    most = float(alone.abs().max())
    if not most > 0 or not alone.isfinite().all():
        raise UnlikeAlone("has a gradient that is 0 or not finite on public records")
    half = torch.is_autocast_enabled(tree_leaves(inputs)[0].device.type)  # half precision rounds
    close = partial(_close, rtol=2e-2 if half else 1e-4, atol=(2e-3 if half else 1e-5) * most)
    try:
        if not own.apart:
            _choose_randomness(own, run, *inputs)
        apart = _choose_way(own, run, alone, close, *inputs)
    except Exception as error:
        text = f"{'fails' if own.apart else 'is not for torch.func,'} record by record: {in_one_line(error)}"
        raise UnlikeAlone(text, of_code=True) from error
    if apart is not None:
        raise UnlikeAlone(f"gives a record another gradient beside other records ({apart})")
    return alone, close


def require_codes(own: PerRecord, run: Run, *records: Any) -> None:
    """Refuse private records that code fails for, before anything is spent: codes out of range. A device is not asked.

    The least and the greatest code of every place are tried on public records; only where these fail, all records are.

    Raises:
        ValueError: without a value of the records.
    """
    leaves, form = tree_flatten(records)
    if own.apart or not len(leaves[0]) or any(leaf.device.type != "cpu" for leaf in (*leaves, *own.values.values())):
        return

    def extremes(leaf: Tensor, public: Tensor) -> Tensor:
        whole = not (leaf.is_floating_point() or leaf.dtype == torch.bool)
        return torch.stack([leaf.amin(0), leaf.amax(0)]) if whole else public[:2]

    tried = tree_unflatten([extremes(leaf, public) for leaf, public in zip(leaves, tree_leaves(own.public))], form)
    with torch.no_grad():
        try:
            own.losses(run, *tried)
        except Exception:
            try:
                for first in range(0, len(leaves[0]), _AT_ONCE):
                    own.losses(run, *rows(records, first, first + _AT_ONCE))
            except Exception as error:
                raise ValueError(
                    f"raises {type(error).__name__} for some of the records, such as for a code out of range; the text of the "
                    "error is hidden, for it may show them"
                ) from None


def _require_sums(own: PerRecord, run: Run, *inputs: Any) -> Tensor:
    """Gradients (3, p) of single records, whose losses add up to that of several."""
    before = marks(own.module)
    try:
        with SameForEach(), own.standing_in(), torch.no_grad():
            several = torch.stack([run(*rows(inputs, i, i + 1)) for i in range(3)])
            together, two = run(*rows(inputs, 0, 3)), run(*rows(inputs, 1, 3))
            doubled = run(*repeated(inputs))
        alone = torch.empty(3, own.p, dtype=torch.float32)
        for i, row in enumerate(alone):
            row.copy_(_by_autograd(own, run, *rows(inputs, i, i + 1)))
    except Exception as error:
        raise UnlikeAlone(f"fails on public records: {in_one_line(error)}", of_code=True) from error
    if changed := moved(before, marks(own.module)):
        raise UnlikeAlone(f"changes {changed}, which would carry records into the release")
    for sums, wanted in ((together, several.sum()), (two, several[1:].sum()), (doubled, 2 * several[0])):
        if not torch.isfinite(sums):
            raise UnlikeAlone("is not finite on public records")
        if not torch.allclose(sums, wanted, rtol=1e-3, atol=1e-4 * max(1.0, float(several.abs().max()))):
            raise UnlikeAlone(
                f"gives records {float(sums):.4g} together and {float(wanted):.4g} one by one: each record must count by "
                "itself, in a mean if it is one loss (no sum over the batch, no comparison of records)"
            )
    return alone


def _choose_randomness(own: PerRecord, run: Run, *inputs: Any) -> None:
    """Random numbers that code writes into an empty tensor can only be the same for all records."""
    for own.randomness in ("different", "same"):
        try:
            with torch.no_grad():
                own.losses(run, *rows(inputs, 0, 2))
            return
        except RuntimeError as error:
            if own.randomness == "same" or "inplace randomness" not in str(error):
                raise


def _choose_way(own: PerRecord, run: Run, alone: Tensor, close: Callable[..., bool], *inputs: Any) -> str | None:
    """Differentiate layer by layer where gradients then are those of single records, else the whole loss; what is not."""
    apart = None
    for way in (own.whole,) if own.whole or own.apart else (False, True):
        own.whole = way
        try:
            names = [_differs(own, run, alone, close, *rows(inputs, 0, n)) for n in (4, 5)]
        except Exception:
            if way or own.apart:
                raise
            continue
        apart = names[1] or names[0]
        if apart is None:
            return None
    return apart


def _differs(own: PerRecord, run: Run, alone: Tensor, close: Callable[..., bool], *inputs: Any) -> str | None:
    """The parameter whose gradient differs most from those of three single records, beside others; None: they are alike."""
    found = dense(own, run, *inputs, first=3)
    return None if close(found, alone) else _furthest(own, found, alone)


def _odd_records(inputs: Any) -> Iterator[tuple[str, Any]]:
    """Four records, the first one usual, with an odd value in one of their tensors; in words, and the records."""
    leaves, form = tree_flatten(rows(inputs, 0, 4))
    for place, leaf in ((i, leaf) for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)):
        for value in _odd_values(leaf):
            for half in (False, True) if leaf[0].numel() > 1 else (False,):
                odd = leaf.clone(memory_format=torch.contiguous_format)
                (odd[1].view(-1)[::2] if half else odd[1:]).copy_(torch.tensor(value))
                where = "half of the values of a record" if half else "all values of some records"
                yield f"{value:g} as {where}", tree_unflatten([*leaves[:place], odd, *leaves[place + 1 :]], form)


def _odd_values(leaf: Tensor) -> tuple[float, ...]:
    if leaf.dtype == torch.bool:
        return False, True
    if leaf.is_floating_point():
        return _ODD_FLOATS
    return _ODD_CODES if leaf.device.type == "cpu" else ()  # elsewhere a code out of range ends the process


def _furthest(own: PerRecord, found: Tensor, wanted: Tensor) -> str:
    """The parameter whose gradient (..., p) differs most."""
    apart = (found - wanted).abs().view(-1, own.p).amax(0)
    return max(own.columns, key=lambda name: float(apart[own.columns[name]].max()))


def _by_autograd(own: PerRecord, run: Run, *inputs: Any) -> Tensor:
    """The gradient (p,) of the sum."""
    with torch.enable_grad(), SameForEach(), own.standing_in():
        return own.slopes(run(*inputs)).float().cpu()


def dense(own: PerRecord, run: Run, *inputs: Any, first: int | None = None) -> Tensor:
    """The gradients of all records (b, p), or of the `first` ones, in memory; rows get equal random numbers."""
    b = records_of(inputs)
    with SameForEach():
        made = RecordGradients(own.factors(run, *inputs), [0, b])
    alone = torch.eye(b, dtype=torch.float32, device=tree_leaves(inputs)[0].device)[:first]
    found = alone.new_empty(len(alone), own.p)
    for weights, row in zip(alone, found):
        clipped_sums(made, weights, row[None])
    return found.cpu()


def _close(found: Tensor, wanted: Tensor, rtol: float, atol: float) -> bool:
    """Whether gradients, (p,) or (b, p), are alike; one row at a time, for rows may be long."""
    pairs = zip(torch.atleast_2d(found), torch.atleast_2d(wanted), strict=True)
    return all(torch.allclose(*pair, rtol, atol, equal_nan=True) for pair in pairs)


# -- random numbers --------------------------------------------------------------------------------------------------------

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


class _InRange(TorchFunctionMode):
    """Refuses codes out of range where torch does not look, and reads other memory."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is ctc_loss:
            given = inspect.signature(func).bind(*args, **(kwargs or {})).arguments
            if not 0 <= int(given["targets"].min()) <= int(given["targets"].max()) < given["log_probs"].shape[-1]:
                raise IndexError("targets are out of range")
        return func(*args, **(kwargs or {}))


class SameForEach(TorchDispatchMode):
    """Gives all rows of a batch the same random numbers, usual ones: what then still differs mixes rows."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made, name = func(*args, **(kwargs or {})), func.overloadpacket.__name__
        if name == "native_dropout":
            return args[0].clone(), torch.ones_like(args[0], dtype=torch.bool)
        if name == "randperm":  # where each is in another's place
            return made.copy_(torch.arange(len(made)).roll(1))
        return made.copy_(torch.as_tensor(_FIXED[name](*args))) if name in _FIXED else made


# -- what a call leaves ----------------------------------------------------------------------------------------------------

_MODULE = {*vars(nn.Module()), "_current_fx_name", "_flat_weights"}
_OF_OTHERS = {*sys.stdlib_module_names, "torch", "lightning", "pytorch_lightning"}
"""Packages whose objects a call may change: they keep no records."""


def marks(module: nn.Module) -> dict[str, list[Any]]:
    """State that a call must leave as it is: all that a module and its plain objects hold, tensors with their versions."""
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
