"""Find duplicates among the documents of an engine: records of one work from several databases, and copies of files.

The rules are those of :mod:`haybale.collections.duplicate_rules`. What is costly is kept in the folder of the engine:
the sketches of a segment's texts beside its indexes, in ``N/sketches.npz``, and the groups of all documents in
``duplicates.json``. Documents that are added need new sketches, others do not; the groups are found again when they are
needed after a change. A file that is missing, damaged or of other documents is made again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from haybale.cached import cached_property
from haybale.collections import Collection
from haybale.engine.snapshot import Documents, Snapshot, View
from haybale.errors import HaybaleError
from haybale.folders import replace_json
from haybale.text_files import read_json
from haybale.timing import timed

if TYPE_CHECKING:
    import pandas as pd

    from haybale.collections.text_sketches import TextSketches
    from haybale.engine.changes import LiveDocuments
    from haybale.engine.segment import Segment

DUPLICATES, SKETCHES = "duplicates.json", "sketches.npz"
_RULES = 1  # the version of the rules; groups that others have found are found again


class DuplicateGroup(NamedTuple):
    """Documents that are one record.

    Attributes
    ----------
    doc_ids : tuple of str
        The document with the longest text comes first: it represents the group. The others are sorted.
    reasons : tuple of str
        By what the documents were found to be duplicates.
    """

    doc_ids: tuple[str, ...]
    reasons: tuple[str, ...]

    @property
    def representative(self) -> str:
        """The id of the document that stands for the group."""
        return self.doc_ids[0]


@dataclass(frozen=True)
class Duplicates:
    """Groups of documents that are one record each.

    Parameters
    ----------
    groups : sequence of DuplicateGroup
        The groups of two or more documents, sorted by their representatives.
    sources : mapping of str to str
        The file or the database of each document by its id, also of documents that are in no group; an empty text if it
        is not known.
    """

    groups: Sequence[DuplicateGroup]
    sources: Mapping[str, str]

    @property
    def n_documents(self) -> int:
        """The number of all documents."""
        return len(self.sources)

    @property
    def n_duplicates(self) -> int:
        """The number of documents that another one represents."""
        return sum(len(group.doc_ids) - 1 for group in self.groups)

    @property
    def n_distinct(self) -> int:
        """The number of documents that are left if one of each group is read."""
        return self.n_documents - self.n_duplicates

    @cached_property
    def representatives(self) -> dict[str, str]:
        """The id of the representative of each document that is in a group, by the document's id."""
        return {doc_id: group.representative for group in self.groups for doc_id in group.doc_ids}

    @cached_property
    def of_document(self) -> dict[str, DuplicateGroup]:
        """The group of each document that is in one, by the document's id."""
        return {doc_id: group for group in self.groups for doc_id in group.doc_ids}

    def others(self, doc_id: str) -> list[str]:
        """Return the other documents of a document's group; none if it is in no group."""
        group = self.of_document.get(doc_id)
        return [] if group is None else [other for other in group.doc_ids if other != doc_id]

    def sources_of_others(self, doc_id: str) -> dict[str, str]:
        """Return the sources of the other documents of a document's group, by their ids."""
        return {other: self.sources[other] for other in self.others(doc_id)}

    def by_source(self) -> pd.DataFrame:
        """Return how many documents, and duplicates among them, come from each source.

        Returns
        -------
        DataFrame
            A row for each source, in the order of their names, with the columns ``source``, ``documents`` and
            ``duplicates``: those that another document represents, which may be of the same source. The numbers of
            PRISMA's first box are the sums.
        """
        import pandas as pd

        documents = Counter(self.sources.values())
        duplicates = Counter(self.sources[doc_id] for group in self.groups for doc_id in group.doc_ids[1:])
        rows = [(source, documents[source], duplicates[source]) for source in sorted(documents)]
        return pd.DataFrame(rows, columns=["source", "documents", "duplicates"])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        groups = [
            {
                "doc_ids": list(group.doc_ids),
                "sources": [self.sources.get(doc_id, "") for doc_id in group.doc_ids],
                "reasons": list(group.reasons),
            }
            for group in self.groups
        ]
        counts = {name: getattr(self, name) for name in ("n_documents", "n_duplicates", "n_distinct")}
        return {**counts, "groups": groups}

    def __repr__(self) -> str:
        """Return the counts in words."""
        return f"Duplicates: {self.in_words()}"

    def in_words(self) -> str:
        """Return the counts in words."""
        duplicates = f"{self.n_duplicates:,} duplicate{'' if self.n_duplicates == 1 else 's'}"
        groups = f"{len(self.groups):,} group{'' if len(self.groups) == 1 else 's'}"
        return f"{self.n_documents:,} documents, {duplicates} in {groups}, {self.n_distinct:,} to read"


