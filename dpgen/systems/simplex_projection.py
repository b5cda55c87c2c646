"""The nearest vector of non-negative entries with a given sum."""

import numpy as np
import numpy.typing as npt

Reals = npt.NDArray[np.float64]


def project_to_simplex(values: Reals, total: float = 1.0) -> Reals:
    """The nearest (L2) vector (m,) with entries >= 0 that sum to `total` > 0.

    Source: Held, Wolfe, Crowder 1974; Duchi, Shalev-Shwartz, Singer, Chandra 2008, Figure 1.

    >>> project_to_simplex(np.array([3.0, 1.0, -2.0]), 2.0).tolist()
    [2.0, 0.0, 0.0]
    """
    if not total > 0:
        raise ValueError(f"total is {total!r}; it must be > 0")
    ordered = np.sort(values)[::-1]
    excess = (np.cumsum(ordered) - total) / np.arange(1, len(values) + 1)
    last = int(np.flatnonzero(ordered > excess)[-1])
    return np.asarray(np.maximum(values - excess[last], 0.0))
