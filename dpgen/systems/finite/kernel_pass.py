"""PK of the minimax kernel in two passes over each row, compiled: for CPU tensors, where torch's calls cost more than sums."""

import numba
import numpy as np
import numpy.typing as npt

Reals = npt.NDArray[np.float64]
Ranks = npt.NDArray[np.int64]

_BLOCK = 1023  # sums are taken in blocks of 1024, so that errors grow like 1024 + n / 1024


@numba.njit(nogil=True, cache=True, error_model="numpy")
def mix_rows(p: Reals, order: Ranks, q: Reals, a: Reals, gain: float) -> Reals:
    r"""Rows $q_j (\sum_{i<j} a_i P_i + a_j \sum_{i>j} P_i + a_j e^\epsilon P_j)$ of P (u, n), j by rank, in place of j = order.

    Arguments:
        order: category of each rank; q, a: prior and scales by rank; gain: e^epsilon.
    """
    u, n = p.shape
    result = np.empty_like(p)
    for row in range(u):
        blocks, block = 0.0, 0.0
        for k in range(n):
            if k & _BLOCK == 0:
                blocks, block = blocks + block, 0.0
            result[row, order[k]] = blocks + block
            block += a[k] * p[row, order[k]]
        blocks, block = 0.0, 0.0
        for done in range(n):
            if done & _BLOCK == 0:
                blocks, block = blocks + block, 0.0
            k = n - 1 - done
            held = p[row, order[k]]
            result[row, order[k]] = q[k] * (result[row, order[k]] + a[k] * ((blocks + block) + gain * held))
            block += held
    return result
