"""Images from folders, archives and memory: classes, public rules of sizes and colours; idx files and digits; refusals."""

import gzip
import io
import struct
import tarfile
import zipfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import tiny
import torch
from PIL import Image
from refusals import refused
from torch.utils.data import Dataset

import dpgen
from dpgen.containers import in_memory
from dpgen.data import Images, load_cifar10, load_digits, load_fashion_mnist, load_images, load_mnist
from dpgen.data.images import read_idx
from dpgen.data.split import Split
from dpgen.facts import Fact


def pixels(side: int = 8, *, shift: int = 0, grey: bool = False) -> Any:
    values = (np.arange(side * side * 3).reshape(side, side, 3) + shift) % 256
    return (values[:, :, 0] if grey else values).astype(np.uint8)


def save(path: Path, image: Any = None, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    (image if isinstance(image, Image.Image) else Image.fromarray(pixels() if image is None else image)).save(path, **options)
    return path


def folder(root: Path, *, classes: tuple[str, ...] = ("dog", "cat"), n: int = 3, side: int = 8) -> Path:
    for c, name in enumerate(classes):
        for i in range(n):
            save(root / name / f"{i}.png", pixels(side, shift=10 * c + i))
    return root


def archived(root: Path, ending: str) -> Path:
    """The folder's content in an archive, in a folder of its name as archives often have it."""
    path = root.parent / f"{root.name}{ending}"
    files = sorted(file for file in root.rglob("*") if file.is_file())
    if ending == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for file in files:
                archive.write(file, file.relative_to(root.parent))
    else:
        with tarfile.open(path, "w:gz" if ending.endswith("gz") else "w") as archive:
            archive.add(root, root.name)
    return path


@pytest.mark.parametrize("ending", ["", ".tar", ".tar.gz", ".tgz", ".zip"])
def test_folders_are_classes_in_sorted_order(tmp_path: Path, ending: str) -> None:
    root = folder(tmp_path / "pets")
    (root / "readme.txt").write_text("no image")
    (root / "__MACOSX").mkdir()
    save(root / "dog" / ".hidden.png")
    empty = ending != ".zip"  # whose writer leaves folders out
    (root / "eel").mkdir()
    images = load_images(path=str(archived(root, ending) if ending else root), test_fraction=0.0)
    assert images.class_names == ("cat", "dog", *["eel"] * empty)
    assert images.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert images.x.shape == (6, 8, 8, 3)
    assert torch.equal(images.x[4], torch.from_numpy(pixels(shift=1)))
    assert Fact.PUBLIC_FOLDERS in tiny.told(images)


def test_without_folders_there_is_one_class(tmp_path: Path) -> None:
    for i in range(3):
        save(tmp_path / f"{i}.png", pixels(grey=True))
    images = load_images(path=str(tmp_path), test_fraction=0.0)
    assert (images.class_names, images.labels.tolist(), images.x.shape[3]) == (("images",), [0, 0, 0], 1)


def test_folders_of_test_images(tmp_path: Path) -> None:
    folder(tmp_path / "data" / "train"), folder(tmp_path / "data" / "test", n=1)
    (tmp_path / "all" / ".thumbnails").mkdir(parents=True)
    (tmp_path / "all" / "LICENSE").write_text("no image")
    packed = archived((tmp_path / "data").rename(tmp_path / "all" / "data").parent, ".tar.gz")
    for path in (tmp_path / "all" / "data", tmp_path / "all", packed):
        images = load_images(path=str(path))
        assert (images.n, images.class_names, images.test_labels.tolist()) == (6, ("cat", "dog"), [0, 1])


def test_each_image_is_split_by_its_own_secret_coin(tmp_path: Path) -> None:
    root, key = folder(tmp_path / "pets", n=20), tmp_path / "key"
    images = load_images(path=str(root), test_fraction=0.5, split_key=key)
    test = Split(0.5, key.read_bytes()).test_rows(40)
    assert len(images.test_x) == int(test.sum())
    assert torch.equal(images.labels, (torch.arange(40) >= 20).long()[~test])


def test_images_are_brought_to_one_size_around_their_middle(tmp_path: Path) -> None:
    wide = np.zeros((8, 24, 3), dtype=np.uint8)
    wide[:, 8:16] = 200
    save(tmp_path / "a" / "0.png", wide)
    save(tmp_path / "a" / "1.png", np.full((16, 16, 3), 50, dtype=np.uint8))
    images = load_images(path=str(tmp_path), size=8, test_fraction=0.0)
    assert images.x.shape == (2, 8, 8, 3)
    assert images.x[0].unique().tolist() == [200]
    assert images.x[1].unique().tolist() == [50]


def test_grey_and_colour_images_are_brought_together(tmp_path: Path) -> None:
    save(tmp_path / "a" / "0.png", pixels(grey=True))
    save(tmp_path / "a" / "1.png", Image.fromarray(pixels()).quantize(8))
    assert load_images(path=str(tmp_path), colours="grey", test_fraction=0.0).x.shape == (2, 8, 8, 1)
    assert load_images(path=str(tmp_path), colours="colour", test_fraction=0.0).x.shape == (2, 8, 8, 3)


def test_without_a_path_there_are_patches_of_photographs() -> None:
    images = load_images()
    assert (images.class_names, images.x.shape[1:]) == (("china", "flower"), (16, 16, 3))
    assert images.n + len(images.test_x) == 2080


@pytest.mark.parametrize("packed", [False, True])
def test_cifar10_is_read_from_folders_or_an_archive(tmp_path: Path, packed: bool) -> None:
    names = tuple("abcdefghij")
    source = tmp_path / ("source" if packed else "cifar10")
    folder(source / "train", classes=names, n=2, side=32)
    folder(source / "test", classes=names, n=1, side=32)
    if packed:
        (tmp_path / "cifar10").mkdir()
        archived(source, ".tar.gz").rename(tmp_path / "cifar10" / "images.tar.gz")
    images = load_cifar10(data_root=str(tmp_path))
    assert (images.n, len(images.test_x), images.n_classes, images.name) == (20, 10, 10, "cifar10")
    assert Fact.TUNED_CONSTANTS in tiny.told(images)
    with refused("cifar10 is missing"):
        load_cifar10(data_root=str(tmp_path / "other"))


def transparent() -> Image.Image:
    return Image.fromarray(pixels()).convert("RGBA")


def transparent_palette() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels()).quantize(8).save(buffer, "png", transparency=0)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "b.png cannot be read as an image"),
        (b"\x89PNG\r\n\x1a\nxxxx", "b.png cannot be read as an image"),
        (Image.fromarray(pixels(12)), "b.png has 12 x 12 pixels, others 8 x 8"),
        (Image.fromarray(pixels(grey=True)), "b.png is grey, others are in colour"),
        (Image.fromarray(pixels(grey=True).astype(np.uint16) * 9), "b.png has mode I;16"),
        (transparent(), "b.png has transparency (mode RGBA)"),
        (transparent_palette(), "b.png has transparency (mode P)"),
    ],
    ids=["empty", "cut", "size", "grey", "bits", "alpha", "palette"],
)
def test_bad_images_are_refused_by_name(tmp_path: Path, content: Any, message: str) -> None:
    root = folder(tmp_path / "pets")
    path = root / "dog" / "b.png"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        save(path, content)
    with refused(message):
        load_images(path=str(root))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"path": "pets", "size": 3}, "size is 3"),
        ({"path": "absent"}, "path is 'absent'"),
        ({"path": "data.csv"}, "path is 'data.csv'"),
        ({"path": "none"}, "none has no image"),
        ({"path": "broken.zip"}, "broken.zip cannot be read as an archive"),
        ({"path": "stray"}, "stray has 'stray.png' beside class folders"),
    ],
)
def test_bad_options_and_folders_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    folder(Path("pets"))
    save(folder(Path("stray")) / "stray.png")
    Path("none").mkdir()
    Path("broken.zip").write_bytes(b"no archive")
    Path("data.csv").write_text("x\n1\n")
    with refused(said):
        load_images(**options)


