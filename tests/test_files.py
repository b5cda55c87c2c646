"""Files are whole or absent, whatever happens while they are written."""

import os
from pathlib import Path

import pytest
import torch
from refusals import refused

from dpgen.files import TensorFiles, read_tensor_files, remove_leftovers, write_atomically


@pytest.mark.parametrize("data", [b"\x00\xff", "text"])
def test_content_arrives_and_replaces(tmp_path: Path, data: bytes | str) -> None:
    path = tmp_path / "file"
    path.write_text("before, and longer than what comes")
    write_atomically(path, data)
    assert path.read_bytes() == (data.encode() if isinstance(data, str) else data)
    assert [p.name for p in tmp_path.iterdir()] == ["file"], "no temporary file stays behind"
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("before")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, "after")
    assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_the_file_is_flushed_before_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    fsync, rename = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append("fsync"), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append("replace"), rename(a, b)))
    write_atomically(tmp_path / "file", "x")
    assert calls == ["fsync", "replace"]


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    for name in (".last.ckpt.dpgen-a1b2c3d4", "model/.model.json.dpgen-_x0y1z2w"):
        (tmp_path / name).write_text("half")
    for name in ("last.ckpt", ".hidden", ".gitignore", ".env.template", "model/.keep.txt"):
        (tmp_path / name).write_text("kept")
    remove_leftovers(tmp_path)
    left = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
    assert left == [".env.template", ".gitignore", ".hidden", "last.ckpt", "model/.keep.txt"]


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
    ("content", "word"),
    [
        *((content, "damaged") for content in (b"", b"[1]", b"\xff", b'{"kind": "thing"}')),
        (b'{"kind": "thing", "format": 9, "sha256": ""}', "format 9"),
        (b'{"kind": "other", "format": 2, "sha256": ""}', "'other'"),
        (b'{"kind": ["thing"], "format": 2, "sha256": ""}', "['thing']"),
        (b'{"kind": "thing", "format": 2, "sha256": ""}', "checksum"),
    ],
)
def test_bad_cards(written: Path, content: bytes, word: str) -> None:
    (written / "thing.json").write_bytes(content)
    with refused(word):
        read_tensor_files(written, "thing", kinds=["thing"])


def test_missing_and_edited_files(written: Path) -> None:
    with refused("model.json", error=FileNotFoundError):
        read_tensor_files(written, "model", kinds=["thing"])
    tensors = written / "thing.safetensors"
    content = tensors.read_bytes()
    for position in (0, 100, -1):
        edited = bytearray(content)
        edited[position] ^= 1
        tensors.write_bytes(edited)
        with refused("checksum"):
            read_tensor_files(written, "thing", kinds=["thing"])
    tensors.unlink()
    with refused("damaged"):
        read_tensor_files(written, "thing", kinds=["thing"])
