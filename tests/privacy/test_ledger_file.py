import copy
import errno
import os
import pickle

import pytest

from dpgen.privacy.ledger_file import LedgerError, LedgerFile


def written(path, *documents):
    file = LedgerFile(path)
    file.create()
    for document in documents or ({"a": 1},):
        file.write(document)
    return file


def test_the_last_document_is_read(tmp_path):
    written(tmp_path / "l", {"a": 1}, {"b": [2.5, None]}).close()
    assert LedgerFile(tmp_path / "l").read() == {"b": [2.5, None]}
    assert [path.name for path in tmp_path.iterdir()] == ["l"]


def test_every_edited_or_missing_byte_is_noticed(tmp_path):
    path = tmp_path / "l"
    written(path, {"a": 1, "b": "text"}).close()
    good = path.read_bytes()
    for position in range(len(good)):
        for bad in (good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :], good[:position]):
            path.write_bytes(bad)
            with pytest.raises(LedgerError, match=str(path)):
                LedgerFile(path).read()
    path.write_text('{"dpgen_ledger":2,"epsilon":1.0,"chain":"00"}\n{"charge":0,"chain":"0"}\n')
    with pytest.raises(LedgerError, match=r"0\.4"):
        LedgerFile(path).read()


def test_one_writer_before_and_after_a_write(tmp_path):
    file = written(tmp_path / "l", {"a": 1})
    for _ in range(2):
        with pytest.raises(LedgerError, match="another process"):
            LedgerFile(tmp_path / "l").read()
        file.write({"a": 2})
    file.close()
    file.close()
    other = LedgerFile(tmp_path / "l")
    other.read()
    other.close()
    with pytest.raises(LedgerError, match="already there"):
        LedgerFile(tmp_path / "l").create()
    with pytest.raises(LedgerError, match="cannot open"):
        LedgerFile(tmp_path / "none").read()
    with pytest.raises(LedgerError, match="closed"):
        file.write({})


@pytest.mark.parametrize("where", ["fsync", "replace"])
def test_a_full_disk_leaves_the_file_as_it_was(tmp_path, monkeypatch, where):
    file = written(tmp_path / "l", {"a": 1})

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, where, full)
        with pytest.raises(LedgerError, match="No space left"):
            file.write({"a": 2})
    assert [path.name for path in tmp_path.iterdir()] == ["l"]
    file.write({"a": 3})
    file.close()
    assert LedgerFile(tmp_path / "l").read() == {"a": 3}


def test_changed_or_removed_under_the_writer(tmp_path):
    file = written(tmp_path / "l")
    (tmp_path / "l").unlink()
    with pytest.raises(LedgerError, match="somebody else"):
        file.write({})
    written(tmp_path / "l")
    with pytest.raises(LedgerError, match="somebody else"):
        file.write({})


def test_copies_and_forks_are_refused(tmp_path, monkeypatch):
    file = written(tmp_path / "l")
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="copied"):
            duplicate(file)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(LedgerError, match="forked"):
        file.write({})