class Coloured(Dataset[Any]):
    """Like torchvision's: pictures with whole numbers, and the names of the classes."""

    classes = ("left", "right")

    def __init__(self, *, tensors: bool = False, most: float = 1.0) -> None:
        self.tensors, self.most = tensors, most

    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int) -> tuple[Any, int]:
        picture = Image.fromarray(pixels(shift=i))
        values = torch.from_numpy(pixels(shift=i)).permute(2, 0, 1) / 255 * self.most
        return (values if self.tensors else picture), i % 2


class Label:
    names = ("left", "right")


class Table:
    """Like a Hugging Face data set: rows of columns, one of them pictures."""

    features: ClassVar = {"image": object(), "label": Label()}

    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"id": i, "image": Image.fromarray(pixels(shift=i)), "label": i % 2}


@pytest.mark.parametrize("data", [Coloured(), Coloured(tensors=True), Table()], ids=["pictures", "tensors", "table"])
def test_data_sets_of_pictures(data: Any) -> None:
    images = load_images(path=in_memory(data), test_fraction=0.0)
    assert (images.class_names, images.labels.tolist()) == (("left", "right"), [0, 1] * 6)
    assert images.x.tolist() == [pixels(shift=i).tolist() for i in range(12)]


def test_values_of_tensors_are_checked() -> None:
    with refused("data set has an image whose values are not in [0, 1]"):
        in_memory(Coloured(tensors=True, most=2.0))


