"""What an audit says."""

import json
from typing import Any

from dpgen.auditing.lower_bounds import Finding


def finding(**changes: Any) -> Finding:
    options: dict[str, Any] = {
        "audited": "a system",
        "neighbours": "one canary",
        "claimed": 1.00001,
        "claimed_by": "the ledger",
        "delta": 1e-5,
        "relation": "add_remove",
        "unit": "one record",
        "lower_bound": 0.5,
        "confidence": 0.95,
        "method": "many runs",
        "attack": "likelihood ratio",
        "trainings": 200,
        "trials": 200,
        "seconds": 1.0,
    }
    return Finding(**options | changes)


def test_a_bound_above_the_claim_violates_it_and_an_equal_one_does_not() -> None:
    assert finding(lower_bound=1.2).verdict == "VIOLATED"
    assert finding(lower_bound=1.00001).verdict == "consistent"


def test_the_table_has_claim_and_bound_side_by_side_and_rounds_the_claim_up() -> None:
    text = finding().to_text()
    for part in ("epsilon 1.001 at delta 1e-05, by the ledger", "epsilon 0.5000", "confidence 0.95", "no audit can prove"):
        assert part in text
    assert "VIOLATED" in finding(lower_bound=2.0).to_text()


def test_json_has_everything() -> None:
    record = json.loads(finding().to_json())
    assert record["verdict"] == "consistent"
    assert (record["claimed"], record["lower_bound"], record["trainings"]) == (1.00001, 0.5, 200)
