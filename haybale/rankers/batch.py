"""Queries asked of an engine: their texts, vectors, hits and runs, each made once, whichever rankers ask for them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, Self, TypeAlias, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa

from haybale.collections import Collection, Queries, find_splitter
from haybale.collections.lines import read_jsonl, read_text, read_tsv, text_field
from haybale.collections.qrels import judgements
from haybale.embeddings import encode_queries
from haybale.engine import Engine
from haybale.errors import FileFormatError, InputError
from haybale.frames import Frame, check_filled, column_names, library_of, to_pandas
from haybale.retrieval import BM25Index, Hits, ParagraphHits, ParagraphSearch, PassageIndex, Run
from haybale.retrieval.hits import Ints
from haybale.stages import stage
from haybale.vectors import Matrix

T = TypeVar("T")
Text: TypeAlias = "str | Sequence[str]"  # of a query: a text, or its paragraphs
Asked: TypeAlias = "Queries | Mapping[str, Text] | Sequence[Text] | Frame | str | Path"


class Asking(Protocol):
    """What a batch and judged queries need to know of a ranker."""

    needs_training: bool
    training_digest: str | None
    fitted_key: Any
    engine_: Engine

    def key(self) -> Any: ...
    def clone(self) -> Self: ...
    def _fit_on(self, training: Training) -> Self: ...
    def _rank(self, batch: Batch, depth: int) -> Run: ...
    def _out_of_fold(self, batch: Batch, depth: int) -> Run: ...


R = TypeVar("R", bound=Asking)


class Batch:
    """Queries, and what is found for them; rankers that share a batch share its searches.

    Parameters
    ----------
    engine : Engine
    queries : Queries
        Their own documents are numbers of the engine's documents.
    label : str, default ""
        What stages of work are marked with: ``"train"``.
    """

    def __init__(self, engine: Engine, queries: Queries, label: str = "") -> None:
        self.engine = engine
        self.queries = queries
        self.label = label
        self.least_depth = 0  # runs are made at least this deep, where something will ask for that
        self._made: dict[Any, Any] = {}
        self._runs: dict[Any, tuple[int, Run]] = {}
        self._from: tuple[Batch, Ints] | None = None

    def __len__(self) -> int:
        return len(self.queries)

    def take(self, rows: Ints) -> Batch:
        """Some of the queries; what was found for all of them is not searched again."""
        part = Batch(self.engine, self.queries.take(rows), self.label)
        part._from = (self, rows)
        return part

    def stage(self, name: str) -> Any:
        return stage(f"{name} ({self.label})" if self.label else name)

    # the queries --------------------------------------------------------------------------------------

    @cached_property
    def ids(self) -> list[str]:
        return list(self.queries.ids.to_pylist())

    @cached_property
    def texts(self) -> list[str]:
        return self.queries.texts(range(len(self.queries)))

    @cached_property
    def paragraphs(self) -> list[list[str]]:
        flat, offsets = self.queries.paragraphs.to_pylist(), self.queries.offsets.tolist()
        return [flat[start:end] for start, end in pairwise(offsets)]

    @property
    def own(self) -> Ints:
        """(m,) the document that each query was taken from, -1 for none."""
        return self.queries.own

    @cached_property
    def vectors(self) -> Matrix:
        """(m, d), each query one vector."""
        if self._from is not None and "vectors" in self._from[0].__dict__:
            return self._from[0].vectors[self._from[1]]
        encoder = self.engine.encoder
        with self.stage("encode queries"):
            return encode_queries(encoder, self.texts)

    @cached_property
    def paragraph_vectors(self) -> list[Matrix]:
        """Of each query, the vectors of its paragraphs."""
        encoder = self.engine.encoder
        with self.stage("encode query paragraphs"):
            flat = encode_queries(encoder, [text for each in self.paragraphs for text in each])
        offsets = self.queries.offsets - self.queries.offsets[0]
        return [flat[start:end] for start, end in pairwise(offsets)]

    # what is found ------------------------------------------------------------------------------------

    def neighbours(self, unit: str, k: int) -> Hits:
        """The k nearest ``"passage"`` s, ``"document"`` s or ``"first passage"`` s of each query."""
        index = index_of(self.engine, unit)
        return self._hits(unit, min(k, len(index)), lambda k: index.search(self.vectors, k, exclude=self.own))

    def lexical(self, index: BM25Index, k: int, key: Any) -> Hits:
        """The k best passages of each query by BM25."""
        return self._hits(key, min(k, len(index)), lambda k: index.search(self.texts, k, exclude=self.own))

    def _hits(self, key: Any, k: int, search: Callable[[int], Hits]) -> Hits:
        """Hits as deep as asked, cut from deeper ones where there are any."""
        if self._from is not None:
            parent, rows = self._from
            known = parent._made.get(("hits", key))
            if known is not None and known.passages.shape[1] >= k:
                return Hits(known.passages[rows, :k], known.scores[rows, :k])
        known = self._made.get(("hits", key))
        if known is None or known.passages.shape[1] < k:
            known = self._made["hits", key] = search(k)
        return known.top(k)

    def paragraph_hits(self, index: PassageIndex | BM25Index, n_hits: int, key: Any) -> ParagraphHits:
        """The hits of every paragraph of the queries."""
        return self.once(("paragraphs", key, n_hits), lambda: self._searched(index, n_hits))

    def _searched(self, index: PassageIndex | BM25Index, n_hits: int) -> ParagraphHits:
        lexical = isinstance(index, BM25Index)
        given: Sequence[Any] = self.paragraphs if lexical else self.paragraph_vectors
        with self.stage("search query paragraphs (BM25)" if lexical else "search query paragraphs"):
            return ParagraphSearch(index, "rrf", n_hits=n_hits).search(given, exclude=self.own, query_ids=self.ids)

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """What ``make`` gives, made once for this batch."""
        if key not in self._made:
            self._made[key] = make()
        found: T = self._made[key]
        return found

    def run(self, ranker: Asking, depth: int) -> Run:
        """The ranker's run, ``depth`` documents a query; of equal rankers the one of the first that was asked."""
        return self._run("run", ranker, depth, ranker._rank)

    def out_of_fold(self, ranker: Asking, depth: int) -> Run:
        """The ranker's run of queries that it may have been trained on, as if it had not seen them."""
        if not ranker.needs_training:
            return self.run(ranker, depth)
        return self._run("out of fold", ranker, depth, ranker._out_of_fold)

    def _run(self, how: str, ranker: Asking, depth: int, rank: Callable[[Batch, int], Run]) -> Run:
        key = (how, ranker.key())
        if self._from is not None:
            known = self._from[0]._runs.get(key)
            if known is not None and known[0] >= depth:
                return known[1].take(self.ids).top(depth)
        known = self._runs.get(key)
        if known is None or known[0] < depth:
            deep = max(depth, self.least_depth)
            known = self._runs[key] = (deep, rank(self, deep))
        return known[1].top(depth)


