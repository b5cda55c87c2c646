"""The error of a release of a table before it is paid for: its fit, rehearsed on rows that public facts alone make."""

from __future__ import annotations

import math
import resource
import sys
import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpgen.privacy.composition import worst
from dpgen.privacy.mechanisms import gaussian_event, require_whole
from dpgen.runtime import quiet_runtime, quiet_training

if TYPE_CHECKING:
    import pandas as pd

    from dpgen.config import RunConfig
    from dpgen.systems.tables.model import TablesModel

Reals = npt.NDArray[np.float64]

WANTED = (0.05, 0.02, 0.01, 0.005)
"""Total variations that epsilons are named for."""
MOST_ROWS = 10**7
_EPSILONS = (1e-3, 1e3)
_WORDS = 8  # values of a text of which nothing is known


@dataclass(frozen=True)
class Noise:
    """Noise of counts: how many marginals there are, their mean noise std, and the mean total variation that it makes.

    Counts of noise stds s differ by :math:`\\sqrt{2 / \\pi} \\sum s / (2 n)` from those without.
    """

    marginals: int
    std: float
    variation: float

    @classmethod
    def of(cls, stds: Sequence[Reals], n: int) -> Noise | None:
        """Noise by the stds of the counts of each marginal; None where there is no marginal."""
        if not stds:
            return None
        variations = [math.sqrt(2 / math.pi) * float(own.sum()) / (2 * n) for own in stds]
        return cls(len(stds), sum(float(own.mean()) for own in stds) / len(stds), sum(variations) / len(stds))


