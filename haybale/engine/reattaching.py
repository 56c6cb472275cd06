"""Find where judged texts are after documents have changed: a judgement belongs to a text, not to an id.

A judgement keeps a digest of the text that was judged. If its document has another text or is gone, the judgement moves
to a document with the judged text. If there is none, it stays where it is and is listed: as *replaced* if its document
has another text now, as *orphaned* if its document is gone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import NamedTuple

import numpy as np

from haybale.cached import cached_property
from haybale.collections import Collection
from haybale.collections.collection import Ints, Strings, take_strings
from haybale.errors import FileFormatError
from haybale.folders import replace_json
from haybale.text_files import read_json

RENAMED = "renamed.json"  # in an engine's folder: the new ids of documents that were renamed

Judged = tuple[str, str | None]  # the id of a document, and the digest of its text when it was judged, if it is known


class Unattached(NamedTuple):
    """Ids of documents whose judgements are about a text that the document does not have.

    Attributes
    ----------
    orphaned : list of str
        The document is gone, and no other document has the text. The judgement has no effect until the text returns.
    replaced : list of str
        The document has another text now. Judgements of an engine count until it is judged again; reviews learn nothing
        from theirs.
    undecided : list of str
        The text that was judged is not known, so that it cannot be compared.
    """

    orphaned: list[str]
    replaced: list[str]
    undecided: list[str]


class TextDigests:
    """The digests of the texts of a collection's documents; only those that are asked for are computed.

    Parameters
    ----------
    collection : Collection
    likely : Collection, optional
        Some of the documents, in which a text is looked for first. Default: none.
    """

    def __init__(self, collection: Collection, likely: Collection | None = None) -> None:
        self._collection, self._likely = collection, likely
        self._digests: dict[str, str | None] = {}

    def of(self, doc_ids: Sequence[str]) -> dict[str, str | None]:
        """Return the digests of documents by id; None for ids that the collection does not have."""
        missing = [doc_id for doc_id in dict.fromkeys(doc_ids) if doc_id not in self._digests]
        if missing:
            numbers = self._collection.find_documents(missing).tolist()
            for doc_id, number in zip(missing, numbers, strict=True):
                self._digests[doc_id] = None if number < 0 else digest_of(self._collection, number)
        return {doc_id: self._digests[doc_id] for doc_id in doc_ids}

    def after_change(self, collection: Collection, changed: Iterable[str], added: Collection | None) -> TextDigests:
        """Return the digests of a later collection, in which only the ``changed`` documents have other texts."""
        later, changed_ids = TextDigests(collection, added), {*changed}
        later._digests = {doc_id: digest for doc_id, digest in self._digests.items() if doc_id not in changed_ids}
        return later

    def ids_with(self, digest: str) -> list[str]:
        """Return the ids of the documents with a text, sorted."""
        if self._likely is not None and digest in self._among_likely:
            return self._among_likely[digest]
        return self._among_all.get(digest, [])

    @cached_property
    def _among_likely(self) -> dict[str, list[str]]:
        assert self._likely is not None
        return ids_by_digest(self._likely)

    @cached_property
    def _among_all(self) -> dict[str, list[str]]:
        return ids_by_digest(self._collection)


def digest_of(collection: Collection, number: int) -> str:
    """Return a digest of a document's text, given by its number: 16 hexadecimal digits."""
    start, end = collection.passages.doc_offsets[number : number + 2]
    return digest_of_text("\n".join(collection.passages.texts[int(start) : int(end)].to_pylist()))


