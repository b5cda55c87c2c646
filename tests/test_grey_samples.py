"""Samples with grey values."""

from pathlib import Path

import numpy as np
import torch

from dpgen.systems.gaussian.grey_samples import GreySamples


def test_the_archive_keeps_bits_and_grey_values(tmp_path: Path) -> None:
    grey = torch.tensor([[0, 200], [130, 5]], dtype=torch.uint8)
    samples = GreySamples(x=(grey > 127).to(torch.uint8), cluster=torch.zeros(2).long(), grey=grey, labels=torch.ones(2).long())
    samples.save(tmp_path / "s.npz")
    samples.save(tmp_path / "s.csv")
    with np.load(tmp_path / "s.npz") as stored:
        assert stored["grey"].tolist() == grey.tolist()
        assert stored["x"].tolist() == [[0, 1], [1, 0]]
        assert stored["labels"].tolist() == [1, 1]
