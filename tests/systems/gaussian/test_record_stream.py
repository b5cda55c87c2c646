"""Streams of records."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from dpgen.systems.gaussian.sums import RecordStream, checked, gram_sums


def test_a_stream_is_all_records_each_time_it_is_read() -> None:
    x = torch.arange(10, dtype=torch.uint8).reshape(5, 2)
    stream = RecordStream(x, torch.arange(5), top=9.0, batch_size=2)
    for _ in range(2):
        assert torch.allclose(torch.cat([part for part, _ in stream]), x / 9.0)
        assert torch.cat([labels for _, labels in stream if labels is not None]).tolist() == [0, 1, 2, 3, 4]


class Endless:
    """Records that are made when they are asked for: only one batch is ever in memory."""

    def __init__(self, batches: int) -> None:
        self.batches, self.alive, self.most = batches, 0, 0

    def __iter__(self) -> Iterator[tuple[Tensor, None]]:
        for i in range(self.batches):
            yield torch.full((1000, 2), float(i % 2)), None


def test_sums_need_no_table() -> None:
    stream = Endless(300)
    sums = gram_sums(stream, lambda x, _: (x, torch.zeros(len(x), dtype=torch.int64)), k=1, m=2, border=1.0)
    assert float(sums.values[0, 0, 0]) * sums.step == 300_000
    assert float(sums.values[0, 1, 1]) * sums.step == pytest.approx(75_000, rel=1e-4)


@pytest.mark.parametrize(
    ("x", "labels", "message"),
    [
        (torch.zeros(2, 4), None, r"x must have shape \(b, 3\), got \(2, 4\)"),
        (torch.tensor([[0.0, float("nan"), 1.0]]), None, "x must be finite"),
        (torch.tensor([[0.0, 2.0, 1.0]]), None, r"x must be in \[0, 1\], got \[0, 2\]"),
        (torch.zeros(2, 3), None, r"labels must have shape \(2,\), got None"),
        (torch.zeros(2, 3), torch.tensor([0, 7]), r"labels must be in \[0, 2\), got \[0, 7\]"),
    ],
)
def test_bad_batches_are_refused(x: Tensor, labels: Tensor | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(checked([(x, labels)], 3, 2 if labels is not None or x.shape == (2, 3) else 0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"x": torch.zeros(3, 0)}, "x must have shape"),
        ({"labels": torch.zeros(3)}, r"labels must have shape \(2,\), got \(3,\)"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
    ],
)
def test_bad_tables_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RecordStream(**({"x": torch.zeros(2, 3), "labels": None} | options))  # type: ignore[arg-type]