def test_images_come_back_as_they_came(tmp_path: Path) -> None:
    x, options = np.stack([pixels(shift=i) for i in range(12)]), {"epsilon": 1.0, "delta": 1e-3, "frequencies": 8}
    for data in (x, torch.from_numpy(x)):
        sample = dpgen.fit(data, "gaussian", **options).sample(3)
        assert type(sample) is type(data)
        assert tuple(sample.shape) == (3, 8, 8, 3)
    values, labels = dpgen.fit(Coloured(), "gaussian", **options).sample(5).tensors
    assert (values.shape, values.dtype, labels.shape) == ((5, 8, 8, 3), torch.uint8, (5,))
    root = folder(tmp_path / "pets", n=9)
    sample = dpgen.fit(root, "gaussian", **options).sample(4)
    assert (sample.x.shape, sample.x.dtype, sample.class_names) == ((4, 8, 8, 3), torch.uint8, ("cat", "dog"))
    with refused("model 'merr' works on columns, which it does not hold"):
        dpgen.fit(x, "merr", epsilon=1.0)
    with refused("images for dpgm or dpgan or gaussian or merf"):
        dpgen.fit(root, "merr", epsilon=1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.zeros(2, 8, 8)}, "x is torch.float32 (2, 8, 8)"),
        ({"labels": torch.tensor([0, 2])}, "labels of x must be in [0, 1]"),
        ({"labels": torch.tensor([0])}, "labels of x are torch.int64 (1,)"),
        ({"test_x": torch.zeros(0, 9, 8, 3).byte()}, "test_x has images (9, 8, 3), x has (8, 8, 3)"),
        ({"x": torch.zeros(2, 2, 8, 3).byte()}, "x has images of 2 x 8 pixels"),
    ],
)
def test_images_are_checked(change: dict[str, Any], message: str) -> None:
    parts: dict[str, Any] = {"x": torch.zeros(2, 8, 8, 3).byte(), "labels": torch.tensor([0, 1])}
    parts |= {"test_x": parts["x"][:0], "test_labels": parts["labels"][:0], "class_names": ("a", "b")}
    with refused(message):
        Images("mine", **(parts | change))


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
        (b"\x00\x00", "starts with 0x0000"),
        (b"P5 28 28 255", "starts with 0x50352032"),
        (b"\x00\x00\x0d\x01\x00\x00\x00\x01abcd", "starts with 0x00000d01"),
        (b"\x00\x00\x08\x00", "starts with 0x00000800"),
        (b"\x00\x00\x08\x03\x00\x00", "is cut"),
        (idx(np.zeros((2, 3), np.uint8))[:-1], "has 17 bytes"),
        (idx(np.zeros((2, 3), np.uint8)) + b"x", "has 19 bytes"),
        (b"\x00\x00\x08\x03" + b"\xff" * 12, "its header promises 79228162458924105385300197391"),
    ],
)
def test_read_idx_refuses(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "bad").write_bytes(content)
    with refused(message):
        read_idx(tmp_path / "bad")


@pytest.mark.parametrize(("folder", "packed"), [("mnist", False), ("MNIST/raw", True), (".", True)])
def test_mnist_from_files(tmp_path: Path, folder: str, packed: bool) -> None:
    arrays = write_mnist(tmp_path / "root" / folder, packed=packed)
    records = load_mnist(data_root=str(tmp_path / "root"))
    assert np.array_equal(records.x.numpy(), (arrays[NAMES[0]].reshape(12, 12) > 127).astype(np.uint8))
    assert records.labels.tolist() == arrays[NAMES[1]].tolist()
    assert np.array_equal(records.test_x.numpy(), (arrays[NAMES[2]].reshape(5, 12) > 127).astype(np.uint8))
    assert records.test_labels.tolist() == arrays[NAMES[3]].tolist()
    assert (records.image_shape, records.n_classes, records.x.dtype) == ((3, 4), 10, torch.uint8)
    assert Fact.TUNED_CONSTANTS in tiny.told(records)


def test_environment_names_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mnist(tmp_path / "mnist")
    monkeypatch.setenv("DPGEN_DATA", str(tmp_path))
    assert load_mnist().n == 12
    monkeypatch.delenv("DPGEN_DATA")
    with refused("data_root is not set and neither is DPGEN_DATA"):
        load_mnist()


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
    with refused("FashionMNIST could not be downloaded into "):
        load_fashion_mnist(data_root=str(tmp_path / "other"), download=True)


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        (1, np.zeros(11, np.uint8), " has 12 images, and its labels have shape (11,)"),
        (1, np.full(12, 10, np.uint8), "labels has a label outside"),
        (2, np.zeros((5, 4, 4), np.uint8), "training images (3, 4) and test images (4, 4)"),
        (0, np.zeros((12, 12), np.uint8), "has shape (12, 12)"),
        (3, None, "download=true"),
    ],
)
def test_parts_that_do_not_belong_together(tmp_path: Path, file: int, content: Any, said: str) -> None:
    write_mnist(tmp_path / "mnist")
    path = tmp_path / "mnist" / NAMES[file]
    path.unlink() if content is None else path.write_bytes(idx(content))
    with refused(said):
        load_mnist(data_root=str(tmp_path))


def test_digits() -> None:
    from sklearn.datasets import load_digits as reference

    records = load_digits()
    assert (records.n, len(records.test_x)) == (1445, 352)
    everything = torch.cat([records.x, records.test_x])
    assert everything.sum(0).tolist() == (reference().data >= 8).sum(0).tolist()
    assert (records.image_shape, records.n_classes, records.class_names[3]) == ((8, 8), 10, "3")
