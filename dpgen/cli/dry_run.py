"""Dry run: steps, privacy cost, memory and time of a run, before any data is touched."""

import dataclasses
import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from glob import glob
from pathlib import Path
from typing import Any

import torch

from dpgen.built_on import names_files
from dpgen.callbacks import Clipping
from dpgen.config import RunConfig
from dpgen.data.table_files import column_names
from dpgen.privacy.accountants import epsilon
from dpgen.privacy.curator import Curator
from dpgen.privacy.ledger import Ledger
from dpgen.privacy.sampling import Batch, PoissonMask
from dpgen.schema import Schema
from dpgen.statement import guarantee, rounded_up
from dpgen.systems.dp_sgd.plan import DPSGDPlan
from dpgen.systems.dp_sgd.sums import PrivateSums

SHAPES = {"digits": (1445, 64, 10), "mnist": (60_000, 784, 10), "fashion_mnist": (60_000, 784, 10)}
"""Public (records, columns, labels) of data sets that everybody knows, all of them square images."""

_STEPS, _WARM_UP = 7, 2


def parse_shape(text: str, data: str) -> tuple[int, int, int] | None:
    """Records, columns and labels from `NxD` or `NxDxC`, or of a known data set; None if neither is given.

    >>> parse_shape("1000x20", "npy")
    (1000, 20, 0)
    """
    if not text:
        return SHAPES.get(data)
    parts = text.lower().split("x")
    numbers = [int(part) for part in parts if part.isdecimal()]
    if len(parts) not in (2, 3) or len(numbers) != len(parts) or min(numbers[:2]) < 1:
        raise ValueError(f"dry_run must be RECORDSxCOLUMNS or RECORDSxCOLUMNSxLABELS, as in 60000x784x10, got {text!r}")
    n, d, labels = [*numbers, 0][:3]
    return n, d, labels


def dry_run(job: RunConfig, shape: str = "") -> str:
    """The plan of a job in words, with memory and time where they can be foreseen; reads no data and writes nothing.

    `shape` is `RECORDSxCOLUMNS[xLABELS]`; known data sets need none.
    """
    size = parse_shape(shape, job.data.name)
    lines = [f"{job.model.name} on {job.data.name}, dry run: no data is read, nothing is written"]
    lines += _absent_files(job.data.options)
    if job.base is not None:
        lines.append(f"settings {job.base}")
    module = _module(job, size) if size is not None else None
    plan = job.privacy if module is None else module.plan
    lines += _block("privacy", plan)
    lines += [f"  budget       {_budget(plan, module)}"]
    lines += _block("model", job.model.options)
    runtime = job.runtime
    lines.append(
        f"runtime\n  {runtime.processes} process(es), accelerator {runtime.accelerator}, precision {runtime.precision}"
    )
    lines += _scans(job.data.options, getattr(job.privacy, "unit", None))
    if module is not None and size is not None:
        lines += _needs(module, size, job)
    elif size is None:
        lines.append("memory and time: give the size, as in --dry_run 60000x784x10")
    else:
        lines.append(f"memory and time: {job.model.name} trains no network by steps; there is nothing to foresee")
    return "\n".join(lines)


def _absent_files(options: Mapping[str, Any]) -> Iterator[str]:
    """Notes on files that the options of the data name and that are not here."""
    share = options.get("test_fraction")
    if isinstance(share, float) and not 0 <= share < 1:
        raise ValueError(f"test_fraction is {share}: it must be in [0, 1)")
    for key, value in options.items():
        if names_files(key) and isinstance(value, str | Path) and not Path(value).exists() and not glob(str(value)):
            yield f"note: {key} is {str(value)!r}, and there is no such file here"


def _scans(options: Mapping[str, Any], unit: str | None) -> list[str]:
    """Lines on the tables and files that an engine will read; none for data in memory."""
    if "source" not in options:
        return []
    source = str(options["source"])
    files = [file for file in sorted(glob(source, recursive=True)) if Path(file).is_file()]
    size = sum(Path(file).stat().st_size for file in files)
    names, scans = _scanned(options)
    if unit is not None:
        names = names and [*names, unit]
        scans += ", sorted by person"
    read = _column_bytes(files, names)
    return [
        "engine",
        f"  source           {source}: {len(files)} file(s), {size / 2**20:.0f} MiB",
        f"  columns          {', '.join(names) or 'all'}{'' if read is None else f': {read / 2**20:.0f} MiB of it a scan'}",
        f"  scans            {scans}",
    ]


