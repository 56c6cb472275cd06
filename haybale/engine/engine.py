"""The engine: a collection with its encoder and its indexes, in memory or in a folder."""

from __future__ import annotations

import copy
import inspect
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from haybale.analysis import Analyzer, Tokenize
from haybale.collections import Collection
from haybale.collections.collection import Ints
from haybale.collections.ids import as_ids
from haybale.collections.open import Documents as DocumentsLike
from haybale.collections.queries import QueriesLike
from haybale.collections.unread import UnreadPart
from haybale.embeddings import Chunking
from haybale.embeddings.encoder import is_registered
from haybale.embeddings.store import fingerprint_of
from haybale.engine.added_judgements import AddedJudgements, Judged, Qrels
from haybale.engine.changed_metadata import Metadata
from haybale.engine.changes import LiveDocuments
from haybale.engine.document_order import sorted_documents
from haybale.engine.duplicates import Duplicates, find_duplicates
from haybale.engine.indexing_segments import UNITS
from haybale.engine.learned_compounds import learn_by_tasks, learn_here
from haybale.engine.new_documents import new_documents, split_documents
from haybale.engine.reattaching import Unattached
from haybale.engine.snapshot import Documents, Snapshot, View
from haybale.engine.storage import Storage
from haybale.errors import InputError
from haybale.notebook import html_table
from haybale.parameters import COUNT, check_parameters
from haybale.retrieval import AnyBM25, AnyPassageIndex
from haybale.retrieval.object_storage import is_address

T = TypeVar("T")


