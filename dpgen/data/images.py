"""Images: grey or in colour with a class for each, from folders, archives and memory, and the usual sets of binary ones."""

import struct
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import ReadError, unpack_archive
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dpgen.containers import Form, InMemory, Pictures, is_picture
from dpgen.data.kinds import ARCHIVES
from dpgen.data.records import PIXEL_THRESHOLD, Records, split_records
from dpgen.data.split import TEST_FRACTION, Split, SplitOptions
from dpgen.data.table_files import data_folder, name_of, one_line, read_bytes
from dpgen.extras import extras
from dpgen.facts import Fact, Said

Colours = Literal["auto", "grey", "colour"]
Grid = npt.NDArray[np.uint8]

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
"""Endings of the files that are read as images; other files are left out."""

"""Endings of archives."""

MODES = {"1": 1, "L": 1, "P": 3, "RGB": 3}
"""Channels of the modes that are read: bits and grey values, palettes without transparency, colours of 8 bits."""

SIDES = (4, 256)
"""Least and largest side of an image."""

_PATCH = 16

# -- images ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Images:
    """Images ``x`` (n, h, w, c), uint8, of which only ``x`` and ``labels`` are private; every image has a class.

    ``x`` has 1 or 3 channels, ``labels`` are int64 in [0, k), `class_names` public. `form` is that of samples; None: images and
    labels.

    >>> x, labels = torch.zeros(3, 8, 8, 3).byte(), torch.tensor([0, 0, 1])
    >>> Images("tiny", x, labels, x[:1], labels[:1], class_names=("cat", "dog"))
    Images('tiny': 3 private, 1 test images of 8 x 8 pixels in colour, 2 classes)
    """

    name: str
    x: Tensor
    labels: Tensor
    test_x: Tensor
    test_labels: Tensor
    class_names: tuple[str, ...] = ("images",)
    facts: tuple[Fact | Said, ...] = ()
    form: Form | None = None

    def __post_init__(self) -> None:
        self._require("x", self.x, self.labels)
        self._require("test_x", self.test_x, self.test_labels)
        if (sides := self.test_x.shape[1:]) != self.x.shape[1:]:
            raise ValueError(f"test_x has images {tuple(sides)}, x has {tuple(self.x.shape[1:])}: they must agree")

    def _require(self, name: str, x: Tensor, labels: Tensor) -> None:
        low, high = SIDES
        if x.dtype != torch.uint8 or x.ndim != 4 or x.shape[3] not in (1, 3):
            raise ValueError(f"{name} is {x.dtype} {tuple(x.shape)}: it must be uint8 (n, h, w, c) of 1 or 3 channels")
        if not all(low <= side <= high for side in x.shape[1:3]):
            raise ValueError(f"{name} has images of {x.shape[1]} x {x.shape[2]} pixels: sides must be in [{low}, {high}]")
        if labels.dtype != torch.int64 or labels.shape != x.shape[:1]:
            raise ValueError(f"labels of {name} are {labels.dtype} {tuple(labels.shape)}: they must be int64 ({len(x)},)")
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < self.n_classes:
            raise ValueError(f"labels of {name} must be in [0, {self.n_classes - 1}]")

    def __repr__(self) -> str:
        _, height, width, channels = self.x.shape
        kind = "in colour" if channels == 3 else "in grey"
        counts = f"{len(self.x)} private, {len(self.test_x)} test images"
        return f"Images({self.name!r}: {counts} of {height} x {width} pixels {kind}, {self.n_classes} classes)"

    @property
    def n(self) -> int:
        """Number of private images."""
        return len(self.x)

    @property
    def n_classes(self) -> int:
        """Number of classes, k."""
        return len(self.class_names)


def _split(name: str, found: "_Found", split: Split, *, form: Form | None = None) -> Images:
    test = split.test_rows(len(found.x))
    return Images(
        name,
        found.x[~test],
        found.labels[~test],
        found.x[test],
        found.labels[test],
        class_names=found.class_names,
        facts=(*found.facts, split.fact("images")),
        form=form,
    )


# -- loaders -----------------------------------------------------------------------------------------------------------


_Parts = tuple[str, ...]  # of a path


