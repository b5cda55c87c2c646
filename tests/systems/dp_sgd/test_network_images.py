"""Networks of images: the contract of their releases, where they begin, what they refuse."""

from pathlib import Path
from typing import Any

import pytest
import torch
from refusals import refused
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from dpgen.config import parse_job
from dpgen.data import Images
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger
from dpgen.run import run
from dpgen.runtime import Runtime
from dpgen.systems.dp_sgd.model import NetworkImages, TrainingData, pictures
from dpgen.systems.registry import SYSTEMS

pytestmark = pytest.mark.usefixtures("quiet")

SHAPE = (8, 4, 3)


def images(n: int = 300, shape: tuple[int, int, int] = SHAPE) -> Images:
    """Red above and blue below, or green at the left and black at the right, with noise."""
    height, width, _ = shape
    x = torch.zeros(n, *shape)
    labels = torch.arange(n) % 2
    x[labels == 0, : height // 2, :, 0] = x[labels == 0, height // 2 :, :, 2] = 200.0
    x[labels == 1, :, : width // 2, 1] = 200.0
    x += 40.0 * torch.rand(x.shape, generator=torch.Generator().manual_seed(0))
    return Images("flags", x.byte(), labels, x[:20].byte(), labels[:20], class_names=("french", "irish"))


def fitted(model: str, directory: Path, data: Images | None = None, epsilon: float = 6.0, **config: Any) -> tuple[Any, Ledger]:
    system = SYSTEMS[model]
    options = {"hidden": 8, "latent": 2} if model != "gaussian" else {}
    plan = system.plan(epsilon=epsilon, **({"steps": 3, "sampling_rate": 0.5} if options else {}))
    curator = Curator(plan.open_ledger())
    runtime = Runtime(run_dir=directory / "run", accelerator="cpu", progress_bar=False)
    data = images() if data is None else data
    return system.fit(
        data, plan=plan, config=system.config(**options | config), curator=curator, runtime=runtime
    ), curator.ledger


NETWORKS: list[tuple[str, dict[str, Any]]] = [
    ("dpgm", {}),
    ("dpgm", {"component": "conv_vae"}),
    ("dpgan", {"fakes": 8}),
    ("dpgan", {"fakes": 8, "frequencies": 10}),
    ("dpgan", {"fakes": 8, "centred": True}),
]


@pytest.mark.parametrize(("model", "config"), NETWORKS, ids=lambda part: str(part))
def test_the_contract_of_a_release_of_images(model: str, config: dict[str, Any], tmp_path: Path) -> None:
    release, ledger = fitted(model, tmp_path, **config)
    assert isinstance(release, NetworkImages)
    assert release.statement.epsilon == pytest.approx(ledger.epsilon())
    assert release.epsilon <= 6.0
    samples = release.samples(50, random_state=0)
    assert samples.x.shape == (50, *SHAPE)
    assert samples.x.dtype == torch.uint8
    assert set(samples.labels.tolist()) == {0, 1}
    assert set(samples.by_class()) == {"french", "irish"}
    assert release.samples(9, random_state=0, clusters=[1]).labels.tolist() == [1] * 9
    assert (release.image_shape, release.class_names) == (SHAPE, ("french", "irish"))


def test_networks_begin_at_the_released_means_of_their_classes(tmp_path: Path) -> None:
    """Every pixel is where it was, in its colour."""
    data = images(3000)
    release, _ = fitted("dpgm", tmp_path, data, 20.0)
    for c, own in enumerate(release.samples(200, random_state=0).by_class().values()):
        expected = data.x[data.labels == c].float().mean(0)
        assert float((own.float().mean(0) - expected).abs().max()) < 40.0


@pytest.mark.parametrize("model", ["dpgm", "dpgan"])
def test_images_of_one_class_need_no_labels(model: str, tmp_path: Path) -> None:
    x = images().x
    alone = Images("flags", x, torch.zeros(len(x)).long(), x[:0], torch.zeros(0).long())
    release, _ = fitted(model, tmp_path, alone)
    assert set(release.samples(5, random_state=0).labels.tolist()) == {0}


def test_rows_of_pixels_and_pictures_are_each_other() -> None:
    data = images(7)
    inputs = TrainingData.of(data).inputs
    assert inputs.x.shape == (7, 96)
    assert float(inputs.values(torch.arange(7)).max()) <= 1.0
    assert torch.equal(pictures(inputs.values(torch.arange(7)), SHAPE), data.x)
    assert torch.equal(pictures(torch.tensor([[-1.0, 0.5, 9.0]]), (1, 1, 3)), torch.tensor([[[[0, 128, 255]]]]).byte())


# -- refusals, and the command line ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"component": "rbm", "latent": 10}, "component"),
        ({"clusters": "kmeans"}, "clusters"),
        ({"component": "conv_vae"}, "image_shape"),
    ],
)
def test_what_networks_of_images_cannot_be_is_refused(config: dict[str, Any], name: str, tmp_path: Path) -> None:
    with refused(name):
        fitted("dpgm", tmp_path, images(40, (6, 6, 3)), **config)
    assert not (tmp_path / "run").exists()


def test_a_run_shows_pictures_in_colour(tmp_path: Path) -> None:
    options = ["--model=dpgan", "--data=images", "--hidden=8", "--latent=2", "--fakes=8", "--evaluation=none", "--epsilon=6"]
    small = ["--steps=3", "--sampling_rate=0.5", "--progress_bar=false", "--accelerator=cpu", f"--run_dir={tmp_path / 'run'}"]
    run(parse_job([*options, *small]))
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    grid = events.Images("released/samples")[-1]
    assert grid.width > 16
    assert grid.encoded_image_string[25] == 2, "the colour type of a PNG: red, green and blue"
