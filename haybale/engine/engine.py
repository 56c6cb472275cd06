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
import re
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from haybale.analysis import Analyzer, Tokenize, as_analyzer, guess_language
from haybale.collections import Collection, open_documents, with_paragraphs
from haybale.collections.collection import Ints
from haybale.collections.ids import as_ids
from haybale.collections.open import Documents
from haybale.collections.saved import load_collection, save_collection
from haybale.device import find_device
from haybale.embeddings import Chunking, EmbeddingStore, make_encoder
from haybale.embeddings.encoder import FITTED, LEXICAL, load_fitted, rebuild, say_model
from haybale.embeddings.store import CHUNKING
from haybale.embeddings.store_files import StoreFiles, as_json, writer_lock
from haybale.embeddings.stored_encoder import is_fitted
from haybale.engine.segment import Segment, one_each, with_passages
from haybale.errors import DeviceError, InputError, MissingExtraError, OutputExistsError, StoreError
from haybale.folders import replace_json
from haybale.manifest import MANY, read_manifest, with_checksum
from haybale.parameters import COUNT, RANDOM_STATE, TEXT_OR_NONE, Constraints, check_parameters
from haybale.retrieval import BM25Index, PassageIndex
from haybale.text_files import read_json, reading
from haybale.timing import timed

FORMAT, VERSION = "haybale engine", 2  # 1 had another name for n_components
UNITS = ("passage", "document")
_MANIFEST, _BUILDING = "engine.json", "building.json"
_SETTINGS = {
    "encoder": (str, dict),
    "n_components": MANY,
    "language": (str, None),
    "analyzer": (dict, None),
    "paragraphs": (str, None),
    "chunking": (CHUNKING, None),
    "store": (str, None),
    "query_prompt": str,
    "passage_prompt": str,
    "random_state": (range(2**32), None),
}
_KINDS = {"id": str, "settings": _SETTINGS, "language": str, "encoder": bool, "segments": MANY, "removed": [str]}
_ASIDE = re.compile(r"\..+\.(\d+|[0-9a-f]{12})")  # files written aside, by names of folders.py
_DERIVED = 8  # of what rankers make of the indexes, this many are kept
_RANGES: dict[str, Constraints] = {
    **dict.fromkeys(("language", "paragraphs", "device"), TEXT_OR_NONE),
    "n_components": COUNT,
    "analyzer": [Analyzer, str, callable, None],
    "chunking": [Chunking, None],
    "store": [str, Path, None],
    "query_prompt": [str],
    "passage_prompt": [str],
    "random_state": RANDOM_STATE,
}

T = TypeVar("T")


