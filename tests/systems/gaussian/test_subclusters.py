"""DP k-means inside classes."""

import torch

from dpgen.privacy.curator import Curator
from dpgen.privacy.exact_sums import clipped
from dpgen.privacy.ledger import Ledger
from dpgen.systems.gaussian.components import Centres, release_centres
from dpgen.systems.gaussian.sums import RecordStream, Spending


def test_assignment_is_to_the_nearest_centre_of_the_own_class() -> None:
    generator = torch.Generator().manual_seed(0)
    centres, u = torch.randn(3, 4, 2, generator=generator).double(), torch.randn(50, 2, generator=generator)
    classes = torch.arange(50) % 3
    slow = [c * 4 + int((centres[c] - x).norm(dim=1).argmin()) for x, c in zip(u.double(), classes.tolist())]
    assert Centres(centres, torch.zeros(3, 4), 0.0).assign(u, classes).tolist() == slow


def test_rounds_find_clusters_and_an_empty_class_stays_where_it_was() -> None:
    generator = torch.Generator().manual_seed(0)
    truth = torch.tensor([[0.5, 0.5], [-0.5, 0.5]])
    u = truth[torch.arange(2000) % 2] + 0.05 * torch.randn(2000, 2, generator=generator)
    start = torch.tensor([[[0.2, 0.1], [-0.2, 0.1]], [[0.0, 0.3], [0.3, 0.0]]]).double()
    ledger = Ledger(None, delta=1e-5)
    found = release_centres(
        RecordStream(u, torch.zeros(2000, dtype=torch.int64)),
        lambda x, labels: (x, labels if labels is not None else torch.zeros(len(x)).long()),
        start,
        spending=Spending(Curator(ledger), 2.0, {"clusters": 1.0}),
        rounds=3,
    )
    assert torch.allclose(found.centres[0].float(), truth, atol=0.08)
    assert float((found.centres[1] - start[1]).abs().max()) < 1.0
    assert torch.allclose(found.counts[0], torch.tensor([1000.0, 1000.0]).double(), atol=60.0)
    assert sum(entry.count for entry in ledger.entries()) == 3


def test_ties_fall_the_same_way_in_any_batch() -> None:
    """Otherwise one record less could move many others from one cluster to another."""
    generator = torch.Generator().manual_seed(0)
    u = clipped(torch.randn(300, 40, generator=generator))
    near = torch.randn(40, generator=generator).double()
    centres = Centres(torch.stack([near, -near, near.roll(1), near + 1e-12, near - 1e-12])[None], torch.zeros(1, 5), 0.0)
    u = torch.cat([u, torch.zeros(5, 40), (u - u.flip(0))])
    whole = centres.assign(u, torch.zeros(len(u)).long())
    assert not bool((whole >= 3).any()), "on the grid they are the first centre: a tie, which the first one wins"
    for size in (1, 3, 7):
        parts = [centres.assign(part, torch.zeros(len(part)).long()) for part in u.split(size)]
        assert torch.equal(torch.cat(parts), whole)