class _Found(NamedTuple):
    """Images as they were read, those for evaluation last, and how many these are where they were in a folder of their own."""

    x: Tensor
    labels: Tensor
    class_names: tuple[str, ...]
    held_out: int | None = None
    facts: tuple[Fact | Said, ...] = ()


def load_images(
    *,
    path: str | None = None,
    size: int | None = None,
    colours: Colours = "auto",
    test_fraction: float = TEST_FRACTION,
    split_key: Path | None = None,
) -> Images:
    """A folder of images, or a tar, tar.gz or zip archive of one: a folder for each class, or no folders and one class.

    Classes are the sorted names of the folders (torchvision's ImageFolder). Where the folders at the top are ``train`` and
    ``test``, those in them are the classes, and the images of ``test`` are for evaluation. Without a path: patches of
    16 x 16 pixels of scikit-learn's two photographs, which are public.

    Arguments:
        path: folder or archive.
        size: side of the square that images are cut to around their middle and scaled to, each by itself; None: all of them
            have one size already.
        colours: "grey", "colour", or "auto": what all of them are.
        test_fraction: probability of each image to be kept for evaluation, in [0, 1).
        split_key: file of the secret key of the split, made if it is not there; a run has its own without it.
    """
    if size is not None and not SIDES[0] <= size <= SIDES[1]:
        raise ValueError(f"size is {size}: it must be in [{SIDES[0]}, {SIDES[1]}]")
    options = SplitOptions(test_fraction, split_key=split_key)
    if path is None:
        return _split("photographs", _patches(), Split.public(0, test_fraction))
    if isinstance(path, InMemory):
        return _split(str(path), _given(path.content, size, colours), options.split(), form=path.form)
    found = _read(Path(path), size, colours)
    return _split(name_of(path), found, options.split(held_out=found.held_out))


def load_cifar10(*, data_root: str | None = None) -> Images:
    """CIFAR-10: 50,000 private and 10,000 test images of 32 x 32 pixels in colour, ten classes.

    Arguments:
        data_root: folder with ``cifar10/train`` and ``cifar10/test``, which hold the class folders, or with one archive of
            them in ``cifar10/``; without it the environment variable DPGEN_DATA counts.
    """
    folder = data_folder("cifar10/", data_root) / "cifar10"
    archives = [file for file in folder.glob("*") if file.name.endswith(ARCHIVES)]
    if not (folder / "train").is_dir() and len(archives) != 1:
        raise ValueError(f"cifar10 is missing: looked in {folder} for train/ and test/, or one archive of them; give data_root")
    found = _read(folder if (folder / "train").is_dir() else archives[0], None, "colour")
    if found.held_out is None:
        raise ValueError(f"{folder} must have the folders train/ and test/ alone")
    found = found._replace(facts=(*found.facts, Fact.TUNED_CONSTANTS))
    return _split("cifar10", found, Split(0.0, held_out=found.held_out))


# -- files -------------------------------------------------------------------------------------------------------------


def _read(source: Path, size: int | None, colours: Colours) -> _Found:
    """Images of a folder, or of an archive."""
    if source.is_dir():
        return _in_folder(source, source, size, colours)
    if not source.is_file() or not source.name.lower().endswith(ARCHIVES):
        endings = ", ".join(ARCHIVES)
        raise ValueError(f"path is {str(source)!r}: it must be a folder that is there, or an archive that ends in {endings}")
    with TemporaryDirectory(prefix="dpgen-") as folder:
        try:
            if source.name.lower().endswith(".zip"):
                unpack_archive(source, folder, "zip")
            else:
                unpack_archive(source, folder, "tar" if source.name.lower().endswith(".tar") else "gztar", filter="data")
        except (ReadError, tarfile.TarError, zipfile.BadZipFile, OSError, EOFError, RuntimeError) as error:
            raise ValueError(f"{source} cannot be read as an archive: {one_line(error)}") from error
        return _in_folder(Path(folder), source, size, colours)


def _hidden(place: Path) -> bool:
    return place.name.startswith(".") or (place.is_dir() and place.name.startswith("__"))


def _inside(folder: Path) -> list[Path]:
    """Folders and images in a folder; other files are left out."""
    shown = (place for place in folder.glob("*") if not _hidden(place))
    return [place for place in shown if place.is_dir() or place.name.lower().endswith(ENDINGS)]


