"""Released generators: files that round-trip, labels in proportion, points inside their box."""

import pytest
import tiny
import torch

from dpgen.nets.gan import Generator
from dpgen.systems.dpgan.model import GANModel, PointGANModel
from dpgen.systems.registry import load


def generator(d=5, *, categories=0, output="sigmoid"):
    made = Generator(d, latent=3, categories=categories, hidden=4, output=output)
    with torch.no_grad():
        made.initialize(torch.Generator().manual_seed(0))
    return made


def test_records_round_trip(tmp_path):
    model = GANModel(generator(categories=2), torch.tensor([30.0, 10.0]), statement=tiny.statement(), columns=list("abcde"))
    model.save(tmp_path / "m")
    first, second = (m.samples(200, random_state=4) for m in (model, load(tmp_path / "m")))
    assert torch.equal(first.x, second.x)
    assert torch.equal(first.labels, second.labels)
    assert first.columns == tuple("abcde")
    assert model.size == 40
    assert 20 < int(first.labels.sum()) < 85, "a quarter, give or take"
    assert model.samples(3, clusters=[1]).labels.tolist() == [1, 1, 1]
    assert model.samples(0).x.shape == (0, 5)


def test_generators_of_earlier_versions_are_read_where_they_make_pixels():
    made = generator()
    tensors = {f"generator.{name}": value for name, value in made.state_dict().items()}
    earlier = {name: value for name, value in made.architecture().items() if name != "frequencies"}
    z = torch.randn(2, 3)
    assert torch.equal(GANModel.rebuilt({"generator": earlier | {"coarse": 1}}, tensors)(z), made(z))
    with pytest.raises(ValueError, match="coarse is 2: earlier versions of dpgen draw"):
        GANModel.rebuilt({"generator": earlier | {"coarse": 2}}, tensors)


def test_without_classes_there_are_no_labels():
    model = GANModel(generator(), torch.tensor([-3.0]), statement=tiny.statement())
    assert model.samples(4).labels is None
    assert model.size == 0


def test_points_round_trip_and_stay_in_their_box(tmp_path):
    bounds = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    model = PointGANModel(
        generator(2, output="identity"),
        location=torch.tensor([0.5, -0.5], dtype=torch.float64),
        scale=torch.tensor([10.0, 10.0], dtype=torch.float64),
        bounds=bounds,
        columns=["a", "b"],
        statement=tiny.statement(),
    )
    model.save(tmp_path / "m")
    x = model.samples(50, random_state=1).x
    assert torch.equal(x, load(tmp_path / "m").samples(50, random_state=1).x)
    assert bool(((x >= bounds[:, 0]) & (x <= bounds[:, 1])).all())
    free = PointGANModel(
        model.generator,
        location=model.location,
        scale=model.scale,
        bounds=None,
        columns=["a", "b"],
        statement=tiny.statement(),
    )
    free.save(tmp_path / "free")
    assert load(tmp_path / "free").bounds is None


@pytest.mark.parametrize(("arguments", "match"), [((-1,), "n is -1; it must be"), ((1, None, [2]), "numbers in .0, 1.")])
def test_bad_requests_are_refused(arguments, match):
    model = GANModel(generator(), torch.tensor([3.0]), statement=tiny.statement())
    n, seed, clusters = (*arguments, None, None)[:3]
    with pytest.raises(ValueError, match=match):
        model.samples(n, random_state=seed, clusters=clusters)
