"""Images from folders, archives and memory: classes, public rules of sizes and colours, refusals."""

import io
import tarfile
import zipfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import tiny
import torch
from PIL import Image
from torch.utils.data import Dataset

import dpgen
from dpgen.data import Images, load_cifar10, load_images
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


# -- what is read ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["", ".tar", ".tar.gz", ".tgz", ".zip"])
def test_folders_are_classes_in_sorted_order(tmp_path: Path, ending: str) -> None:
    root = folder(tmp_path / "pets")
    (root / "readme.txt").write_text("no image")
    save(root / "dog" / ".hidden.png")
    images = load_images(path=str(archived(root, ending) if ending else root), test_fraction=0.0)
    assert images.class_names == ("cat", "dog")
    assert images.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert images.x.shape == (6, 8, 8, 3)
    assert torch.equal(images.x[4], torch.from_numpy(pixels(shift=1)))
    assert Fact.PUBLIC_FOLDERS in tiny.told(images)


def test_without_folders_there_is_one_class(tmp_path: Path) -> None:
    for i in range(3):
        save(tmp_path / f"{i}.png", pixels(grey=True))
    images = load_images(path=str(tmp_path), test_fraction=0.0)
    assert (images.class_names, images.labels.tolist(), images.x.shape[3]) == (("images",), [0, 0, 0], 1)


def test_a_folder_test_is_for_evaluation(tmp_path: Path) -> None:
    folder(tmp_path / "data" / "train")
    folder(tmp_path / "data" / "test", n=1)
    for path in (tmp_path / "data", archived(tmp_path / "data", ".tar.gz")):
        images = load_images(path=str(path))
        assert (images.n, images.class_names, images.test_labels.tolist()) == (6, ("cat", "dog"), [0, 1])


def test_test_images_from_a_folder_of_their_own(tmp_path: Path) -> None:
    one, two = folder(tmp_path / "one"), folder(tmp_path / "two", n=1)
    images = load_images(path=str(one), test_path=str(two))
    assert (images.n, images.test_labels.tolist()) == (6, [0, 1])


def test_an_empty_folder_is_a_class(tmp_path: Path) -> None:
    (folder(tmp_path / "pets") / "ant").mkdir()
    images = load_images(path=str(tmp_path / "pets"), test_fraction=0.0)
    assert (images.class_names, images.labels.tolist()) == (("ant", "cat", "dog"), [1, 1, 1, 2, 2, 2])


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


def test_cifar10_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cifar10 is missing: looked in .*; give data_root"):
        load_cifar10(data_root=str(tmp_path))


# -- what is refused ---------------------------------------------------------------------------------------------------


def transparent() -> Image.Image:
    return Image.fromarray(pixels()).convert("RGBA")


def transparent_palette() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels()).quantize(8).save(buffer, "png", transparency=0)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "b.png cannot be read as an image: it has no format that is known, or is cut"),
        (b"\x89PNG\r\n\x1a\nxxxx", "b.png cannot be read as an image: "),
        (Image.fromarray(pixels(12)), "b.png has 12 x 12 pixels, others 8 x 8: give size, to which all of them are brought"),
        (Image.fromarray(pixels(grey=True)), "b.png is grey, others are in colour: give colours, grey or colour"),
        (Image.fromarray(pixels(grey=True).astype(np.uint16) * 9), r"b.png has mode I;16: it must be one of 1, L, P, RGB"),
        (transparent(), r"b.png has transparency \(mode RGBA\): images must be opaque"),
        (transparent_palette(), r"b.png has transparency \(mode P\): images must be opaque"),
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
    with pytest.raises(ValueError, match=message):
        load_images(path=str(root))