def _outermost(root: Path) -> Path:
    """The folder whose images are read: where there is a single one with folders in it, that one."""
    while len(inside := _inside(root)) == 1 and any(place.is_dir() for place in _inside(inside[0])):
        [root] = inside
    return root


def _in_folder(root: Path, source: Path, size: int | None, colours: Colours) -> _Found:
    """Images of a folder, which errors call `source`; a single folder of folders in it stands for it, hidden ones are none."""
    root = _outermost(root)
    folders, files = _shown(root)
    if not files:
        raise ValueError(f"{source} has no image: files must end in {', '.join(ENDINGS)}")
    held = {parts[0] for parts in folders} == {"train", "test"}
    files.sort(key=lambda parts: (held and parts[0] == "test", parts))
    names = _classes(source, folders, files, int(held))
    named = ((f"{source}: {Path(*parts)}", root.joinpath(*parts)) for parts in files)
    images = _collected(named, len(files), size, colours)
    labels = torch.tensor([names.index(parts[held]) if names else 0 for parts in files])
    test = sum(parts[0] == "test" for parts in files) if held else None
    return _Found(images, labels, names or ("images",), test, (Fact.PUBLIC_FOLDERS,))


def _classes(source: Path, folders: Sequence[_Parts], files: Sequence[_Parts], depth: int) -> tuple[str, ...]:
    """Names of the folders at a depth, in order: each image must be in one of them, or there are none."""
    names = tuple(sorted({parts[depth] for parts in folders if len(parts) > depth}))
    if stray := next((parts for parts in files if names and len(parts) < depth + 2), None):
        raise ValueError(f"{source} has {str(Path(*stray))!r} beside class folders: every image must be in one, or none")
    return names


def _shown(root: Path) -> tuple[list[_Parts], list[_Parts]]:
    """Parts of the paths of folders and of images in a folder, without those that are hidden or in a hidden one."""
    hidden = {place for place in root.rglob("*") if _hidden(place)}
    places = [place for place in root.rglob("*") if hidden.isdisjoint((place, *place.parents))]
    folders, images = [], []
    for place in places:
        if place.is_dir():
            folders.append(place.relative_to(root).parts)
        elif place.is_file() and place.name.lower().endswith(ENDINGS):
            images.append(place.relative_to(root).parts)
    return folders, images


# -- pixels ------------------------------------------------------------------------------------------------------------


def _collected(sources: Iterator[tuple[str, Any]], n: int, size: int | None, colours: Colours) -> Tensor:
    """Images (n, h, w, c) of files or pictures, each with a name for errors; the first one sets what is left open."""
    result = np.empty((0, 0, 0, 0), dtype=np.uint8)
    for i, (name, source) in enumerate(sources):
        pixels = _pixels(name, source, size, colours)
        if i == 0:
            result = np.empty((n, *pixels.shape), dtype=np.uint8)
        height, width, channels = result.shape[1:]
        if pixels.shape[2] != channels:
            kind, others = ("in colour" if c == 3 else "grey" for c in (pixels.shape[2], channels))
            raise ValueError(f"{name} is {kind}, others are {others}: give colours, grey or colour")
        if pixels.shape != result.shape[1:]:
            raise ValueError(
                f"{name} has {pixels.shape[0]} x {pixels.shape[1]} pixels, others {height} x {width}: give size, to which all "
                "of them are brought"
            )
        result[i] = pixels
    return torch.from_numpy(result)


def _opened(name: str, source: Any) -> Any:
    """An image of PIL, of a file or as it is."""
    from PIL import Image, UnidentifiedImageError

    try:
        image = Image.open(source) if isinstance(source, Path) else source
        image.load()
    except UnidentifiedImageError as error:
        raise ValueError(f"{name} cannot be read as an image: it has no format that is known, or is cut") from error
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        raise ValueError(f"{name} cannot be read as an image: {one_line(error)}") from error
    return image