def _scanned(options: Mapping[str, Any]) -> tuple[list[str], str]:
    """Columns that an engine reads, none for all, and how often."""
    if "columns" in options:
        return column_names(options["columns"]), "one, which keeps the positions of all values"
    if options.get("schema") is not None:
        names = [field.name for field in Schema.from_descriptor(options["schema"]).modelled]
        return names, "one, which keeps the codes of all values, one or two bytes each"
    if "user" in options:
        return [options[key] for key in ("user", "category", "weight", "group") if options.get(key)], "one"
    if "set_column" in options:
        return [options["set_column"], options["item_column"]], "one for each pass of the fit, sorted by set"
    return [], "one for each pass of the fit, in batches"


def _column_bytes(files: Sequence[str], names: Sequence[str]) -> int | None:
    """Bytes of some columns, or all, of parquet files, of which only the ends are read; None of others."""
    from pyarrow import ArrowException, parquet

    total = 0
    try:
        for file in files:
            footer = parquet.read_metadata(file)
            groups = (footer.row_group(i) for i in range(footer.num_row_groups))
            columns = (group.column(i) for group in groups for i in range(footer.num_columns))
            total += sum(c.total_compressed_size for c in columns if not names or c.path_in_schema.partition(".")[0] in names)
    except (OSError, ArrowException):
        return None
    return total if files else None


def _block(title: str, values: Any) -> list[str]:
    options = {f.name: getattr(values, f.name) for f in dataclasses.fields(values) if f.init}
    return [title, *(f"  {name:<16} {f'{v:.6g}' if isinstance(v, float) else v}" for name, v in options.items())]


def _budget(plan: Any, module: PrivateSums | None) -> str:
    ledger = plan.open_ledger()
    if ledger.budget is not None:
        return guarantee(ledger.budget.epsilon, ledger.delta, ledger.relation, ledger.unit)
    if module is None:
        return f"none: epsilon is reported at delta {rounded_up(ledger.delta)}"
    spent = epsilon(plan.event(module.config), ledger.delta, relation=ledger.relation)
    return f"none: this noise costs {guarantee(spent, ledger.delta, ledger.relation, ledger.unit)}"


def _module(job: RunConfig, size: tuple[int, int, int]) -> PrivateSums | None:
    """The module that would be trained, if the system trains one by DP-SGD on records."""
    _, d, labels = size
    if not job.system.module_path:
        return None
    plan = job.own_plan
    assert isinstance(plan, DPSGDPlan)
    shape = (math.isqrt(d),) * 2 if job.data.name in SHAPES else job.data.options.get("image_shape")
    return job.system.module(
        d=d, plan=plan, config=job.model.options, n_classes=labels, image_shape=shape, seed=job.runtime.seed
    )


def _needs(module: PrivateSums, size: tuple[int, int, int], job: RunConfig) -> list[str]:
    n, d, labels = size
    steps, q = module.plan.steps, module.plan.sampling_rate
    drawn = max(1, round(q * n / job.runtime.processes))
    parameters = module.bank.theta.numel()
    copies = 4 + (module.config.optimizer == "adam") * 2  # parameters, sums, the ranks' and noise buffers, Adam's moments
    activations = min(drawn, module.config.micro_batch) * (d + labels + 8 * job.model.options.hidden)
    memory = 4 * (copies * parameters + 3 * activations)
    seconds = _seconds_per_step(module, drawn, d, labels)
    return [
        "needs, on this machine and per process",
        f"  records          {n} x {d}: {n * d / 2**20:.0f} MiB as bytes; about {drawn} in a step",
        f"  parameters       {module.bank.k} x {module.bank.p}",
        f"  training memory  about {memory / 2**20:.0f} MiB",
        f"  time             about {seconds * 1e3:.1f} ms a step, {steps} steps: {_duration(seconds * steps)}, and evaluation",
    ]


def _seconds_per_step(module: PrivateSums, drawn: int, d: int, labels: int) -> float:
    """Median time of a few steps on random bits; their ledger is nobody's."""
    k = module.bank.k
    clipping: Clipping = module.config.clipping_callback(module.plan)
    clipping.begin(k)
    module.clip_by(clipping)
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(drawn, d, generator=generator) < 0.2).float()
    batch = Batch(x, torch.arange(drawn) % k, torch.arange(drawn) % max(labels, 1))
    times, curator = [], Curator(Ledger(None, delta=module.plan.delta))
    module.serve(curator)
    for _ in range(_STEPS):
        start = time.perf_counter()
        with torch.no_grad():
            module.bank.begin_step()
            draw = curator.draw("a step on random bits", PoissonMask(module.plan.sampling_rate), module.parts())
            assert draw is not None
            module.noisy_sums(batch, draw)
        times.append(time.perf_counter() - start)
    return statistics.median(times[_WARM_UP:]) * 1.15  # the optimizer and the engine around


def _duration(seconds: float) -> str:
    """Seconds in words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