def test_bad_options_and_folders_are_refused(tmp_path: Path) -> None:
    root = folder(tmp_path / "pets")
    (tmp_path / "none").mkdir()
    (tmp_path / "broken.zip").write_bytes(b"no archive")
    (tmp_path / "data.csv").write_text("x\n1\n")
    other = folder(tmp_path / "birds", classes=("owl",))
    for options, message in (
        ({"path": root, "size": 3}, r"size is 3: it must be in \[4, 256\]"),
        ({"path": root, "test_fraction": 1.0}, r"test_fraction is 1.0: it must be in \[0, 1\)"),
        ({"path": tmp_path / "absent"}, "there is no such folder or archive"),
        ({"path": tmp_path / "data.csv"}, "it must be a folder, or an archive that ends in .tar, .tar.gz, .tgz, .zip"),
        ({"path": tmp_path / "none"}, "none has no image: files must end in .jpg"),
        ({"path": tmp_path / "broken.zip"}, "broken.zip cannot be read as an archive"),
        ({"path": root, "test_path": other}, "birds has the classes owl; they must be those of .*pets: cat, dog"),
        ({"path": root, "test_path": root, "test_fraction": 0.3}, "test_fraction is 0.3 with a test_path"),
    ):
        with pytest.raises(ValueError, match=message):
            load_images(**{key: str(value) if isinstance(value, Path) else value for key, value in options.items()})
    save(root / "stray.png")
    with pytest.raises(ValueError, match=r"pets has 'stray.png' beside class folders: every image must be in one, or none"):
        load_images(path=str(root))


# -- in memory and in files, through the front door --------------------------------------------------------------------


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
    release = dpgen.fit(data, "gaussian", epsilon=1.0, delta=1e-3, frequencies=8)
    assert release.class_names == ("left", "right")
    x, labels = release.sample(5).tensors
    assert (x.shape, x.dtype, labels.shape) == ((5, 8, 8, 3), torch.uint8, (5,))


def test_values_of_tensors_are_checked() -> None:
    with pytest.raises(ValueError, match=r"data set has an image whose values are not in \[0, 1\]"):
        dpgen.fit(Coloured(tensors=True, most=2.0), "gaussian", epsilon=1.0)


def test_arrays_in_colour_come_back_as_arrays() -> None:
    x = np.stack([pixels(shift=i) for i in range(12)])
    for data in (x, torch.from_numpy(x)):
        sample = dpgen.fit(data, "gaussian", epsilon=1.0, delta=1e-3, frequencies=8).sample(3)
        assert type(sample) is type(data)
        assert tuple(sample.shape) == (3, 8, 8, 3)
    with pytest.raises(TypeError, match="model 'merr' works on columns, which it does not hold"):
        dpgen.fit(x, "merr", epsilon=1.0)


@pytest.mark.parametrize("ending", ["", ".zip"])
def test_a_path_of_images_is_fitted(tmp_path: Path, ending: str) -> None:
    root = folder(tmp_path / "pets", n=9)
    path = archived(root, ending) if ending else root
    sample = dpgen.fit(path, "gaussian", epsilon=1.0, delta=1e-3, frequencies=8).sample(4)
    assert (sample.x.shape, sample.x.dtype, sample.labels.shape) == ((4, 8, 8, 3), torch.uint8, (4,))
    assert sample.class_names == ("cat", "dog")
    with pytest.raises(ValueError, match="images for dpgm or dpgan or gaussian or merf; model 'merr' works on columns"):
        dpgen.fit(path, "merr", epsilon=1.0)


def test_loaded_images_are_fitted() -> None:
    x, labels = torch.from_numpy(np.stack([pixels()] * 4)), torch.tensor([0, 0, 1, 1])
    images = Images("mine", x, labels, x[:0], labels[:0], class_names=("a", "b"))
    release = dpgen.fit(images, "gaussian", epsilon=1.0, delta=1e-3, frequencies=8)
    assert release.sample(2).x.shape == (2, 8, 8, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"x": torch.zeros(2, 8, 8)},
            r"x is torch.float32 \(2, 8, 8\): it must be torch.uint8 \(n, h, w, c\)",
        ),
        ({"labels": torch.tensor([0, 2])}, r"labels of x must be in \[0, 1\]"),
        ({"labels": torch.tensor([0])}, r"labels of x are torch.int64 \(1,\): they must be int64 \(2,\)"),
        ({"test_x": torch.zeros(0, 9, 8, 3).byte()}, r"test_x has images \(9, 8, 3\), x has \(8, 8, 3\): they must agree"),
        ({"x": torch.zeros(2, 2, 8, 3).byte()}, r"x has images of 2 x 8 pixels: sides must be in \[4, 256\]"),
    ],
)
def test_images_are_checked(change: dict[str, Any], message: str) -> None:
    parts: dict[str, Any] = {"x": torch.zeros(2, 8, 8, 3).byte(), "labels": torch.tensor([0, 1])}
    parts |= {"test_x": parts["x"][:0], "test_labels": parts["labels"][:0], "class_names": ("a", "b")}
    with pytest.raises(ValueError, match=message):
        Images("mine", **(parts | change))