class Training:
    """Judged queries that rankers are fitted on; equal rankers are fitted once.

    Parameters
    ----------
    engine : Engine
    queries : Queries
    relevant : list of list of str
        The ids of each query's relevant documents.
    """

    def __init__(self, engine: Engine, queries: Queries, relevant: list[list[str]]) -> None:
        self.batch = Batch(engine, queries, "train")
        self.relevant = relevant
        self._fitted: dict[Any, Any] = {}

    def __len__(self) -> int:
        return len(self.batch)

    @classmethod
    def of(cls, engine: Engine, queries: Asked | None = None, qrels: Frame | None = None) -> Training:
        """The judged queries of a split, or others with their qrels; by default ``"train"``, if there is one."""
        collection = engine.collection
        if qrels is None:
            if queries is None and "train" not in collection.splits:
                return cls(engine, collection.queries.take(np.empty(0, dtype=np.int64)), [])
            if queries is not None and not isinstance(queries, str):
                raise InputError("queries to learn from need their judgements: give qrels, or the name of a split")
            split = queries or "train"
            numbers = collection.split(split).queries
            return cls(engine, collection.queries.take(numbers), collection.relevant_ids(split))
        asked = queries_from(engine, collection.queries if queries is None else queries)
        judged = judgements(qrels).drop_duplicates()
        twice = judged[judged.duplicated(["query_id", "doc_id"])].to_dict("records")
        judged = judged[judged["relevance"] > 0]
        places = {query: place for place, query in enumerate(asked.ids.to_pylist())}
        unknown = next((query for query in judged["query_id"] if query not in places), None)
        if unknown is not None:
            raise InputError(f"qrels: unknown query id {unknown!r}")
        collection.document_numbers(list(dict.fromkeys(judged["doc_id"])))
        if twice:
            both = f"query {twice[0]['query_id']!r} and document {twice[0]['doc_id']!r}"
            raise InputError(f"qrels: {both} are judged twice, with different grades")
        relevant: list[list[str]] = [[] for _ in places]
        for query, document in zip(judged["query_id"], judged["doc_id"], strict=True):
            relevant[places[query]].append(document)
        if queries is None:  # of all there are, those that are judged
            rows = np.flatnonzero([len(ids) > 0 for ids in relevant])
            return cls(engine, asked.take(rows), [relevant[row] for row in rows])
        return cls(engine, asked, relevant)

    @cached_property
    def digest(self) -> str:
        """What was learned from: SHA-256 of query ids and relevant documents."""
        known = hashlib.sha256()
        for query, documents in zip(self.batch.ids, self.relevant, strict=True):
            known.update("\0".join([query, *documents, "\n"]).encode())
        return known.hexdigest()

    def fitted(self, ranker: R) -> R:
        """A fitted copy of the ranker; the ranker itself, if it was fitted so on the same judgements of this engine."""
        known = ranker.training_digest
        same = known is not None and known == self.digest and ranker.engine_ is self.batch.engine
        if same and ranker.fitted_key == ranker.key():
            return ranker
        copy = ranker.clone()
        key = copy.key()
        if key not in self._fitted:
            self._fitted[key] = copy._fit_on(self)
        found: R = self._fitted[key]
        return found


