"""People with up to 200 rows: what they move, and how many rows samples have."""

import numpy as np
import pandas as pd
import pytest

import dpgen
from dpgen.privacy.exact_sums import WHOLE
from dpgen.systems.relational.sums import Branch, Histories, Shape, instances


@pytest.mark.parametrize("rows", [1, 2, 61, 199, 200])
def test_a_person_with_200_rows_has_a_whole_of_each_table(rows: int) -> None:
    """Never more, which is the proof, and not so little less that a fit would see it."""
    shape = Shape((2, 201), (Branch((3, 4, 2), ("all", "later", "first"), 200, count=1),))
    codes = np.random.default_rng(0).integers(0, 2, (rows, 3))
    person = Histories(np.array([[1, rows]]), [codes], [np.array([0, rows])])
    for block in shape.blocks:
        total = int(instances(person, shape, block).parts.sum())
        assert total <= WHOLE, block
        assert total == 0 or total > 0.98 * WHOLE, block


def test_samples_have_as_many_rows_as_long_histories() -> None:
    rng = np.random.default_rng(0)
    counts = rng.integers(80, 121, 200)
    who = np.repeat(np.arange(200), counts)
    place = np.arange(len(who)) - np.repeat(counts.cumsum() - counts, counts)
    rows = pd.DataFrame({"who": who, "t": place, "x": rng.integers(0, 3, len(who))})
    limits = {"t": 200, "x": 2}
    fields = [{"name": n, "type": "integer", "constraints": {"minimum": 0, "maximum": m}} for n, m in limits.items()]
    fast = {"rounds": 1, "classes": 4, "row_classes": 4, "steps": 120, "method": "independent"}
    release = dpgen.fit(rows, epsilon=100.0, person="who", order="t", max_rows=120, schema={"fields": fields}, **fast)
    found = release.sample(400, random_state=0).groupby("who").size()
    assert found.between(1, 120).all()
    assert abs(found.mean() - counts.mean()) < 6
    assert found.between(75, 120).mean() > 0.9
    estimate = release.counts()["estimate"]
    assert abs(estimate.iloc[1] / len(rows) - 1) < 0.05
