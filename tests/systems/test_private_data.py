"""The data sets of `dpgen.data` have what systems read of them."""

from typing import Any

import duckdb
import numpy as np
import pytest

from dpgen import data
from dpgen.containers import in_memory
from dpgen.systems.plan import (
    PrivateColumns,
    PrivateImages,
    PrivateLinkedTables,
    PrivatePoints,
    PrivateRecords,
    PrivateStream,
    PrivateTable,
    PrivateUsers,
)


def streamed() -> Any:
    return data.LOADERS["streams"]["sql"](source=in_memory(duckdb.sql("select range as a, 1 as b from range(2)")))


KINDS: dict[str, tuple[Any, Any]] = {
    "records": (PrivateRecords, lambda: data.load_digits()),
    "images": (PrivateImages, lambda: data.load_images()),
    "mapped": (PrivateRecords, lambda: data.MappedRecords("bits", data.MappedRows([np.eye(4, dtype=np.uint8)]))),
    "points": (PrivatePoints, lambda: data.LOADERS["points"]["ring"]()),
    "columns": (PrivateColumns, lambda: data.LOADERS["columns"]["mixture"]()),
    "streams": (PrivateStream, streamed),
    "table": (PrivateTable, lambda: data.load_table()),
    "linked": (PrivateLinkedTables, lambda: data.load_linked()),
    "users": (PrivateUsers, lambda: data.LOADERS["users"]["synthetic_users"]()),
}


def attributes(protocol: Any) -> list[str]:
    return [name for name, value in vars(protocol).items() if isinstance(value, property)]


def test_every_kind_of_data_has_a_protocol() -> None:
    assert set(KINDS) == set(data.LOADERS)


@pytest.mark.parametrize("kind", KINDS)
def test_what_systems_read_is_there(kind: str) -> None:
    protocol, load = KINDS[kind]
    loaded = load()
    assert attributes(protocol)
    assert [name for name in attributes(protocol) if not hasattr(loaded, name)] == []


def test_streams_are_told_from_records_in_memory() -> None:
    assert isinstance(streamed(), PrivateStream)
    assert not isinstance(KINDS["records"][1](), PrivateStream)


def test_points_are_told_from_records() -> None:
    assert isinstance(KINDS["points"][1](), PrivatePoints)
    assert not isinstance(KINDS["records"][1](), PrivatePoints)