def index_of(engine: Engine, unit: str) -> PassageIndex:
    """The vectors of that unit."""
    return {"passage": lambda: engine.passages, "document": lambda: engine.documents}.get(
        unit, lambda: engine.first_passages
    )()


def numbered(run: Run, collection: Collection) -> tuple[Ints, Ints, Ints]:
    """``(query row, rank from 1, document)`` of all that is ranked, the documents being numbers of the collection."""
    rows, ranks, documents, table, _ = run.coded()
    if table is not collection.doc_ids and len(documents):
        used, place = np.unique(documents, return_inverse=True)
        documents = collection.document_numbers(table.take(pa.array(used)).to_pylist())[place]
    return rows, ranks, documents


# queries as they are given --------------------------------------------------------------------------------


def queries_from(engine: Engine, given: Asked) -> Queries:
    """Queries of any form; :class:`InputError` for an empty text, a query id twice, nothing at all.

    Parameters
    ----------
    given : Queries, mapping, sequence, frame, str or Path
        A mapping of query ids to a text or to the list of its paragraphs; a sequence of these, whose ids are then their
        places from 0; a frame with ``query_id``, ``text`` and, optionally, ``own``, a line of text being a paragraph;
        the name of a split; any other string is one text; a path is a file, see :func:`queries_from_file`.
    """
    collection = engine.collection
    if isinstance(given, Queries):
        return given
    if isinstance(given, Path):
        return queries_from_file(collection, given)
    if isinstance(given, str):
        if given in collection.splits:
            return collection.queries.take(collection.splits[given].queries)
        return queries_of(collection, ["0"], [given])
    if isinstance(given, Mapping):
        return queries_of(collection, list(given), list(given.values()))
    if hasattr(given, "columns") or isinstance(given, pd.DataFrame | pa.Table):
        return _queries_from_frame(collection, given)
    if isinstance(given, Sequence):
        return queries_of(collection, [str(place) for place in range(len(given))], list(given))
    raise InputError(
        f"queries: expected texts, a mapping of ids to texts, a frame, a split or a path, found {type(given).__name__}"
    )


