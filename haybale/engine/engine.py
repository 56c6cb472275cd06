"""The engine: a collection, its encoder and its indexes, in one folder that is built once and opened in a moment.

    engine.json        format, version, settings, what the collection was, segments, documents removed since
    encoder/           the encoder, if it was fitted on the passages (others are loaded by the name they have)
    0/                 the collection it was built from
        collection/    documents, queries and judgements
        pieces/        its passages cut into pieces, if they are
        bm25-passage/  bm25-document/  passages/  documents/      each made when it is first asked for, and kept
    1/ …               documents added later, likewise

Dense vectors are kept as a store of embeddings (:mod:`haybale.embeddings`), so encoding them survives interruptions
chunk by chunk; every other folder is whole or absent. Nothing in an engine could be executed.
"""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from haybale.analysis import Analyzer, Split, as_analyzer, guess_language
from haybale.collections import Collection, open_documents, with_paragraphs
from haybale.collections.collection import Ints
from haybale.collections.ids import as_ids
from haybale.collections.open import Documents
from haybale.collections.saved import load_collection, save_collection
from haybale.device import find_device
from haybale.embeddings import Chunking, EmbeddingStore, make_encoder
from haybale.embeddings.encoder import FITTED, LEXICAL, load_fitted, rebuild
from haybale.embeddings.store import StoreFiles
from haybale.embeddings.writing import is_fitted
from haybale.engine.segment import Segment, one_each, with_passages, writing
from haybale.errors import DeviceError, FileFormatError, InputError, MissingExtraError, OutputExistsError, StoreError
from haybale.folders import read_json, replace_json
from haybale.manifest import read_manifest, signed
from haybale.retrieval import BM25Index, PassageIndex
from haybale.stages import stage

FORMAT, VERSION = "haybale engine", 2  # 1 had another name for n_components
UNITS = ("passage", "document")
_MANIFEST, _BUILDING = "engine.json", "building.json"
_DERIVED = 8

T = TypeVar("T")


