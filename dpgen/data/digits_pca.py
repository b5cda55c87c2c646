"""Digits as points in a space that public records span."""

import torch

from dpgen.data.points import CLAMPED, Points, PublicScaling, split_points
from dpgen.data.split import Split

_REACH = 5.0  # public standard deviations


def load_digits_pca(
    *, components: int = 8, public_records: int = 300, test_fraction: float = 0.2, split_seed: int = 0
) -> Points:
    """scikit-learn's 1,797 digits in the first principal components of records that are declared public.

    Mean, components and standard deviations come from the public records; coordinates are in public standard deviations,
    clamped to [-5, 5].

    Arguments:
        components: coordinates kept, in [1, 64] and below public_records.
        public_records: records declared public, which then are left out.
        test_fraction: probability of each of the rest to be kept for evaluation, in [0, 1).
        split_seed: public seed of both choices: the digits are public.

    Raises:
        ValueError: options out of range.

    Example:
        >>> load_digits_pca(components=2)
        Points('digits_pca': 1209 private and 288 test points in 2 dimensions, in a public box)
    """
    from sklearn.datasets import load_digits

    x = torch.from_numpy(load_digits().data).to(torch.float64)
    if not 2 <= public_records <= len(x) // 2 or not 1 <= components <= min(40, public_records - 1):
        raise ValueError(
            f"components is {components}, public_records {public_records}: components must be in [1, 40] and below "
            f"public_records, public_records in [2, {len(x) // 2}]"
        )
    split = Split.public(split_seed, test_fraction)
    chosen = split.chosen(len(x), public_records)
    public, rest = x[chosen], x[~chosen]
    _, values, rows = torch.linalg.svd(public - public.mean(0), full_matrices=False)
    rows = rows * torch.where(rows.sum(1) >= 0, 1.0, -1.0)[:, None]  # the sign of a component is a convention
    std = values[:components] / (public_records - 1) ** 0.5
    z = (rest - public.mean(0)) @ rows[:components].T / std
    bounds = torch.tensor([-_REACH, _REACH]).expand(components, 2)
    return split_points(
        "digits_pca",
        z.clamp(-_REACH, _REACH),
        bounds=bounds,
        columns=tuple(f"pc{i + 1}" for i in range(components)),
        scaling=PublicScaling(torch.zeros(components), torch.ones(components), f"{public_records} public records"),
        split=split,
        notes=(f"{public_records} records were declared public; components and scale come from them", CLAMPED),
    )
