"""Records: what is refused, what is private, what is split."""

import pytest
import tiny
import torch

from dpgen.data.records import Records, require_binary, split_records
from dpgen.data.split import Split
from dpgen.facts import Fact

EYE = torch.eye(6, dtype=torch.uint8)
ONES = torch.ones(2, 6, dtype=torch.uint8)
LABELS = torch.tensor([0, 1, 2, 0, 1, 2])


def numbered(n: int, bits: int = 10) -> torch.Tensor:
    """Records that are all different: the binary digits of 0..n-1."""
    return ((torch.arange(n)[:, None] >> torch.arange(bits)) & 1).to(torch.uint8)


def as_numbers(x: torch.Tensor) -> list[int]:
    return (x.long() << torch.arange(x.shape[1])).sum(1).tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.zeros(6, dtype=torch.uint8)}, r"^x has shape \(6,\): it must be \(records, features\)"),
        ({"x": torch.zeros(3, 0, dtype=torch.uint8)}, r"^x has shape \(3, 0\)"),
        ({"x": EYE * 2}, r"^x has another value in row 1, column 1: only 0 and 1 are supported$"),
        ({"x": EYE.float() * float("nan")}, r"^x has another value in row 1, column 1"),
        ({"x": torch.full((2, 6), float("inf"))}, r"^x has another value in row 1"),
        ({"x": EYE.float()}, r"^x has dtype torch.float32: it must be torch.uint8"),
        ({"test_x": ONES[:, :5]}, r"^test_x has 5 features, x has 6"),
        ({"test_x": ONES * 3}, r"^test_x has another value in row 1"),
        ({"labels": LABELS, "n_classes": 0, "test_labels": LABELS[:2]}, r"^n_classes is 0 with labels: .* at least 1"),
        ({"labels": LABELS, "n_classes": 3}, r"^test_labels is missing but labels is given"),
        ({"labels": LABELS[:5], "test_labels": LABELS[:2], "n_classes": 3}, r"^labels has shape \(5,\).* \(6,\)"),
        ({"labels": LABELS, "test_labels": LABELS[:2], "n_classes": 2}, r"^labels has a label outside \[0, 1\]"),
        ({"labels": -LABELS, "test_labels": LABELS[:2], "n_classes": 3}, r"^labels has a label outside \[0, 2\]"),
        ({"labels": LABELS.int(), "test_labels": LABELS[:2], "n_classes": 3}, r"dtype torch.int32.*torch.int64"),
        ({"n_classes": 3}, r"^n_classes is 3 without labels"),
        ({"image_shape": (2, 2)}, r"^image_shape 2 x 2 has 4 pixels, the records have 6"),
        ({"columns": ["a"]}, r"^columns has 1 names, the records have 6"),
        ({"public_x": EYE[:, :2]}, r"^public_x has 2 features"),
        ({"public_x": EYE * 4}, r"^public_x has another value in row 1"),
    ],
)
def test_records_refuse(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        Records(**{"name": "bad", "x": EYE, "test_x": ONES, **changes})
    assert "\n" not in str(error.value)


def test_class_names_must_match() -> None:
    with pytest.raises(ValueError, match="class_names has 1 names, n_classes is 3"):
        Records("bad", EYE, ONES, labels=LABELS, test_labels=LABELS[:2], n_classes=3, class_names=("a",))


def test_error_names_the_column() -> None:
    with pytest.raises(ValueError, match="row 2, column 'age'"):
        require_binary(torch.tensor([[0, 1], [1, 7]]), columns=["sex", "age"])


def test_representation_shows_no_record() -> None:
    text = repr(Records("six", EYE, ONES, labels=LABELS, test_labels=LABELS[:2], n_classes=3, image_shape=(2, 3)))
    assert text == "Records('six': 6 private, 2 test, 0 public records of 6 binary features, 3 classes)"
    assert "tensor" not in text


def test_split_is_a_partition_and_keeps_labels() -> None:
    x = numbered(100)
    split = Split.public(5, 0.3)
    records = split_records("all", x, labels=torch.arange(100), n_classes=100, split=split)
    assert (records.n, len(records.test_x)) == (100 - int(split.test_rows(100).sum()), int(split.test_rows(100).sum()))
    assert sorted(as_numbers(records.x) + as_numbers(records.test_x)) == list(range(100))
    assert as_numbers(records.x) == records.labels.tolist()
    assert as_numbers(records.test_x) == records.test_labels.tolist()
    assert Fact.TEST_PART in tiny.told(records)


def test_split_depends_on_the_key_and_not_on_the_records() -> None:
    keys = (b"1" * 32, b"2" * 32)
    first, other = (as_numbers(split_records("a", numbered(50), split=Split(key=key)).test_x) for key in keys)
    labels = torch.zeros(50, dtype=torch.int64)
    labelled = split_records("a", numbered(50), labels=labels, n_classes=1, split=Split(key=keys[0]))
    assert first == as_numbers(labelled.test_x)
    assert first != other
    assert as_numbers(split_records("a", numbered(50)).x) != as_numbers(split_records("a", numbered(50)).x), "fresh keys"


def test_split_leaves_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    split_records("a", numbered(50), public_records=5)
    assert torch.equal(before, torch.random.get_rng_state())


def test_split_refuses_wrong_labels_and_no_number_of_records() -> None:
    with pytest.raises(ValueError, match="labels has length 3, x has 6"):
        split_records("a", EYE, labels=LABELS[:3], n_classes=3)
    for n in (0, 1, 2):
        records = split_records("a", EYE[:n], labels=LABELS[:n], n_classes=3, public_records=1)
        assert records.public_x is not None
        assert records.n + len(records.test_x) + len(records.public_x) == n


def test_public_records_leave_the_private_part() -> None:
    records = split_records("a", numbered(100), labels=torch.arange(100), n_classes=100)
    public = records.set_aside(10, Split.public(3))
    assert (public.n, len(public.public_x)) == (records.n - 10, 10)
    assert sorted(as_numbers(public.x) + as_numbers(public.public_x)) == sorted(as_numbers(records.x))
    assert as_numbers(public.public_x) == public.public_labels.tolist()
    assert torch.equal(public.test_x, records.test_x)
    assert tiny.told(public)[Fact.PUBLIC_RECORDS] == {"n": 10}
    assert records.set_aside(0, Split.public(3)) is records


def test_more_public_records_than_there_are_leave_nothing_to_protect() -> None:
    records = split_records("a", EYE, split=Split(0.0)).set_aside(99, Split())
    assert (records.n, len(records.public_x)) == (0, 6)
    with pytest.raises(ValueError, match="public_records is -1: it must be at least 0"):
        split_records("a", EYE, public_records=-1)


def test_public_records_only_once() -> None:
    with pytest.raises(ValueError, match="public_records is 1, but some records are public already"):
        split_records("a", EYE, public_records=1).set_aside(1, Split())
