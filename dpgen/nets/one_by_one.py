r"""Records of any form, and gradients of code that `torch.func` cannot take: one record at a time, by plain autograd.

Such code asks for lengths (`pack_padded_sequence`), loops over the steps of a sequence, asks whether a value is large, or
gets texts. It sees batches of one record, so a gradient is a function of its record as long as nothing is kept between two:

| in the code | what happens |
|---|---|
| parameters, buffers and their data are changed | compared after the records, and refused |
| other things that the module keeps are changed | refused, see `dpgen.nets.trials.marks` |
| a number is taken out of real ones (`loss.item()`, `tolist`, `numpy`) | refused: it could end in a log or a file |
| numbers are drawn | from a secret seed, also NumPy's and Python's own; a generator of the code's own is state |
| codes, lengths and masks are read, a condition is asked (`if loss > 1:`) | allowed |
"""

import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

Run = Callable[..., Tensor]
"""The sum of the losses of records, whose values (b, ...) are the arguments."""


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


def _each(own: Any, run: Run, taken: Callable[[Tensor], Tensor], *inputs: Any) -> Tensor:
    """Values of each record's loss; of a `PerRecord`."""
    made = list[Tensor]()
    with own.standing_in(), _unchanged(own.module), _NoReading(), _secret_numbers():
        for i in range(records_of(inputs)):
            made.append(taken(run(*rows(inputs, i, i + 1))).detach())
    return torch.stack(made)


def losses(own: Any, run: Run, *inputs: Any) -> Tensor:
    """Losses (b,) of b >= 1 records."""
    with torch.no_grad():
        return _each(own, run, lambda loss: loss, *inputs)


def gradients(own: Any, run: Run, *inputs: Any) -> Tensor:
    """Gradients (b, p) of the losses of b >= 1 records."""
    values = list(own.values.values())

    def slopes(loss: Tensor) -> Tensor:
        found = torch.autograd.grad(loss, values, allow_unused=True) if loss.requires_grad else [None] * len(values)
        return torch.cat([(torch.zeros_like(v) if g is None else g).flatten() for v, g in zip(values, found)])

    with torch.enable_grad():
        return _each(own, run, slopes, *inputs)


def repeated(values: Any) -> Any:
    """The first record, twice."""
    return tree_map(lambda v: v[torch.tensor([0, 0])] if isinstance(v, Singles) else torch.cat([v[:1], v[:1]]), values)
