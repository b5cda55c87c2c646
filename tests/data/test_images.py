"""Images: idx files in every state, scikit-learn's digits, and the real files when they are at hand."""

import gzip
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch

from dpgen.data import load_digits, load_fashion_mnist, load_mnist
from dpgen.data.images import read_idx
from dpgen.facts import Fact

NAMES = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]


def idx(array: np.ndarray) -> bytes:
    return b"\x00\x00\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_mnist(folder: Path, *, packed: bool = False) -> dict[str, np.ndarray]:
    """Twelve training and five test images of 3 x 4 pixels in the files of MNIST."""
    rng = np.random.default_rng(0)
    arrays = {}
    folder.mkdir(parents=True)
    for name, n in zip(NAMES, (12, 12, 5, 5)):
        high, shape = (256, (n, 3, 4)) if "images" in name else (10, (n,))
        arrays[name] = rng.integers(0, high, shape, dtype=np.uint8)
        content = idx(arrays[name])
        (folder / f"{name}.gz" if packed else folder / name).write_bytes(gzip.compress(content) if packed else content)
    return arrays


@pytest.mark.parametrize("shape", [(5,), (2, 3), (2, 3, 4)])
def test_read_idx(tmp_path: Path, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    (tmp_path / "a").write_bytes(idx(array))
    (tmp_path / "a.gz").write_bytes(gzip.compress(idx(array)))
    assert np.array_equal(read_idx(tmp_path / "a").numpy(), array)
    assert torch.equal(read_idx(tmp_path / "a"), read_idx(tmp_path / "a.gz"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\x00\x00", "starts with 0x0000: an idx file"),
        (b"P5 28 28 255", "starts with 0x50352032"),
        (b"\x00\x00\x0d\x01\x00\x00\x00\x01abcd", "starts with 0x00000d01"),
        (b"\x00\x00\x08\x00", "starts with 0x00000800"),
        (b"\x00\x00\x08\x03\x00\x00", "is cut: 6 bytes, its header alone has 16"),
        (idx(np.zeros((2, 3), np.uint8))[:-1], r"has 17 bytes: its header promises 18 for shape \(2, 3\)"),
        (idx(np.zeros((2, 3), np.uint8)) + b"x", "has 19 bytes: its header promises 18"),
        (b"\x00\x00\x08\x03" + b"\xff" * 12, "its header promises 79228162458924105385300197391"),
    ],
)
def test_read_idx_refuses(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "bad").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_idx(tmp_path / "bad")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("folder", ["mnist", "MNIST/raw", "."])
def test_mnist_from_files(tmp_path: Path, folder: str, packed: bool) -> None:
    arrays = write_mnist(tmp_path / "root" / folder, packed=packed)
    records = load_mnist(data_root=str(tmp_path / "root"))
    assert np.array_equal(records.x.numpy(), (arrays[NAMES[0]].reshape(12, 12) > 127).astype(np.uint8))
    assert records.labels.tolist() == arrays[NAMES[1]].tolist()
    assert np.array_equal(records.test_x.numpy(), (arrays[NAMES[2]].reshape(5, 12) > 127).astype(np.uint8))
    assert records.test_labels.tolist() == arrays[NAMES[3]].tolist()
    assert (records.image_shape, records.n_classes, records.x.dtype) == ((3, 4), 10, torch.uint8)
    assert Fact.TUNED_CONSTANTS in tiny.told(records)


def test_threshold_is_above_127(tmp_path: Path) -> None:
    write_mnist(tmp_path / "fashion_mnist")
    images = np.array([[[127, 128]]] * 2, dtype=np.uint8)
    for name in NAMES:
        content = images if "images" in name else np.array([3, 4], np.uint8)
        (tmp_path / "fashion_mnist" / name).write_bytes(idx(content))
    assert load_fashion_mnist(data_root=str(tmp_path)).x.tolist() == [[0, 1], [0, 1]]


def test_environment_names_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mnist(tmp_path / "mnist")
    monkeypatch.setenv("DPGEN_DATA", str(tmp_path))
    assert load_mnist(public_records=4).n == 8
    monkeypatch.delenv("DPGEN_DATA")
    with pytest.raises(ValueError, match=r"data_root is not set and neither is DPGEN_DATA.*mnist/"):
        load_mnist()


def test_missing_file_says_what_was_looked_for(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist")
    (tmp_path / "mnist" / NAMES[3]).unlink()
    with pytest.raises(ValueError, match=r"looked in .*mnist, .*raw, .* for .*t10k-labels.*download=true") as error:
        load_mnist(data_root=str(tmp_path))
    assert "\n" not in str(error.value)


def test_download_is_torchvisions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvision import datasets

    def fetch(root: str, download: bool) -> None:
        assert download
        write_mnist(Path(root) / "MNIST" / "raw")

    def fail(root: str, download: bool) -> None:
        raise RuntimeError("no\nroute")

    monkeypatch.setattr(datasets, "MNIST", fetch)
    monkeypatch.setattr(datasets, "FashionMNIST", fail)
    assert load_mnist(data_root=str(tmp_path), download=True).n == 12
    assert load_mnist(data_root=str(tmp_path)).n == 12
    (tmp_path / "other").mkdir()
    with pytest.raises(ValueError, match=r"FashionMNIST could not be downloaded into .*other: no route"):
        load_fashion_mnist(data_root=str(tmp_path / "other"), download=True)


def test_parts_that_do_not_belong_together(tmp_path: Path) -> None:
    folder = tmp_path / "mnist"
    write_mnist(folder)
    (folder / NAMES[1]).write_bytes(idx(np.zeros(11, np.uint8)))
    with pytest.raises(ValueError, match=r"train-images.* has 12 images, and its labels have shape \(11,\)"):
        load_mnist(data_root=str(tmp_path))
    (folder / NAMES[1]).write_bytes(idx(np.full(12, 10, np.uint8)))
    with pytest.raises(ValueError, match=r"labels has a label outside \[0, 9\]"):
        load_mnist(data_root=str(tmp_path))
    (folder / NAMES[2]).write_bytes(idx(np.zeros((5, 4, 4), np.uint8)))
    with pytest.raises(ValueError, match=r"training images \(3, 4\) and test images \(4, 4\)"):
        load_mnist(data_root=str(tmp_path))
    (folder / NAMES[0]).write_bytes(idx(np.zeros((12, 12), np.uint8)))
    with pytest.raises(ValueError, match=r"has shape \(12, 12\): images need"):
        load_mnist(data_root=str(tmp_path))


def test_digits() -> None:
    from sklearn.datasets import load_digits as reference

    records = load_digits(public_records=38)
    assert (records.n, len(records.test_x), len(records.public_x)) == (1407, 352, 38)
    everything = torch.cat([records.x, records.test_x, records.public_x])
    assert everything.sum(0).tolist() == (reference().data >= 8).sum(0).tolist()
    assert (records.image_shape, records.n_classes, records.class_names[3]) == ((8, 8), 10, "3")


def test_digits_stay_recognisable() -> None:
    from sklearn.neighbors import KNeighborsClassifier

    records = load_digits()
    judge = KNeighborsClassifier(5).fit(records.x.numpy(), records.labels.numpy())
    assert judge.score(records.test_x.numpy(), records.test_labels.numpy()) > 0.9


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("DPGEN_DATA"), reason="DPGEN_DATA names no folder with real data")
def test_real_mnist() -> None:
    records = load_mnist()
    sizes = records.x.sum(1)
    assert (records.n, len(records.test_x), int(sizes.max())) == (60000, 10000, 312)
    assert float(sizes.double().mean()) == pytest.approx(103.69, abs=0.005)
    assert load_fashion_mnist().labels.bincount().tolist() == [6000] * 10
