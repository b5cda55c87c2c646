"""One column of real, held-out and synthetic rows: how it is read, its distances, quantiles and picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import wasserstein_distance

from dpgen.columns.forms import floats
from dpgen.columns.votes import reading
from dpgen.evaluation.rules import Values
from dpgen.figures import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Codes = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_BINS, _LISTED, _SPIKES, _DRAWN = 10, 30, 3, 2000
READ = 0.9
"""Share of the values of a column of people or rows from which on it holds numbers, or dates."""
_SHOWN = ("own", "real", "0.45"), ("made", "synthetic", "C0")  # parts of a picture, their names and colours


@dataclass(frozen=True)
class Numbers:
    """The way in which a column is read as numbers, or as dates in seconds since 1970 (`kind`: number or datetime)."""

    kind: str
    form: str = ""

    @classmethod
    def of(cls, values: pd.Series) -> Numbers | None:
        """By nine of ten values that are there, plain ones or of one writing; None: they are neither numbers nor dates.

        >>> Numbers.of(pd.Series(["1.5", "2", None])), Numbers.of(pd.Series(["a", "2"]))
        (Numbers(kind='number', form=''), None)
        >>> Numbers.of(pd.Series(["31.12.2023"] * 9))
        Numbers(kind='datetime', form='%d.%m.%Y')
        """
        there = values.dropna()
        if not len(there) or there.dtype.kind == "b":
            return None
        return next((way for way in cls._tried(there) if way.reads(there)), None)

    @classmethod
    def _tried(cls, values: pd.Series) -> Iterator[Numbers]:
        """The plain ways first, then a writing that most values share."""
        yield cls("number")
        if not pd.api.types.is_numeric_dtype(values.dtype):
            yield cls("datetime")
        if values.dtype.kind in "OU":
            kind, form = reading(values.astype(object))
            if form:
                yield cls("datetime" if kind in ("date", "datetime") else "number", form)

    def reads(self, values: pd.Series) -> bool:
        """Whether it reads nine of ten values."""
        return float(np.isfinite(self.read(values)).mean()) >= READ

    def read(self, values: pd.Series) -> Reals:
        """The values (n,); NaN for what is none."""
        return floats(values, self.kind, self.form)


@dataclass(frozen=True, eq=False)
class Column:
    """One column of the three tables: as numbers, or as texts, and in groups by the values of the real rows."""

    values: Mapping[str, npt.NDArray[Any]]  # without gaps
    absent: Mapping[str, npt.NDArray[np.bool_]]
    strange: float  # share of synthetic values that are of another type
    same: Mapping[str, Codes]  # numbers that are equal where values are; -1: a gap
    known: Values  # as rules see them
    codes: Mapping[str, Codes]
    size: int
    numeric: bool
    dates: bool

    @classmethod
    def of(cls, series: Mapping[str, pd.Series]) -> Column:
        kind, form = _kind(series["own"].dropna())
        dates, numeric = kind == "datetime", kind != ""
        absent = {part: values.isna().to_numpy() for part, values in series.items()}
        read = {part: _read(values, kind, form) for part, values in series.items()}
        there = {part: ~absent[part] & ~pd.isna(read[part]) for part in series}
        values = {part: read[part][there[part]] for part in series}
        strange = float((~absent["made"] & ~there["made"]).mean())
        places = pd.factorize(np.concatenate(list(read.values())))[0].astype(np.int64)
        same = dict(zip(read, np.split(places, np.cumsum([len(part) for part in read.values()])[:-1])))
        known = values["own"]
        if numeric and len(np.unique(known)) > _LISTED:
            edges = np.unique(np.quantile(known.astype(np.float64), np.linspace(0, 1, _BINS + 1)[1:-1]))
            size, place = len(edges) + 1, lambda x: np.searchsorted(edges, x.astype(np.float64), side="right")
        else:
            listed = pd.Index(pd.Series(known).value_counts().index[:_LISTED])
            size, place = len(listed) + 1, lambda x: np.where((found := listed.get_indexer(x)) < 0, len(listed), found)
        codes = {}
        for part in series:
            codes[part] = np.full(len(read[part]), size, np.int64)
            codes[part][there[part]] = place(values[part])
        seen = Values.of(read, numeric=numeric, dates=dates)
        return cls(values, absent, strange, same, seen, codes, size + 1, numeric, dates)

    @property
    def names_rows(self) -> bool:
        """Whether most values are there once: keys and free text, which no two tables have in common."""
        known = self.values["own"]
        return not self.numeric and len(known) > _LISTED and len(np.unique(known.astype(str))) > len(known) / 2

    def scores(self, rules: Mapping[str, Any]) -> dict[str, Any]:
        """Scores of this column, and for most the same of the held-out rows."""
        found: dict[str, Any] = {
            "KS or TV": self._distance("made"),
            "held-out": self._distance("held"),
        }
        if self.numeric:
            for part, word in (("made", ""), ("held", ", held-out")):
                found[f"W1 / std{word}"], found[f"std ratio{word}"] = self._moved(part)
            for part, word in (("own", ""), ("made", ", synthetic"), ("held", ", held-out")):
                x = self.values[part].astype(np.float64)
                found[f"range{word}"] = f"{self._shown(x.min())} to {self._shown(x.max())}" if len(x) else "-"
        found |= {
            "gaps": float(self.absent["own"].mean()),
            "gaps, synthetic": float(self.absent["made"].mean()),
            "invalid": self.strange + self._invalid(rules),
        }
        spikes = pd.Series(self.values["own"]).value_counts(normalize=True)[:_SPIKES]
        made = pd.Series(self.values["made"]).value_counts(normalize=True)
        found["largest shares"] = ", ".join(f"{share:.3f}" for share in spikes)
        found["largest shares, synthetic"] = ", ".join(f"{float(made.get(value, 0.0)):.3f}" for value in spikes.index)
        if self.numeric:
            for part, word in (("own", ""), ("made", ", synthetic")):
                x = self.values[part].astype(np.float64)
                found[f"quantiles{word}"] = ", ".join(map(self._shown, np.quantile(x, _QUANTILES))) if len(x) else "-"
        return found

    def _shown(self, value: float) -> str:
        """A number, or the day of a date."""
        return str(np.datetime64(int(value), "s"))[:10] if self.dates and np.isfinite(value) else f"{value:.4g}"

    def _moved(self, part: str) -> tuple[float, float]:
        """W1 distance of the finite numbers of a part to the real ones, and its standard deviation, both over that of these."""
        one, two = (x[np.isfinite(x)] for x in (self.values[name].astype(np.float64) for name in ("own", part)))
        if not len(one) or not len(two):
            return (0.0, 1.0) if len(one) == len(two) else (np.inf, np.nan)
        scale = max(float(np.abs(one).max()), float(np.abs(two).max())) or 1.0  # no square overflows
        one, two = one / scale, two / scale
        stds = float(one.std()), float(two.std())
        far = float(wasserstein_distance(one, two))
        return (far / stds[0], stds[1] / stds[0]) if stds[0] else (np.inf if far else 0.0, np.inf if stds[1] else 1.0)

    @property
    def times_held_out(self) -> float:
        """Ratio of the distances of synthetic and of held-out rows from the real ones, the larger one of the column."""
        pairs = [(self._distance("made"), self._distance("held"))]
        pairs += [(self._moved("made")[0], self._moved("held")[0])] if self.numeric else []
        return max(made / held if held else np.inf if made else 0.0 for made, held in pairs)

    def _distance(self, part: str) -> float:
        """Largest distance of distribution functions of numbers, total variation of other values."""
        one, two = self.values["own"], self.values[part]
        if self.numeric or not len(one) or not len(two):
            return farthest(one, two)
        shares = [pd.Series(x).value_counts(normalize=True) for x in (one, two)]
        return float(shares[0].sub(shares[1], fill_value=0.0).abs().sum() / 2)

    def _invalid(self, rules: Mapping[str, Any]) -> float:
        """Share of synthetic values that the schema forbids."""
        made = pd.Series(self.values["made"])
        wrong = np.zeros(len(made), bool)
        if rules.get("enum"):
            wrong |= ~made.astype(str).isin(map(str, rules["enum"])).to_numpy()
        for bound, beyond in (("minimum", np.less), ("maximum", np.greater)):
            if isinstance(rules.get(bound), int | float) and self.numeric:
                wrong |= beyond(made.to_numpy(np.float64), rules[bound])
        gaps = float(self.absent["made"].mean()) if rules.get("required") else 0.0
        return float(wrong.mean()) * (1 - gaps) + gaps if len(made) else gaps

    def picture(self, name: str) -> Figure:
        """Both distributions over each other."""
        figure = new_figure(6.4, 3.4)
        axes = figure.add_subplot(1, 1, 1)
        if self.numeric:
            self._steps(axes)
            axes.set(xlabel=name, ylabel="share of rows up to here", ylim=(0, 1.02))
        else:
            self._bars(axes)
            axes.set(xlabel="share of rows", ylabel=name)
        if self.dates:
            figure.autofmt_xdate()
        gaps = [float(self.absent[part].mean()) for part in ("own", "made")]
        axes.set_title(name + (f" (gaps: real {gaps[0]:.1%}, synthetic {gaps[1]:.1%})" if any(gaps) else ""), fontsize=10)
        axes.legend(fontsize=8)
        return figure

    def _steps(self, axes: Axes) -> None:
        """Cumulative shares of both parts."""
        for part, label, colour in _SHOWN:
            x = np.sort(self.values[part].astype(np.float64))
            y = np.arange(1, len(x) + 1) / max(len(x), 1)
            some = np.unique(np.linspace(0, len(x) - 1, _DRAWN).astype(np.int64)) if len(x) else np.array([], np.int64)
            values = x.astype("datetime64[s]") if self.dates else x
            axes.step(values[some], y[some], where="post", label=label, color=colour, linewidth=1.5)
        known = self.values["own"].astype(np.float64)
        if self.dates or not len(known) or known.max() <= 0:
            return
        if np.quantile(known, 0.99) > 50 * max(np.quantile(known, 0.5), 1e-12):
            axes.set_xscale("symlog", linthresh=max(1e-9, float(np.quantile(known, 0.75)) or 1.0))
            axes.set_xlim(left=min(0.0, float(known.min())))

    def _bars(self, axes: Axes) -> None:
        """Shares of the values that are most frequent among real ones."""
        listed = pd.Series(self.values["own"]).value_counts(normalize=True).index[:12]
        for place, (part, label, colour) in enumerate(_SHOWN):
            shares = pd.Series(self.values[part]).value_counts(normalize=True).reindex(listed, fill_value=0.0)
            axes.barh(np.arange(len(listed)) + 0.4 * place, shares, 0.4, label=label, color=colour)
        axes.set_yticks(np.arange(len(listed)) + 0.2, labels=[str(value)[:20] for value in listed], fontsize=8)
        axes.invert_yaxis()


def farthest(one: Reals, other: Reals) -> float:
    """Largest distance of two distribution functions (Kolmogorov, Smirnov); 1 where one has no value.

    >>> farthest(np.array([1.0, 2.0]), np.array([2.0, 3.0])), farthest(np.array([1.0]), np.array([]))
    (0.5, 1.0)
    """
    if not len(one) or not len(other):
        return float(len(one) != len(other))
    grid = np.unique(np.concatenate([one, other]))
    below = [np.searchsorted(np.sort(x), grid, side="right") / len(x) for x in (one, other)]
    return float(np.abs(below[0] - below[1]).max())


def column_of(table: pd.DataFrame, name: str) -> pd.Series:
    """A column of a table; gaps where a release left it out."""
    return table[name] if name in table else pd.Series(None, index=table.index, dtype=object)


def _kind(values: pd.Series) -> tuple[str, str]:
    """Type and format by which values without gaps are numbers or dates, as a fit reads them; ("", ""): they are texts."""
    if isinstance(values.dtype, pd.CategoricalDtype) or pd.api.types.is_bool_dtype(values.dtype) or not len(values):
        return "", ""
    kind, form = reading(values)
    if kind in ("date", "datetime"):
        return "datetime", form
    numeric = pd.api.types.is_numeric_dtype(values.dtype)
    return ("integer" if form and kind == "integer" else "number", form) if form or numeric else ("", "")


def _read(values: pd.Series, kind: str, form: str) -> npt.NDArray[Any]:
    return floats(values, kind, form) if kind else values.astype(object).map(str).where(values.notna(), None).to_numpy(object)