def find_duplicates(documents: Documents, live: LiveDocuments, digest: str | None) -> Duplicates:
    """Return which documents are one record: one work from several databases, or copies of one file.

    Records are duplicates by their DOI, PubMed id, or title with year, authors, place and text; other documents by
    having the same words in the same order. Different DOIs, PubMed ids, authors, years or numbers in the title outweigh
    any likeness. An engine in a folder keeps what was found; after a change, only added texts are read.

    Parameters
    ----------
    documents : Documents
    live : LiveDocuments
        Those of the engine.
    digest : str or None
        A digest of the documents, under which what was found is kept.

    Examples
    --------
    >>> from haybale import Engine
    >>> records = {
    ...     "embase:1": {"title": "Why dogs bark", "text": "Dogs bark.", "doi": "10.1000/AB"},
    ...     "pubmed:7": {"title": "Why Dogs Bark.", "text": "Dogs bark.", "doi": "https://doi.org/10.1000/ab"},
    ...     "pubmed:8": {"title": "Why cats purr", "text": "Cats purr.", "doi": "10.1000/cd"},
    ... }
    >>> engine = Engine(records, language="english", encoder="tfidf(min_df=1)")
    >>> engine.duplicates()
    Duplicates: 3 documents, 1 duplicate in 1 group, 2 to read
    >>> engine.duplicates().others("pubmed:7")
    ['embase:1']
    """
    if documents.duplicates is None:
        documents.duplicates = _opened_or_made(documents, live, digest)
    return cast(Duplicates, documents.duplicates)


def _opened_or_made(documents: Documents, live: LiveDocuments, digest: str | None) -> Duplicates:
    """Return the duplicates from the engine's folder if they were found before."""
    from haybale.collections.record_fields import sources_of

    whole, folder = documents.whole, live.storage.folder
    sources = dict(zip(whole.doc_ids.to_pylist(), sources_of(whole), strict=True))
    key = live.content_key(documents, digest)
    if folder is not None and key is not None:
        groups = _read(folder / DUPLICATES, key)
        if groups is not None:
            return Duplicates(groups, sources)
    with timed("find duplicates"):
        groups = groups_of(whole, text_sketches(documents))
    if folder is not None and key is not None:
        content = {
            "key": key,
            "rules": _RULES,
            "groups": [[list(group.doc_ids), list(group.reasons)] for group in groups],
        }
        path = folder / DUPLICATES
        if path.exists():
            path.unlink()
        live.storage.save_if_writable(path, lambda new: replace_json(new, content))
    return Duplicates(groups, sources)


def groups_of(collection: Collection, sketches: TextSketches | None = None) -> list[DuplicateGroup]:
    """Return the groups of duplicates among the documents of a collection.

    Parameters
    ----------
    collection : Collection
    sketches : TextSketches, optional
        Those of its documents, if they were made before.

    Examples
    --------
    >>> from haybale import CollectionBuilder
    >>> records = CollectionBuilder("records")
    >>> _ = records.add_document("embase:1", ["Dogs bark."], title="Why dogs bark", metadata={"doi": "10.1000/AB"})
    >>> _ = records.add_document("pubmed:7", ["Dogs bark."], title="Why Dogs Bark.", metadata={"doi": "10.1000/ab"})
    >>> groups_of(records.build(warn=False))
    [DuplicateGroup(doc_ids=('embase:1', 'pubmed:7'), reasons=('same DOI',))]
    """
    from haybale.collections.duplicate_rules import DuplicateRules  # compiled code, which takes a second to import
    from haybale.collections.record_fields import RecordFields
    from haybale.collections.text_sketches import TextSketches

    sketches = TextSketches.of(collection) if sketches is None else sketches
    doc_ids = collection.doc_ids.to_pylist()
    groups = []
    for numbers, reasons in DuplicateRules(RecordFields.of(collection), sketches).groups():
        ordered = sorted(numbers, key=lambda number: (-int(sketches.n_words[number]), doc_ids[number]))
        ids = [doc_ids[number] for number in ordered]
        groups.append(DuplicateGroup((ids[0], *sorted(ids[1:])), tuple(reasons)))
    return sorted(groups)


def text_sketches(documents: Documents) -> TextSketches:
    """Return the sketches of documents, in the order of ``documents.whole``; those of a segment are made once."""
    if isinstance(documents, View):
        return text_sketches(documents.parent).take(documents.numbers)
    assert isinstance(documents, Snapshot)
    return documents.cached("text sketches", partial(_sketches_of, documents))


def _sketches_of(documents: Snapshot) -> TextSketches:
    from haybale.collections.text_sketches import TextSketches

    sketches = TextSketches.joined([_sketches_of_segment(segment) for segment in documents.segments])
    return sketches if documents.kept is None else sketches.take(documents.kept)


def _sketches_of_segment(segment: Segment) -> TextSketches:
    from haybale.collections.text_sketches import TextSketches

    texts = segment.texts
    path = texts.folder(SKETCHES)
    sketches = None if path is None else TextSketches.open(path, texts.whole.n_documents)
    if sketches is None:
        with texts.storage.unchanged(texts.number), timed("sketch texts"):
            sketches = TextSketches.of(texts.whole)
        if path is not None:
            path.unlink(missing_ok=True)
        texts.storage.save_if_writable(path, sketches.save)
    return sketches


def _read(path: Any, key: str) -> list[DuplicateGroup] | None:
    """Return the groups in a file, or None if it is not whole or has those of other documents."""
    try:
        content = read_json(path)
        if content["key"] != key or content["rules"] != _RULES:
            return None
        return [DuplicateGroup(tuple(map(str, ids)), tuple(map(str, reasons))) for ids, reasons in content["groups"]]
    except (HaybaleError, OSError, LookupError, TypeError, ValueError):
        return None
