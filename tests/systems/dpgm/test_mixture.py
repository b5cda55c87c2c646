"""The released mixture: weights from noisy sizes, labels from clusters or columns, free and reproducible samples."""

import tiny
import torch
from refusals import refused


def test_weights_are_positive_parts_and_sum_to_one() -> None:
    model = tiny.mixture()
    assert torch.allclose(model.weights, torch.tensor([0.75, 0.0, 0.25]))
    model.counts = torch.tensor([-1.0, -2.0, 0.0])
    assert torch.allclose(model.weights, torch.full((3,), 1 / 3))


def test_clusters_appear_in_proportion_to_their_weights() -> None:
    samples = tiny.mixture().samples(4000, random_state=0)
    shares = torch.bincount(samples.cluster, minlength=3) / 4000
    assert torch.allclose(shares, torch.tensor([0.75, 0.0, 0.25]), atol=0.04)
    assert samples.x.dtype == torch.uint8
    assert set(samples.x.unique().tolist()) <= {0, 1}
    assert samples.cluster[:50].unique().numel() > 1, "records are in random order"


def test_pixels_have_the_means_of_their_component() -> None:
    model = tiny.mixture()
    for bias, expected in ((-50.0, 0), (50.0, 1)):
        model.bank.part("decoder.1.bias")[2].fill_(bias)
        assert set(model.samples(20, clusters=[2]).x.unique().tolist()) == {expected}
    mean = model.samples(3000, random_state=0, clusters=[0]).x.float().mean(0)
    truth = model.means(0, 3000, torch.Generator().manual_seed(1)).mean(0)
    assert torch.allclose(mean, truth, atol=0.06)


def test_chosen_clusters_only_even_if_their_size_is_negative() -> None:
    model = tiny.mixture()
    assert set(model.samples(50, clusters=[1]).cluster.tolist()) == {1}
    assert set(model.samples(200, clusters=[0, 2], random_state=0).cluster.tolist()) == {0, 2}


def test_rounding_to_the_nearer_bit_is_a_function_of_the_mean() -> None:
    model = tiny.mixture()
    drawn, nearest = model.samples(200, random_state=1), model.samples(200, random_state=1, rounding="threshold")
    assert torch.equal(drawn.cluster, nearest.cluster)
    assert not torch.equal(drawn.x, nearest.x)


def test_labels_from_the_cluster_or_from_columns_or_none() -> None:
    by_cluster = tiny.mixture().samples(30)
    assert by_cluster.labels is not None
    assert torch.equal(by_cluster.labels, by_cluster.cluster)
    assert tiny.mixture(labelled_by=None).samples(30).labels is None

    model = tiny.mixture(labelled_by="columns", categories=4)
    model.bank.part("decoder.1.bias")[0, -4:] = torch.tensor([0.0, 0.0, 90.0, 0.0])
    samples = model.samples(30, clusters=[0])
    assert samples.labels is not None
    assert set(samples.labels.tolist()) == {2}
    assert samples.x.shape == (30, tiny.D), "label columns are not part of the record"


def test_unknown_clusters_are_refused() -> None:
    for clusters in ([], [3], [-1], [0, 7]):
        with refused("[0, 3)"):
            tiny.mixture().samples(5, clusters=clusters)