def _pixels(name: str, source: Any, size: int | None, colours: Colours) -> Grid:
    """Pixels (h, w, c) of one image, by public rules for each image by itself."""
    from PIL import Image, ImageOps

    image = _opened(name, source)
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        raise ValueError(f"{name} has transparency (mode {image.mode}): images must be opaque")
    if image.mode not in MODES:
        raise ValueError(f"{name} has mode {image.mode}: it must be one of {', '.join(MODES)}, 8 bits a channel at most")
    grey = colours == "grey" or (colours == "auto" and MODES[image.mode] == 1)
    image = image.convert("L" if grey else "RGB")
    if size is not None and image.size != (size, size):
        image = ImageOps.fit(image, (size, size), method=Image.Resampling.BILINEAR)
    pixels = np.asarray(image, dtype=np.uint8)
    return pixels[:, :, None] if grey else pixels


# -- data in memory ----------------------------------------------------------------------------------------------------


def _given(content: Pictures, size: int | None, colours: Colours) -> _Found:
    """Images of an array, or of a data set of pictures."""
    from PIL import Image

    images = (image if is_picture(image) else Image.fromarray(np.asarray(image)) for image in content.images)
    named = ((f"image {i}", image) for i, image in enumerate(images))
    x = _collected(named, len(content.images), size, colours)
    labels = torch.zeros(len(x), dtype=torch.int64) if content.labels is None else torch.tensor(content.labels)
    names = content.class_names
    facts: tuple[Fact | Said, ...] = (Fact.PUBLIC_IMAGE_SIZE,)
    if names is None:
        k = 1 if content.labels is None else int(labels.max()) + 1
        names = ("images",) if content.labels is None else tuple(map(str, range(k)))
        if content.labels is not None:
            facts += (Fact.READ_CLASSES(k=k),)
    return _Found(x, labels, tuple(names), None, facts)