class Engine:
    """A collection with its encoder and its indexes, which rankers are fitted on and search.

    The constructor makes an engine in memory. :meth:`build` makes one in a folder, and :meth:`open` opens it.

    Several threads may search an engine while others add, replace and remove documents. Every ranking, explanation and
    fit works on the documents that the engine had when it began (:meth:`snapshot`); changes are made one after the
    other. Other processes see the changes when they open the engine, or call :meth:`refresh`.

    Parameters
    ----------
    collection : Collection, str, Path, mapping or frame
        Documents with queries and judgements, in any form that :func:`~haybale.open_collection` accepts; or documents
        only, in any form that :meth:`add` accepts.
    encoder : encoder, str or Path, default "tfidf"
        Makes the vectors of texts: an object with a method ``encode``, an encoder text such as
        ``"lsa(n_components=256)"``, a folder, or the id of a model (see :mod:`haybale.embeddings.encoder`). An encoder
        that is not fitted yet is fitted on the passages.
    language : str, optional
        Selects stop words and stemmer. The default is the language of the collection; if it has none, it is guessed.
    analyzer : Analyzer or callable, optional
        Splits texts into terms, in place of ``language``, for BM25 and for lexical encoders given by name. Use it for
        your own stop words. An engine in a folder cannot save a function.
    compounds : bool, optional
        Whether the parts of compounds are terms, too, so that *Verhältnis* finds *Mietverhältnis*. The splitter is
        learned from the collection; documents that are added later are split by it as well. Languages with compounds
        are those of :data:`haybale.compounds.LINKS`. By default, compounds are split in German, where it raised tuned
        BM25, unless an ``analyzer`` is given.
    paragraphs : str, optional
        Splits documents and queries into paragraphs again, by one of :data:`~haybale.collections.PARAGRAPHS`. By
        default, passages and paragraphs are those of the collection.
    chunking : Chunking, optional
        Cuts passages into pieces of equal length. By default, passages are not cut.
    store : str or Path, optional
        An embedding store made by :func:`~haybale.embed`. Its vectors, pieces and encoder are used, and ``encoder`` is
        ignored.
    device : str, optional
        Where vectors are searched and rankers are trained: ``"cpu"`` (the default), ``"cuda"``, ``"cuda:1"`` or
        ``"auto"``.

    Raises
    ------
    InputError
        If a parameter is invalid, or there is no document.
    DeviceError, MissingExtraError
        If the device or a package is not available.

    Examples
    --------
    >>> from haybale import TfidfEncoder
    >>> engine = Engine({"dogs": "Dogs must be kept on a lead."}, encoder=TfidfEncoder(min_df=1), language="english")
    >>> engine.add({"cats": ["Cats need no lead."]})
    >>> engine
    Engine 'documents': 2 documents, 2 passages, in memory
    """

    _fixed_documents: Documents | None = None  # the documents of a snapshot or a view, which never change
    _latest: weakref.ref[Engine] | None = None  # the snapshot that was made last

    def __init__(
        self,
        collection: DocumentsLike,
        *,
        encoder: Any = "tfidf",
        language: str | None = None,
        analyzer: Analyzer | Tokenize | None = None,
        compounds: bool | None = None,
        paragraphs: str | None = None,
        chunking: Chunking | None = None,
        store: str | Path | None = None,
        device: str | None = None,
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name not in ("self", "collection")}
        live, self.settings, self.language = new_documents(collection, arguments)
        self._set_live(live, None if isinstance(encoder, str | Path) else encoder)

    def _set_live(self, live: LiveDocuments, given_encoder: Any) -> None:
        """Set the attributes that new and opened engines have in common; ``given_encoder`` is an object or None."""
        self._given_encoder, first = given_encoder, live.first
        self._live, self.device, self.store = live, first.device, first.store
        self.analyzer, self.chunking = first.texts.analyzer, first.texts.chunking

    @classmethod
    def build(cls, collection: DocumentsLike, folder: str | Path, *, segments: int = 1, **settings: Any) -> Engine:
        """Build an engine in a folder, resume an interrupted build, or open the engine if it is finished.

        Each index is made when a ranker first needs it; :meth:`prepare` makes all, as ``segments`` does at once.

        Parameters
        ----------
        collection : Collection, str, Path, mapping or frame
        folder : str or Path
            A new or empty folder, or that of an engine of the same collection with the same settings.
        segments : int, default 1
            Number of segments in which the documents are indexed, by tasks of their own, for indexes larger than the
            memory of a machine. Rankings are those of one segment, and scores of BM25 and TF-IDF are equal to the bit.
            Tasks run where ``joblib.parallel_config`` or :func:`~haybale.on_cluster` says; workers must reach the
            folder. Finished segments are kept after an interruption. Not with ``store``, and only for the CPU.
        **settings
            The other parameters of the class.

        Raises
        ------
        StoreError
            If the folder has an engine of another collection or with other settings, or cannot be written.
        OutputExistsError
            If the folder has other files.
        """
        check_parameters("Engine.build", {"segments": segments}, {"segments": COUNT})
        if is_address(folder):
            raise InputError(f"{folder}: expected a folder to build in, found an address; copy the folder there later")
        call = inspect.signature(cls).bind(collection, **settings)
        call.apply_defaults()
        arguments, saved_settings = call.arguments, Storage(Path(folder)).check_folder()
        learn: Callable[..., Analyzer] = learn_here
        if segments > 1:
            learn = partial(learn_by_tasks, Path(folder), saved_settings)
        elif saved_settings is not None and saved_settings["analyzer"] is None and arguments["compounds"] is None:
            arguments["compounds"] = False  # it was begun when no language split compounds by default
        new = new_documents(arguments.pop("collection"), arguments, segments if segments > 1 else None, learn)
        first = new.live.first
        if arguments["analyzer"] is not None:
            first.texts.analyzer.to_dict()  # raises for a function
        new.live.build(Path(folder), new.settings, new.language)
        encoder = arguments["encoder"]
        engine = cls.open(folder, encoder=None if isinstance(encoder, str | Path) else encoder, device=first.device)
        engine._live.first.texts.take_counts(first.texts)
        return engine

    @classmethod
    def open(cls, folder: str | Path, *, encoder: Any = None, device: str | None = None) -> Engine:
        """Open an engine in a folder. Its indexes are memory-mapped when they are first needed.

        Parameters
        ----------
        folder : str or Path
            A folder, or an address such as ``"s3://bucket/engine"``, from which files are copied to a cache when they
            are needed (:mod:`haybale.retrieval.object_storage`).
        encoder : encoder, optional
            The encoder that the engine was built with; required if its class is not registered.
        device : str, optional
            As in the class.

        Raises
        ------
        FileFormatError
            If the folder has no engine, or one that is damaged or of another version.
        StoreError
            If the engine is not finished, has another encoder, or is on object storage that does not answer.
        """
        live = LiveDocuments.open(folder, encoder, device)
        manifest = live.manifest
        assert manifest is not None
        engine = cls.__new__(cls)
        engine.settings, engine.language = manifest["settings"], manifest["language"]
        engine._set_live(live, encoder)
        return engine

    @property
    def input_digest(self) -> str:
        """A digest of the collection that the engine was made from; additions do not change it."""
        return self._live.input_digest

    @property
    def id(self) -> str:
        """A digest of the collection and the encoder, which saved rankers refer to; additions do not change it."""
        return self._live.id

    @property
    def identity(self) -> str:
        """A random id that :meth:`build` gave the engine, and that no change, move or copy changes.

        Two builds of one collection differ in it. For an engine in memory, it is :attr:`id`.
        """
        return self._live.identity

    @property
    def documents_digest(self) -> str | None:
        """A digest of what rankers search now: the documents and the settings that they were indexed with.

        Judgements and metadata do not count. It is None for an engine in memory.
        """
        if self.folder is None:
            return None
        of_store = [] if self.store is None else [fingerprint_of(self.store)]
        return self._documents.digest([self.id, self.settings, self.language, *of_store])

    @property
    def address(self) -> tuple[str, str] | None:
        """The folder or address, and the :attr:`documents_digest`, by which other processes open the same documents.

        It is None for an engine in memory, for a view made by :meth:`within`, and for an engine whose encoder only this
        process has.
        """
        is_own = self._given_encoder is not None and not is_registered(self._given_encoder)
        if self.folder is None or is_own or isinstance(self._documents, View):
            return None
        return self._live.storage.address or str(self.folder.absolute()), str(self.documents_digest)

    def __repr__(self) -> str:
        location, indexed = self._live.storage.address or self.folder, self.collection
        where = "in memory" if location is None else f"in {location}"
        return f"Engine {indexed.name!r}: {indexed.n_documents:,} documents, {indexed.n_passages:,} passages, {where}"

    def _repr_html_(self) -> str:
        """Return the engine for notebooks: its size, settings and indexes."""
        rows = {name: value for name, value in self.settings.items() if value is not None}
        rows |= {"language": self.language, "indexes opened": ", ".join(sorted(self.made)) or "none yet"}
        return html_table(repr(self), ("setting", "value"), rows.items())

    @property
    def folder(self) -> Path | None:
        """The folder of the engine, or of its copy if it is on object storage; None in memory."""
        return self._live.storage.folder

    @property
    def unread(self) -> list[UnreadPart]:
        """The parts of files whose text is not in the engine, with the reasons, sorted by file."""
        return self._live.unread

    @property
    def encoder(self) -> Any:
        """The fitted encoder."""
        return self._live.first.source.encoder

    @property
    def _documents(self) -> Documents:
        """The documents that rankers search now."""
        return self._live.snapshot if self._fixed_documents is None else self._fixed_documents

    def snapshot(self) -> Engine:
        """Return the engine with the documents that it has now, which later changes do not affect.

        Rankers take one for each ranking, explanation and fit. Take one yourself if several calls must agree on the
        documents, such as a ranking and the texts of the documents that it found. It needs no copy of anything.

        Examples
        --------
        >>> engine = Engine({"dogs": "Dogs bark.", "cats": "Cats purr."}, language="english", encoder="tfidf(min_df=1)")
        >>> before = engine.snapshot()
        >>> engine.remove(["cats"])
        >>> before.collection.n_documents, engine.collection.n_documents
        (2, 1)
        """
        if self._fixed_documents is not None:
            return self
        documents, latest = self._documents, None if self._latest is None else self._latest()
        if latest is None or latest._documents is not documents:
            latest = self._fixed(documents)
            self._latest = weakref.ref(latest)  # a weak reference, so that only its users keep it in memory
        return latest

    def independent(self) -> Engine:
        """Return a :meth:`snapshot` with a cache and locks of its own, which shares the indexes made so far.

        A thread that makes something large for it, such as the features of reviews, does not hold up those that search
        the engine.
        """
        documents = self.snapshot()._documents
        return self._fixed(documents.judged(documents.judgements) if isinstance(documents, Snapshot) else documents)

    def _fixed(self, documents: Documents) -> Engine:
        engine = copy.copy(self)
        engine._fixed_documents, engine._latest = documents, None
        return engine

    @property
    def whole(self) -> Collection:
        """The documents before passages are cut into pieces."""
        return self._documents.whole

    @property
    def collection(self) -> Collection:
        """The collection as indexed, after splitting, chunking, additions and removals."""
        return self._documents.collection

    def bm25(
        self, unit: str = "passage", k1: float | None = None, b: float | None = None, k3: float | None = None
    ) -> AnyBM25:
        """Return the BM25 index of passages or of whole documents, with the given parameters or those of the index.

        Parameters
        ----------
        unit : {"passage", "document"}, default "passage"
        k1, b, k3 : float, optional
            As in :class:`~haybale.retrieval.BM25Index`. Indexes with other parameters are cached.
        """
        return self._documents.bm25(unit, k1, b, k3)

    @property
    def passages(self) -> AnyPassageIndex:
        """The index of passage vectors."""
        return cast(AnyPassageIndex, self._documents.index("passages"))

    @property
    def documents(self) -> AnyPassageIndex:
        """The index of documents, with one vector for the text of each document that has a passage."""
        return cast(AnyPassageIndex, self._documents.index("documents"))

    @property
    def first_passages(self) -> AnyPassageIndex:
        """The index of documents, with the vector of the first passage of each."""
        return cast(AnyPassageIndex, self._documents.index("first-passages"))

    @property
    def made(self) -> set[str]:
        """The names of the indexes that have been made or opened so far."""
        return self._documents.made

    def cached(self, key: Any, make: Callable[[], T]) -> T:
        """Return the value cached for a key, or make it. The eight most recently used values are kept.

        A change of the engine empties the cache, so let a :meth:`snapshot` cache what is made of its documents.
        """
        return self._documents.cached(key, make)

    def prepare(self) -> Engine:
        """Make or open every index now, and return the engine."""
        for unit in UNITS:
            self.bm25(unit)
        _ = self.passages, self.documents
        return self

    def write_indexes(self) -> Engine:
        """Make the indexes that are not in the folder yet, without opening the others, and return the engine.

        Call it after documents were added, so that the first ranking need not wait for their vectors.
        """
        for segment in cast(Snapshot, self._documents).segments:
            segment.write_indexes()
        return self

    def add(self, documents: DocumentsLike) -> None:
        """Add documents, which can be found at once. No model is trained again, and no other document is encoded again.

        The statistics of BM25 are those of all documents afterwards. The encoder is not fitted again, so TF-IDF and LSA
        ignore new terms. Other threads may search, add and remove meanwhile.

        Parameters
        ----------
        documents : Collection, frame, mapping, str or Path
            A collection, whose queries are ignored; a frame with the columns ``doc_id``, ``text`` and optionally
            ``passage_id``, ``title`` and metadata, with one row for each passage; a mapping of ids to a text, a list of
            passages, or a mapping with ``text``, ``title`` and metadata; or the folder of a collection.

        Raises
        ------
        InputError
            If an id exists already or belongs to a removed document (:meth:`replace` accepts both), or there is no
            document. Nothing is changed then.
        StoreError
            If another process is writing the engine, or has changed it.
        """
        self._refuse_fixed("add()")
        self._live.change(split_documents(documents, self.settings["paragraphs"]))

    def replace(
        self, documents: DocumentsLike | None, remove: Sequence[str] = (), metadata: Metadata | None = None
    ) -> int:
        """Add documents as :meth:`add` does, and replace those whose ids the engine has, or had before a removal.

        All are replaced at once: no search finds an old document beside a new one. A judgement that :meth:`judge` added
        follows its text if another document has that now; other judgements, links and queries that refer to an id then
        refer to the new document (:meth:`unattached_judgements`). Texts of the old documents stay in the folder, and
        count in the statistics of BM25, until the engine is built again.

        Parameters
        ----------
        documents : Collection, frame, mapping, str or Path, or None
            As in :meth:`add`, which raises the same errors. None: no document.
        remove : sequence of str, optional
            Ids of documents to remove in the same step.
        metadata : mapping, optional
            Metadata to change in the same step, as in :meth:`set_metadata`.

        Returns
        -------
        int
            The number of documents that were replaced; the others were added.

        Examples
        --------
        >>> engine = Engine({"dogs": "Dogs bark.", "cats": "Cats purr."}, language="english", encoder="tfidf(min_df=1)")
        >>> engine.replace({"dogs": "Dogs also howl.", "cows": "Cows moo."})
        1
        >>> engine
        Engine 'documents': 3 documents, 3 passages, in memory
        """
        self._refuse_fixed("replace()")
        added = None if documents is None else split_documents(documents, self.settings["paragraphs"])
        ids = as_ids(remove, "document ids")
        return self._live.change(added, replace=True, remove=ids, metadata=metadata)

    def remove(self, doc_ids: Sequence[str]) -> None:
        """Remove documents from all rankings. Their texts stay in the folder, and count in the statistics of BM25.

        Raises
        ------
        InputError
            If an id is unknown, or no document with a passage would be left. Nothing is changed then.
        StoreError
            If another process is writing the engine, or has changed it.
        """
        self._refuse_fixed("remove()")
        self._live.change(remove=as_ids(doc_ids, "document ids"))

    def set_metadata(self, values: Metadata) -> None:
        """Set metadata of documents, for ``where`` and results. Nothing is indexed again; other values stay.

        Parameters
        ----------
        values : mapping
            For each id of a document a mapping of column names to values: strings, numbers, dates, booleans or lists of
            strings; None for no value. A new name becomes a column.

        Raises
        ------
        InputError
            If an id is unknown, or a name is not a string. Nothing is changed then.
        StoreError
            If another process is writing the engine, or has changed it.

        Examples
        --------
        >>> engine = Engine({"dogs": "Dogs bark.", "cats": "Cats purr."}, language="english", encoder="tfidf(min_df=1)")
        >>> engine.set_metadata({"dogs": {"court": "BGH", "year": 2015}})
        >>> engine.documents_table().select(["id", "court", "year"]).to_pylist()[0]
        {'id': 'dogs', 'court': 'BGH', 'year': 2015}
        """
        self._refuse_fixed("set_metadata()")
        self._live.set_metadata(values)

    def judge(self, qrels: Qrels, queries: QueriesLike | None = None, *, split: str = "train") -> Judged:
        """Add judgements to a split, or replace those of the same queries and documents. Nothing is indexed again.

        Rankers that are fitted afterwards learn from them; trained rankers and earlier snapshots stay as they are. All
        judgements of a call are added, or none. A grade above 0 means relevant. Other splits are not changed: a query
        that is in another split is refused, so that no ranker is measured with a query that it learned from.
        If documents change, a judgement follows the text that was judged to the document that has it. If none has it,
        the judgement stays at its id (:meth:`unattached_judgements`); while that is removed, it has no effect.

        Parameters
        ----------
        qrels : frame, str or Path
            A frame with the columns ``query_id``, ``doc_id`` and ``relevance``, or the path of a file in one of the
            formats of :func:`~haybale.collections.read_qrels`: CSV with a header, the formats of TREC and BEIR.
        queries : queries, optional
            The texts of judged queries that the engine does not have, in any form that :meth:`Ranker.rank` takes.
            Queries without a judgement are ignored.
        split : str, default "train"
            The split, which may be new.

        Returns
        -------
        Judged
            ``n_queries``, ``n_new_queries``, ``n_judgements`` and ``n_replaced``.

        Raises
        ------
        InputError
            For an unknown document or query, two grades of one query and document, a grade that is not a whole number,
            a query with another text than in the engine, or a query of another split. The message names the file and
            the line. Nothing is changed then.
        StoreError
            If another process is writing the engine, or has changed it.

        Examples
        --------
        >>> import pandas as pd
        >>> engine = Engine({"dogs": "Dogs bark.", "cats": "Cats purr."}, language="english", encoder="tfidf(min_df=1)")
        >>> qrels = pd.DataFrame({"query_id": ["q"], "doc_id": ["cats"], "relevance": [1]})
        >>> engine.judge(qrels, {"q": "Which animals purr?"})
        Judged(n_queries=1, n_new_queries=1, n_judgements=1, n_replaced=0)
        >>> engine.collection
        Collection 'documents': 2 documents, 2 passages, 1 query (train 1)
        """
        self._refuse_fixed("judge()")
        return self._live.judge(qrels, queries, split)

    @property
    def added_judgements(self) -> AddedJudgements:
        """The judgements that :meth:`judge` added."""
        return self._live.snapshot.judgements

    def unattached_judgements(self) -> Unattached:
        """Return the documents that no longer have the text that :meth:`judge` was about, by what became of them."""
        return self._live.unattached()

    @property
    def has_latest_documents(self) -> bool:
        """Whether these are all documents that the engine has now, and not those of a view or of before a change."""
        return self._live.has_latest(self._documents)

    def refresh(self) -> bool:
        """Take over what others have added, replaced and removed in the folder; return whether anything has changed.

        An engine does not see changes by other processes, or by other engine objects of the same folder, before this
        call; one on object storage sees none. Rankings that are running are not affected. Without changes it takes some
        microseconds, so a service may call it before every search. An engine in memory never changes by others.

        Raises
        ------
        StoreError
            If the folder has another engine now, built from other documents or with another encoder.
        FileFormatError
            If the folder has no engine any more, or a damaged one.
        """
        self._refuse_fixed("refresh()")
        return self._live.refresh()

    def duplicates(self) -> Duplicates:
        """Return which documents are one record (:func:`~haybale.engine.duplicates.find_duplicates`)."""
        return find_duplicates(self._documents, self._live, self.documents_digest)

    def documents_table(self) -> pa.Table:
        """Return a table with a row for each document: ``id``, ``title``, ``passages`` (their number) and metadata."""
        return self.whole.documents_table()

    def documents_where(self, where: str | None = None, sort: str | None = None, *, descending: bool = False) -> Ints:
        """Return the numbers (n,) of the documents that fulfil an SQL condition on :meth:`documents_table`, or of all.

        They ascend, or are sorted by a column (:func:`~haybale.engine.document_order.sorted_documents`).
        :class:`~haybale.engine.document_filter.DocumentFilter` describes conditions; errors name the columns.
        """
        return sorted_documents(self._documents, where, sort, descending)

    def within(self, documents: Sequence[str] | NDArray[np.bool_] | None = None, *, where: str | None = None) -> Engine:
        """Return a view of the engine, in which rankers find only some of the documents that it has now.

        Term weights and vectors stay those of all documents, so BM25 and nearest neighbours give each document the
        score that it has in the whole engine. Fusions, PARM and re-rankers use the ranks that
        documents have among the given ones. Context rankers see only the links among the given documents, so they do
        not find a document that is linked with others only. Later changes of the engine do not affect the view.

        Parameters
        ----------
        documents : sequence of str, or (n_documents,) bool
            Ids, or a mask, of documents of :attr:`collection`. Default: all. InputError is raised if none of them has a
            passage.
        where : str, optional
            Only those of the documents that fulfil this condition, as in :meth:`documents_where`.
        """
        parent = self._documents
        return self._fixed(View(parent, parent.chosen(documents, where)))

    def numbers_within(self, documents: Ints) -> Ints:
        """Convert document numbers of the engine, (n,), to those of this view; -1 for documents that it lacks."""
        return cast(View, self._documents).numbers_of(documents)

    def _refuse_fixed(self, method: str) -> None:
        if self._fixed_documents is not None:
            made_by = "view made by within()" if isinstance(self._fixed_documents, View) else "snapshot"
            raise InputError(f"{method} cannot change a {made_by}; call {method} of the engine itself")
