"""Dialects of csv files: delimiter and encoding, by what is public of a file, its header line."""

import codecs
import csv
import io
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow


class Dialect(NamedTuple):
    """The dialect of a csv file: delimiter, encoding, and whether its first line says the delimiter, as Excel writes it.

    The encoding "" is UTF-8, but cp1252 of each line that is not UTF-8.
    """

    delimiter: str
    encoding: str
    announced: bool


def shown_dialect(start: bytes, delimiter: str | None, encoding: str | None) -> Dialect:
    """The dialect that the first bytes of a file show, as far as its owner does not say it.

    A byte order mark, or zero bytes, show UTF-16. The delimiter is the one that most names of the header are between: a comma,
    a semicolon, a tab or |. Nothing depends on the records.

    >>> shown_dialect(b"name;born;town, street\\n1;2;3", None, None)
    Dialect(delimiter=';', encoding='', announced=False)
    """
    encoding = encoding or next((name for mark, name in _MARKS if re.match(mark, start, re.DOTALL)), "")
    text = start.decode(encoding or "utf-8-sig", "replace").removeprefix("\ufeff")
    announced = re.match(r"sep=(.)\r?\n", text)
    line = text[announced.end() if announced else 0 :].lstrip("\r\n").split("\n")[0]
    if delimiter is None:
        delimiter = announced[1] if announced else max(",;\t|", key=lambda mark: len(_names(line, mark)))
    return Dialect(delimiter, encoding, announced is not None)


_MARKS = ((rb"\xff\xfe|\xfe\xff", "utf-16"), (rb"[^\0]\0[^\0]\0", "utf-16-le"), (rb"\0[^\0]\0[^\0]", "utf-16-be"))


def _names(text: str, delimiter: str) -> list[str]:
    return next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=False), [])


def recoded(stream: Any, dialect: Dialect) -> Any:
    """The bytes of a text in UTF-8, without a line that says the delimiter."""
    recode, first = _by_line() if dialect.encoding == "" else _decoding(dialect.encoding), dialect.announced

    def change(block: Any) -> bytes:
        nonlocal first
        made = recode(bytes(block))
        if first and made:
            made, first = made[made.index(b"\n") + 1 :], False
        return made

    return pyarrow.TransformInputStream(stream, change)


def _decoding(encoding: str) -> Callable[[bytes], bytes]:
    decoder = codecs.getincrementaldecoder(encoding)()

    def recode(block: bytes) -> bytes:
        try:
            return decoder.decode(block, final=len(block) == 0).encode()
        except UnicodeError:  # it quotes the bytes, which are private
            raise ValueError(f"its text is not in the encoding {encoding!r}: give another one, as cp1252") from None

    return recode


def _by_line() -> Callable[[bytes], bytes]:
    """UTF-8, but cp1252 of each line that is not: one record does not change how others are read."""
    left = b""

    def recode(block: bytes) -> bytes:
        nonlocal left
        text, left = left + block, b""
        if block:
            end = text.rfind(b"\n") + 1
            text, left = text[:end], text[end:]
        return text if _is_utf8(text) else b"\n".join(map(_line, text.split(b"\n")))

    return recode


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _line(line: bytes) -> bytes:
    if _is_utf8(line):
        return line
    return "".join(_CP1252[byte] for byte in line).encode()


_CP1252 = tuple(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(256))
"""Characters of bytes; five of them are none in cp1252."""
