"""Avazu click logs in their own format: which sites each device clicked on."""

from collections.abc import Sequence

import pandas as pd

from dpgen.data.event_files import event_frame
from dpgen.data.public_prior import PriorName, chosen_prior, prior_from_file
from dpgen.data.table_files import csv_chunks
from dpgen.data.user_events import Known, read_categories, users_from_events
from dpgen.data.users import Users, natural_order

ATTRIBUTES = ("C1", *(f"C{i}" for i in range(14, 22)))
"""The anonymous attributes of an impression, each with several values (subcategories)."""

NO_DEVICE = "a99f214a"
"""What the log writes for a device that is not known: most rows, and not one user."""

CHUNK = 1_000_000
"""Rows that are held at a time: the whole log has 40 million, of which about a sixth are clicks."""


def load_avazu(
    *,
    path: str,
    attribute: str = "C18",
    value: str | None = None,
    top_sites: int = 100,
    min_clicks: int = 20,
    categories_path: str | None = None,
    prior: PriorName | None = None,
    prior_path: str | None = None,
    public_path: str | None = None,
) -> Users:
    """Devices and the sites that they clicked on, as in Zamanlooy et al. (2025), section 5.3.

    Clicks count, not impressions, and devices that never click are nobody here. A device takes part when it has
    ``min_clicks`` clicks on the sites of the domain. Without ``categories_path`` and a public prior these sites are the
    ``top_sites`` most clicked ones of this very log, which epsilon does not cover, as ``notes`` say. Rows without a
    device id (`NO_DEVICE`) are left out.

    Arguments:
        path: csv file, plain or .gz, with the columns device_id, site_id, click and ``attribute``.
        attribute: C1 or C14 ... C21.
        value: keep the clicks where the attribute has this value (the paper's subcategory); all of them without.
        top_sites: number of sites, >= 2.
        min_clicks: least number of clicks of a device, >= 1.
        categories_path: file of public site ids, one a line.
        prior: uniform, file, public or private (see `load_events`).
        prior_path: file of probabilities, columns ``site_id`` and ``probability``.
        public_path: another log of this format whose devices are public; its most clicked sites are the domain.

    Raises:
        ValueError: if a file is missing or malformed, or an option out of range.
    """
    for name, number, least in (("top_sites", top_sites, 2), ("min_clicks", min_clicks, 1)):
        if number < least:
            raise ValueError(f"{name} is {number}: it must be >= {least}")
    kind = chosen_prior(prior, prior_path=prior_path, public_path=public_path, private_path=path)
    sites = None if categories_path is None else read_categories(categories_path)
    probabilities = None if prior_path is None else prior_from_file(prior_path, "site_id")
    public = None
    if public_path is not None:
        clicks = _with_value(read_clicks(public_path, attribute), attribute, value, public_path)
        sites = sites or most_clicked(clicks, top_sites)
        public = frequent(clicks, sites, min_clicks)
        if public.empty:
            raise ValueError(f"{public_path} has no device with min_clicks {min_clicks} on the sites of the domain")
    source = prior_path or public_path or ""
    known = Known(prior=kind, probabilities=probabilities, public=public, source=source, categories=sites)
    clicks = _with_value(read_clicks(path, attribute), attribute, value, path)
    name = "Avazu" if value is None else f"Avazu {attribute} = {value}"
    return users_of_clicks(name, clicks, known, top_sites=top_sites, min_clicks=min_clicks)


def read_clicks(path: str, attribute: str) -> pd.DataFrame:
    """Clicks of a log, in pieces of `CHUNK` rows, as events with the further column ``attribute``.

    Raises:
        ValueError: if the file is missing or no csv, lacks a column, has a click but 0 and 1, or holds no impression.
    """
    if attribute not in ATTRIBUTES:
        raise ValueError(f"attribute is {attribute!r}: it must be one of {', '.join(ATTRIBUTES)}")
    wanted = ["device_id", "site_id", "click", attribute]
    chunks = csv_chunks(path, wanted, rows=CHUNK, what="an Avazu log", dtype=str, keep_default_na=False)
    parts = [_clicked(part, path) for part in chunks if len(part)]
    if not parts:
        raise ValueError(f"{path} is empty: it has no impression")
    clicks = pd.concat(parts, ignore_index=True)
    events = event_frame({"user": clicks["device_id"], "category": clicks["site_id"]}, source=path)
    return events.assign(**{attribute: clicks[attribute].str.strip()})


def most_clicked(clicks: pd.DataFrame, count: int) -> tuple[str, ...]:
    """The ``count`` sites with most clicks, in natural order; ties go to the smaller name."""
    totals = clicks.groupby("category")["weight"].sum()
    kept = sorted(totals.index, key=lambda site: (-totals[site], natural_order(site)))[:count]
    return tuple(sorted(kept, key=natural_order))


def frequent(clicks: pd.DataFrame, sites: Sequence[str], min_clicks: int) -> pd.DataFrame:
    """The clicks on these sites of devices that have ``min_clicks`` of them."""
    kept = clicks[clicks["category"].isin(sites)]
    return kept[kept.groupby("user")["weight"].transform("sum") >= min_clicks]


def users_of_clicks(name: str, clicks: pd.DataFrame, known: Known, *, top_sites: int, min_clicks: int) -> Users:
    """The devices with enough clicks as `Users`; there may be none."""
    notes = []
    sites = tuple(known.probabilities or ()) or known.categories
    if sites is None:
        sites = most_clicked(clicks, top_sites)
        known = Known(prior=known.prior, categories=sites)
        notes.append(
            f"the sites (the {top_sites} most clicked, if there are so many) were chosen on the private clicks: epsilon does "
            "not cover this"
        )
    kept = frequent(clicks, sites, min_clicks)
    # Whatever the log says: neither whether there are such devices nor how many is public.
    notes.append(f"devices with fewer than {min_clicks} clicks on the sites are left out: who takes part is not covered")
    return users_from_events(name, kept, known, source=name, everyone=clicks, notes=notes)


def _clicked(part: pd.DataFrame, path: str) -> pd.DataFrame:
    wrong = ~part["click"].isin(["0", "1"]).to_numpy()
    if wrong.any():
        row = part.index[int(wrong.argmax())] + 1
        raise ValueError(f"{path} has the click {part['click'].loc[row - 1]!r} in row {row}: it must be 0 or 1")
    return part[(part["click"] == "1") & (part["device_id"] != NO_DEVICE)]


def _with_value(clicks: pd.DataFrame, attribute: str, value: str | None, path: str) -> pd.DataFrame:
    if value is None:
        return clicks
    kept = clicks[clicks[attribute] == value]
    if kept.empty:
        found = ", ".join(sorted(clicks[attribute].unique(), key=natural_order)[:20])
        raise ValueError(
            f"value is {value!r}: attribute {attribute} of {path} has {found}; take one of these, or another attribute"
        )
    return kept
