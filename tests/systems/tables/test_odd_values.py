"""Single values that Python or pandas stumble over stop no fit: after the budget is spent an error would tell of one record."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dpgen
from dpgen.columns.forms import NESTED, floats, token


class Broken:
    """An object without a text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


LAST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone(timedelta(hours=-12)))
FIRST = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=12)))
ODD = [Decimal("sNaN"), LAST, FIRST, 10**5_000, Broken()]


def test_tokens_of_odd_values() -> None:
    assert token(10**5_000) == token(-(10**5_000)) == NESTED
    assert token(10**3_000) == str(10**3_000)
    assert token(Broken()) == ""
    assert token(datetime(2020, 1, 2, tzinfo=timezone(timedelta(hours=1)))) == "\0d2020-01-01T23:00:00"
    late = floats(pd.Series([LAST, FIRST, datetime(2020, 1, 2, tzinfo=UTC)], dtype=object), "datetime")
    assert np.isfinite(late).all()
    assert late[1] < late[2] < late[0]


@pytest.mark.parametrize("odd", ODD, ids=["signal", "last", "first", "long", "broken"])
@pytest.mark.parametrize("container", ["pandas", "rows"])
def test_odd_values_stop_no_fit(odd: Any, container: str) -> None:
    rng = np.random.default_rng(0)
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 300, 400), unit="D")
    rows = pd.DataFrame({"who": np.arange(400) // 2, "at": day, "x": rng.integers(0, 3, 400), "y": "a"})
    rows = rows.astype({"x": object, "y": object})
    rows.at[3, "x"] = odd
    rows.at[5, "y"] = odd
    options: dict[str, Any] = {"person": "who", "order": "at", "max_rows": 2, "rounds": 1, "classes": 4, "steps": 20}
    release = dpgen.fit(rows if container == "pandas" else rows.to_dict("records"), epsilon=10.0, **options)
    assert len(release.sample(20, random_state=0)) > 0
