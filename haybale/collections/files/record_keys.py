"""Give each record of a file a key that stays the same when other records are added, removed or moved.

The position of a record in its file is no identity: one record added on top would shift the keys of all others.
The key of a record is the first of these that no other record of its file has:

- a DOI, a PubMed id, an accession number or another usual key, from the columns in :data:`KEY_COLUMNS`;
- a digest of its title and text. Records with the same title and text get a counter.

The keys of a file do not depend on the order of its records. Values that are no keys, such as ``NA``, are ignored.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from haybale.collections.files.file_document import FileDocument

_MAX_KEY_CHARACTERS = 200
_DOI = re.compile(r"(?:https?://)?(?:dx\.)?(?:doi\.org/|doi:\s*)?(10\.\d{4,9}/\S+)", re.I)
_IDENTIFIER = re.compile(r"[^\W_][\w.:/+()\[\]-]{2,}")


def _doi(value: str) -> str | None:
    """Return a DOI in lower case, without an address before it and without punctuation after it."""
    match = _DOI.fullmatch(value)
    return match[1].lower().rstrip(".,;") if match else None


def _number(value: str) -> str | None:
    """Return a positive whole number without a prefix such as ``PMID:``."""
    match = re.fullmatch(r"(?:pmid:?\s*)?0*([1-9]\d{0,18})(?:\.0)?", value, re.I)
    return match[1] if match else None


def _identifier(value: str) -> str | None:
    """Return an identifier without white space that has a digit."""
    return value if _IDENTIFIER.fullmatch(value) and re.search(r"\d", value) else None


def _url(value: str) -> str | None:
    return value if re.fullmatch(r"https?://[^\s/]+/\S+", value, re.I) else None


# Prefix of the key, names of its columns in lower case with underscores, and the function from a value to a key.
KEY_COLUMNS: tuple[tuple[str, tuple[str, ...], Callable[[str], str | None]], ...] = (
    ("", ("doi", "digital_object_identifier", "doi_link", "item_doi"), _doi),
    ("pmid:", ("pmid", "pubmed_id", "pubmedid", "pubmed"), _number),
    ("pmcid:", ("pmcid", "pmc_id"), _identifier),
    ("accession:", ("accession_number", "accession", "accession_no", "an"), _identifier),
    ("wos:", ("ut", "wos_id", "unique_wos_id", "ut_(unique_wos_id)"), _identifier),
    ("eid:", ("eid", "scopus_id"), _identifier),
    ("openalex:", ("openalex_id", "openalex"), _identifier),
    ("arxiv:", ("arxiv_id", "arxiv"), _identifier),
    ("nct:", ("nct_id", "nct_number"), _identifier),
    ("ecli:", ("ecli",), _identifier),
    ("celex:", ("celex", "celex_number"), _identifier),
    ("isbn:", ("isbn",), _identifier),
    ("uuid:", ("uuid", "guid"), _identifier),
    ("", ("url", "uri", "urls"), _url),
)


def keys_of_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys that a record has in its columns, the best first.

    >>> keys_of_row({"DOI": "https://doi.org/10.1000/XYZ", "PubMed ID": 17, "accession number": "NA"})
    ('10.1000/xyz', 'pmid:17')
    """
    columns: dict[str, Any] = {}
    for name, value in row.items():
        columns.setdefault(re.sub(r"[\s_-]+", "_", str(name).strip().lower()), value)
    keys = []
    for prefix, names, key_of in KEY_COLUMNS:
        values = [text for name in names if (text := _text(columns.get(name)))]
        key = next(filter(None, map(key_of, values)), None)
        if key is not None and key.isprintable() and len(key) <= _MAX_KEY_CHARACTERS:
            keys.append(prefix + key)
    return tuple(keys)


def with_record_keys(documents: Sequence[FileDocument]) -> None:
    """Set the keys of the records of a file; documents that are no records stay as they are.

    If several records of the file have one id, only one of them keeps it, and only if all have the same title and text.
    Otherwise the order of the records would decide which of them has it.
    """
    records = [document for document in documents if document.record_keys is not None]
    digests = {id(record): _digest(record) for record in records}
    counts = Counter((record.table, key) for record in records for key in set(record.record_keys or ()))
    same_text: defaultdict[tuple[str, str], list[FileDocument]] = defaultdict(list)
    same_id: defaultdict[str, list[FileDocument]] = defaultdict(list)
    for record in records:
        unique = (key for key in record.record_keys or () if counts[record.table, key] == 1)
        record.key = next(unique, None)
        if record.key is None:
            same_text[record.table, digests[id(record)]].append(record)
        if record.own_id is not None:
            same_id[record.own_id].append(record)
    for (_, digest), twins in same_text.items():
        for number, record in enumerate(_by_metadata(twins), 1):
            record.key = digest if number == 1 else f"{digest}-{number}"
    for namesakes in same_id.values():
        is_one_text = len({digests[id(record)] for record in namesakes}) == 1
        for record in _by_metadata(namesakes)[int(is_one_text) :] if len(namesakes) > 1 else ():
            record.own_id = None
    for record in records:
        record.key = f"{record.table}/{record.key}" if record.table else record.key
        record.record_keys = None  # so that an attachment's records keep their keys


def _digest(record: FileDocument) -> str:
    """Return a digest of title and text, 16 hexadecimal digits."""
    texts = json.dumps([record.title, *(part.text for part in record.parts)])
    return hashlib.sha256(texts.encode()).hexdigest()[:16]


def _by_metadata(records: Iterable[FileDocument]) -> list[FileDocument]:
    """Return records in an order that does not depend on their order in the file."""
    return sorted(
        records,
        key=lambda record: json.dumps([record.table, record.own_id, record.metadata], sort_keys=True, default=str),
    )


def _text(value: Any) -> str:
    """Return a cell as a text; a list with one member counts as this member, and any other list as empty."""
    if isinstance(value, list | tuple):
        value = value[0] if len(value) == 1 else None
    if value is None or isinstance(value, bool):
        return ""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()