class Engine:
    """A collection with its encoder and its indexes; what every ranker is fitted on and asks.

    An engine made by its constructor lives in memory. :meth:`build` and :meth:`open` are for one in a folder.

    Parameters
    ----------
    collection : Collection, str, Path, mapping or frame
        Documents, with the queries and judgements that rankers learn from: what :func:`~haybale.open_collection` takes;
        or documents alone, as :meth:`add` takes them.
    encoder : str or encoder, default "tfidf"
        What makes vectors of texts: a name (see :func:`~haybale.embeddings.make_encoder`), or an encoder of one's own;
        fitted on the passages if it can be and is not yet.
    n_components : int, default 1024
        Of ``"lsa"``.
    language : str, optional
        Of stop words and stemmer; default: the collection's own, else guessed from its passages.
    analyzer : Analyzer or callable, optional
        In place of ``language``, for BM25 and the lexical encoders: one with stop words of one's own, or a function
        from a text to its terms, which an engine in a folder cannot keep.
    paragraphs : str, optional
        Split documents and queries anew, one of :data:`~haybale.collections.PARAGRAPHS`.
    chunking : Chunking, optional
        Cut passages into pieces of equal length.
    store : str or Path, optional
        A store of embeddings made by :func:`~haybale.embed`, whose vectors, pieces and encoder are taken.
    query_prompt, passage_prompt : str, default ""
        What a neural encoder wants before each.
    device : str, optional
        Where vectors are searched and learned from: ``"cpu"`` (the default), ``"cuda"``, ``"cuda:1"`` or ``"auto"``.
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
    >>> from haybale import TfidfEncoder
    >>> engine = Engine({"dogs": "Dogs must be kept on a lead."}, encoder=TfidfEncoder(min_df=1), language="english")
    >>> engine.add({"cats": ["Cats need no lead."]})
    >>> engine
    Engine 'documents': 2 documents, 2 passages, in memory
    """

    _parent: Engine | None = None  # of an engine that is limited to some documents,
    _numbers: Ints  # which have these numbers there,
    _limited: Collection  # as long as this is its collection

    def __init__(
        self,
        collection: Documents,
        *,
        encoder: Any = "tfidf",
        n_components: int = 1024,
        language: str | None = None,
        analyzer: Analyzer | Tokenize | None = None,
        paragraphs: str | None = None,
        chunking: Chunking | None = None,
        store: str | Path | None = None,
        query_prompt: str = "",
        passage_prompt: str = "",
        device: str | None = None,
        random_state: int | None = 0,
    ) -> None:
        check_parameters("Engine", locals(), _RANGES)
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
        find_device(device or "cpu")  # one that is not there is refused before any work
        whole = open_documents(collection)
        if paragraphs is not None:
            whole = with_paragraphs(whole, paragraphs)
        self._begin([whole], [], None if isinstance(encoder, str) else encoder, device)

    def _begin(self, segments: list[Collection], removed: Iterable[str], encoder: Any, device: str | None) -> None:
        """Set what a new and an opened engine have in common."""
        store = self.settings["store"]
        self.store = None if store is None else EmbeddingStore(store)
        self.device, self._given_encoder = device, encoder
        self.folder: Path | None = None
        self._segments = [Segment(whole, number, self) for number, whole in enumerate(segments)]
        self._removed = sorted(removed)
        self._full: dict[str, Any] = {}  # indexes of everything there ever was, by name
        self._written: dict[str, Any] | None = None  # what engine.json says
        self._lock = threading.RLock()
        self._writes = False  # whether this engine, and the thread that has the lock, writes the folder
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

    @classmethod
    def build(cls, collection: Documents, folder: str | Path, **settings: Any) -> Engine:
        """Build an engine in a folder, or go on with one that was interrupted; the parameters are those of the class.

        Each index is made when a ranker first asks for it, or all by :meth:`prepare`. A finished engine is opened.

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
        begun = {"settings": as_json(engine.settings), "input": engine._input}
        with engine.writing(folder):
            if (folder / _MANIFEST).exists():
                _check_same(folder, _read_manifest(folder), begun)
            else:
                if (folder / _BUILDING).exists():
                    _check_same(folder, read_json(folder / _BUILDING), begun)
                replace_json(folder / _BUILDING, begun)
                if not (folder / "0" / "collection").exists():
                    with timed("write collection"):
                        save_collection(engine._segments[0].whole, folder / "0" / "collection")
                engine.folder = folder
                try:
                    if engine._keeps_encoder and not (folder / "encoder").exists():
                        engine.encoder.save(folder / "encoder")
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
        with reading(folder):
            if not (folder / _MANIFEST).is_file() and (folder / _BUILDING).exists():
                raise StoreError(f"{folder}: this engine is not finished; build it again, which goes on where it was")
        manifest = _read_manifest(folder)
        engine = cls.__new__(cls)
        engine.settings = manifest["settings"]
        find_device(device or "cpu")
        analyzer, then = engine.settings.get("analyzer"), engine.settings["encoder"]
        engine._analyzer = None if analyzer is None else Analyzer.from_dict(analyzer)
        if encoder is not None and as_json(_described(encoder)) != then:
            raise StoreError(f"{folder}: this engine was built with the encoder {then!r}, now it is {encoder!r}")
        with timed("read collection"):
            segments = [load_collection(folder / str(n) / "collection") for n in range(manifest["segments"])]
        engine._begin(segments, manifest["removed"], encoder, device)
        engine.folder, engine._written = folder, manifest
        engine.language, engine.id = manifest["language"], manifest["id"]
        return engine

    @contextmanager
    def writing(self, folder: Path) -> Iterator[None]:
        """Hold the folder for writing (already held: held on); :class:`StoreError` names who else writes it."""
        with self._lock:
            if self._writes:
                yield
                return
            with writer_lock(StoreFiles(folder)):
                for path in [*folder.glob(".*"), *folder.glob("*/.*")]:
                    if _ASIDE.fullmatch(path.name):  # left behind by a writer that was killed
                        shutil.rmtree(path) if path.is_dir() else path.unlink()
                self._writes = True
                try:
                    yield
                finally:
                    self._writes = False

    def _write_manifest(self) -> None:
        assert self.folder is not None
        known = self._written or {"input": self._input, "encoder": self._keeps_encoder}
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "id": self.id,
            "settings": as_json(self.settings),
            "input": known["input"],
            "language": self.language,
            "encoder": known["encoder"],
            "segments": len(self._segments),
            "removed": self._removed,
        }
        replace_json(self.folder / _MANIFEST, with_checksum(manifest))
        self._written = manifest

    @cached_property
    def _input(self) -> str:
        return self._segments[0].whole.digest()

    @cached_property
    def id(self) -> str:
        """What a ranker that was fitted here knows it by; the same after documents were added or removed."""
        known = json.dumps([self._input, as_json(_described(self.encoder))], sort_keys=True)
        return hashlib.sha256(known.encode()).hexdigest()

    def __repr__(self) -> str:
        where, found = "in memory" if self.folder is None else f"in {self.folder}", self.collection
        return f"Engine {found.name!r}: {found.n_documents:,} documents, {found.n_passages:,} passages, {where}"

    @cached_property
    def whole(self) -> Collection:
        """The documents as wholes, before passages were cut into pieces."""
        if self._checked_parent is not None:
            return self._checked_parent.whole.take(self._numbers)
        return self._everything if self._live_numbers is None else self._everything.take(self._live_numbers)

    @cached_property
    def collection(self) -> Collection:
        """The collection as it is searched."""
        if self._checked_parent is not None:
            return self._checked_parent.collection.take(self._numbers)
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
        return None if chunked is None else Chunking(**{name: chunked[name] for name in CHUNKING})

    @cached_property
    def language(self) -> str:
        """Of stop words and stemmer."""
        whole = self._segments[0].whole
        sample = whole.passages.texts[:: max(1, whole.n_passages // 1000)]
        return str(self.settings["language"] or whole.language or guess_language(sample.to_pylist()))

    @property
    def analyzer(self) -> Analyzer:
        """What makes terms of texts, for BM25."""
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
            described, encoder = self.settings["encoder"], self._given_encoder
            with timed("load encoder"):
                if kept is not None and (kept.exists() or (self._written is not None and self._written["encoder"])):
                    return load_fitted(kept)
                if encoder is None and isinstance(described, dict):
                    return rebuild(described, "the engine")
                if encoder is None:
                    if self.folder is not None and described not in LEXICAL:
                        say_model("the engine", described)
                    names = ("n_components", "random_state", "query_prompt", "passage_prompt")
                    how = {name: self.settings[name] for name in names}
                    encoder = make_encoder(described, language=self.language, **how)
            if isinstance(described, str) and described in LEXICAL and self._analyzer is not None:
                encoder.set_params(language=None, analyzer=self._analyzer)
            if hasattr(encoder, "fit") and not is_fitted(encoder):
                encoder = copy.deepcopy(encoder)  # the caller's stays as it was
                with timed("fit encoder"):
                    first = self._segments[0]
                    if first.counted(encoder):
                        encoder.fit_counts(first.counts("passage"))
                    else:
                        encoder.fit(first.cut.passages.texts.to_pylist())
            return encoder

    @property
    def _keeps_encoder(self) -> bool:
        """Whether the folder has the encoder: others are loaded by name, or of a class of one's own."""
        return self.store is None and isinstance(self.encoder, tuple(FITTED.values()))

    def bm25(self, unit: str = "passage") -> BM25Index:
        """BM25 over passages, or over whole ``"document"`` s; its ``with_parameters`` gives other k1, b and k3."""
        if unit not in UNITS:
            raise InputError(f"unit must be 'passage' or 'document', found {unit!r}")
        return cast(BM25Index, self._index(f"bm25-{unit}"))

    @property
    def passages(self) -> PassageIndex:
        """Nearest neighbours among passage vectors."""
        return cast(PassageIndex, self._index("passages"))

    @property
    def documents(self) -> PassageIndex:
        """Among documents with a passage, each its whole text as one vector, as far as the encoder reads."""
        return cast(PassageIndex, self._index("documents"))

    @property
    def first_passages(self) -> PassageIndex:
        """Among documents, each by the vector of its first passage."""
        with self._lock:
            if "first-passages" not in self._live:
                index = self.passages
                rows = index.doc_offsets[with_passages(self.collection)]
                vectors = index.vectors[index.device.xp.asarray(rows)]
                self._live["first-passages"] = one_each(vectors, self.collection, self.device)
            return cast(PassageIndex, self._live["first-passages"])

    @property
    def made(self) -> set[str]:
        """The names of the indexes that have been made or opened so far."""
        return {*self._live, *self._full}

    def cached(self, key: Any, make: Callable[[], T]) -> T:
        """What rankers derive from the indexes and ask for again and again; the eight last asked for are kept."""
        with self._lock:
            found = self._derived.pop(key) if key in self._derived else make()
            self._derived[key] = found  # the last
            if len(self._derived) > _DERIVED:
                del self._derived[next(iter(self._derived))]
            return cast(T, found)

    def prepare(self) -> Engine:
        """Make every index now; those that are there are only opened. Returns the engine."""
        for unit in UNITS:
            self.bm25(unit)
        _ = self.passages, self.documents
        return self

    def _index(self, name: str) -> Any:
        with self._lock:
            if name not in self._live:
                if self._checked_parent is not None:
                    self._live[name] = self._checked_parent._index(name).take(self._numbers)
                    return self._live[name]
                if name not in self._full:
                    index = self._segments[0].index(name)
                    for added in self._segments[1:]:
                        index = added.behind(index, name)
                    self._full[name] = index
                full = self._full[name]
                self._live[name] = full if self._live_numbers is None else full.take(self._live_numbers)
            return self._live[name]

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Add or remove documents, in memory and in the folder, or, after an error, in neither."""
        before = self._segments, self._full, self._removed
        with self._lock, nullcontext() if self.folder is None else self.writing(self.folder):
            if self.folder is not None and _read_manifest(self.folder) != self._written:
                raise StoreError(f"{self.folder}: another process has added or removed documents; open it again")
            try:
                yield
                self._look()
                if self.folder is not None:
                    self._write_manifest()
            except BaseException:
                self._segments, self._full, self._removed = before
                self._look()
                raise

    def add(self, documents: Documents) -> None:
        """Add documents, which can be found at once. Nothing is trained anew and no other document encoded anew.

        BM25 is exact after it, as over all documents at once; the encoder stays as it was fitted, so TF-IDF and LSA do
        not know terms that are new. Not while other threads ask the engine.

        Parameters
        ----------
        documents : Collection, frame, mapping, str or Path
            A collection, of which queries are left aside; a frame with ``doc_id``, ``text`` and, optionally,
            ``passage_id``, a row a passage; a mapping of ids to a text or a list of passages; or the folder of one.

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
        """Remove documents: no ranker finds them from now on. Texts stay in the folder, weights of terms as they were.

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
        """The engine limited to some documents: rankers that are asked through it find no other. Scores stay.

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
        view._parent, view._numbers, view._limited = self, numbers, self.collection
        view._live, view._full, view._derived, view._lock = {}, {}, {}, threading.RLock()
        for name in ("whole", "collection"):
            view.__dict__.pop(name, None)
        return view

    def numbers_within(self, documents: Ints) -> Ints:
        """(n,) the numbers that documents have here, of those they have in the engine this was limited from; or -1."""
        assert self._parent is not None
        place = np.full(self._parent.collection.n_documents + 1, -1)
        place[self._numbers] = np.arange(len(self._numbers))
        return place[documents]

    @property
    def _checked_parent(self) -> Engine | None:
        """What this engine was limited from; where that has changed since, the documents have other numbers."""
        if self._parent is not None:
            _ = self._parent._checked_parent
            if self._parent.collection is not self._limited:
                raise InputError("documents were added or removed since this engine was limited to some; limit it anew")
        return self._parent

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


def _read_manifest(folder: Path) -> dict[str, Any]:
    """What engine.json says, which must be what was written."""
    head = {"format": FORMAT, "version": VERSION}
    return read_manifest(folder, "engine", head, _KINDS, name=_MANIFEST, unsigned=False)


def _check_same(folder: Path, begun: dict[str, Any], now: dict[str, Any]) -> None:
    if begun["input"] != now["input"]:
        raise StoreError(f"{folder}: this engine was begun with another collection; give a new folder")
    for name, value in now["settings"].items():
        before = begun["settings"].get(name)
        if before != value:
            raise StoreError(
                f"{folder}: this engine was begun with {name} {before!r}, now it is {value!r}; "
                "give the same settings or a new folder"
            )