def digest_of_text(text: str) -> str:
    """Return a digest of a text: 16 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def ids_by_digest(collection: Collection) -> dict[str, list[str]]:
    """Return the ids of documents by the digest of their text, sorted; documents without a text are left out."""
    ids: dict[str, list[str]] = {}
    for doc_id, text in zip(collection.doc_ids.to_pylist(), collection.document_texts(), strict=True):
        if text:
            ids.setdefault(digest_of_text(text), []).append(doc_id)
    return {digest: sorted(doc_ids) for digest, doc_ids in ids.items()}


def moves_of(
    judged: Iterable[Judged],
    texts: TextDigests,
    renamed: Mapping[str, str] | None = None,
    superseded: Set[Judged] = frozenset(),
) -> dict[Judged, str]:
    """Return the documents to which judgements move, by where they are; those that stay are left out.

    Several documents with one text are interchangeable: the first one without a judgement is chosen. A judgement whose
    text is gone leaves a document that another judgement is about, and gets an id that no document has.

    Parameters
    ----------
    judged : iterable of pairs
        The ids of judged documents, each with the digest of the text that was judged.
    texts : TextDigests
        The documents that there are now.
    renamed : mapping of str to str, optional
        New ids of renamed documents, for judgements without a digest. Default: none.
    superseded : set of pairs, optional
        Judgements that later ones have replaced, so that they need not leave a document. Default: none.
    """
    pairs = sorted(set(judged), key=lambda pair: (pair[0], pair[1] or ""))
    present = texts.of([doc_id for doc_id, _ in pairs])
    moves: dict[Judged, str] = {}
    occupied = {doc_id for doc_id, digest in pairs if digest is not None and digest == present[doc_id]}
    homeless: list[Judged] = []
    for doc_id, digest in pairs:
        if digest is None:
            if present[doc_id] is None and renamed and doc_id in renamed:
                moves[doc_id, digest] = renamed[doc_id]
        elif digest != present[doc_id]:
            candidates = texts.ids_with(digest)
            if candidates:
                target = next((candidate for candidate in candidates if candidate not in occupied), candidates[0])
                moves[doc_id, digest] = target
                occupied.add(target)
            else:
                homeless.append((doc_id, digest))
    taken = {*occupied, *moves.values(), *(doc_id for doc_id, _ in pairs)}
    for doc_id, digest in homeless:
        if present[doc_id] is not None and doc_id in occupied and (doc_id, digest) not in superseded:
            moves[doc_id, digest] = _unused(f"{doc_id}@{(digest or '')[:8]}", taken, texts)
            taken.add(moves[doc_id, digest])
    return moves


def _unused(doc_id: str, taken: set[str], texts: TextDigests) -> str:
    """Return an id that no document has."""
    while doc_id in taken or texts.of([doc_id])[doc_id] is not None:
        doc_id += "'"
    return doc_id


def unattached(judged: Iterable[Judged], texts: TextDigests) -> Unattached:
    """Return which judgements are about another text than the one of their document."""
    pairs = sorted(set(judged), key=lambda pair: (pair[0], pair[1] or ""))
    present = texts.of([doc_id for doc_id, _ in pairs])
    orphaned = [doc_id for doc_id, _ in pairs if present[doc_id] is None]
    here = [(doc_id, digest) for doc_id, digest in pairs if present[doc_id] is not None]
    replaced = [doc_id for doc_id, digest in here if digest is not None and digest != present[doc_id]]
    undecided = [doc_id for doc_id, digest in here if digest is None]
    return Unattached(*(list(dict.fromkeys(ids)) for ids in (orphaned, replaced, undecided)))


def renamed_documents(before: Collection, removed: Sequence[str], added: Collection | None) -> dict[str, str]:
    """Return the new ids of removed documents whose text an added document has."""
    if added is None or not removed:
        return {}
    new_ids, texts = ids_by_digest(added), TextDigests(before)
    renamed: dict[str, str] = {}
    for doc_id, digest in texts.of(sorted(removed)).items():
        candidates = new_ids.get(digest or "", [])
        if candidates:
            renamed[doc_id] = candidates.pop(0) if len(candidates) > 1 else candidates[0]
    return renamed


def record_renamed(folder: Path | None, renamed: Mapping[str, str]) -> None:
    """Record new ids of documents in the folder of an engine, for judgements that do not know what was judged."""
    if folder is None or not renamed:
        return
    earlier = {old: renamed.get(new, new) for old, new in read_renamed(folder).items()}
    replace_json(folder / RENAMED, {"renamed": {**earlier, **renamed}})


def read_renamed(folder: Path | None) -> dict[str, str]:
    """Return the new ids that :func:`record_renamed` recorded, by the old ones."""
    if folder is None or not (folder / RENAMED).is_file():
        return {}
    renamed = read_json(folder / RENAMED).get("renamed")
    if not isinstance(renamed, dict) or not all(isinstance(new, str) for new in renamed.values()):
        raise FileFormatError(
            folder / RENAMED, None, f"'renamed' must have new ids by old ones, found {renamed!r:.60}; remove the file"
        )
    return renamed


def find_renamed(collection: Collection, ids: Strings, folder: Path | None) -> Ints:
    """Return the numbers (n,) of documents by ids that they have or had in the engine of a folder; -1 for others."""
    numbers = collection.find_documents(ids)
    missing = np.flatnonzero(numbers < 0)
    renamed = read_renamed(folder) if len(missing) else {}
    if renamed:
        missing_ids = take_strings(ids, missing)
        numbers[missing] = collection.find_documents([renamed.get(doc_id, doc_id) for doc_id in missing_ids])
    return numbers
