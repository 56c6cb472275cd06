"""The base class of rankers, with the methods that callers use: fit, rank, explain, search and save."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from haybale.collections import Queries
from haybale.collections.queries import QueriesLike, queries_from
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.frames import Frame
from haybale.parameters import COUNT, check_parameters
from haybale.ranking.contract import RankerContract
from haybale.ranking.empty_rankings import warn_of_empty
from haybale.ranking.runs import runs_of
from haybale.ranking.saved_rankers import save
from haybale.ranking.training import Training
from haybale.registry import Registry, undefined_methods
from haybale.retrieval import Run
from haybale.retrieval.exclusion import Cutoffs
from haybale.retrieval.run import DEPTH
from haybale.returned_values import method_of, returned
from haybale.search.cutoffs import check_dated, cutoffs_of
from haybale.search.explanation import Explanation
from haybale.search.query_batch import QueryBatch
from haybale.search.results import SearchResults
from haybale.search.searching import search

_QUERIES_PER_BATCH = 16_384  # their runs and the kernel values of an ensemble fit into memory


class Variant(NamedTuple):
    """A class of rankers with some of its parameters set, registered under a name."""

    ranker: type[Ranker]
    parameters: dict[str, Any]


RANKERS: Registry[Variant] = Registry("ranker", "haybale.rankers")


class Ranker(RankerContract):
    """The base class of all rankers: subclass it to add one.

    A ranker is a small object configured by its constructor arguments, like a scikit-learn estimator. ``__init__`` only
    assigns them. Arguments may be rankers; ``*rankers`` takes any number of them. Fitting does not change the
    arguments: fitted copies of nested rankers are in ``rankers_``. The first n documents of a ranking never depend on
    its depth.

    A subclass has a ``name``, which registers it for ranker texts, the command line and :func:`haybale.load`. It
    defines

    - :meth:`rank_batch` and :meth:`explain_document`;
    - :meth:`fit_batch`, if it has to prepare anything before it can rank;
    - :meth:`out_of_fold_batch`, if it or a nested ranker learns from judged queries
      (:class:`~haybale.rankers.OutOfFold` is a mixin for rankers that learn);
    - :meth:`save_state` and :meth:`load_state`, if fitting computes anything that must be saved.

    It calls :meth:`run` and :meth:`explained` of the nested rankers in ``rankers_``. The other methods are for users.

    In another package, an entry point of the group ``haybale.rankers`` names the module of the subclass.

    Attributes
    ----------
    name : str
        Name of the class in ranker texts and in saved files.
    variants : dict of str to dict
        Names in ranker texts and tables, each with the parameters that it sets. Default: ``name`` without parameters.
    uses_vectors, learns_documents, obeys_cutoffs, models, outside_state
        What the ranker uses and does, which a subclass may set or define as properties.
    engine_ : Engine
        The engine that the ranker was fitted on. It ranks the documents that the engine has when a call begins.
    rankers_ : sequence of Ranker
        Fitted copies of the nested rankers, in the order of the parameters.
    query_ids_, twins_ : sequence of str, Twins
        Ids of the judged queries that the ranker learned from, of twins only one; and the ids of the other twins.
    """

    rankers_: Sequence[Ranker] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        """Register the ranker under its name and its variants; TypeError if the class lacks a method or a name."""
        super().__init_subclass__(**options)
        missing = undefined_methods(cls)
        if getattr(cls, "needs_training", None) is True and cls.out_of_fold_batch is Ranker.out_of_fold_batch:
            missing.append("out_of_fold_batch")
        if "name" in cls.__dict__:
            if missing:
                raise TypeError(
                    f"the ranker {cls.__name__} ({cls.name!r}) must define {', '.join(missing)}; add what is missing"
                )
            if "variants" not in cls.__dict__:
                cls.variants = {cls.name: {}}
            for name, parameters in {cls.name: {}, **cls.variants}.items():
                RANKERS.add(name, Variant(cls, parameters), cls)
        elif not missing and not hasattr(cls, "name"):
            raise TypeError(f'the ranker {cls.__name__} has no name: set the class attribute name, such as "recent"')

    def fit(
        self,
        engine: Engine,
        queries: QueriesLike | None = None,
        qrels: Frame | None = None,
        *,
        before: str | None = None,
    ) -> Self:
        """Fit on an engine; rankers that learn from judged queries are trained.

        Parameters
        ----------
        engine : Engine
            The engine whose documents are ranked.
        queries : str or queries, optional
            Training queries: the name of a split (default ``"train"``), or queries in any form that :meth:`rank` takes.
        qrels : frame, optional
            Judgements with columns ``query_id``, ``doc_id`` and ``relevance``. Required unless ``queries`` is a split;
            without ``queries``, all queries of the collection that it judges are used.
        before : str, optional
            The column of the metadata with the dates of documents, to rank with ``before``: training queries then find,
            and are judged on, earlier documents only. A warning counts queries and judgements that are left out.

        Raises
        ------
        InputError
            Before any work: for parameters out of range, and for a ranker that learns if no query has a relevant
            document.
        """
        self._check_params()
        if self.needs_training and qrels is None and queries is None and "train" not in engine.collection.splits:
            name, splits = engine.collection.name, ", ".join(engine.collection.splits)
            if not splits:
                raise InputError(
                    f"{self} needs judged queries, but {name!r} has none; add some with haybale judge, or use bm25"
                )
            raise InputError(
                f"{self} needs judged queries, but {name!r} has no split 'train'; "
                f"choose another split ({splits}), or give queries with qrels"
            )
        training = Training.of(engine, queries, qrels, before=before)
        if self.needs_training and not training.has_relevant:
            earlier = "" if before is None else " that is earlier than the query"
            raise InputError(
                f"{self} needs queries with a relevant document{earlier}, found none; give other queries or qrels"
            )
        if self.needs_training and any(training.left_out.values()):
            counts = ", ".join(f"{n:,} {what}" for what, n in training.left_out.items() if n)
            warnings.warn(f"before={before!r} leaves out {counts}; add dates to use them, too", stacklevel=2)
        return self._fit_on(training)

    def rank(
        self,
        queries: QueriesLike,
        *,
        depth: int = DEPTH,
        within: Sequence[str] | NDArray[np.bool_] | None = None,
        where: str | None = None,
        before: str | None = None,
    ) -> Run:
        """Return the best documents of each query.

        The ranking of a query does not depend on the other queries. Only with dense vectors may the last bits of its
        scores depend on how many queries are ranked at once. All queries of a call are ranked on the documents that the
        engine has when it begins; several threads may rank at once, while others change the engine.

        Parameters
        ----------
        queries : mapping, sequence, frame, str or Path
            ``{"q1": "a text", "q2": ["its first paragraph", "its second"]}``, or any other form that
            :func:`~haybale.rankers.queries_from` takes.
        depth : int, default 1000
            Largest number of documents for each query.
        within : sequence of str or (n_documents,) bool, optional
            Rank only these documents, given by id or as a mask.
        where : str, optional
            Rank only documents that fulfil this SQL condition on their metadata, such as ``"year >= 2015 and court =
            'BGH'"``; see :class:`~haybale.engine.document_filter.DocumentFilter`.
        before : str, optional
            The column of the metadata with the dates of documents: each query ranks only documents that are certainly
            earlier than itself, as with ``where`` and its own date. Documents without a date are not ranked. A query
            has the date that it was given (:func:`~haybale.rankers.queries_from`), or that of its own document.

        Raises
        ------
        InputError
            For an empty text, a repeated query id, an unknown document, a wrong condition or a query without a date,
            and if no document is left to rank.
        NotFittedError
            If the ranker has not been fitted.
        """
        self._check_fitted()
        check_parameters("rank", {"depth": depth}, {"depth": COUNT})
        parts = [self.run(part, depth) for part in batches_of(self, queries, within=within, where=where, before=before)]
        run = parts[0] if len(parts) == 1 else Run.joined(parts)
        warn_of_empty(run, self, dated=before is not None)
        return run

    def run(self, batch: QueryBatch, depth: int, *, out_of_fold: bool = False) -> Run:
        """Return the first ``depth`` documents of each query of a batch, which caches the run.

        With ``out_of_fold``, training queries are ranked as if the ranker had not seen them. This raises
        :class:`~haybale.InputError` for a query that an encoder behind the ranker was trained on, since no ranking by
        this encoder is unbiased; rankers with encoders of folds use one that was not trained on it.
        """
        return runs_of([self], batch, depth, out_of_fold=out_of_fold)[0]

    def out_of_fold(self, queries: QueriesLike = "train", *, depth: int = DEPTH, before: str | None = None) -> Run:
        """Rank like :meth:`rank`, but training queries as if the ranker had not seen them.

        Bags or folds that were trained without a query rank it, or its neighbours among the other training queries.

        Raises
        ------
        InputError
            For a query that an encoder behind the ranker was trained on, unless the ranker has an encoder of a fold
            that was not (see :class:`~haybale.InSpace` and :class:`~haybale.CrossEncoder`).
        """
        self._check_fitted()
        check_parameters("out_of_fold", {"depth": depth}, {"depth": COUNT})
        engine = self.engine_.snapshot()
        parsed = queries_from(engine.collection, queries)
        batch = QueryBatch(engine, parsed, "train", cutoffs=_cutoffs(engine, parsed, before))
        return self.run(batch, depth, out_of_fold=True)

    def explain(
        self,
        query: QueriesLike,
        doc_id: str,
        *,
        within: Sequence[str] | NDArray[np.bool_] | None = None,
        where: str | None = None,
        before: str | None = None,
    ) -> Explanation:
        """Explain a document's score for one query, down to the passages and judged queries that nested rankers use.

        ``within``, ``where`` and ``before`` are those of :meth:`rank`, because scores by ranks depend on them.
        """
        batches = list(batches_of(self, query, within=within, where=where, before=before))
        if (n_queries := sum(map(len, batches))) != 1:
            raise InputError(f"explain needs one query, found {n_queries}")
        document = int(batches[0].engine.collection.document_numbers([str(doc_id)])[0])
        return self.explained(batches[0], document)

    def search(
        self, text: str | Sequence[str], k: int = 10, where: str | None = None, *, together: str | None = None
    ) -> SearchResults:
        """Return the best documents for one text with their best passages, what carried the score marked in them.

        The documents are those of :meth:`rank`. Highlights are terms for BM25 and TF-IDF, and the sentence nearest to
        the query for other vectors; for fused and learned rankers, whichever carried more of the score in a passage.

        Parameters
        ----------
        text : str or sequence of str
            The query, or its paragraphs. A phrase in quotation marks must occur in one passage of each document: all
            its words next to each other, also stop words, single letters and digits, and signs such as §. Inflections
            make no difference. If nothing of the query is a term, as in ``"§ 5"``, a document's score is the number of
            its passages that have the phrase.
        k : int, default 10
            Largest number of documents, or of groups with ``together``.
        where : str, optional
            Search only documents that fulfil this SQL condition on their metadata, as in :meth:`rank`; there may be
            none.
        together : str, optional
            Return documents that belong together after each other: those with one value of this column of the metadata,
            such as ``"thread"`` for the mails of a thread with what was attached to them, or ``"parent"`` for a mail
            with its attachments. ``"copies"`` makes one hit of the copies of a document: of one record by the rules of
            :meth:`Engine.duplicates`, or of nearly the same text. Groups are in the order of their best documents, and
            each has at most its five best, of copies the first; ``groups`` of the results has the ids and ranks of all.
            Default: the order of the ranks.

        Raises
        ------
        InputError
            For an empty text, a phrase without a word, number or sign, a wrong condition or column.
        NotFittedError
            If the ranker has not been fitted.
        """
        return search(self, text, k, where, together=together)

    def explained(self, batch: QueryBatch, document: int) -> Explanation:
        """Explain the score of a document, given by its number, for the only query of a batch."""
        doc_id = str(batch.engine.collection.doc_ids[document].as_py())
        if batch.cutoffs is not None and not (self.obeys_cutoffs or batch.cutoffs.hide_nothing):
            [(_, earlier)] = batch.before_cutoffs()
            number = -1 if earlier is None else int(earlier.engine.collection.find_documents([doc_id])[0])
            if earlier is not None and number >= 0:
                return self.explained(earlier, number)
            return Explanation(str(self), batch.ids[0], doc_id, None, None)
        rank, score = ranks_and_scores(self, batch, DEPTH).get(doc_id, (None, None))
        encoder = batch.engine.encoder if self.uses_vectors else None
        text = batch.once(("text", self._cache_key()), lambda: str(self))
        base = Explanation(text, batch.ids[0], doc_id, score, rank, matcher=encoder)
        if rank is None:
            return base
        explanation = self.explain_document(batch, document, base)
        advice = "return dataclasses.replace(base, shares=…)"
        return returned(explanation, Explanation, method_of(self, "explain_document"), advice)

    def save(self, folder: str | Path) -> None:
        """Write the fitted ranker, without its engine, to a new folder, which appears only when it is complete.

        :func:`haybale.load` loads it in any process that has the engine. The folder holds JSON, safetensors and Parquet
        files:

            ranker.json        format, version, the ranker as plain values, its engine, SHA-256 of every other file
            fitted/0/ …        what each ranker learned, nested rankers first; a shared ranker is saved once

        Raises
        ------
        OutputExistsError, NotFittedError
            If the folder is not empty, or if the ranker has not been fitted.
        """
        save(self, folder)


def batches_of(
    ranker: RankerContract,
    queries: QueriesLike,
    *,
    within: Sequence[str] | NDArray[np.bool_] | None = None,
    where: str | None = None,
    before: str | None = None,
    engine: Engine | None = None,
) -> Iterator[QueryBatch]:
    """Yield the queries of :meth:`Ranker.rank` in batches of some thousands.

    ``ranker.explained(batch.take(row), …)`` repeats no search of ``ranker.run(batch, depth)``. ``engine`` is the
    snapshot of the ranker's engine to search, of which ``Queries`` have document numbers; by default a new one.
    """
    ranker._check_fitted()
    engine = (engine or ranker.engine_).snapshot()
    parsed = queries_from(engine.collection, queries)
    ranker._check_answers(parsed)
    if within is not None or where is not None:
        engine = engine.within(within, where=where)
        parsed = replace(parsed, own=engine.numbers_within(parsed.own))
    cutoffs = _cutoffs(engine, parsed, before)

    def batch_at(start: int) -> QueryBatch:
        rows = np.arange(start, min(start + _QUERIES_PER_BATCH, len(parsed)))
        return QueryBatch(engine, parsed.take(rows), cutoffs=None if cutoffs is None else cutoffs.take(rows))

    return map(batch_at, range(0, len(parsed), _QUERIES_PER_BATCH))


def _cutoffs(engine: Engine, queries: Queries, before: str | None) -> Cutoffs | None:
    """Return the cutoffs of queries, None without ``before``; raise InputError for a query without a date."""
    if before is None:
        return None
    cutoffs = cutoffs_of(engine.collection, queries, before)
    check_dated(queries, cutoffs)
    return cutoffs


def ranks_and_scores(ranker: Ranker, batch: QueryBatch, depth: int) -> Mapping[str, tuple[int, float]]:
    """Return the rank, from 1, and the score of each document that a ranker finds for a batch of one query."""
    return batch.once(
        ("places", ranker._cache_key(), depth),
        lambda: {doc: (n, score) for n, (doc, score) in enumerate(ranker.run(batch, depth)[batch.ids[0]], 1)},
    )