def _queries_from_frame(collection: Collection, frame: Frame) -> Queries:
    library_of(frame)
    names = [name for name in ("own",) if name in column_names(frame)]
    found = to_pandas(frame, ["query_id", "text", *names], "queries")
    check_filled(found[["query_id", "text"]], "queries")
    own = [None if pd.isna(value) else str(value) for value in found["own"]] if names else None
    texts = [str(text).split("\n") for text in found["text"]]
    return queries_of(collection, list(found["query_id"]), texts, own)


def queries_from_file(collection: Collection, path: Path) -> Queries:
    """Queries of a file, plain or ``.gz``.

    ``.jsonl`` has objects with ``_id`` (or ``query_id``), ``text`` and, optionally, ``own``; a line of the text is a
    paragraph. ``.tsv`` has lines of an id and a text. Any other file is one text, whose paragraphs are separated by
    blank lines and whose id is the file's name without its ending.
    """
    kind = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    try:
        if kind == ".jsonl":
            return _queries_from_json(collection, path)
        if kind == ".tsv":
            rows = [columns for _, columns in read_tsv(path, 2, maxsplit=1)]
            return queries_of(collection, [row[0] for row in rows], [row[1] for row in rows], where=path)
        parts = [part.text for part in find_splitter("blank-lines")(read_text(path))]
    except OSError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: cannot read the queries: {error.strerror}") from error
    if not parts:
        raise FileFormatError(path, None, "the text is empty")
    return queries_of(collection, [path.stem], [parts])


def _queries_from_json(collection: Collection, path: Path) -> Queries:
    ids, texts, own = [], [], []
    for line, record in read_jsonl(path):
        name = "query_id" if "query_id" in record else "_id"
        ids.append(text_field(path, line, record, name))
        texts.append(text_field(path, line, record, "text").split("\n"))
        own.append(text_field(path, line, record, "own", default="") or None)
    return queries_of(collection, ids, texts, own, where=path)


def queries_of(
    collection: Collection,
    ids: Sequence[Any],
    texts: Sequence[Text],
    own: Sequence[str | None] | None = None,
    where: Path | None = None,
) -> Queries:
    """Queries from ids and texts, of which each is a string or a list of paragraphs.

    An own document that is not in the collection excludes nothing: it may have been removed.
    """
    prefix = "" if where is None else f"{where}: "
    if not len(ids):
        raise InputError(f"{prefix}no query")
    names = [_id(query_id) for query_id in ids]
    if len(set(names)) != len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise InputError(f"{prefix}duplicate query id {twice!r}")
    paragraphs: list[str] = []
    offsets = [0]
    for name, text in zip(names, texts, strict=True):
        given = text.as_py() if isinstance(text, pa.Scalar) else text
        parts = [given] if isinstance(given, str) else list(given) if isinstance(given, Iterable) else [given]
        if not all(isinstance(part, str) for part in parts):
            raise InputError(f"{prefix}query {name!r}: expected a text or a list of paragraphs, found {given!r}")
        kept = [part for part in parts if part.strip()]
        if not kept:
            raise InputError(f"{prefix}query {name!r} is empty")
        paragraphs += kept
        offsets.append(len(paragraphs))
    numbers = np.full(len(names), -1, dtype=np.int64)
    if own is not None:
        known = [place for place, doc_id in enumerate(own) if doc_id is not None]
        numbers[known] = collection.find_documents([own[place] for place in known])  # -1 excludes nothing
    columns = [pa.chunked_array([pa.array(values, type=pa.large_string())]) for values in (names, paragraphs)]
    return Queries(columns[0], columns[1], np.array(offsets, dtype=np.int64), numbers)


def _id(value: Any) -> str:
    """A query id as a string; pyarrow's scalars are what they hold."""
    value = value.as_py() if isinstance(value, pa.Scalar) else value
    if isinstance(value, str | int | np.integer) and not isinstance(value, bool) and str(value):
        return str(value)
    raise InputError(f"a query id is a string or a whole number, found {value!r}")
