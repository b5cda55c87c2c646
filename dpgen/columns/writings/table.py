"""The table of writings: a reader extends it by a line."""


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
