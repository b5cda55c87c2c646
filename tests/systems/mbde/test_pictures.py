"""Pictures of a density."""

import torch
from test_rejection import law

from dpgen.systems.mbde.densities import GaussianReference
from dpgen.systems.mbde.model import density_picture


def test_pictures_by_dimension() -> None:
    for d, expected in ((1, (1, 128, 128)), (2, (1, 128, 128)), (3, None)):
        picture = density_picture(law(reference=GaussianReference.standard(d)))
        assert (None if picture is None else tuple(picture.shape)) == expected


def test_dark_is_where_the_mass_is() -> None:
    picture = density_picture(law(lambda x: 9 * x[:, 1], epsilon=20.0))
    assert picture is not None
    assert 0 <= float(picture.min()) < 0.01
    assert float(picture.max()) <= 1
    row = int(picture[0].mean(1).argmin())
    assert row < 64  # the upper half: second coordinate above 0
    one = density_picture(law(reference=GaussianReference.standard(1)))
    assert one is not None
    assert torch.equal(one[0, -1], torch.zeros(128, dtype=torch.float64))
