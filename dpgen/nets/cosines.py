"""The orthonormal cosine transform of images: public coordinates in which what is smooth takes few numbers."""

import math

import torch
from torch import Tensor


def planes(image_shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Channels, height and width of images (height, width) or (channels, height, width)."""
    channels, height, width = image_shape if len(image_shape) == 3 else (1, *image_shape)
    return channels, height, width


def cosines(n: int) -> Tensor:
    """The orthonormal cosine transform (n, n), frequencies in rows (DCT-II)."""
    i, x = torch.arange(n).double()[:, None], torch.arange(n).double()
    basis = torch.cos(math.pi * i * (2.0 * x + 1.0) / (2.0 * n)) * math.sqrt(2.0 / n)
    basis[0] /= math.sqrt(2.0)
    return basis


def frequencies(height: int, width: int) -> Tensor:
    r""":math:`f = s \sqrt{(i / h)^2 + (j / w)^2}`, :math:`s = \sqrt{h w}`, of all frequencies (i, j), (height * width,)."""
    side = math.sqrt(height * width)
    i, j = torch.arange(height).double() * side / height, torch.arange(width).double() * side / width
    return (i[:, None].square() + j.square()).sqrt().flatten()


def lowest_frequencies(image_shape: tuple[int, ...], count: int) -> Tensor:
    """Orthonormal rows (count * channels, d) of the lowest `count` frequencies of every channel, for images as rows (n, d).

    >>> rows = lowest_frequencies((4, 6), 5)
    >>> rows.shape, bool(torch.allclose(rows @ rows.T, torch.eye(5), atol=1e-6))
    (torch.Size([5, 24]), True)
    """
    channels, height, width = planes(image_shape)
    if not 1 <= count <= height * width:
        raise ValueError(f"frequencies is {count}; it must be in [1, {height * width}] for images of {height} x {width} pixels")
    kept = frequencies(height, width).sort(stable=True).indices[:count]
    rows = cosines(height)[kept // width][:, :, None] * cosines(width)[kept % width][:, None, :]
    return torch.block_diag(*[rows.flatten(1)] * channels).float()


def coordinates(d: int, image_shape: tuple[int, ...] | None, count: int | None, *, categories: int) -> Tensor | None:
    """Orthonormal rows (r, d) that a network of images sees and writes: the lowest frequencies, and label columns as they are.

    The last `categories` of the d columns are a one-hot label. None where `count` is None: the network is of pixels.
    """
    if count is None:
        return None
    if image_shape is None or math.prod(image_shape) != d - categories:
        raise ValueError(f"frequencies is {count}: it needs images of {d - categories} pixels, got image_shape {image_shape}")
    return torch.block_diag(lowest_frequencies(image_shape, count), torch.eye(categories))