@dataclass(frozen=True)
class Expected:
    """A release as it is foreseen before anything is paid.

    Attributes:
        rows: about how many there are, as their owner says.
        singles: noise in counts of single columns.
        tables: noise in those of several columns; None: there would be none.
        workload: noise std of a count, or of a mean, for each question of the user; None: too few rows for a mean.
        epsilons: for some total variations of `tables`, or of `singles`, the epsilon in [.001, 1000] at which noise makes as
            much, if the same is measured.
        seconds: of CPU, here.
        gigabytes: the most memory of this process.
    """

    rows: int
    singles: Noise
    tables: Noise | None
    workload: Mapping[str, float | None]
    epsilons: Mapping[float, float]
    seconds: float
    gigabytes: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values; epsilons by the total variation as a text."""
        return asdict(self) | {"epsilons": {f"{wanted:g}": found for wanted, found in self.epsilons.items()}}

    def __str__(self) -> str:
        lines = [f"expected for about {self.rows} rows, by a rehearsal on rows drawn from public facts"]
        for name, noise in (("single columns", self.singles), ("several columns", self.tables)):
            if noise is not None:
                told = (
                    f"noise std {noise.std:.3g} of a count, total variation {noise.variation:.2g} before the fit takes some off"
                )
                lines.append(f"  {name:<16} {noise.marginals}: {told}")
        for question, std in self.workload.items():
            lines.append(f"  {'question':<16} {question}: noise std {'unknown' if std is None else f'{std:.3g}'}")
        lines += [f"  {'epsilon':<16} about {found:.2g} for a total variation of {w:g}" for w, found in self.epsilons.items()]
        return "\n".join([*lines, f"  {'time, memory':<16} {self.seconds:.0f} CPU s here, {self.gigabytes:.1f} GB"])


def rehearsed(job: RunConfig, data: Any, n: int) -> Expected:
    """A fit of the settings of a job to n rows that the public facts of the data make, on a ledger of its own.

    No value of the data is looked at. Where domains are known, codes are drawn evenly. Of a column whose domain is bought the
    type counts; where that is not known either, numbers and texts of eight values take turns.

    ValueError is raised for data that are no table of one kind of rows, and for n outside of [1, 10^7].
    """
    from dpgen.privacy.curator import Curator
    from dpgen.systems.tables.model import TablesModel

    require_whole("rows", n, 1, MOST_ROWS)
    made, plan, ledger = _made(job, data, n), job.privacy, job.open_ledger()
    started = time.process_time()
    with TemporaryDirectory(prefix="dpgen-") as scratch, quiet_training():
        model = job.fit_system(made, Curator(ledger), quiet_runtime(Path(scratch), 0))
    seconds = time.process_time() - started
    assert isinstance(model, TablesModel)
    found = [np.broadcast_to(m.noise_std, m.values.shape) for m in model.measurements]
    several = [stds for m, stds in zip(model.measurements, found) if len(m.marginal.columns) > 1]
    singles, tables = Noise.of(_of_columns(model), n), Noise.of(several, n)
    assert singles is not None
    [gaussian] = [line.event for line in ledger.promised() if line.divisible]
    epsilons = _epsilons(gaussian.noise_multiplier / (tables or singles).variation, plan)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    workload = {str(own.question): own.noise_std for own in model.answers}
    return Expected(n, singles, tables, workload, epsilons, seconds, most / 1e9)


def _epsilons(noise: float, plan: Any) -> dict[float, float]:
    """Epsilons in `_EPSILONS` by the total variations of `WANTED`, of which one of 1 has a noise multiplier `noise`."""
    found = {wanted: worst([(gaussian_event(noise * wanted), 1)], plan.resolved_delta, plan.relation) for wanted in WANTED}
    return {wanted: epsilon for wanted, epsilon in found.items() if _EPSILONS[0] <= epsilon <= _EPSILONS[1]}


def _of_columns(model: TablesModel) -> list[Reals]:
    """Noise stds of the counts of each column, by all marginals that it is in with the groups of the model."""
    precisions = [np.zeros(size) for size in model.mixture.sizes]
    for m in model.measurements:
        if m.marginal.level == 0:
            variances = np.broadcast_to(np.square(m.noise_std), m.values.shape)
            for axis, c in enumerate(m.marginal.columns):
                precisions[c] += 1.0 / variances.sum(tuple(a for a in range(variances.ndim) if a != axis))
    return [own**-0.5 for own in precisions if own.all()]


def _made(job: RunConfig, data: Any, n: int) -> Any:
    """n rows of the public facts of the data."""
    import torch

    from dpgen.data import RawTable, Table

    generator = torch.Generator().manual_seed(0)
    if isinstance(data, Table):
        codes = torch.stack([torch.randint(size, (4 * n,), generator=generator) for size in data.schema.domain.sizes], 1)
        possible = codes[data.schema.admissible(codes)]
        kept = possible[torch.arange(n) % max(1, len(possible))] if len(possible) else codes[:n]
        return replace(data, codes=kept, test_codes=kept[:0], rows=None, test_rows=None)
    if isinstance(data, RawTable):
        asked = getattr(job.model.options, "questions", ())
        return _raw(data, n, {question.mean for question in asked})
    raise ValueError(f"model is {job.model.name!r}; noise of a number of rows is foreseen of 'tables' alone")


def _raw(data: Any, n: int, numbers: Container[str | None]) -> Any:
    """n rows of a draft; columns in `numbers` are no texts."""
    import pandas as pd

    from dpgen.data.raw_tables import Rows

    fields = data.draft["fields"]
    frame = pd.DataFrame(
        {given["name"]: _values(given, i, n, number=given["name"] in numbers) for i, given in enumerate(fields)}
    )
    draft = {key: value for key, value in data.draft.items() if key != "dpgen:constraints"}
    table_of = partial(_coded, data.name)
    return replace(data, rows=Rows(frame), draft=draft, test=frame[:0], table_of=table_of)


def _coded(name: str, schema: Any, codes: Any, test: Any) -> Any:
    from dpgen.data import Table

    return Table(name, codes, schema, test)


def _values(given: Mapping[str, Any], i: int, n: int, *, number: bool) -> pd.Series:
    """Values of one column by its field in a draft, of which nobody knows the type but that it is a `number`."""
    import pandas as pd
    import torch

    from dpgen.schema import Schema

    rng = np.random.default_rng(i)
    if not given.get("dpgen:blank"):
        schema = Schema.from_descriptor({"fields": [dict(given)]})
        codes = torch.from_numpy(rng.integers(0, schema.domain.sizes[0], (n, 1)))
        return schema.decode(codes, torch.Generator().manual_seed(i))[given["name"]]
    kind = given["type"] if given["type"] != "any" else ("number", "string")[i % 2 * (not number)]
    if kind == "boolean":
        return pd.Series(rng.integers(0, 2, n).astype(bool))
    if kind in ("date", "datetime"):
        return pd.Series(pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1000, n), unit="D"))
    if kind == "string":
        return pd.Series(np.array([f"value {j}" for j in range(_WORDS)])[rng.integers(0, _WORDS, n)])
    return pd.Series(rng.integers(1900, 2100, n) if kind == "year" else rng.normal(0, 100, n).round())
