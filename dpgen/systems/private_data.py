"""What systems read of private data, kind by kind; `dpgen.data` has classes that fit, and so may yours."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from torch import Tensor

from dpgen.discretized import DiscretizedColumn


class PrivateRecords(Protocol):
    """Binary records; all but x, labels and grey is public."""

    @property
    def x(self) -> Tensor: ...  # (n, d) in {0, 1}
    @property
    def labels(self) -> Tensor | None: ...  # (n,) in [0, n_classes)
    @property
    def n_classes(self) -> int: ...  # 0 without labels
    @property
    def public_x(self) -> Tensor | None: ...  # (m, d), records that are not protected
    @property
    def image_shape(self) -> tuple[int, int] | None: ...
    @property
    def columns(self) -> Sequence[str] | None: ...
    @property
    def grey(self) -> Tensor | None: ...  # (n, d) uint8 of images; x is 1 where they are above grey_threshold
    @property
    def grey_threshold(self) -> int: ...  # in [0, 254]


@runtime_checkable
class PrivatePoints(Protocol):
    """Points in R^d; all but x is public."""

    @property
    def x(self) -> Tensor: ...  # (n, d)
    @property
    def bounds(self) -> Tensor | None: ...  # (d, 2)
    @property
    def columns(self) -> Sequence[str]: ...  # d names
    @property
    def location(self) -> Tensor: ...  # (d,)
    @property
    def scale(self) -> Tensor: ...  # (d,)
    @property
    def target(self) -> Any: ...  # the density of synthetic points, or None
    @property
    def test_x(self) -> Tensor: ...  # not protected


class PrivateColumns(Protocol):
    """Columns of ordered values on public grids."""

    @property
    def values(self) -> Mapping[str, npt.NDArray[np.int64]]: ...  # positions (n,) in [0, N)
    @property
    def domains(self) -> Mapping[str, DiscretizedColumn]: ...
    @property
    def clamped(self) -> Mapping[str, int] | None: ...  # how many values lay outside


class PrivateUsers(Protocol):
    """Users with a distribution each; all but the counts is public."""

    @property
    def counts(self) -> Tensor: ...  # events (u, n) >= 0 of u users over n categories
    @property
    def user_names(self) -> tuple[str, ...]: ...  # u
    @property
    def categories(self) -> tuple[str, ...]: ...  # n
    @property
    def groups(self) -> tuple[str, ...] | None: ...  # of each user
    @property
    def prior(self) -> Tensor | None: ...  # (n,), or None: uniform, or to be measured on the users
    @property
    def prior_origin(self) -> str: ...  # in words
