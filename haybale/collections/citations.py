"""How a document is cited: its citation, court, date and docket number, and a link, from columns of the metadata.

Columns are recognised by their names, in English or German, as those of bibliographic records are
(:mod:`~haybale.collections.record_fields`). The metadata stays as it is; what is not recognised is left empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from typing import Any, NamedTuple

# Names of columns in lower case with underscores; the first that a document has a value in is taken.
_COLUMNS = {
    "citation": (
        "citation", "neutral_citation", "cite", "reporter_citation", "citations", "ecli", "fundstelle", "zitierung",
    ),
    "court": ("court", "court_name", "gericht", "tribunal"),
    "date": (
        "date", "decision_date", "date_filed", "judgment_date", "date_of_decision", "entscheidungsdatum", "datum",
        "sent", "published", "publication_date",
    ),
    "docket": (
        "docket", "docket_number", "docket_no", "case_number", "case_no", "file_number", "aktenzeichen", "az",
    ),
    "link": ("url", "link", "urls", "source_url", "absolute_url"),
    "doi": ("doi",),
    "authors": ("authors", "author", "first_authors", "creator"),
    "year": ("year", "publication_year", "pub_year", "py"),
    "venue": ("journal", "journal_name", "secondary_title", "source_title", "publication_title", "venue", "booktitle"),
}  # fmt: skip
_WEB = re.compile(r"https?://\S+", re.IGNORECASE)
_DOI = re.compile(r"10\.\d{4,9}/\S+")
_MAX_AUTHORS = 3  # of a citation; more are "et al."


class Citation(NamedTuple):
    """How a document is cited. Each text is empty if the metadata does not have it, but ``text`` never is.

    Attributes
    ----------
    text : str
        The citation that the metadata has; else court, date and docket number; else authors, year, title and journal;
        else the title.
    court, date, docket : str
        Dates are as in ISO 8601 where the metadata has dates, and otherwise as they are written.
    link : str
        An address of the document on the web, such as that of its DOI.
    """

    text: str
    court: str = ""
    date: str = ""
    docket: str = ""
    link: str = ""


def cite(title: str, metadata: Mapping[str, Any]) -> Citation:
    """Return how a document with a title and some metadata is cited.

    >>> cite("Dogs", {"Gericht": "BGH", "date": date(2015, 1, 31), "Aktenzeichen": "VI ZR 1/14"}).text
    'BGH, 2015-01-31, VI ZR 1/14'
    >>> cite("Leases", {"authors": ["Doe, J."], "year": 2020, "journal": "Law", "doi": "10.1000/x"})
    Citation(text='Doe, J. (2020). Leases. Law.', court='', date='', docket='', link='https://doi.org/10.1000/x')
    >>> cite("a.pdf", {}).text
    'a.pdf'
    """
    by_name = {usual_name(name): value for name, value in metadata.items()}
    values = {role: _first(by_name[name] for name in names if name in by_name) for role, names in _COLUMNS.items()}
    court, day, docket = values["court"], values["date"], values["docket"]
    text = values["citation"]
    if not text and (court or docket):
        text = ", ".join(filter(None, (court, day, docket)))
    elif not text and (values["authors"] or values["venue"]):
        authors, year = _short_authors(values["authors"]), values["year"] or day[:4]
        parts = (f"{authors} ({year})" if authors and year else authors or year, title, values["venue"])
        text = " ".join(f"{part.rstrip('.')}." for part in parts if part)
    web, doi = _WEB.search(values["link"]), _DOI.search(values["doi"])
    link = web[0].rstrip(";,") if web else f"https://doi.org/{doi[0]}" if doi else ""
    return Citation(text or title, court, day, docket, link)


def usual_name(column: str) -> str:
    """Return the name of a column in lower case, with underscores.

    >>> usual_name(" Docket-No ")
    'docket_no'
    """
    return re.sub(r"[\s_-]+", "_", column.strip().lower())


def value_text(value: Any) -> str:
    """Return a value of the metadata as a text: the members of a list with semicolons, dates as in ISO 8601.

    >>> value_text(["tax", "land"]), value_text(datetime(2015, 1, 31)), value_text(2.0), value_text(None)
    ('tax; land', '2015-01-31', '2', '')
    """
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return "; ".join(filter(None, map(value_text, value)))
    if isinstance(value, datetime) and (value.hour, value.minute, value.second, value.microsecond) == (0, 0, 0, 0):
        return value.date().isoformat()
    if isinstance(value, date):
        return value.isoformat()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()


def _first(values: Iterable[Any]) -> str:
    return next(filter(None, map(value_text, values)), "")


def _short_authors(authors: str) -> str:
    names = [name.strip() for name in re.split(r";|\n", authors) if name.strip()]
    return "; ".join(names) if len(names) <= _MAX_AUTHORS else f"{names[0]} et al."
