"""Pairs of files: tensors, and a card with their checksum."""

from pathlib import Path

import pytest
import torch

from dpgen.files import TensorFiles, read_tensor_files

TENSORS = {"a": torch.arange(6.0).reshape(2, 3).T, "b": torch.tensor([2**60])}


@pytest.fixture
def written(tmp_path: Path) -> Path:
    TensorFiles.of("thing", {"colour": "red"}, TENSORS).write(tmp_path / "new", "thing")
    return tmp_path / "new"


def test_what_is_written_is_read(written: Path) -> None:
    card, tensors = read_tensor_files(written, "thing", kinds=["thing"])
    assert card == {"format": 2, "kind": "thing", "colour": "red"}
    assert all(torch.equal(tensors[name], value) for name, value in TENSORS.items())
    assert sorted(path.name for path in written.iterdir()) == ["thing.json", "thing.safetensors"]


def test_the_checksum_covers_card_and_tensors() -> None:
    sums = {
        str(TensorFiles.of(kind, content, tensors).card["sha256"])
        for kind, content, tensors in (
            ("thing", {"colour": "red"}, TENSORS),
            ("thing", {"colour": "blue"}, TENSORS),
            ("other", {"colour": "red"}, TENSORS),
            ("thing", {"colour": "red"}, TENSORS | {"b": torch.tensor([1])}),
        )
    }
    assert len(sums) == 4


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("", "holds a damaged thing"),
        ("[1]", "holds a damaged thing"),
        ('{"kind": "thing"}', "holds a damaged thing"),
        ('{"kind": "thing", "format": 9, "sha256": ""}', r"has format 9 and kind 'thing'; this version reads format 2"),
        (
            '{"kind": "other", "format": 2, "sha256": ""}',
            r"kind 'other'; this version reads format 2 and the kinds \['thing'\]",
        ),
        ('{"kind": "thing", "format": 2, "sha256": ""}', r"does not match the checksum in thing\.json: it was cut or edited"),
    ],
)
def test_bad_cards(written: Path, content: str, match: str) -> None:
    (written / "thing.json").write_text(content)
    with pytest.raises(ValueError, match=match):
        read_tensor_files(written, "thing", kinds=["thing"])


def test_missing_files(written: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"holds no model \(model\.json is missing\)"):
        read_tensor_files(written, "model", kinds=["thing"])
    (written / "thing.safetensors").unlink()
    with pytest.raises(ValueError, match="holds a damaged thing"):
        read_tensor_files(written, "thing", kinds=["thing"])
