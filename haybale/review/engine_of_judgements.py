"""Which engine the judgements of a store belong to, and how they fit the documents of an engine.

A store is bound to the engine with which it is first used, by the engine's identity. Another engine is refused before
anything is read or written, because the judgements of one matter must not be seen or changed in another one.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from haybale.engine import Engine
from haybale.engine.reattaching import TextDigests
from haybale.errors import InputError, StoreError
from haybale.retrieval.object_storage import is_address
from haybale.review.judgement_store import JudgementStore
from haybale.review.left_log import unused
from haybale.review.topic_state import TopicState


@dataclass(frozen=True)
class Fit:
    """How the judged documents of a store fit an engine. Each list has ids, sorted.

    Parameters
    ----------
    same : list of str
        The engine has the document with the text that was judged.
    changed : list of str
        The engine has the id with another text.
    missing : list of str
        The engine does not have the id.
    moved : dict of str to list of str
        For documents that changed or are missing: the ids under which the engine has the text that was judged.
    topics_apart : int
        Topics with judgements less than half of whose judged texts are in the engine.
    """

    same: list[str]
    changed: list[str]
    missing: list[str]
    moved: dict[str, list[str]]
    topics_apart: int

    @property
    def n_judged(self) -> int:
        """The number of judged documents."""
        return len(self.same) + len(self.changed) + len(self.missing)

    @property
    def is_whole(self) -> bool:
        """Whether the engine has every judged document with the text that was judged."""
        return not self.changed and not self.missing


def fit_of(store: JudgementStore, engine: Engine) -> Fit:
    """Compare the judged documents of a store with those of an engine, by the digests of texts.

    A document that was judged in several topics counts as the same only if it is in all of them. Where a judgement has
    no digest, the id decides.
    """
    texts = TextDigests(engine.snapshot().collection)
    judged = [_digests(TopicState(rows=store.judgements(topic))) for topic in store.topics()]
    ids = sorted({doc_id for digests in judged for doc_id in digests})
    present = texts.of(ids)
    differing = {
        doc_id: digest
        for digests in judged
        for doc_id, digest in digests.items()
        if present[doc_id] is None or digest not in (None, present[doc_id])
    }
    elsewhere = {digest: texts.ids_with(digest) for digest in differing.values() if digest is not None}
    n_apart = 0
    for digests in judged:
        n_there = sum(
            doc_id not in differing or bool(elsewhere.get(digest or "")) for doc_id, digest in digests.items()
        )
        n_apart += 2 * n_there < len(digests)
    return Fit(
        same=[doc_id for doc_id in ids if doc_id not in differing],
        changed=[doc_id for doc_id in ids if doc_id in differing and present[doc_id] is not None],
        missing=[doc_id for doc_id in ids if present[doc_id] is None],
        moved={
            doc_id: candidates
            for doc_id, digest in sorted(differing.items())
            if (candidates := elsewhere.get(digest or ""))
        },
        topics_apart=n_apart,
    )


def _digests(state: TopicState) -> dict[str, str | None]:
    """Return the digest of each judged document of a topic: that of the last judgement with one."""
    digests: dict[str, str | None] = {}
    for doc_id, rows in state.rows.items():
        judged = [row.document for row in rows if row.grade is not None]
        if judged:
            digests[doc_id] = next(filter(None, reversed(judged)), None)
    return digests


def place_of(engine: Engine) -> str | None:
    """Return the folder of an engine, absolute and without symbolic links, or its address; None in memory."""
    if engine.folder is None:
        return None
    address = engine.address
    return address[0] if address is not None and is_address(address[0]) else os.path.realpath(engine.folder)


def belongs_to(store: JudgementStore, engine: Engine) -> bool:
    """Return whether a store may be used with an engine: it is bound to it, or may be bound without asking."""
    return _refusal(store, engine) is None


def bind(store: JudgementStore, engine: Engine) -> None:
    """Bind a store to an engine that it may be used with; otherwise raise StoreError. Call it before any other use.

    - A new store, without topics, may be bound to any engine.
    - A store that is bound belongs to the engine of that identity, wherever its folder is.
    - If an engine was built again in the folder of the engine that the store is bound to, the store is bound to the new
      one, with a warning, if that has every judged document with the text that was judged.
    - A store with topics that was never used with an engine is bound to the first one that has at least half of the
      judged texts of each topic.
    """
    while True:
        before = store.owner
        refusal = _refusal(store, engine)
        if refusal is not None:
            raise StoreError(refusal)
        folder = place_of(engine)
        if before is not None and (before.identity, before.folder) == (engine.identity, folder):
            return
        if store.set_owner(engine.identity, folder, before):
            break
    if before is not None and before.identity != engine.identity and store.topics():
        warnings.warn(
            f"{_name(store)}: expected the engine that was judged in {folder or 'memory'}, found one built again "
            "with every judged document; the judgements belong to it now, so check that it is the same collection",
            stacklevel=3,
        )


def _refusal(store: JudgementStore, engine: Engine) -> str | None:
    """Return why a store must not be used with an engine, as a message; None if it may be used."""
    owner, folder = store.owner, place_of(engine)
    if (owner is None and not store.topics()) or (owner is not None and owner.identity == engine.identity):
        return None
    way_out = "give another file, such as with --judgements, or bind it to this engine with haybale attach ENGINE FILE"
    if owner is None:
        fit = fit_of(store, engine)
        if not fit.topics_apart:
            return None
        counts = f"{len(fit.same):,} of {fit.n_judged:,}, and {fit.topics_apart:,} topics with few of them"
        return (
            f"{_name(store)}: expected judgements of the documents of {folder or 'this engine'}, found that it has the "
            f"judged text of {counts}; {way_out}"
        )
    if owner.folder == folder:
        fit = fit_of(store, engine)
        if fit.is_whole:
            return None
        counts = f"{len(fit.same):,} of {fit.n_judged:,} judged documents with the text that was judged"
        return (
            f"{_name(store)}: expected the engine that was judged in {folder or 'memory'}, found one built since "
            f"and has {counts}; {way_out}"
        )
    return (
        f"{_name(store)}: expected judgements of the engine in {folder or 'memory'}, found those of another engine, in "
        f"{owner.folder or 'memory'}; {way_out}"
    )


def attach(judgements: JudgementStore | str | Path, engine: Engine) -> Fit:
    """Bind judgements to an engine, whichever they belonged to, and return how they fit its documents.

    Use it if an engine was built again from documents that have changed, or if a file of judgements is to be used with
    another engine. Whoever uses the engine then sees all judgements of the file. Judgements refer to ids: those of
    documents that the engine does not have are kept and exported, and nothing is learned from them.

    Parameters
    ----------
    judgements : JudgementStore, str or Path
        A store, or its file.
    engine : Engine

    Raises
    ------
    InputError
        If there is no such file.
    StoreError
        If the file is not a store of judgements, is in use, or cannot be written.
    """
    if not isinstance(judgements, JudgementStore) and Path(judgements).is_file():
        with unused(Path(judgements)):  # others, such as a service, know the engine that it belonged to
            pass
    with _opened(judgements) as store:
        fit = fit_of(store, engine)
        while not store.set_owner(engine.identity, place_of(engine), store.owner):
            pass
        return fit


@contextmanager
def _opened(judgements: JudgementStore | str | Path) -> Iterator[JudgementStore]:
    """Yield a store; one that was opened here is closed."""
    if isinstance(judgements, JudgementStore):
        yield judgements
        return
    if not Path(judgements).is_file():
        raise InputError(f"{judgements}: expected a store of judgements, found no file; check the path")
    with JudgementStore(judgements) as store:
        yield store


def _name(store: JudgementStore) -> str:
    return "judgements in memory" if store.path is None else str(store.path)
