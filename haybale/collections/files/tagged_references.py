"""Split bibliographic records of PubMed (MEDLINE, nbib), the Web of Science and EndNote (Refer) into fields.

In these formats each field begins with a tag, and its text may go on in the next lines. The names of the fields are
those that rispy has for RIS, where there is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from haybale.collections.files.file_reader import Unreadable
from haybale.collections.files.table_rows import Row
from haybale.collections.unread import UnreadPart

_DOI = re.compile(r"(?:https?://(?:dx\.)?doi\.org/)?(10\.\d{4,9}/\S+)(?: \[doi\])?", re.I)
_YEAR = re.compile(r"\b(1[5-9]|20|21)\d\d\b")


@dataclass(frozen=True)
class TaggedFormat:
    """How records with tags are written.

    Parameters
    ----------
    label : str
        The name of the format, for messages.
    begin : str
        A regular expression that the first line with words matches.
    tag_line : str
        A regular expression of lines that begin a field, with the groups tag and text.
    names : mapping of str to str
        The names of fields by tag; other tags are names themselves.
    lists : set of str
        Names of fields that may have several values.
    last_tag : str, default ""
        The tag that ends a record; without one, a blank line does.
    skipped : tuple of str, default ()
        Tags of the file, which belong to no record.
    values_by_line : set of str, default ()
        Names of fields in which each line is a value.
    separator : str, default ""
        What separates keywords in one text.
    """

    label: str
    begin: str
    tag_line: str
    names: Mapping[str, str]
    lists: frozenset[str]
    last_tag: str = ""
    skipped: tuple[str, ...] = ()
    values_by_line: frozenset[str] = frozenset()
    separator: str = ""

    def recognises(self, text: str) -> bool:
        """Return whether the first lines of a text are those of such a file."""
        first = next((line for line in text[: 2**16].lstrip("\ufeff").split("\n") if line.strip()), "")
        return re.match(self.begin, first) is not None

    def records(self, text: str) -> Iterator[Row | UnreadPart]:
        """Yield the records of a text, and what belongs to none."""
        outside: list[str] = []
        number = 0
        for line, fields in self._split(text.lstrip("\ufeff"), outside):
            number += 1
            yield Row(f"record {number} (line {line})", self._values(fields))
        if outside:
            reason = f"{len(outside):,} lines that belong to no record, such as {outside[0]!r:.80}"
            yield UnreadPart(part="between the records", reason=reason)
        if not number:
            raise Unreadable(f"expected records in the format of {self.label}, found none")

    def _split(self, text: str, outside: list[str]) -> Iterator[tuple[int, list[tuple[str, list[str]]]]]:
        """Yield the first line of each record, and its tags with the lines of their texts."""
        tag_line = re.compile(self.tag_line)
        first, fields, is_after_blank = 0, list[tuple[str, list[str]]](), False
        for number, line in enumerate(text.split("\n"), 1):
            match = tag_line.fullmatch(line)
            is_end = bool(self.last_tag) and match is not None and match[1] == self.last_tag
            if fields and (is_end or (match is not None and not self.last_tag and is_after_blank)):
                yield first, fields
                fields = []
            if match is not None and not is_end and match[1] not in self.skipped:
                first = first if fields else number
                fields.append((match[1], [(match[2] or "").strip()]))
            elif match is None and fields:
                fields[-1][1].append(line.strip())
            elif match is None and re.search(r"[^\W\d_]", line):
                outside.append(line.strip())
            is_after_blank = not line.strip()
        if fields:
            yield first, fields

    def _values(self, fields: list[tuple[str, list[str]]]) -> dict[str, str | list[str]]:
        """Return the fields of a record by their names."""
        values: dict[str, list[str]] = {}
        for tag, lines in fields:
            name = self.names.get(tag, tag)
            texts = lines if name in self.values_by_line else [_joined(lines)]
            if self.separator and name in ("keywords", "keywords_plus"):
                texts = [keyword for text in texts for keyword in text.split(self.separator)]
            values.setdefault(name, []).extend(filter(None, map(str.strip, texts)))
        if "doi" not in values:
            dois = (_DOI.fullmatch(text) for name in ("article_ids", "location_ids") for text in values.get(name, ()))
            values["doi"] = [match[1] for match in dois if match is not None][:1]
        if "year" not in values:
            year = _YEAR.search(" ".join(values.get("date", ())))
            values["year"] = [] if year is None else [year[0]]
        return {
            name: texts if name in self.lists or len(texts) > 1 else texts[0] for name, texts in values.items() if texts
        }


def _joined(lines: list[str]) -> str:
    r"""Return the lines of a text as paragraphs without line breaks.

    >>> _joined(["One", "paragraph.", "", "Another."])
    'One paragraph.\n\nAnother.'
    """
    paragraphs = re.split(r"\n{2,}", "\n".join(lines).strip("\n"))
    return "\n\n".join(" ".join(paragraph.split("\n")).strip() for paragraph in paragraphs)


MEDLINE = TaggedFormat(
    label="PubMed",
    begin=r"(?:PMID|OWN |STAT)- ",
    tag_line=r"([A-Z][A-Z0-9]{1,3}) {0,2}- ?(.*)",
    names={
        "PMID": "pmid", "PMC": "pmcid", "TI": "title", "TT": "translated_title", "AB": "abstract", "FAU": "authors",
        "AU": "author_abbreviations", "CN": "corporate_authors", "FED": "editors", "AD": "affiliations",
        "AUID": "author_ids", "JT": "journal", "TA": "journal_abbreviation", "JID": "journal_id", "DP": "date",
        "DEP": "electronic_date", "VI": "volume", "IP": "number", "PG": "pages", "LA": "language", "IS": "issn",
        "ISBN": "isbn", "PT": "publication_types", "MH": "mesh_terms", "OT": "keywords", "AID": "article_ids",
        "LID": "location_ids", "PL": "place_published", "SO": "source", "GR": "grants", "RN": "substances",
        "SI": "secondary_ids", "OWN": "owner", "STAT": "record_status", "EDAT": "entry_date", "OAB": "other_abstract",
        "BTI": "book_title", "PB": "publisher", "COIS": "conflicts_of_interest", "GN": "notes",
    },
    lists=frozenset({
        "authors", "author_abbreviations", "corporate_authors", "editors", "affiliations", "author_ids", "keywords",
        "publication_types", "mesh_terms", "article_ids", "location_ids", "grants", "substances", "secondary_ids",
        "language", "notes",
    }),
)  # fmt: skip
WEB_OF_SCIENCE = TaggedFormat(
    label="the Web of Science",
    begin=r"FN (?:Clarivate|Thomson|ISI|Web)|VR 1|PT [A-Z]$",
    tag_line=r"([A-Z][A-Z0-9])(?: (.*)|\s*)",
    names={
        "PT": "type_of_reference", "AF": "authors", "AU": "author_abbreviations", "BE": "editors",
        "CA": "corporate_authors",
        "TI": "title", "AB": "abstract", "SO": "journal", "JI": "journal_abbreviation", "J9": "journal_name_29",
        "PY": "year", "PD": "date", "VL": "volume", "IS": "number", "BP": "start_page", "EP": "end_page", "DI": "doi",
        "PM": "pmid", "UT": "ut", "DE": "keywords", "ID": "keywords_plus", "LA": "language", "DT": "document_type",
        "SN": "issn", "EI": "eissn", "BN": "isbn", "PU": "publisher", "PI": "place_published", "C1": "affiliations",
        "RP": "reprint_address", "EM": "author_emails", "CR": "references", "NR": "number_of_references",
        "TC": "times_cited", "WC": "web_of_science_categories", "SC": "research_areas", "FU": "grants",
    },
    lists=frozenset({"authors", "author_abbreviations", "editors", "keywords", "keywords_plus", "affiliations",
                     "references"}),
    last_tag="ER",
    skipped=("FN", "VR", "EF"),
    values_by_line=frozenset({"authors", "author_abbreviations", "editors", "affiliations", "references"}),
    separator=";",
)  # fmt: skip
REFER = TaggedFormat(
    label="EndNote (Refer)",
    begin=r"%[0-9A-Z@] \S",
    tag_line=r"%([0-9A-Za-z@!$&#()*+<>?\[=~^]) ?(.*)",
    names={
        "0": "type_of_reference", "A": "authors", "E": "secondary_authors", "Y": "tertiary_authors", "T": "title",
        "B": "secondary_title", "J": "journal", "D": "year", "8": "date", "V": "volume", "N": "number", "P": "pages",
        "X": "abstract", "K": "keywords", "R": "doi", "U": "urls", "@": "issn", "M": "accession_number", "Z": "notes",
        "I": "publisher", "C": "place_published", "F": "label", "L": "call_number", "W": "name_of_database",
        "G": "language", "9": "type_of_work", "7": "edition", "!": "short_title", "+": "author_address",
    },
    lists=frozenset({"authors", "secondary_authors", "tertiary_authors", "keywords", "urls", "notes"}),
    values_by_line=frozenset({"keywords"}),
)  # fmt: skip
