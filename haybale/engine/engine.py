"""The engine: a collection, its encoder and its indexes, built once in a folder and opened in a moment."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from haybale.analysis import Analyzer, Tokenize, as_analyzer, guess_language
from haybale.collections import Collection, open_documents, with_paragraphs
from haybale.collections.collection import Ints
from haybale.collections.ids import as_ids
from haybale.collections.open import Documents as DocumentsLike
from haybale.collections.saved import load_collection, save_collection
from haybale.device import find_device
from haybale.embeddings import Chunking, EmbeddingStore
from haybale.embeddings.encoder import encoder_text
from haybale.embeddings.store import CHUNKING
from haybale.embeddings.store_files import as_json
from haybale.engine.encoder_source import EncoderSource, described
from haybale.engine.segment import Segment
from haybale.engine.snapshot import Documents, Snapshot, View
from haybale.engine.storage import Storage
from haybale.engine.texts import Texts
from haybale.errors import DeviceError, InputError, MissingExtraError, StoreError
from haybale.parameters import TEXT_OR_NONE, Constraints, check_parameters
from haybale.retrieval import BM25Index, PassageIndex
from haybale.timing import timed

UNITS = ("passage", "document")
_RANGES: dict[str, Constraints] = {
    **dict.fromkeys(("language", "paragraphs", "device"), TEXT_OR_NONE),
    "analyzer": [Analyzer, str, callable, None],
    "chunking": [Chunking, None],
    "store": [str, Path, None],
}

T = TypeVar("T")


class Engine:
    """A collection with its encoder and its indexes: what every ranker is fitted on and searches.

    An engine made by its constructor lives in memory. :meth:`build` and :meth:`open` are for one in a folder.

    Parameters
    ----------
    collection : Collection, str, Path, mapping or frame
        Documents, with the queries and judgements that rankers learn from: what :func:`~haybale.open_collection` takes;
        or documents alone, as :meth:`add` takes them.
    encoder : encoder, str or Path, default "tfidf"
        Makes vectors of texts: an object with ``encode``; or the text of one, such as ``"lsa(n_components=256)"``, a
        folder, or the id of a model (see :mod:`haybale.embeddings.encoder`). One that needs to be fitted and is not, is
        fitted on the passages.
    language : str, optional
        Selects stop words and stemmer. Default: the collection's own, else guessed from its passages.
    analyzer : Analyzer or callable, optional
        Makes terms of a text, in place of ``language``, for BM25 and for lexical encoders given as a text: one with
        stop words of your own, or a function, which an engine in a folder cannot keep.
    paragraphs : str, optional
        Splits documents and queries anew, by one of :data:`~haybale.collections.PARAGRAPHS`.
    chunking : Chunking, optional
        Cuts passages into pieces of equal length.
    store : str or Path, optional
        An embedding store made by :func:`~haybale.embed`, whose vectors, pieces and encoder are used.
    device : str, optional
        Where vectors are searched and learned from: ``"cpu"`` (the default), ``"cuda"``, ``"cuda:1"`` or ``"auto"``.

    Attributes
    ----------
    collection : Collection
        The collection as indexed, after splitting, chunking, additions and removals.
    whole : Collection
        The same before passages are cut into pieces.
    language : str
    encoder : encoder
        Fitted.

    Examples
    --------
    >>> from haybale import TfidfEncoder
    >>> engine = Engine({"dogs": "Dogs must be kept on a lead."}, encoder=TfidfEncoder(min_df=1), language="english")
    >>> engine.add({"cats": ["Cats need no lead."]})
    >>> engine
    Engine 'documents': 2 documents, 2 passages, in memory
    """

    _parent: Engine | None = None  # the engine that this one is a view of

    def __init__(
        self,
        collection: DocumentsLike,
        *,
        encoder: Any = "tfidf",
        language: str | None = None,
        analyzer: Analyzer | Tokenize | None = None,
        paragraphs: str | None = None,
        chunking: Chunking | None = None,
        store: str | Path | None = None,
        device: str | None = None,
    ) -> None:
        check_parameters("Engine", locals(), _RANGES)
        if store is not None and chunking is not None:
            raise InputError("a store says itself how its passages were cut; leave chunking out")
        if analyzer is not None and language is not None:
            raise InputError("give a language or an analyzer, not both")
        self._given_encoder = None if isinstance(encoder, str | Path) else encoder  # an object
        own = None if analyzer is None else as_analyzer(analyzer)
        self.settings: dict[str, Any] = {
            "encoder": encoder_text(str(encoder)) if isinstance(encoder, str | Path) else described(encoder),
            "language": language,
            "analyzer": None if own is None else own.describe(),
            "paragraphs": paragraphs,
            "chunking": None if chunking is None else chunking.describe(),
            "store": None if store is None else str(store),
        }
        find_device(device or "cpu")  # refuses a missing device before any work
        whole = open_documents(collection)
        if paragraphs is not None:
            whole = with_paragraphs(whole, paragraphs)
        self.language = language or whole.language or _guessed(whole)
        self.device, self._storage = device, Storage()
        self._begin([whole], [], own, str(encoder) if isinstance(encoder, Path) else encoder)

    def _begin(
        self,
        wholes: Sequence[Collection],
        removed: Sequence[str],
        analyzer: Analyzer | None,
        encoder: Any,
        is_kept: bool = False,
    ) -> None:
        """Set what a new and an opened engine have in common; ``is_kept``: whether the folder holds the encoder."""
        address, chunked = self.settings["store"], self.settings["chunking"]
        self.store = None if address is None else EmbeddingStore(address)
        if self.store is not None:
            chunked = self.store.manifest["input"]["chunking"]
        self.chunking = None if chunked is None else Chunking(**{name: chunked[name] for name in CHUNKING})
        self.analyzer = analyzer or Analyzer(self.language)
        terms = {"language": self.language} if analyzer is None else {"language": None, "analyzer": analyzer}
        texts = [self._texts(whole, number) for number, whole in enumerate(wholes)]
        self._source = EncoderSource(encoder, texts[0], terms, self._storage, self.store, is_kept)
        self._documents: Documents = Snapshot([self._segment(each) for each in texts], removed)
        self._written: dict[str, Any] | None = None  # the manifest in the folder

    def _texts(self, whole: Collection, number: int) -> Texts:
        return Texts(whole, number, self._storage, self.analyzer, self.chunking)

    def _segment(self, texts: Texts) -> Segment:
        return Segment(texts, self._source, self.device, self.store if texts.number == 0 else None)

    @classmethod
    def build(cls, collection: DocumentsLike, folder: str | Path, **settings: Any) -> Engine:
        """Build an engine in a folder, or go on with one that was interrupted; a finished engine is opened.

        Each index is made when a ranker first needs it, or all by :meth:`prepare`.

        Parameters
        ----------
        collection : Collection, str, Path, mapping or frame
        folder : str or Path
        **settings
            The other parameters of the class.

        Raises
        ------
        StoreError
            The folder holds an engine of another collection or with other settings, or another process writes it.
        OutputExistsError
            The folder holds something else.
        """
        Storage(Path(folder)).check_ours()
        engine = cls(collection, **settings)
        if settings.get("analyzer") is not None:
            engine.analyzer.to_dict()  # refuses a function
        storage = engine._storage
        storage.folder = folder = Path(folder)
        begun = {"settings": as_json(engine.settings), "input": engine._input}
        with storage.writing():
            if not storage.begin(begun):
                if not (folder / "0" / "collection").exists():
                    with timed("write collection"):
                        save_collection(engine._snapshot.everything, folder / "0" / "collection")
                try:
                    keeps_encoder = engine._source.keeps
                    if keeps_encoder and not (folder / "encoder").exists():
                        engine.encoder.save(folder / "encoder")
                    engine._written = begun | {"encoder": keeps_encoder}
                    engine._write(engine._snapshot)
                except (InputError, MissingExtraError, DeviceError):
                    storage.finish(failed=True)
                    raise
            storage.finish()
        return cls.open(folder, encoder=engine._given_encoder, device=engine.device)

    @classmethod
    def open(cls, folder: str | Path, *, encoder: Any = None, device: str | None = None) -> Engine:
        """Open an engine that was built. Its indexes are memory-mapped, and read when they are first needed.

        Parameters
        ----------
        folder : str or Path
        encoder : encoder, optional
            The object that the engine was built with, if its class is not registered.
        device : str, optional
            As in the class.

        Raises
        ------
        FileFormatError
            The folder holds no engine, was written by another version, or is damaged.
        StoreError
            Building it was interrupted: build it again, which goes on. Or the encoder is another one.
        """
        engine = cls.__new__(cls)
        engine.device, engine._storage, engine._given_encoder = device, Storage(Path(folder)), encoder
        manifest = engine._storage.read()
        engine.settings, engine.language = manifest["settings"], manifest["language"]
        find_device(device or "cpu")
        analyzer, then = engine.settings["analyzer"], engine.settings["encoder"]
        own = None if analyzer is None else Analyzer.from_dict(analyzer)
        if encoder is not None and as_json(described(encoder)) != then:
            raise StoreError(f"{folder}: this engine was built with the encoder {then!r}, now it is {encoder!r}")
        with timed("read collection"):
            wholes = [load_collection(Path(folder, str(n), "collection")) for n in range(manifest["segments"])]
        engine._begin(wholes, manifest["removed"], own, then if encoder is None else encoder, manifest["encoder"])
        engine._written, engine.id = manifest, manifest["id"]
        return engine

    def _write(self, snapshot: Snapshot) -> None:
        """Write the manifest of a snapshot."""
        assert self._written is not None
        manifest = {
            "id": self.id,
            "settings": as_json(self.settings),
            "input": self._written["input"],
            "language": self.language,
            "encoder": self._written["encoder"],
            "segments": len(snapshot.segments),
            "removed": snapshot.removed,
        }
        self._storage.write(manifest)
        self._written = manifest

    @cached_property
    def _input(self) -> str:
        return self._source.texts.whole.digest()

    @cached_property
    def id(self) -> str:
        """What a ranker that was fitted here knows the engine by; the same after documents were added or removed."""
        known = json.dumps([self._input, as_json(described(self.encoder))], sort_keys=True)
        return hashlib.sha256(known.encode()).hexdigest()

    def __repr__(self) -> str:
        where, found = "in memory" if self.folder is None else f"in {self.folder}", self.collection
        return f"Engine {found.name!r}: {found.n_documents:,} documents, {found.n_passages:,} passages, {where}"

    @property
    def folder(self) -> Path | None:
        """The engine's folder; None in memory."""
        return self._storage.folder

    @property
    def encoder(self) -> Any:
        """What makes vectors of texts, fitted."""
        return self._source.encoder

    @property
    def _current(self) -> Documents:
        """The documents with their indexes; InputError for a view of an engine that has other documents by now."""
        if self._parent is not None and self._parent._current is not cast(View, self._documents).parent:
            raise InputError("documents were added or removed since this engine was limited to some; limit it anew")
        return self._documents

    @property
    def _snapshot(self) -> Snapshot:
        return cast(Snapshot, self._documents)

    @property
    def whole(self) -> Collection:
        """The documents before passages are cut into pieces."""
        return self._current.whole

    @property
    def collection(self) -> Collection:
        """The collection as indexed, after splitting, chunking, additions and removals."""
        return self._current.collection

    def bm25(
        self, unit: str = "passage", k1: float | None = None, b: float | None = None, k3: float | None = None
    ) -> BM25Index:
        """Return BM25 over passages, or over whole ``"document"`` s, with these parameters; default: the index's own.

        Indexes with other parameters are cached; those that differ in ``k3`` only share their weights.
        """
        if unit not in UNITS:
            raise InputError(f"unit must be 'passage' or 'document', found {unit!r}")
        index = cast(BM25Index, self._index(f"bm25-{unit}"))
        k1, b = index.k1 if k1 is None else k1, index.b if b is None else b
        if (k1, b) != (index.k1, index.b):
            index = self.cached((unit, k1, b), lambda: index.with_parameters(k1, b))
        return index if k3 is None else self.cached((unit, k1, b, k3), lambda: index.with_parameters(k1, b, k3))

    @property
    def passages(self) -> PassageIndex:
        """The index of passage vectors."""
        return cast(PassageIndex, self._index("passages"))

    @property
    def documents(self) -> PassageIndex:
        """The index of documents that have a passage, each with one vector of its text, as far as the encoder reads."""
        return cast(PassageIndex, self._index("documents"))

    @property
    def first_passages(self) -> PassageIndex:
        """The index of documents, each with the vector of its first passage."""
        return cast(PassageIndex, self._index("first-passages"))

    @property
    def made(self) -> set[str]:
        """The names of the indexes that have been made or opened so far."""
        return self._documents.made

    def cached(self, key: Any, make: Callable[[], T]) -> T:
        """Return what a ranker derived from the indexes under this key; the eight most recently used are kept."""
        return self._documents.cached(key, make)

    def prepare(self) -> Engine:
        """Make every index now; those that exist are only opened. Returns the engine."""
        for unit in UNITS:
            self.bm25(unit)
        _ = self.passages, self.documents
        return self

    def _index(self, name: str) -> Any:
        return self._current.index(name)

    def add(self, documents: DocumentsLike) -> None:
        """Add documents, which can be found at once. Nothing is trained anew and no other document is encoded anew.

        BM25 is exact afterwards, as over all documents at once; the encoder stays as it was fitted, so TF-IDF and LSA
        do not know new terms. Not thread-safe: do not call while other threads search.

        Parameters
        ----------
        documents : Collection, frame, mapping, str or Path
            A collection, whose queries are ignored; a frame with ``doc_id``, ``text`` and, optionally, ``passage_id``,
            a row for each passage; a mapping of ids to a text or a list of passages; or the folder of a collection.

        Raises
        ------
        InputError
            An id exists already (also a removed one), or there is no document. Nothing is changed then.
        StoreError
            Another process writes the engine.
        """
        self._check_root("add to")
        added = open_documents(documents)
        if self.settings["paragraphs"] is not None:
            added = with_paragraphs(added, self.settings["paragraphs"])
        snapshot = self._snapshot
        snapshot.everything.extended(added)  # refuses ids that exist
        segment = self._segment(self._texts(added, len(snapshot.segments)))

        def grown() -> Snapshot:
            if (folder := segment.texts.folder("collection")) is not None:
                shutil.rmtree(folder.parent, ignore_errors=True)  # left behind by an addition that was killed
                save_collection(added, folder)
            return snapshot.added(segment)

        self._change(grown)

    def remove(self, doc_ids: Sequence[str]) -> None:
        """Remove documents: no ranker finds them any more. Texts stay in the folder, and weights of terms as they were.

        Raises
        ------
        InputError
            An unknown id, or no document would be left. Nothing is changed then.
        """
        self._check_root("remove from")
        gone = as_ids(doc_ids, "document ids")
        self.whole.document_numbers(gone)
        self._change(lambda: self._snapshot.without(gone))

    def _change(self, make: Callable[[], Snapshot]) -> None:
        """Take over a new snapshot, in memory and in the folder, or, after an error, in neither."""
        with self._storage.writing():
            if self.folder is not None and self._storage.read() != self._written:
                raise StoreError(f"{self.folder}: another process has added or removed documents; open it again")
            snapshot = make()
            if self.folder is not None:
                self._write(snapshot)
            self._documents = snapshot

    def within(self, documents: Sequence[str] | NDArray[np.bool_]) -> Engine:
        """Return a view of the engine: rankers find some documents only, with unchanged scores.

        Parameters
        ----------
        documents : sequence of str, or (n_documents,) bool
            Their ids, or a mask over the documents of :attr:`collection`.
        """
        given = np.asarray(documents)
        if given.dtype == bool:
            if given.shape != (self.collection.n_documents,):
                raise InputError(f"a mask has one entry a document, {self.collection.n_documents}, found {given.shape}")
            numbers = np.flatnonzero(given)
        else:
            numbers = np.unique(self.collection.document_numbers(documents))
        if not np.diff(self.collection.passages.doc_offsets)[numbers].any():
            raise InputError("no document with a passage to search within")
        view = copy.copy(self)
        view._parent, view._documents = self, View(self._current, numbers)
        return view

    def numbers_within(self, documents: Ints) -> Ints:
        """Return the (n,) numbers here of documents of the engine that this is a view of; -1 for those not here."""
        return cast(View, self._documents).numbers_of(documents)

    def _check_root(self, what: str) -> None:
        if self._parent is not None:
            raise InputError(f"this engine is limited to some documents; {what} the one it was made from")


def _guessed(whole: Collection) -> str:
    """Guess the language of a collection, from about 1,000 passages spread over it."""
    return guess_language(whole.passages.texts[:: max(1, whole.n_passages // 1000)].to_pylist())
