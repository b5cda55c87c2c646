"""The table of writings, which a reader extends by a line; what a writing is, and texts by their shapes."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd


def _words(*texts: str) -> tuple[str, ...]:
    return tuple(word for text in texts for word in text.split())


GAPS = (
    *_words(
        "- -- --- ? ?? . .. * unknown Unknown UNKNOWN unbekannt Unbekannt inconnu Inconnu desconocido Desconocido missing",
        "Missing n.a. N.A. n/a N/A NA #N/A #NV #WERT! #VALUE! #REF! #DIV/0! #NULL! k.A. None none NULL null NaN nan",
    ),
    *("", "k. A.", "keine Angabe", "nicht bekannt", "not known", "not available", "non renseigné", "sin datos"),
)
"""Marks of a gap: gaps of numbers, dates and truth values, of texts categories."""

TRUTHS = _words(
    "yes/no Yes/No YES/NO y/n Y/N ja/nein Ja/Nein JA/NEIN j/n J/N oui/non Oui/Non OUI/NON sí/no Sí/No si/no Si/No SI/NO",
    "t/f T/F wahr/falsch Wahr/Falsch WAHR/FALSCH vrai/faux Vrai/Faux VRAI/FAUX verdadero/falso VERDADERO/FALSO on/off",
)

SYMBOLS = _words("$ € £ ¥ ₹ ₽ ₺ ₩ ₪ R$ US$ C$ A$ kr kr. zł Kč Ft Fr. S/")
CODES = _words("EUR USD GBP CHF JPY CNY INR AUD CAD NZD SEK NOK DKK PLN CZK HUF BRL MXN ZAR SGD HKD KRW TRY RUB AED")
UNITS = _words(
    "g mg µg μg ng kg t lb lbs oz l L ml mL dl cl m mm cm km mi ft in m² m2 m³ m3 km² ha °C °F C K h min s sec ms d",
    "W kW kWh MW MWh V A mA Hz kHz MHz GHz B kB KB MB GB TB IE IU mmol/l mg/dl g/l g/dl mmHg bpm km/h mph kcal kJ bar hPa Pa",
    "dB pcs Stk St. x years yrs Jahre ans años months Monate mois days Tage jours días weeks Wochen semaines hours Stunden",
    "heures horas minutes Minuten seconds Sekunden secondes persons Personen",
)
ONE = dict(
    pair.split("/")
    for pair in _words(
        "years/year yrs/yr Jahre/Jahr ans/an años/año months/month Monate/Monat days/day Tage/Tag jours/jour días/día",
        "weeks/week Wochen/Woche semaines/semaine hours/hour Stunden/Stunde heures/heure horas/hora",
        "minutes/minute Minuten/Minute seconds/second Sekunden/Sekunde secondes/seconde persons/person Personen/Person",
    )
)
"""Units of one thing."""

HARD, THIN = "\u00a0", "\u202f"
"""Blanks at which no line ends."""

MARKS = (
    ("", "."), (",", "."), ("", ","), (".", ","), (" ", ","), (HARD, ","), (THIN, ","), ("'", "."), ("’", "."), (" ", "."),
    (HARD, "."), (THIN, "."), ("'", ","),
)  # fmt: skip
"""Marks of thousands and of decimals; of those that make the same texts the first one."""

MONTHS = {
    "en": (
        "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec",
        "January February March April May June July August September October November December",
    ),
    "de": (
        "Jan Feb Mär Apr Mai Jun Jul Aug Sep Okt Nov Dez",
        "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    ),
    "de.": ("Jan. Feb. März Apr. Mai Juni Juli Aug. Sept. Okt. Nov. Dez.", ""),
    "de2": ("Jan Feb Mrz Apr Mai Jun Jul Aug Sep Okt Nov Dez", ""),
    "fr": (
        "janv. févr. mars avr. mai juin juil. août sept. oct. nov. déc.",
        "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    ),
    "es": (
        "ene feb mar abr may jun jul ago sep oct nov dic",
        "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    ),
    "es.": ("ene. feb. mar. abr. may. jun. jul. ago. sept. oct. nov. dic.", ""),
}
"""Short and long names of months by language; `EN`: in capitals, `en, small`: in small letters."""

DATES = (
    "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%m.%d.%Y", "%d %m %Y", "%m %d %Y", "%d.%m.%y", "%d/%m/%y",
    "%m/%d/%y", "%d-%m-%y", "%m-%d-%y", "%Y/%m/%d", "%Y.%m.%d", "%Y-%m-%d", "%d. %m. %Y",
)  # fmt: skip
NAMED = (
    "%d %b %Y", "%d-%b-%Y", "%d-%b-%y", "%d/%b/%Y", "%d %b %y", "%d. %b %Y", "%d.%b.%Y", "%d%b%Y", "%b %d, %Y", "%b %d %Y",
    "%d %B %Y", "%d. %B %Y", "%B %d, %Y", "%d de %B de %Y", "%d-%B-%Y",
)  # fmt: skip
PERIODS = (
    "%Y-%m", "%m/%Y", "%m.%Y", "%Y/%m", "%YQ%q", "%Y-Q%q", "%Y Q%q", "Q%q %Y", "Q%q/%Y", "Q%q-%Y", "%G-W%V", "%GW%V", "%G-%V",
    "%q. Quartal %Y", "KW%V/%G", "KW %V/%G", "%Yq%q", "%Ym%-m",
)  # fmt: skip
NAMED_PERIODS = ("%b %Y", "%B %Y", "%b-%y", "%b-%Y", "%b %y", "%b. %y")
TIMES = (
    "%H:%M", "%H:%M:%S", "%-H:%M", "%-H:%M:%S", "%I:%M %p", "%-I:%M %p", "%I:%M:%S %p", "%-I:%M:%S %p", "%I:%M%p", "%-I:%M%p",
    "%I:%M %P", "%-I:%M %P", "%-I:%M%P", "%Hh%M", "%-Hh%M", "%H:%M Uhr", "%H.%M Uhr", "%H:%M:%S Uhr", "[h]:%M:%S", "[hh]:%M:%S",
)  # fmt: skip
"""Times of day; `[h]`, `[hh]`: hours of durations, of two digits at least."""
JOINS = (" ", "T", ", ")
"""Between a date and a time."""
DIGITS = ("%Y%m%d", "%Y%m%d%H%M%S")
"""Dates that are whole numbers."""

ZONES = ("Z", ".000Z", "+00:00", "+0000", ".000+0000", "+00", "%z")
"""Ends of times by ISO 8601 in UTC; `%z`: of any offset, which is written back as +00:00."""

MONEY = {*SYMBOLS, *CODES}
DAY = 86_400


# -- texts by their shapes - the same but for their digits - and what a writing is --------------------------------------

Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]

DIGIT = re.compile("[0-9]")
_LONGEST = 48  # characters of a text that may be more than a text


class Group(NamedTuple):
    """Texts of one shape: the same but for their digits. `rows` (m,) of them, and their characters (m, length)."""

    shape: str
    rows: Integers
    characters: npt.NDArray[np.uint32]

    def digits(self, places: Sequence[int]) -> Integers:
        """The digits (m, k) at these places."""
        return self.characters[:, list(places)].astype(np.int64) - ord("0")

    def texts(self, first: int = 0, after: int | None = None) -> Array:
        """A part of each text (m,)."""
        part = np.ascontiguousarray(self.characters[:, first:after])
        return part.view(f"<U{part.shape[1]}").ravel() if part.shape[1] else np.full(len(part), "")


def groups(texts: Array) -> Iterator[Group]:
    """Texts (n,) by their shapes; those that are too long have none."""
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    for length in np.unique(lengths[(lengths > 0) & (lengths <= _LONGEST)]):
        rows = np.flatnonzero(lengths == length)
        characters = np.array(texts[rows].tolist(), f"<U{length}").view(np.uint32).reshape(len(rows), length)
        shapes = np.where((characters >= ord("0")) & (characters <= ord("9")), np.uint32(ord("9")), characters)
        keys = shapes.astype(np.uint64) @ _KEYS[:length]
        place, _ = pd.factorize(keys)
        order = np.argsort(place, kind="stable")
        for own in np.split(order, np.flatnonzero(np.diff(place[order])) + 1):
            while len(own):
                same = (shapes[own] == shapes[own[0]]).all(1)  # two shapes may have one key
                shape = "".join(map(chr, shapes[own[0]]))
                yield Group(shape, rows[own[same]], characters[own[same]])
                own = own[~same]


_KEYS = np.random.default_rng(0).integers(1, 2**63, _LONGEST, dtype=np.uint64) * 2 + 1


class Found(NamedTuple):
    """Texts (n,) of a writing, and their values (n,)."""

    there: Flags
    values: Reals


class Writing(ABC):
    """One way to write the values of a column; `kind` is the type of its field, `name` the format."""

    kind: str

    @property
    @abstractmethod
    def name(self) -> str:
        """The format of a field."""

    @property
    def limits(self) -> tuple[int, int | None] | None:
        """The least and the greatest value that can be written; None: there is none."""
        return None

    @abstractmethod
    def _of_group(self, group: Group) -> Found:
        """Texts of one shape."""

    @abstractmethod
    def write(self, values: Array, decimals: int) -> list[str]:
        """Values (n,) as texts, numbers with so many decimals at most."""

    def read(self, texts: Array) -> Found:
        """Texts (n,) without blanks around them."""
        there, values = np.zeros(len(texts), bool), np.full(len(texts), np.nan)
        for group in groups(texts):
            found = self._of_group(group)
            there[group.rows], values[group.rows] = found
        return Found(there, np.where(there, values, np.nan))


def nothing(n: int) -> Found:
    return Found(np.zeros(n, bool), np.full(n, np.nan))


def each(texts: Array, read: Callable[[str], int | None]) -> Reals:
    """The value of each text (n,), read once for all that are the same; NaN of one that has none."""
    place, different = pd.factorize(texts)
    found = [read(str(text)) for text in different]
    return np.array([np.nan if value is None else value for value in found], np.float64)[place]


def write_each(values: Integers, write: Callable[[int], str]) -> list[str]:
    place, different = pd.factorize(values)
    made = [write(int(value)) for value in different]
    return [made[i] for i in place]


def whole(values: Array) -> Integers:
    return np.rint(values.astype(np.float64)).astype(np.int64)
