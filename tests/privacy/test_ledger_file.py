import copy
import errno
import os
import pickle

import dp_accounting as dpa
import pytest

from dpgen.privacy.ledger_file import LedgerError, LedgerFile, decode_event, encode_event


def written(path, bodies=('{"a":1}', '{"b":2}', '{"c":3}')):
    file = LedgerFile(path)
    file.create()
    for body in bodies:
        file.append([body])
    file.close()
    return path


def test_round_trip(tmp_path):
    path = written(tmp_path / "l.jsonl")
    file = LedgerFile(path)
    assert list(file.read()) == [{"a": 1}, {"b": 2}, {"c": 3}]
    assert file.lines == 3
    assert file.position() == {"lines": 3, "head": file.head}
    assert file.require_extends({"lines": 3, "head": file.head}) == 3
    with pytest.raises(LedgerError, match="differs from what the checkpoint saw at line 2"):
        file.require_extends({"lines": 2, "head": file.head})
    file.append(['{"d":4}', '{"e":5}'])
    file.close()
    file.close()
    assert len(path.read_text().splitlines()) == file.lines == 5


def test_memory_keeps_the_same_chain(tmp_path):
    memory, disk = LedgerFile(None), LedgerFile(tmp_path / "l.jsonl")
    for file in (memory, disk):
        file.create()
        file.append(['{"a":1}'])
    assert memory.head == disk.head
    memory.sync()


def test_every_edited_byte_is_noticed(tmp_path):
    path = written(tmp_path / "l.jsonl")
    good = path.read_bytes()
    for position in range(len(good)):
        path.write_bytes(good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
        with pytest.raises(LedgerError, match=r"line \d"):
            list(LedgerFile(path).read())


def test_every_cut_inside_a_line_is_noticed(tmp_path):
    path = written(tmp_path / "l.jsonl")
    good = path.read_bytes()
    for length in range(1, len(good)):
        path.write_bytes(good[:length])
        if good[:length].endswith(b"\n"):
            continue  # a cut at a line's end shows only against a checkpoint
        with pytest.raises(LedgerError, match=r"cut in the middle of line \d"):
            list(LedgerFile(path).read())


def test_lines_moved_removed_or_doubled_are_noticed(tmp_path):
    path = written(tmp_path / "l.jsonl")
    first, second, third = path.read_bytes().splitlines(keepends=True)
    for lines in ([second, third], [first, third], [first, second, second], [first, third, second]):
        path.write_bytes(b"".join(lines))
        with pytest.raises(LedgerError, match="does not match its checksum"):
            list(LedgerFile(path).read())


def test_missing_empty_and_existing_files(tmp_path):
    with pytest.raises(LedgerError, match="cannot open the ledger: No such file"):
        list(LedgerFile(tmp_path / "none").read())
    (tmp_path / "empty").touch()
    with pytest.raises(LedgerError, match="the ledger is empty; nothing was ever charged"):
        list(LedgerFile(tmp_path / "empty").read())
    LedgerFile(tmp_path / "empty").create()  # what a crash at birth leaves can be taken over
    with pytest.raises(LedgerError, match="cannot create the ledger"):
        LedgerFile(tmp_path / "no" / "such").create()
    with pytest.raises(LedgerError, match="a ledger is already there"):
        LedgerFile(written(tmp_path / "l.jsonl")).create()


def test_one_writer(tmp_path):
    path = tmp_path / "l.jsonl"
    file = LedgerFile(path)
    file.create()
    file.append(['{"a":1}'])
    for second in (LedgerFile(path).create, lambda: list(LedgerFile(path).read())):
        with pytest.raises(LedgerError, match="another process is writing this ledger"):
            second()
    file.close()
    assert list(LedgerFile(path).read()) == [{"a": 1}]


@pytest.mark.parametrize("part", [0, 7])
def test_a_full_disk_leaves_the_file_as_it_was(tmp_path, monkeypatch, part):
    path = tmp_path / "l.jsonl"
    file = LedgerFile(path)
    file.create()
    file.append(['{"a":1}'])
    good, real = path.read_bytes(), os.write

    def full(fd, data):
        if part:
            return real(fd, data[:part])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(LedgerError, match=r"could not record the charge .*; the mechanism must not run"):
        file.append(['{"b":2}'])
    monkeypatch.undo()
    assert path.read_bytes() == good
    assert file.lines == 1
    file.append(['{"b":2}'])
    file.close()
    assert list(LedgerFile(path).read()) == [{"a": 1}, {"b": 2}]


def test_an_append_is_one_write(tmp_path, monkeypatch):
    file = LedgerFile(tmp_path / "l.jsonl")
    file.create()
    calls, real = [], os.write
    monkeypatch.setattr(os, "write", lambda fd, data: calls.append(data) or real(fd, data))
    file.append(['{"a":1}', '{"b":2}'])
    assert len(calls) == 1
    assert calls[0].count(b"\n") == 2


def test_changed_or_removed_under_the_writer(tmp_path):
    path = tmp_path / "l.jsonl"
    file = LedgerFile(path)
    file.create()
    file.append(['{"a":1}'])
    with path.open("ab") as other:
        other.write(b"x")
    with pytest.raises(LedgerError, match="somebody else changed or removed"):
        file.append(['{"b":2}'])
    removed = LedgerFile(tmp_path / "removed.jsonl")
    removed.create()
    (tmp_path / "removed.jsonl").unlink()
    with pytest.raises(LedgerError, match="somebody else changed or removed"):
        removed.append(['{"b":2}'])


def test_copies_and_forks_are_refused(tmp_path, monkeypatch):
    file = LedgerFile(tmp_path / "l.jsonl")
    file.create()
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="a ledger cannot be pickled or copied"):
            attempt(file)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(LedgerError, match="charged in a forked process"):
        file.append(['{"a":1}'])
    monkeypatch.undo()
    file.close()
    with pytest.raises(LedgerError, match="closed; open it again"):
        file.append(['{"a":1}'])


@pytest.mark.parametrize(
    "event",
    [
        dpa.GaussianDpEvent(1.5),
        dpa.PoissonSampledDpEvent(0.1, dpa.LaplaceDpEvent(2.0)),
        dpa.ComposedDpEvent([dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(0.1 + 0.2), 7), dpa.NoOpDpEvent()]),
        dpa.dp_event.MixtureOfGaussiansDpEvent(1.0, [0.0, 1.0], [0.5, 0.5]),
    ],
)
def test_events_survive_the_file(event):
    assert decode_event(encode_event(event)) == event


@pytest.mark.parametrize("code", [["os", {}], ["DpEvent"], 3, ["GaussianDpEvent", {"sigma": 1}], ["annotations", {}]])
def test_unknown_events(code):
    with pytest.raises(LedgerError, match="the ledger declares an unknown event"):
        decode_event(code)