def _patches() -> _Found:
    """Patches of the photographs that come with scikit-learn, one class for each."""
    from sklearn.datasets import load_sample_images

    bunch = load_sample_images()
    classes = []
    for image in bunch.images:
        height, width = (side // _PATCH * _PATCH for side in image.shape[:2])
        grid = torch.tensor(image[:height, :width]).reshape(height // _PATCH, _PATCH, width // _PATCH, _PATCH, 3)
        classes.append(grid.transpose(1, 2).reshape(-1, _PATCH, _PATCH, 3))
    labels = torch.arange(len(classes)).repeat_interleave(torch.tensor([len(part) for part in classes]))
    return _Found(torch.cat(classes), labels, tuple(Path(name).stem for name in bunch.filenames))


# -- binary images -----------------------------------------------------------------------------------------------------

DIGITS_THRESHOLD = 7
"""Grey values 0..16 of the 8 x 8 digits above this become 1."""

_DIGITS = tuple(str(digit) for digit in range(10))
_CLOTHES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")
_IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def load_digits(*, test_fraction: float = 0.2, split_seed: int = 0) -> Records:
    """The 1,797 digits of 8 x 8 pixels that come with scikit-learn, 1 where the grey value of 0..16 is above 7.

    Needs no file. The digits are public, and so is the seed of their split, so that figures on them can be repeated.

    Arguments:
        test_fraction: probability of each record to be kept for evaluation, in [0, 1).
        split_seed: public seed of the split.

    >>> load_digits()
    Records('digits': 1445 private, 352 test records of 64 binary features, 10 classes)
    """
    from sklearn.datasets import load_digits as sklearn_digits

    bunch = sklearn_digits()
    return split_records(
        "digits",
        torch.from_numpy(bunch.data > DIGITS_THRESHOLD).to(torch.uint8),
        labels=torch.from_numpy(bunch.target).to(torch.int64),
        split=Split.public(split_seed, test_fraction),
        n_classes=10,
        image_shape=(8, 8),
        class_names=_DIGITS,
    )


def load_mnist(*, data_root: str | None = None, download: bool = False) -> Records:
    """MNIST: 60,000 private and 10,000 test digits of 28 x 28 pixels, 1 where the grey value is above 127.

    At this threshold a record has 103.69 ones on average and at most 312; the 102.44 and 311.69 of Table I in
    Acs et al. (2017) are grey values divided by 255.

    Arguments:
        data_root: folder with the four idx files (plain or .gz), directly, in ``mnist/`` or in ``MNIST/raw/``;
            without it the environment variable DPGEN_DATA counts.
        download: let torchvision fetch missing files into ``data_root``.
    """
    return _load_idx("MNIST", _DIGITS, data_root, download)


def load_fashion_mnist(*, data_root: str | None = None, download: bool = False) -> Records:
    """Fashion-MNIST: 60,000 private and 10,000 test pictures of clothes, 28 x 28, 1 where the grey value is above 127.

    Arguments:
        data_root: folder with the four idx files (plain or .gz), directly, in ``fashion_mnist/`` or in ``FashionMNIST/raw/``;
            without it the environment variable DPGEN_DATA counts.
        download: let torchvision fetch missing files into ``data_root``.
    """
    return _load_idx("FashionMNIST", _CLOTHES, data_root, download)


def _load_idx(published: str, class_names: tuple[str, ...], data_root: str | None, download: bool) -> Records:
    """Records of the four idx files of a set, by its name in torchvision."""
    name = {"MNIST": "mnist", "FashionMNIST": "fashion_mnist"}[published]
    root = data_folder(f"{name}/", data_root)
    folders = [root / name, root / published / "raw", root]
    files = _idx_files(folders)
    if download and not files:
        with extras():
            from torchvision import datasets
        try:
            getattr(datasets, published)(root=str(root), download=True)
        except (OSError, RuntimeError) as error:
            raise ValueError(f"{published} could not be downloaded into {root}: {one_line(error)}") from error
        files = _idx_files(folders)
    if not files:
        looked = ", ".join(map(str, folders))
        raise ValueError(f"{name} is missing: no {', '.join(_IDX)} (plain or .gz) in {looked}; give data_root or download=true")
    x, labels, test_x, test_labels = map(read_idx, files)
    for file, images, classes in ((files[0], x, labels), (files[2], test_x, test_labels)):
        if images.ndim != 3:
            raise ValueError(f"{file} has shape {tuple(images.shape)}: images need (records, height, width)")
        if classes.shape != images.shape[:1]:
            raise ValueError(f"{file} has {len(images)} images, and its labels have shape {tuple(classes.shape)}")
    if x.shape[1:] != test_x.shape[1:]:
        raise ValueError(f"{name} has training images {tuple(x.shape[1:])} and test images {tuple(test_x.shape[1:])}")
    grey, test_grey = x.flatten(1), test_x.flatten(1)
    return Records(
        name=name,
        x=(grey > PIXEL_THRESHOLD).to(torch.uint8),
        labels=labels.to(torch.int64),
        test_x=(test_grey > PIXEL_THRESHOLD).to(torch.uint8),
        test_labels=test_labels.to(torch.int64),
        n_classes=len(class_names),
        image_shape=(x.shape[1], x.shape[2]),
        class_names=class_names,
        grey=grey,
        test_grey=test_grey,
        facts=(Fact.TEST_PART(what="records", origin="the published test part"), Fact.TUNED_CONSTANTS),
    )


def _idx_files(folders: list[Path]) -> list[Path]:
    """The four files in the first folder that has all of them, plain or compressed."""
    for folder in folders:
        plain = [folder / name for name in _IDX]
        found = [path if path.is_file() else path.with_name(f"{path.name}.gz") for path in plain]
        if all(path.is_file() for path in found):
            return found
    return []


def read_idx(path: Path | str) -> Tensor:
    """Array of an idx file of unsigned bytes: 0, 0, 8, number of axes, sizes as big-endian uint32, then the values."""
    content = read_bytes(path)
    if len(content) < 4 or content[:3] != b"\x00\x00\x08" or content[3] == 0:
        raise ValueError(f"{path} starts with 0x{content[:4].hex()}: an idx file of bytes starts with 0x000008 and its axes")
    header = 4 + 4 * content[3]
    if len(content) < header:
        raise ValueError(f"{path} is cut: {len(content)} bytes, its header alone has {header}")
    shape = struct.unpack(f">{content[3]}I", content[4:header])
    expected = header + int(np.prod(shape, dtype=object))
    if len(content) != expected:
        raise ValueError(f"{path} has {len(content)} bytes: its header promises {expected} for shape {shape}")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)[header:].reshape(shape)
