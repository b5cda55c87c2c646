"""The cosine transform of images and its lowest frequencies."""

import math

import pytest
import torch

from dpgen.nets.cosines import frequencies, lowest_frequencies, planes


@pytest.mark.parametrize("shape", [(4, 6), (3, 4, 6)])
def test_all_frequencies_give_an_image_back(shape: tuple[int, ...]) -> None:
    channels, height, width = planes(shape)
    rows = lowest_frequencies(shape, height * width)
    x = torch.rand(5, math.prod(shape), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(x @ rows.T @ rows, x)
    assert len(rows) == channels * height * width


def test_channels_share_nothing() -> None:
    rows = lowest_frequencies((3, 4, 6), 2)
    assert rows.view(3, 2, 3, 24).abs().sum((1, 3)).count_nonzero() == 3


def test_the_lowest_come_first_whatever_the_sides() -> None:
    f = frequencies(8, 16)
    assert float(f[0]) == 0.0
    assert float(f[2 * 16]) == float(f[4])  # half the side, half the frequencies of it
    constant, along = lowest_frequencies((8, 16), 2).view(2, 8, 16)
    torch.testing.assert_close(constant, torch.full((8, 16), 1 / math.sqrt(128)))
    torch.testing.assert_close(along, along[:1].expand(8, 16))  # slow along the longer side


@pytest.mark.parametrize("count", [0, 25])
def test_other_numbers_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match=rf"frequencies is {count}; it must lie in \[1, 24\] for images of 4 x 6 pixels"):
        lowest_frequencies((4, 6), count)