class Engine:
    """A collection with its encoder and its indexes; what every ranker is fitted on and asks.

    An engine made by its constructor lives in memory. :meth:`build` and :meth:`open` are for one in a folder.

    Parameters
    ----------
    collection : Collection, str, Path, mapping or frame
        The documents, and the queries and judgements that rankers learn from; what :func:`~haybale.open_collection`
        takes; or documents alone, as :meth:`add` takes them.
    encoder : str or encoder, default "tfidf"
        What makes vectors of texts: ``"tfidf"``, ``"lsa"``, a hub id or folder
        (see :func:`~haybale.embeddings.make_encoder`), or an encoder of one's own. One that can be fitted and is not
        yet is fitted on the passages.
    n_components : int, default 1024
        Of ``"lsa"``.
    language : str, optional
        Of stop words and stemmer; default: the collection's own, else guessed from its passages.
    analyzer : Analyzer or callable, optional
        In place of ``language``: one with stop words of one's own, or a function from a text to its terms. BM25 and the
        lexical encoders use it. An engine in a folder cannot keep a function.
    paragraphs : str, optional
        Split documents and queries anew, one of :data:`~haybale.collections.PARAGRAPHS`.
    chunking : Chunking, optional
        Cut passages into pieces of equal length.
    store : str or Path, optional
        A store of embeddings made by :func:`~haybale.embed`, whose vectors, pieces and encoder are taken.
    query_prompt, passage_prompt : str, default ""
        What a neural encoder wants before each.
    device : str, optional
        Where vectors are searched and learned from: ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or ``"auto"``; default CPU.
    random_state : int, default 0
        Of ``"lsa"``.

    Attributes
    ----------
    collection : Collection
        As it is searched: split, cut, with what was added and without what was removed.
    whole : Collection
        The same before passages were cut into pieces.
    language : str
    encoder : encoder

    Examples
    --------
    >>> from haybale import CollectionBuilder, TfidfEncoder
    >>> builder = CollectionBuilder("laws", language="english")
    >>> _ = builder.add_document("dogs", ["Dogs must be kept on a lead."])
    >>> _ = builder.add_document("taxes", ["Taxes are due in May."])
    >>> engine = Engine(builder.build(), encoder=TfidfEncoder(min_df=1))
    >>> engine.add({"cats": ["Cats need no lead."]})
    >>> engine
    Engine 'laws': 3 documents, 3 passages, in memory
    >>> engine.within(["cats"]).collection.n_documents
    1
    """

    _parent: Engine | None = None  # of an engine that is limited to some documents,
    _numbers: Ints  # which have these numbers there

    def __init__(
        self,
        collection: Documents,
        *,
        encoder: Any = "tfidf",
        n_components: int = 1024,
        language: str | None = None,
        analyzer: Analyzer | Split | None = None,
        paragraphs: str | None = None,
        chunking: Chunking | None = None,
        store: str | Path | None = None,
        query_prompt: str = "",
        passage_prompt: str = "",
        device: str | None = None,
        random_state: int | None = 0,
    ) -> None:
        if store is not None and chunking is not None:
            raise InputError("a store says itself how its passages were cut; leave chunking out")
        if analyzer is not None and language is not None:
            raise InputError("give a language or an analyzer, not both")
        self._analyzer = None if analyzer is None else as_analyzer(analyzer)
        self.settings: dict[str, Any] = {
            "encoder": encoder if isinstance(encoder, str) else _described(encoder),
            "n_components": n_components,
            "language": language,
            "analyzer": None if self._analyzer is None else self._analyzer.describe(),
            "paragraphs": paragraphs,
            "chunking": None if chunking is None else chunking.describe(),
            "store": None if store is None else str(store),
            "query_prompt": query_prompt,
            "passage_prompt": passage_prompt,
            "random_state": random_state,
        }
        self.device = device
        find_device(device or "cpu")  # one that is not there is refused before any work
        self.folder: Path | None = None
        self._given_encoder = None if isinstance(encoder, str) else encoder
        self.store = None if store is None else EmbeddingStore(store)
        whole = open_documents(collection)
        if paragraphs is not None:
            whole = with_paragraphs(whole, paragraphs)
        self._begin([whole], [])

    def _begin(self, segments: list[Collection], removed: Iterable[str]) -> None:
        """Set what a new and an opened engine have in common."""
        self._segments = [Segment(whole, number, self) for number, whole in enumerate(segments)]
        self._removed = sorted(removed)
        self._full: dict[str, Any] = {}  # indexes of everything there ever was, by name
        self._changes = 0  # how often documents were added or removed
        self._written: dict[str, Any] | None = None  # what engine.json says
        self._lock = threading.RLock()
        self._look()

    def _look(self) -> None:
        """Forget what depends on which documents there are, and find out which."""
        self._live: dict[str, Any] = {}  # indexes without what was removed
        self._derived: dict[Any, Any] = {}
        self._everything = self._segments[0].whole
        for added in self._segments[1:]:
            self._everything = self._everything.extended(added.whole)
        self._live_numbers: Ints | None = None  # numbers of the documents that are not removed; None: all
        if self._removed:
            gone = self._everything.document_numbers(self._removed)
            self._live_numbers = np.setdiff1d(np.arange(self._everything.n_documents), gone)
            if not np.diff(self._everything.passages.doc_offsets)[self._live_numbers].any():
                raise InputError("an engine without a document that has a passage cannot be searched")
        for name in ("whole", "collection"):
            self.__dict__.pop(name, None)

    # the folder ---------------------------------------------------------------------------------------

    @classmethod
    def build(cls, collection: Documents, folder: str | Path, **settings: Any) -> Engine:
        """Build an engine in a folder, or go on with one that was interrupted; the parameters are those of the class.

        Built are the collection and the encoder; each index is made when a ranker first asks for it, or all of them by
        :meth:`prepare`. The same call on a finished engine opens it.

        Raises
        ------
        StoreError
            Where the folder holds an engine of another collection or with other settings, or somebody else writes it.
        OutputExistsError
            Where the folder holds something else.
        """
        folder = Path(folder)
        files = StoreFiles(folder)
        if not any(files.exists(name) for name in (_MANIFEST, _BUILDING)):
            taken = [name for name in files.names() if not name.startswith(".")]
            if taken:
                raise OutputExistsError(f"{folder} holds other files ({taken[0]}); give a new folder")
        engine = cls(collection, **settings)
        if engine._analyzer is not None:
            engine._analyzer.to_dict()  # refuses a function
        begun = {"settings": engine._plain_settings(), "input": engine._input}
        with writing(folder):
            if (folder / _MANIFEST).exists():
                _check_same(folder, _read_manifest(folder), begun)
            elif (folder / _BUILDING).exists():
                _check_same(folder, read_json(folder / _BUILDING), begun)
            if not (folder / _MANIFEST).exists():
                replace_json(folder / _BUILDING, begun)
                if not (folder / "0" / "collection").exists():
                    with stage("write collection"):
                        save_collection(engine._segments[0].whole, folder / "0" / "collection")
                engine.folder = folder
                try:
                    engine._keep_encoder()
                except (InputError, MissingExtraError, DeviceError):  # nothing to go on with: give it another encoder
                    (folder / _BUILDING).unlink()
                    shutil.rmtree(folder / "0")
                    raise
                engine._write_manifest()
            (folder / _BUILDING).unlink(missing_ok=True)
        return cls.open(folder, encoder=engine._given_encoder, device=engine.device)

    @classmethod
    def open(cls, folder: str | Path, *, encoder: Any = None, device: str | None = None) -> Engine:
        """Open an engine that was built. Its indexes are memory-mapped, and read when they are first asked for.

        Parameters
        ----------
        folder : str or Path
        encoder : encoder, optional
            The one that it was built with, if that is of a class of one's own, which a folder cannot hold.
        device : str, optional

        Raises
        ------
        FileFormatError
            Where the folder is no engine, was written by another version, or is damaged.
        StoreError
            Where building it was interrupted: build it again, which goes on. Or the encoder is another one.
        """
        folder = Path(folder)
        if not (folder / _MANIFEST).is_file() and (folder / _BUILDING).exists():
            raise StoreError(f"{folder}: this engine is not finished; build it again, which goes on where it was")
        manifest = _read_manifest(folder)
        engine = cls.__new__(cls)
        engine.settings = manifest["settings"]
        engine.device = device
        find_device(device or "cpu")
        engine.folder = folder
        engine._given_encoder = encoder
        analyzer = engine.settings.get("analyzer")
        engine._analyzer = None if analyzer is None else Analyzer.from_dict(analyzer)
        if encoder is not None and _plain(_described(encoder)) != engine.settings.get("encoder"):
            then = engine.settings.get("encoder")
            raise StoreError(f"{folder}: this engine was built with the encoder {then!r}, now it is {encoder!r}")
        store = engine.settings.get("store")
        engine.store = None if store is None else EmbeddingStore(store)
        with stage("read collection"):
            segments = [load_collection(folder / str(n) / "collection") for n in range(manifest["segments"])]
        engine._begin(segments, manifest["removed"])
        engine.language, engine.id, engine._written = manifest["language"], manifest["id"], manifest
        return engine

    def _plain_settings(self) -> dict[str, Any]:
        return dict(_plain(self.settings))

    def _write_manifest(self) -> None:
        assert self.folder is not None
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "id": self.id,
            "settings": self._plain_settings(),
            "input": self._input if self._written is None else self._written["input"],
            "language": self.language,
            "encoder": self._keeps_encoder if self._written is None else self._written["encoder"],
            "segments": len(self._segments),
            "removed": self._removed,
        }
        replace_json(self.folder / _MANIFEST, signed(manifest))
        self._written = manifest

    @cached_property
    def _input(self) -> str:
        return self._segments[0].whole.digest()

    @cached_property
    def id(self) -> str:
        """What a ranker that was fitted here knows it by; the same after documents were added or removed."""
        if self._parent is not None:
            return self._parent.id
        known = json.dumps([self._input, _plain(_described(self.encoder))], sort_keys=True)
        return hashlib.sha256(known.encode()).hexdigest()

    def __repr__(self) -> str:
        where = "in memory" if self.folder is None else f"in {self.folder}"
        return (
            f"Engine {self.collection.name!r}: {self.collection.n_documents:,} documents, "
            f"{self.collection.n_passages:,} passages, {where}"
        )

    # what is searched ---------------------------------------------------------------------------------

    @cached_property
    def whole(self) -> Collection:
        """The documents as wholes, before passages were cut into pieces."""
        if self._parent is not None:
            self._check_current()
            return self._parent.whole.take(self._numbers)
        return self._everything if self._live_numbers is None else self._everything.take(self._live_numbers)

    @cached_property
    def collection(self) -> Collection:
        """The collection as it is searched."""
        if self._parent is not None:
            self._check_current()
            return self._parent.collection.take(self._numbers)
        if self.chunking is None:
            return self.whole
        found = self._segments[0].cut
        for added in self._segments[1:]:
            found = found.extended(added.cut)
        return found if self._live_numbers is None else found.take(self._live_numbers)

    @property
    def chunking(self) -> Chunking | None:
        """How passages are cut into pieces; None: they are not."""
        chunked = self.settings["chunking"]
        if self.store is not None:
            chunked = self.store.manifest["input"]["chunking"]
        return None if chunked is None else Chunking(**chunked)

    @cached_property
    def language(self) -> str:
        """Of stop words and stemmer."""
        if self._parent is not None:
            return self._parent.language
        whole = self._segments[0].whole
        sample = whole.passages.texts[:: max(1, whole.n_passages // 1000)]
        return str(self.settings["language"] or whole.language or guess_language(sample.to_pylist()))

    @property
    def analyzer(self) -> Analyzer:
        """What makes terms of texts, for BM25."""
        if self._parent is not None:
            return self._parent.analyzer
        return self._analyzer or Analyzer(self.language)

    @cached_property
    def encoder(self) -> Any:
        """What makes vectors of texts, fitted."""
        if self._parent is not None:
            return self._parent.encoder
        with self._lock:
            if self.store is not None:
                return self.store.encoder()
            kept = None if self.folder is None else self.folder / "encoder"
            if kept is not None and (kept.exists() or (self._written is not None and self._written["encoder"])):
                with stage("load encoder"):
                    return _kept_encoder(kept)
            described = self.settings["encoder"]
            if self._given_encoder is not None:
                encoder = self._given_encoder
            elif isinstance(described, dict):
                return rebuild(described)
            else:
                with stage("load encoder"):
                    encoder = make_encoder(
                        described,
                        n_components=self.settings["n_components"],
                        language=self.language,
                        random_state=self.settings["random_state"],
                        query_prompt=self.settings["query_prompt"],
                        passage_prompt=self.settings["passage_prompt"],
                    )
            if isinstance(described, str) and described in LEXICAL and self._analyzer is not None:
                encoder.set_params(language=None, analyzer=self._analyzer)
            if hasattr(encoder, "fit") and not is_fitted(encoder):
                encoder = copy.deepcopy(encoder)  # the caller's stays as it was
                with stage("fit encoder"):
                    first = self._segments[0]
                    if first.counted(encoder):
                        encoder.fit_counts(first.counts("passage"))
                    else:
                        encoder.fit(first.cut.passages.texts.to_pylist())
            return encoder

    def _keep_encoder(self) -> None:
        """Fit the encoder and save it, unless it is loaded by name, or of a class of one's own."""
        encoder = self.encoder
        assert self.folder is not None
        if self._keeps_encoder and not (self.folder / "encoder").exists():
            encoder.save(self.folder / "encoder")

    @property
    def _keeps_encoder(self) -> bool:
        return self.store is None and isinstance(self.encoder, tuple(FITTED.values()))

    # indexes ------------------------------------------------------------------------------------------

    def bm25(self, unit: str = "passage") -> BM25Index:
        """BM25 over passages, or over whole ``"document"`` s; its ``with_parameters`` gives other k1 and b."""
        if unit not in UNITS:
            raise InputError(f"unit must be 'passage' or 'document', found {unit!r}")
        found: BM25Index = self._index(f"bm25-{unit}")
        return found

    @property
    def passages(self) -> PassageIndex:
        """Nearest neighbours among passage vectors."""
        found: PassageIndex = self._index("passages")
        return found

    @property
    def documents(self) -> PassageIndex:
        """Among documents, each its whole text as one vector, of which an encoder may read no more than the beginning.

        A document without a passage has no vector.
        """
        found: PassageIndex = self._index("documents")
        return found

    @property
    def first_passages(self) -> PassageIndex:
        """Among documents, each by the vector of its first passage."""
        with self._lock:
            if "first-passages" not in self._live:
                index = self.passages
                rows = index.doc_offsets[with_passages(self.collection)]
                vectors = index.vectors[index.device.xp.asarray(rows)]
                self._live["first-passages"] = one_each(vectors, self.collection, self.device)
            found: PassageIndex = self._live["first-passages"]
            return found

    @property
    def made(self) -> set[str]:
        """The names of the indexes that have been made or opened so far."""
        return set(self._live) | (set() if self._parent is not None else set(self._full))

    def cached(self, key: Any, make: Callable[[], T]) -> T:
        """What rankers derive from the indexes and ask for again and again; the eight last ones are kept."""
        with self._lock:
            if key in self._derived:
                self._derived[key] = self._derived.pop(key)
            else:
                self._derived[key] = make()
                while len(self._derived) > _DERIVED:
                    del self._derived[next(iter(self._derived))]
            found: T = self._derived[key]
            return found

    def prepare(self) -> Engine:
        """Make every index now; those that are there are only opened. Returns the engine."""
        for unit in UNITS:
            self.bm25(unit)
        _ = self.passages, self.documents
        return self

    def _index(self, name: str) -> Any:
        with self._lock:
            if name not in self._live:
                if self._parent is not None:
                    self._check_current()
                    self._live[name] = self._parent._index(name).take(self._numbers)
                else:
                    full = self._full_index(name)
                    self._live[name] = full if self._live_numbers is None else full.take(self._live_numbers)
            return self._live[name]

    def _full_index(self, name: str) -> Any:
        if name not in self._full:
            index = self._segments[0].index(name)
            for added in self._segments[1:]:
                index = added.behind(index, name)
            self._full[name] = index
        return self._full[name]

    # growing and limiting -----------------------------------------------------------------------------

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Add or remove documents, in memory and in the folder, or, after an error, in neither."""
        before = self._segments, self._full, self._removed
        with self._lock, nullcontext() if self.folder is None else writing(self.folder):
            if self.folder is not None and _read_manifest(self.folder) != self._written:
                raise StoreError(f"{self.folder}: another process has added or removed documents; open it again")
            try:
                yield
                self._changes += 1
                self._look()
                if self.folder is not None:
                    self._write_manifest()
            except BaseException:
                self._segments, self._full, self._removed = before
                self._look()
                raise

    def add(self, documents: Documents) -> None:
        """Add documents, which can be found at once. Nothing is trained anew and no other document encoded anew.

        BM25 is exact after it, as over all documents at once. Vectors of the new documents are those of the encoder as
        it was fitted: TF-IDF and LSA do not know terms that are new with them, and weigh the others as before, until
        an engine is built anew. Not while other threads ask the engine.

        Parameters
        ----------
        documents : Collection, frame, mapping, str or Path
            A collection, whose queries and judgements are left aside; a frame with ``doc_id``, ``text`` and,
            optionally, ``passage_id``, a row a passage; a mapping of document ids to a text or a list of passages; or a
            folder that :func:`~haybale.open_collection` reads.

        Raises
        ------
        InputError
            An id that is there already (also a removed one), or no document. Nothing is changed then.
        StoreError
            Somebody else writes the engine.
        """
        self._check_root("add to")
        added = open_documents(documents)
        if self.settings["paragraphs"] is not None:
            added = with_paragraphs(added, self.settings["paragraphs"])
        self._everything.extended(added)  # refuses ids that are there
        segment = Segment(added, len(self._segments), self)
        with self._changing():
            if segment.folder is not None:
                shutil.rmtree(segment.folder, ignore_errors=True)  # what an addition that was killed left behind
                save_collection(added, segment.folder / "collection")
            self._full = {name: segment.behind(index, name) for name, index in self._full.items()}
            self._segments = [*self._segments, segment]

    def remove(self, doc_ids: Sequence[str]) -> None:
        """Remove documents: no ranker finds them from now on. Their texts stay in the folder until it is built anew.

        BM25's idf and average length, and the weights of TF-IDF, still count them until then.

        Raises
        ------
        InputError
            An unknown id, or no document would be left. Nothing is changed then.
        """
        self._check_root("remove from")
        gone = as_ids(doc_ids, "document ids")
        self.whole.document_numbers(gone)
        with self._changing():
            self._removed = sorted({*self._removed, *gone})

    def within(self, documents: Sequence[str] | NDArray[np.bool_]) -> Engine:
        """The engine limited to some documents: rankers that are asked through it find no other.

        Weights (idf, average length) stay those of all documents, so scores do too.

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
        view = Engine.__new__(Engine)
        view.settings, view.device, view.folder = self.settings, self.device, self.folder
        view._given_encoder, view.store, view._changes = self._given_encoder, self.store, self._changes
        view._parent, view._numbers, view._lock = self, numbers, threading.RLock()
        view._live, view._derived = {}, {}
        return view

    def _check_current(self) -> None:
        """Refuse to limit what has changed: the documents have other numbers now."""
        if self._parent is not None:
            self._parent._check_current()
            if self._changes != self._parent._changes:
                raise InputError("documents were added or removed since this engine was limited to some; limit it anew")

    def _check_root(self, what: str) -> None:
        if self._parent is not None:
            raise InputError(f"this engine is limited to some documents; {what} the one it was made from")


def _described(encoder: Any) -> Any:
    """What an encoder says of itself, as plain values."""
    if hasattr(encoder, "describe") and (not hasattr(encoder, "fit") or is_fitted(encoder)):
        return encoder.describe()
    if not hasattr(encoder, "encode"):
        raise InputError(f"an encoder has a method encode, which {type(encoder).__name__} lacks")
    values = encoder.get_params() if hasattr(encoder, "get_params") else {}
    return {"class": type(encoder).__name__, "parameters": values}


def _plain(values: Any) -> Any:
    """What is left of values after JSON: tuples become lists."""
    return json.loads(json.dumps(values))


def _kept_encoder(folder: Path) -> Any:
    try:
        return load_fitted(folder)
    except FileFormatError:
        raise
    except InputError as error:
        raise FileFormatError(folder / "manifest.json", None, str(error)) from error


def _read_manifest(folder: Path) -> dict[str, Any]:
    """What engine.json says, which must be what was written."""
    return read_manifest(folder, "engine", {"format": FORMAT, "version": VERSION}, name=_MANIFEST, unsigned=False)


def _check_same(folder: Path, begun: dict[str, Any], now: dict[str, Any]) -> None:
    if begun.get("input") != now["input"]:
        raise StoreError(f"{folder}: this engine was begun with another collection; give a new folder")
    for name, value in now["settings"].items():
        before = begun.get("settings", {}).get(name)
        if before != value:
            raise StoreError(
                f"{folder}: this engine was begun with {name} {before!r}, now it is {value!r}; "
                "give the same settings or a new folder"
            )
