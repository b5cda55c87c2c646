"""Evaluation of models of mixed tables: marginals, associations, range queries, prediction, validity and copies."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dpgen.data import RawTable, Table
from dpgen.data.tables import some_rows
from dpgen.evaluation.compare import compare
from dpgen.evaluation.scores import Evaluation, Score
from dpgen.figures import new_figure, save_figure
from dpgen.metrics import (
    associations,
    copied_share,
    independent_marginals,
    marginal_errors,
    range_query_errors,
    train_on_synthetic_auc,
)
from dpgen.progress import report
from dpgen.release import ColumnSamples, PublicModel
from dpgen.schema import Schema, TableDomain

MOST_ROWS = 100_000
"""Rows of each sample that are compared, at most; a random choice where there are more."""

QUICK = 10_000
"""The same of classifiers, unless all of it is asked for."""


_MOST_MARGINALS = {1: 1000, 2: 300, 3: 200}
_MOST_COLUMNS = 40
_LEAST_ROWS = 4
_VALUES = ("largest KS", "synthetic rows that equal", "median distance")
_MARGINALS = {1: "single columns", 2: "pairs of columns", 3: "triples of columns"}


def evaluate(release: Any, data: Table | RawTable, *, seed: int, most: int = MOST_ROWS) -> Evaluation:
    """Scores of a release beside what test rows and independent columns reach, and the synthetic rows that were scored.

    Distances are to the private rows; "real data" are the test rows in place of the synthetic ones, "independent columns" are
    drawn from the private rows column by column. Classifiers learn from at most `most` rows and are judged on test rows. The
    number of synthetic rows is the release's own noisy size. Without private rows there are no scores.
    """
    table: Table = data.coded(release.schema) if isinstance(data, RawTable) else data
    report(0.0, "sample")
    samples = drawn(release, seed)
    released = _files(release, samples)
    synthetic = table.schema.encode(samples.to_pandas())
    if not table.n:
        return Evaluation([], released=released)
    generator = torch.Generator().manual_seed(seed)
    private = table.some(MOST_ROWS, generator)
    rivals = {"value": synthetic, "chance": independent_marginals(private, len(private), generator=generator)}
    if len(table.test_codes):
        rivals["real"] = some_rows(table.test_codes, MOST_ROWS, generator)
    report(0.1, "evaluate")
    scores = _distance_scores(private, rivals, table.schema.domain, seed)
    report(0.4)
    scores = [*_prediction_scores(private, rivals, table.schema.domain, most, seed), *scores]
    scores.append(_validity(table, synthetic))
    if isinstance(data, RawTable):
        scores += _by_values(release, data, samples.to_pandas(), seed)
    else:
        scores.append(_copies(release, table.schema, private, synthetic, rivals))
    pictures = {
        "associations.png": partial(_associations_picture, private, synthetic, table.schema.domain.names),
        "columns.png": partial(_columns_picture, private, synthetic, table.schema),
    }
    return Evaluation(scores, released=released, pictures=pictures)


def unscored(release: Any, *, seed: int) -> Evaluation:
    """The synthetic rows alone."""
    return Evaluation([], released=_files(release, drawn(release, seed)))


def drawn(release: Any, seed: int) -> ColumnSamples:
    """As many synthetic rows as the release says, with noise, that there were, at most `MOST_ROWS`."""
    size = max(1, min(int(getattr(release, "size", QUICK)), MOST_ROWS))  # never the private number of rows
    samples: ColumnSamples = release.samples(size, random_state=seed)
    return samples


def _files(release: Any, samples: ColumnSamples) -> dict[str, Callable[[], bytes]]:
    return {"samples.csv": partial(samples.for_files(getattr(release, "form", None)).encoded, ".csv")}


def _beside(name: str, values: Mapping[str, float], *, better: Any = "lower", **options: Any) -> Score:
    """A score whose values are the synthetic rows', the test rows' and those of independent columns."""
    options = {"baseline": "independent columns"} | options
    return Score(name, values["value"], real=values.get("real"), chance=values.get("chance"), better=better, **options)


def _distance_scores(private: Tensor, rivals: Mapping[str, Tensor], domain: TableDomain, seed: int) -> list[Score]:
    scores = []
    for ways, what in _MARGINALS.items():
        if ways <= len(domain.names):
            marginals = partial(marginal_errors, private, k=ways, n_sets=_MOST_MARGINALS[ways], seed=seed)
            found = {rival: float(marginals(x).mean()) for rival, x in rivals.items()}
            scores.append(_beside(f"{what}: mean total variation", found))
    queries = partial(range_query_errors, private, sizes=domain.sizes, ordered=domain.ordered, queries=300, seed=seed)
    missed = {rival: float(queries(x).mean()) for rival, x in rivals.items()}
    scores.append(_beside("range queries on three columns: mean error of the share", missed))
    if 2 <= len(domain.names) <= _MOST_COLUMNS and len(private) > 1:
        own = associations(private)
        errors = {rival: float((associations(x) - own).abs().mean()) for rival, x in rivals.items() if len(x) > 1}
        scores.append(_beside("associations (Cramér's V): mean absolute error", errors))
    return scores


def _prediction_scores(private: Tensor, rivals: Mapping[str, Tensor], domain: TableDomain, most: int, seed: int) -> list[Score]:
    """Area under the curve of classifiers of the target, which are judged on test rows."""
    test, target = rivals.get("real"), domain.target
    if test is None or target is None or len(test[:, target].unique()) < 2:
        return []
    trained = {"value": rivals["value"][:most], "real": private[:most]}
    size = f"{most:,} rows" if any(len(x) > most for x in (rivals["value"], private)) else ""
    scores = []
    for judge, name in (("boosting", "gradient boosting"), ("logistic", "logistic regression")):
        options: dict[str, Any] = {"sizes": domain.sizes, "ordered": domain.ordered, "judge": judge, "seed": seed}
        values = {rival: train_on_synthetic_auc(x, test, target, **options) for rival, x in trained.items()}
        label = f"train on synthetic, test on real: AUC of {domain.names[target]} by {name}"
        scores.append(_beside(label, values | {"chance": 0.5}, better="higher", baseline="chance", sample=size))
    return scores


def _validity(table: Table, synthetic: Tensor) -> Score:
    """Share of rows that satisfy schema and constraints; they were encoded, which refuses every other row."""
    share = float(table.schema.admissible(synthetic).double().mean())
    return Score("rows that satisfy the schema and its constraints", share, better="higher", private=False)


def _by_values(release: Any, data: RawTable, drawn: pd.DataFrame, seed: int) -> list[Score]:
    """Scores that look at values, of the columns that are modelled."""
    names = list(release.schema.domain.names)
    rows = release.schema.cleaned(data.frame)[names]
    found = compare(rows, drawn[names], seed=seed).scores if len(rows) >= _LEAST_ROWS else []
    return [score for score in found if score.name.startswith(_VALUES)]


def _copies(release: PublicModel, schema: Schema, private: Tensor, synthetic: Tensor, rivals: Mapping[str, Tensor]) -> Score:
    """Share of synthetic rows that are private rows, beside what the released density gives to those rows.

    A model of few or common columns repeats private rows by chance; more copies than its density explains would be a leak.
    Where constraints reject rows, the density of what is left is not known: as many test rows as private ones are compared.
    """
    name, density = "rows that are copies of private rows", getattr(release, "log_prob", None)
    if density is not None and not schema.rejects:
        explained = min(1.0, float(density(private.unique(dim=0)).double().exp().sum()))
        values = {"value": copied_share(synthetic, private), "chance": explained}
        return _beside(name, values, baseline="the model's own density")
    test = rivals.get("real")
    if test is None:
        return _beside(name, {"value": copied_share(synthetic, private)})
    equal = min(len(private), len(test))
    values = {"value": copied_share(synthetic, private[:equal]), "chance": copied_share(synthetic, test[:equal])}
    return _beside(f"rows that are copies of {equal:,} private rows", values, baseline="copies of as many test rows")


# -- pictures ----------------------------------------------------------------------------------------------------------


def _associations_picture(private: Tensor, synthetic: Tensor, names: tuple[str, ...], path: Path) -> None:
    """Associations of private rows, of synthetic rows, and their difference."""
    shown = min(len(names), _MOST_COLUMNS)
    both = [associations(codes[:, :shown]).numpy() for codes in (private, synthetic)]
    figure = new_figure(12, 4.4)
    panels = [(title, values, "viridis", (0.0, 1.0)) for title, values in zip(("private rows", "synthetic rows"), both)]
    panels += [("difference", both[1] - both[0], "RdBu_r", (-0.5, 0.5))]
    for place, (title, values, colours, limits) in enumerate(panels):
        axes = figure.add_subplot(1, 3, place + 1)
        image = axes.imshow(values, cmap=colours, vmin=limits[0], vmax=limits[1], interpolation="nearest")
        axes.set_title(title, fontsize=9)
        axes.set_xticks(range(shown), labels=names[:shown], rotation=90, fontsize=6)
        axes.set_yticks(range(shown), labels=names[:shown] if not place else [], fontsize=6)
        axes.set(xlabel="column", ylabel="column")
        figure.colorbar(image, ax=axes, shrink=0.6, label="association")
    save_figure(figure, path)


def _columns_picture(private: Tensor, synthetic: Tensor, schema: Schema, path: Path) -> None:
    """Shares of the codes of each column, private and synthetic, by the first values of bins."""
    domain = schema.domain
    shown = min(len(domain.names), 16)
    figure = new_figure(12, 2.2 * -(-shown // 4))
    for c in range(shown):
        axes = figure.add_subplot(-(-shown // 4), 4, c + 1)
        for codes, label, style in ((private, "private", "0.6"), (synthetic, "synthetic", "C0")):
            shares = np.bincount(codes[:, c].numpy(), minlength=domain.sizes[c]) / len(codes)
            axes.step(np.arange(domain.sizes[c]), shares, where="mid", color=style, label=label, linewidth=1.2)
        axes.set_title(domain.names[c], fontsize=8)
        labels = schema.modelled[c].labels() + ["missing"] * (domain.missing[c] is not None)
        places = np.unique(np.linspace(0, len(labels) - 1, min(len(labels), 6)).round().astype(int))
        axes.set_xticks(places, labels=[labels[place][:12] for place in places], rotation=30, ha="right")
        axes.set_xlabel("value, or where its bin begins", fontsize=6)
        axes.set_ylabel("share of rows", fontsize=6)
        axes.tick_params(labelsize=6)
        if not c:
            axes.legend(fontsize=6)
    save_figure(figure, path)
