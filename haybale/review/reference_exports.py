"""Write the records of a topic in BibTeX and in PubMed's format, for reference managers that do not read RIS.

Fields that RIS has a tag for are written under the names of the other format; further fields are left out, since only
RIS keeps all (:mod:`haybale.review.ris_export`). The note of ASReview about relevance, and the notes of the judges,
stand in each record, so that an import of the file has the decisions.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict

from haybale.collections.files.record_keys import KEY_COLUMNS
from haybale.collections.files.reference_fields import ris_fields, ris_type, text_of, texts_of
from haybale.collections.files.review_notes import IRRELEVANT, JUDGEMENT, NOT_SEEN, RELEVANT, review_note
from haybale.review.exported_records import ExportedRecord

_BIBTEX_TYPES = {
    "JOUR": "article", "EJOUR": "article", "BOOK": "book", "CHAP": "incollection", "CPAPER": "inproceedings",
    "CONF": "proceedings", "THES": "phdthesis", "RPRT": "techreport", "UNPB": "unpublished",
}  # fmt: skip
# The names of fields by their tags in RIS, in the order in which they are written.
_BIBTEX_NAMES = {
    "AU": "author", "A1": "author", "A2": "editor", "T2": "journal", "JO": "journal", "JF": "journal", "PY": "year",
    "Y1": "year", "VL": "volume", "IS": "number", "SP": "pages", "DO": "doi", "UR": "url", "SN": "issn",
    "PB": "publisher", "CY": "address", "LA": "language", "KW": "keywords",
}  # fmt: skip
_NBIB_TAGS = {
    "AU": "FAU", "A1": "FAU", "A2": "FED", "DA": "DP", "PY": "DP", "Y1": "DP", "T2": "JT", "JO": "JT", "JF": "JT",
    "JA": "TA", "VL": "VI", "IS": "IP", "SP": "PG", "DO": "LID", "LA": "LA", "SN": "IS", "CY": "PL", "PB": "PB",
    "KW": "OT", "AD": "AD",
}  # fmt: skip
_SEPARATORS = {"author": " and ", "editor": " and ", "keywords": "; ", "url": " "}
_VERBATIM = ("doi", "url", "issn")  # fields of BibTeX in which programs expect no LaTeX
_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_PMID = next(names for prefix, names, _ in KEY_COLUMNS if prefix == "pmid:")


def bibtex_of(record: ExportedRecord) -> str:
    """Return a record as an entry of BibTeX, with texts in LaTeX."""
    kind = _BIBTEX_TYPES.get(ris_type(text_of(record.metadata.get("type_of_reference", ""))), "misc")
    fields: dict[str, list[str]] = defaultdict(list)
    fields["title"] = [record.own_title or record.title]
    for name, texts in _fields(record, _BIBTEX_NAMES).items():
        fields["booktitle" if name == "journal" and kind.startswith("in") else name] = texts
    fields["abstract"] = ["\n\n".join(record.paragraphs)]
    fields["note"] = ["\n\n".join(_notes(record))]
    lines = [
        f"  {name} = {{{_latex(name, _SEPARATORS.get(name, '; ').join(texts))}}},\n"
        for name, texts in fields.items()
        if any(texts)
    ]
    return f"@{kind}{{{_key(record.doc_id)},\n{''.join(lines)}}}\n\n"


def nbib_of(record: ExportedRecord) -> str:
    """Return a record in the MEDLINE format of PubMed; notes are general notes (GN)."""
    pmid = next((text_of(record.metadata[name]) for name in _PMID if record.metadata.get(name)), "")
    tagged = [("PMID", pmid)] if pmid.isdecimal() else [("OWN", "haybale")]
    tagged += [("TI", record.own_title or record.title), ("AB", "\n\n".join(record.paragraphs))]
    for tag, texts in _fields(record, _NBIB_TAGS).items():
        tagged += [(tag, f"{text} [doi]" if tag == "LID" else text) for text in texts]
    tagged += [("GN", note) for note in _notes(record)]
    lines = [f"{tag:<4}- {_continued(text)}\n" for tag, text in tagged if text.strip()]
    return "".join([*lines, "\n"])


def _fields(record: ExportedRecord, names: dict[str, str]) -> dict[str, list[str]]:
    """Return the texts of a record's metadata by the names of a format, in the order of the names."""
    texts: dict[str, list[str]] = defaultdict(list)
    for tag, text in ris_fields({name: value for name, value in record.metadata.items() if value not in ("", [])}):
        texts[tag].append(text)
    if "SP" in texts and "EP" in texts:
        texts["SP"] = [f"{texts['SP'][0]}-{texts['EP'][0]}"]
    named: dict[str, list[str]] = {}
    for tag, name in names.items():
        if tag in texts:
            named.setdefault(name, texts[tag])
    return named


def _notes(record: ExportedRecord) -> list[str]:
    """Return the note of ASReview about relevance, and what each judge said."""
    decision = NOT_SEEN if record.grade is None else RELEVANT if record.is_relevant else IRRELEVANT
    record_notes = [note for text in texts_of(record.metadata.get("notes", [])) if (note := text.strip())]
    return [*record_notes, decision, *(review_note(JUDGEMENT, judgement) for judgement in record.judgements())]


def _key(doc_id: str) -> str:
    """Return the key of an entry: the id, or what is left of it with a digest.

    >>> _key("smith2014"), _key("a b.txt")
    ('smith2014', 'a-b.txt-cd6c4a')
    """
    plain = re.sub(r"[^A-Za-z0-9.:_-]+", "-", doc_id)
    return plain if plain == doc_id else f"{plain}-{hashlib.sha256(doc_id.encode()).hexdigest()[:6]}"


def _latex(name: str, text: str) -> str:
    r"""Return a text in LaTeX; that of an address or a number without braces.

    >>> _latex("title", "50 % of {A_1}"), _latex("url", "http://a/{b}")
    ('50 \\% of \\{A\\_1\\}', 'http://a/%7Bb%7D')
    """
    if name in _VERBATIM:
        return text.replace("{", "%7B").replace("}", "%7D")
    return re.sub(r"[\\{}&%$#_~^]", lambda match: _LATEX.get(match[0], f"\\{match[0]}"), text)


def _continued(text: str) -> str:
    """Return a text whose further lines do not begin a field."""
    return "\n".join(f"      {line}" if number and line else line for number, line in enumerate(text.splitlines()))
