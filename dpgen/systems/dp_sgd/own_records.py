"""Records of anybody's loader, each read once, and public ones of the same form, on which code is tried.

| records | what code gets in training |
|---|---|
| tensors of one shape, in any container, put together by `default_collate` | all of them under vmap, each as a batch of one |
| any others: texts, several lengths, a `collate_fn` of one's own | one after the other: what the loader makes of one record |
"""

from typing import Any, cast

import lightning as L
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler, TensorDataset, default_collate

from dpgen.nets.one_by_one import Singles
from dpgen.nets.per_record import in_one_line
from dpgen.privacy.sampling import Held
from dpgen.systems.dp_sgd.sums import COMPANY

HOOKS = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")
"""Hooks of Lightning between a loader and a step."""


def loader_of(loader: Any, trainer: L.Trainer) -> "DataLoader[Any]":
    """The training loader that is given, or that a data module makes."""
    if isinstance(loader, L.LightningDataModule):
        for name in HOOKS:
            if getattr(type(loader), name) is not getattr(L.LightningDataModule, name):
                raise ValueError(
                    f"datamodule has a {name} of its own, which a private training goes around; do this in training_step"
                )
        loader.trainer = trainer
        loader.prepare_data()
        loader.setup("fit")
        loader = loader.train_dataloader()
    if not isinstance(loader, DataLoader):
        raise TypeError(
            f"loader is a {type(loader).__name__}; it must be a DataLoader, or a LightningDataModule that makes one"
        )
    if isinstance(loader.dataset, IterableDataset):
        raise ValueError("loader has an IterableDataset; it must have one of which any record can be drawn")
    if type(loader.sampler) not in (RandomSampler, SequentialSampler) or loader.batch_size is None:
        raise ValueError("loader has a sampler of its own; it must have a batch_size and none: records are drawn secretly")
    return loader


def read(data: Any, collate: Any, example: Any = None) -> tuple[Held, Held]:
    """All records of a data set, and `COMPANY` public ones: of the `example`, a record or a function, or random ones.

    Raises:
        ValueError: records of a form of which random ones cannot be made, without an example; or an example of another form.
    """
    try:
        rows = None if type(data) is TensorDataset else [data[i] for i in range(len(data))]
        values = list(data.tensors) if rows is None else _stacked(rows)
    except Exception as error:  # whose text may show a record
        raise ValueError(f"loader has records that cannot be read ({type(error).__name__})") from None
    own = collate is not default_collate
    if values is None and example is None:
        raise ValueError(
            "loader has records that do not stack, as tensors of one shape would: give example=, a public record as the data "
            "set has them, or a function that makes one"
        )
    if values is not None and not own:
        held = Held(values)
        return held, held.random(COMPANY) if example is None else _alike(held, _examples(example))
    if example is None:
        leaves, form = tree_flatten(Held(values).random(COMPANY).values)
        examples = [tree_unflatten(list(one), form) for one in zip(*leaves)]
    else:
        examples = _examples(example)
    rows = [data[i] for i in range(len(data))] if rows is None else rows
    return Held(Singles(rows, collate)), Held(Singles(examples, collate))


def _without(row: Any, value: str | int) -> Any:
    """A record without the value of this key, or at this place."""
    if isinstance(value, str):
        return {name: own for name, own in row.items() if name != value}
    return tuple(own for i, own in enumerate(row) if i != value)


def without_people(loader: "DataLoader[Any]", people: Any) -> tuple[Any, Any]:
    """The data set without the column, or the key, of people, and whose each record is; or as it is, with names (n,)."""
    data: Any = loader.dataset
    if not isinstance(people, str | int):
        return data, people
    try:
        if type(data) is TensorDataset:
            return TensorDataset(*_without(data.tensors, people)), data.tensors[cast(int, people)]
        rows = [data[i] for i in range(len(data))]
        named, left = [row[people] for row in rows], [_without(row, people) for row in rows]
    except Exception as error:  # whose text may show a record
        problem = f"people is {people!r}; it must be a key of every record, or the place of one of its values"
        raise ValueError(f"{problem} ({type(error).__name__})") from None
    return left, [value.item() if isinstance(value, Tensor) else value for value in named]


def _stacked(rows: list[Any]) -> Any:
    """Values (n, ...) of rows that are tensors of one shape, in any container; None of others."""
    try:
        values = default_collate(rows)
    except (RuntimeError, TypeError, KeyError, ValueError, AttributeError):
        return None
    leaves = tree_leaves(values)
    return values if leaves and all(isinstance(leaf, Tensor) and len(leaf) == len(rows) for leaf in leaves) else None


def _examples(example: Any) -> list[Any]:
    """`COMPANY` public records: what a function makes, or one record whose real numbers are shrunk by random factors."""
    if callable(example) and not isinstance(example, Tensor):
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            try:
                return [example() for _ in range(COMPANY)]
            except Exception as error:
                raise ValueError(f"example fails: {in_one_line(error)}") from error
    generator = torch.Generator().manual_seed(0)

    def shrunk(value: Any) -> Any:
        if isinstance(value, float):
            return value * float(0.5 + 0.5 * torch.rand((), generator=generator))
        if isinstance(value, Tensor) and value.is_floating_point():
            return value * (0.5 + 0.5 * torch.rand(value.shape, generator=generator)).to(value)
        return value

    return [tree_map(shrunk, example) for _ in range(COMPANY)]


def _alike(held: Held, examples: list[Any]) -> Held:
    """Examples that stack as the records do."""
    try:
        made = default_collate(examples)
    except Exception as error:
        raise ValueError(f"example is no record as the data set has them: {in_one_line(error)}") from error
    (found, form), (wanted, own) = tree_flatten(made), tree_flatten(held.values)
    if form != own and [type(made), len(found)] != [tuple, len(wanted)]:
        raise ValueError(
            f"example is a {type(examples[0]).__name__} of {len(found)} tensors; it must be like a record of the data set"
        )
    for place, (a, b) in enumerate(zip(found, wanted)):
        if a.shape[1:] != b.shape[1:] or a.dtype != b.dtype:
            raise ValueError(
                f"example has {tuple(a.shape[1:])} of {a.dtype} as tensor {place}; it must be {tuple(b.shape[1:])} of {b.dtype}"
            )
    return Held(tree_unflatten(found, own))
