"""Images in memory: data sets of images in colour, with or without classes."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset

COLOURS = 3
"""Channels of an image in colour."""


class Pictures(NamedTuple):
    """Images in memory, their classes (n,) if they have any, and the public names of these if the data set knows them."""

    images: Sequence[Any]
    labels: Sequence[int] | None = None
    class_names: tuple[str, ...] | None = None


def is_pictures(data: Any) -> bool:
    """Whether the items of a data set are images in colour, with or without a class, or columns one of which is images."""
    if not (isinstance(data, Dataset) or hasattr(data, "features")) or not hasattr(data, "__len__") or not len(data):
        return False
    first = data[0]
    if isinstance(first, Mapping):
        return _image_column(first) is not None
    image = first[0] if isinstance(first, tuple | list) else first
    return getattr(image, "mode", "L") not in ("1", "L") if is_picture(image) else COLOURS in _channels(image)


def is_picture(image: Any) -> bool:
    """Whether this is an image of Pillow, without importing it."""
    return isinstance(getattr(image, "mode", None), str) and hasattr(image, "convert")


def _channels(image: Any) -> tuple[int, ...]:
    """Channels of an image as an array: of uint8 the last side, of floating point the first."""
    shape = tuple(getattr(image, "shape", ()))
    if len(shape) != COLOURS:
        return ()
    return shape[:1] if "float" in str(image.dtype) else shape[2:]


def _image_column(item: Mapping[str, Any]) -> str | None:
    """Name of the first column of images of a data set whose items are mappings."""
    return next((name for name, value in item.items() if is_picture(value)), None)


def pictures_of(data: Any) -> Pictures:
    """Images and classes of a data set for which `is_pictures` holds."""
    items = [data[i] for i in range(len(data))]
    if isinstance(items[0], Mapping):
        images, labels, names = _of_mappings(items, getattr(data, "features", {}))
    else:
        images, labels = _of_pairs(items)
        names = getattr(data, "classes", None)
    classes = None if labels is None else [_class(value) for value in labels]
    known = None if names is None or labels is None else tuple(map(str, names))
    return Pictures([_eight_bits(image) for image in images], classes, known)


def _of_pairs(items: list[Any]) -> tuple[list[Any], list[Any] | None]:
    """Images and classes of pairs of both; of images alone there are no classes."""
    if not isinstance(items[0], tuple | list):
        return items, None
    return [item[0] for item in items], [item[1] for item in items] if len(items[0]) > 1 else None


def _class(label: Any) -> int:
    if not isinstance(label, int | np.integer | torch.Tensor):
        raise TypeError(f"data set has a label of type {type(label).__name__}; labels of images must be whole numbers")
    return int(label)


def _of_mappings(items: Sequence[Mapping[str, Any]], features: Mapping[str, Any]) -> tuple[list[Any], list[Any] | None, Any]:
    """Images of items with names, the whole numbers beside them that are their classes, and the names of these, if any."""
    column = _image_column(items[0])
    assert column is not None
    whole = [name for name, value in items[0].items() if isinstance(value, int | np.integer) and name != column]
    label = next((name for name in whole if "label" in name), whole[0] if len(whole) == 1 else None)
    labels = None if label is None else [item[label] for item in items]
    return [item[column] for item in items], labels, getattr(features.get(label or ""), "names", None)


def _eight_bits(image: Any) -> Any:
    """An image of floating point (c, h, w) in [0, 1] as uint8 (h, w, c); any other as it is."""
    if "float" not in str(getattr(image, "dtype", "")):
        return image
    values = np.asarray(image, dtype=np.float64)
    if not (values >= 0).all() or not (values <= 1).all():
        raise ValueError("data set has an image whose values are not in [0, 1]: give images without normalisation")
    return np.moveaxis(np.rint(values * 255).astype(np.uint8), 0, -1)
