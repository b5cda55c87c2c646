"""Handwritten digits and clothes as binary images: scikit-learn's digits, MNIST, Fashion-MNIST."""

import struct
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dpgen.data.paths import data_folder, one_line
from dpgen.data.records import PIXEL_THRESHOLD, Records, split_records
from dpgen.data.split import Split
from dpgen.data.table_files import read_bytes
from dpgen.facts import Fact

DIGITS_THRESHOLD = 7
"""Grey values 0..16 of the 8 x 8 digits above this become 1."""


_FASHION_NAMES = ["T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"]
_DIGIT_NAMES = tuple(str(digit) for digit in range(10))
_FILES = {"train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
          "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")}  # fmt: skip


def load_digits(*, test_fraction: float = 0.2, split_seed: int = 0, public_records: int = 0) -> Records:
    """The 1,797 digits of 8 x 8 pixels that come with scikit-learn, 1 where the grey value of 0..16 is above 7.

    Needs no file. The digits are public, and so is the seed of their split, so that figures on them can be repeated.

    Arguments:
        test_fraction: probability of each record to be kept for evaluation, in [0, 1).
        split_seed: public seed of the split and of the choice of public records.
        public_records: number of training records to declare public.

    Example:
        >>> load_digits()
        Records('digits': 1445 private, 352 test, 0 public records of 64 binary features, 10 classes)
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
        class_names=_DIGIT_NAMES,
        public_records=public_records,
    )


def load_mnist(
    *, data_root: str | None = None, download: bool = False, public_records: int = 0, split_seed: int = 0
) -> Records:
    """MNIST: 60,000 private and 10,000 test digits of 28 x 28 pixels, 1 where the grey value is above 127.

    At this threshold a record has 103.69 ones on average and at most 312; the 102.44 and 311.69 of Table I in
    Acs et al. (2017) are grey values divided by 255.

    Arguments:
        data_root: folder with the four idx files (plain or .gz), directly, in ``mnist/`` or in ``MNIST/raw/``;
            without it the environment variable DPGEN_DATA counts.
        download: let torchvision fetch missing files into ``data_root``.
        public_records: number of training records to declare public.
        split_seed: public seed of the choice of public records.

    Raises:
        ValueError: if a file is missing, cut or not an idx file.
    """
    return _load_idx("mnist", _DIGIT_NAMES, data_root, download).set_aside(public_records, Split.public(split_seed))


def load_fashion_mnist(
    *, data_root: str | None = None, download: bool = False, public_records: int = 0, split_seed: int = 0
) -> Records:
    """Fashion-MNIST: 60,000 private and 10,000 test pictures of clothes, 28 x 28, 1 where the grey value is above 127.

    Arguments:
        data_root: folder with the four idx files (plain or .gz), directly, in ``fashion_mnist/`` or in ``FashionMNIST/raw/``;
            without it the environment variable DPGEN_DATA counts.
        download: let torchvision fetch missing files into ``data_root``.
        public_records: number of training records to declare public.
        split_seed: public seed of the choice of public records.

    Raises:
        ValueError: if a file is missing, cut or not an idx file.
    """
    records = _load_idx("fashion_mnist", tuple(_FASHION_NAMES), data_root, download)
    return records.set_aside(public_records, Split.public(split_seed))


def read_idx(path: Path | str) -> Tensor:
    """Array of an idx file of unsigned bytes: 0, 0, 8, number of axes, sizes as big-endian uint32, then the values.

    Returns:
        uint8 tensor of the stated shape.

    Raises:
        ValueError: if the header is not that of an idx file of bytes or the file is shorter or longer than it says.
    """
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


def _load_idx(name: str, class_names: tuple[str, ...], data_root: str | None, download: bool) -> Records:
    root = data_folder(f"{name}/", data_root)
    if download and not _folders_with_files(name, root):
        _download(name, root)
    folders = _folders_with_files(name, root)
    if not folders:
        wanted = ", ".join(file for pair in _FILES.values() for file in pair)
        looked = ", ".join(str(folder) for folder in _folders(name, root))
        raise ValueError(f"{name} is missing: looked in {looked} for {wanted} (plain or .gz); give data_root or download=true")
    (x, labels), (test_x, test_labels) = (_read_part(folders[0], *_FILES[part]) for part in ("train", "test"))
    if x.shape[1:] != test_x.shape[1:]:
        raise ValueError(f"{name} has training images {tuple(x.shape[1:])} and test images {tuple(test_x.shape[1:])}")
    return Records(
        name=name,
        x=_binary(x),
        labels=labels,
        test_x=_binary(test_x),
        test_labels=test_labels,
        n_classes=len(class_names),
        image_shape=(x.shape[1], x.shape[2]),
        class_names=class_names,
        grey=x.flatten(1),
        test_grey=test_x.flatten(1),
        grey_threshold=PIXEL_THRESHOLD,
        facts=(Fact.TEST_PART(what="records", origin="the published test part"), Fact.TUNED_CONSTANTS),
    )


def _binary(images: Tensor) -> Tensor:
    return (images > PIXEL_THRESHOLD).to(torch.uint8).flatten(1)


def _read_part(folder: Path, images_name: str, labels_name: str) -> tuple[Tensor, Tensor]:
    images, labels = read_idx(_existing(folder, images_name)), read_idx(_existing(folder, labels_name))
    if images.ndim != 3:
        raise ValueError(f"{folder / images_name} has shape {tuple(images.shape)}: images need (records, height, width)")
    if labels.shape != images.shape[:1]:
        raise ValueError(f"{folder / labels_name} has shape {tuple(labels.shape)}, {images_name} has {len(images)} images")
    return images, labels.to(torch.int64)


def _folders(name: str, root: Path) -> list[Path]:
    torchvision_name = {"mnist": "MNIST", "fashion_mnist": "FashionMNIST"}[name]
    return [root / name, root / torchvision_name / "raw", root]


def _folders_with_files(name: str, root: Path) -> list[Path]:
    names = [file for pair in _FILES.values() for file in pair]
    return [folder for folder in _folders(name, root) if all(_find(folder, file) for file in names)]


def _find(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _existing(folder: Path, name: str) -> Path:
    path = _find(folder, name)
    if path is None:
        raise ValueError(f"{folder / name} is missing, plain and .gz")
    return path


def _download(name: str, root: Path) -> None:
    from torchvision import datasets

    source = {"mnist": datasets.MNIST, "fashion_mnist": datasets.FashionMNIST}[name]
    try:
        source(root=str(root), download=True)
    except (OSError, RuntimeError) as error:
        raise ValueError(f"{name} could not be downloaded into {root}: {one_line(error)}") from error
