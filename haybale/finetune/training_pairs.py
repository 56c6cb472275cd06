"""Make pairs of paragraphs for training an encoder, from judgements of documents or of passages."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy import sparse

from haybale.collections.collection import take_strings
from haybale.collections.ids import in_order_of_ids
from haybale.collections.queries import QueriesLike
from haybale.device import to_numpy
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.finetune.same_texts import SameTexts
from haybale.frames import Frame, check_filled, column_names, to_pandas
from haybale.parameters import COUNT, COUNT_OR_NONE, FROM_0, RANDOM_STATE, TEXT_OR_NONE, check_parameters, one_of
from haybale.progress import track
from haybale.rankers import Training
from haybale.retrieval.hits import Ints
from haybale.timing import timed
from haybale.vectors import Floats

NEGATIVES = ("none", "random", "bm25", "vectors")
PAIRING = {
    "per_paragraph": COUNT_OR_NONE,
    "per_document": COUNT_OR_NONE,
    "match": one_of(["bm25", "vectors"]),
    "marker": TEXT_OR_NONE,
    "negatives": one_of(NEGATIVES),
    "n_negatives": COUNT,
    "skip": FROM_0,
    "n_pairs": COUNT_OR_NONE,
}
_CONSTRAINTS = PAIRING | {"random_state": RANDOM_STATE}
_MAX_REPEATED_HITS = 1000  # hits that repeat texts of forbidden documents in other documents
_HITS_PER_PARAGRAPH = 50  # the first hits of a paragraph, from which its hard negatives are drawn


def training_pairs(
    engine: Engine,
    queries: QueriesLike | None = None,
    qrels: Frame | None = None,
    *,
    per_paragraph: int | None = 20,
    per_document: int | None = None,
    match: str = "bm25",
    marker: str | None = None,
    negatives: str = "random",
    n_negatives: int = 1,
    skip: int = 0,
    n_pairs: int | None = None,
    random_state: int | None = 0,
) -> pa.Table:
    """Make training pairs: a paragraph of a query with a passage that should be close to it, and ones that should not.

    Althammer et al., "PARM", ECIR 2022, section 3.3. Passages that are judged relevant are used as they are. If
    documents are judged, the relevant passages in them are unknown, so each paragraph of the query is paired with the
    passages that match it best.

    A negative never comes from the document that the query was taken from, nor from a document that is relevant to any
    query taken from that document; nor does its text stand in such a document.

    Parameters
    ----------
    engine : Engine
        The engine with the passages.
    queries, qrels : optional
        Judged queries, as in a ranker's ``fit``. If ``qrels`` has a column ``passage_id`` instead of ``doc_id``, the
        judged passages are paired with all paragraphs of the query.
    per_paragraph : int or None, default 20
        The number of passages of each relevant document that are paired with a paragraph; None: all.
    per_document : int, optional
        The number of these pairs to keep for each relevant document, best matches first; default: all.
    match : {"bm25", "vectors"}, default "bm25"
        The score that matches a paragraph with passages: BM25, or the cosine of the engine's vectors.
    marker : str, optional
        A text such as ``"[?CITATION?]"``. If paragraphs of a query contain it, only those are used.
    negatives : {"none", "random", "bm25", "vectors"}, default "random"
        Where negatives are drawn from: random documents, or the first 50 hits of the paragraph by BM25 or by the
        engine's vectors. Random passages replace missing hits.
    n_negatives : int, default 1
        The number of negatives of each pair.
    skip : int, default 0
        The number of first hits that are not used as negatives, since they are often relevant but not judged.
    n_pairs : int, optional
        The largest number of pairs, drawn evenly from the query documents; default: all.
    random_state : int, default 0
        Seed of the sampled pairs and negatives.

    Returns
    -------
    pa.Table
        The texts ``anchor``, ``positive`` and ``negative`` (or ``negative_1``, ``negative_2``, …); ``query_id``;
        ``group``, the number of the query document; ``documents``, those of the positive and the negatives, then other
        judged documents with their texts; and ``forbidden``, the documents that must not provide negatives for this
        row, also within a batch.

    Raises
    ------
    InputError
        No query has a relevant document other than its own; a query has no paragraph; nothing matches; or no document
        is left for negatives.
    """
    parameters = {name: value for name, value in locals().items() if name in _CONSTRAINTS}
    check_parameters("training_pairs", parameters, _CONSTRAINTS)
    engine = engine.snapshot()
    judged = JudgedQueries.of(engine, queries, qrels)
    rng = np.random.default_rng(random_state)
    with timed("match paragraphs"):
        pairs = _matched(engine, judged, per_paragraph, per_document, match, marker)
    if not len(pairs):
        raise InputError(f"no paragraph matches a passage of a relevant document by match={match!r}; try another match")
    if n_pairs is not None:
        pairs = pairs[_evenly(judged.groups[pairs["query"]], n_pairs, rng)]
    names = [] if negatives == "none" else [f"negative_{i}" for i in range(1, n_negatives + 1)]
    with timed("find negatives"):
        same = SameTexts(engine.collection.passages, set().union(*judged.forbidden))
        drawn = _negatives(engine, judged, pairs, len(names), negatives, skip, rng, same)
    texts, passages = engine.collection.passages.texts, engine.collection.passages
    anchors = judged.training.batch.queries.paragraphs
    doc_ids = np.array(engine.collection.doc_ids.to_pylist(), dtype=object)
    used = np.column_stack([pairs["passage"], drawn])
    documents = doc_ids[passages.doc_of[used]].tolist()
    for row in np.flatnonzero((same.counts[same.of[used]] > 1).any(axis=1)).tolist():
        others = doc_ids[same.documents_with(used[row])].tolist()
        documents[row] += sorted(doc_id for doc_id in others if doc_id not in documents[row])
    forbidden = [sorted(doc_ids[list(numbers)]) for numbers in judged.forbidden]
    columns: dict[str, Any] = {
        "anchor": take_strings(anchors, pairs["paragraph"]),
        "positive": take_strings(texts, pairs["passage"]),
        **{name: take_strings(texts, drawn[:, i]) for i, name in enumerate(names)},
        "query_id": [judged.training.batch.ids[query] for query in pairs["query"]],
        "group": judged.groups[pairs["query"]],
        "documents": documents,
        "forbidden": [forbidden[query] for query in pairs["query"]],
    }
    if len(names) == 1:
        columns = {("negative" if name == names[0] else name): value for name, value in columns.items()}
    text = pa.large_string()
    types = {"group": pa.int64(), **dict.fromkeys(("documents", "forbidden"), pa.list_(text))}
    schema = pa.schema([(name, types.get(name, text)) for name in columns])
    return pa.table(columns, schema.with_metadata({"haybale": json.dumps(parameters)}))


_PAIR = np.dtype([("query", np.int64), ("paragraph", np.int64), ("passage", np.int64)])
Pairs = np.ndarray[Any, np.dtype[np.void]]  # structured arrays of _PAIR; queries are rows of the judged queries


@dataclass(frozen=True)
class JudgedQueries:
    """Judged queries, with documents and passages as numbers."""

    training: Training
    groups: Ints  # (n,) the number of the document that each query was taken from
    relevant: list[Ints]  # the relevant documents of each query, without its own document
    passages: list[Ints] | None  # the relevant passages of each query, if passages were judged
    forbidden: list[set[int]]  # the documents that must not provide negatives for each query

    @classmethod
    def of(cls, engine: Engine, queries: QueriesLike | None, qrels: Frame | None) -> JudgedQueries:
        """Read judged queries; raise :class:`InputError` if there is nothing to train on."""
        collection, passages = engine.collection, None
        if qrels is not None and "passage_id" in column_names(qrels):
            labels = to_pandas(qrels, ["query_id", "passage_id", "relevance"], "qrels")
            check_filled(labels, "qrels")
            labels = labels[labels["relevance"] > 0].drop_duplicates(["query_id", "passage_id"])
            numbers = collection.passage_numbers(labels["passage_id"])
            doc_ids = np.array(take_strings(collection.doc_ids, collection.passages.doc_of[numbers]), dtype=object)
            qrels = labels[["query_id"]].assign(doc_id=doc_ids, relevance=1).drop_duplicates()
            passages = labels.assign(passage=numbers).groupby("query_id", sort=False)["passage"].agg(list).to_dict()
        training = Training.of(engine, queries, qrels)
        judged = training.batch.queries
        if empty := [training.batch.ids[row] for row in np.flatnonzero(np.diff(judged.offsets) == 0)]:
            raise InputError(f"query {empty[0]!r} has no paragraph ({len(empty)} queries have none); remove them")
        all_relevant = [collection.document_numbers(sorted(ids)) for ids in training.relevant]
        relevant = [numbers[numbers != document] for numbers, document in zip(all_relevant, judged.own, strict=True)]
        if not any(map(len, relevant)):
            raise InputError(
                f"training needs a query with a relevant document besides its own, but none of {len(judged)} has one"
            )
        groups = training.batch.groups
        of_group: dict[int, set[int]] = {}
        for group, numbers, document in zip(groups.tolist(), all_relevant, judged.own.tolist(), strict=True):
            of_group.setdefault(group, set()).update(numbers.tolist(), [document] if document >= 0 else [])
        forbidden = [of_group[group] for group in groups.tolist()]
        relevant_passages = None
        if passages is not None:
            of_query: dict[str, dict[int, None]] = {query: {} for query in training.batch.ids}
            for query, chosen in passages.items():
                of_query.get(training.twins.representative(str(query)), {}).update(dict.fromkeys(chosen))
            relevant_passages = [np.array(list(chosen), dtype=np.int64) for chosen in of_query.values()]
        return cls(training, groups, relevant, relevant_passages, forbidden)


def _matched(
    engine: Engine,
    judged: JudgedQueries,
    per_paragraph: int | None,
    per_document: int | None,
    match: str,
    marker: str | None,
) -> Pairs:
    """Return the pairs of paragraphs and passages, for each relevant document in descending order of the match."""
    batch, offsets = judged.training.batch, engine.collection.passages.doc_offsets
    pairs: list[tuple[int, int, int]] = []
    for query in track(range(len(batch)), "matching paragraphs"):
        paragraphs = np.arange(len(batch.paragraphs[query]))
        if marker is not None:
            marked = [i for i, text in enumerate(batch.paragraphs[query]) if marker in text]
            paragraphs = np.array(marked or paragraphs)
        first = int(batch.queries.offsets[query] - batch.queries.offsets[0])
        if judged.passages is not None:
            pairs += [
                (query, first + i, int(passage)) for passage in judged.passages[query] for i in paragraphs.tolist()
            ]
            continue
        if not len(judged.relevant[query]):
            continue
        texts = [batch.paragraphs[query][i] for i in paragraphs.tolist()]
        is_bm25 = match == "bm25"
        inputs: Any = engine.bm25().analysed(texts) if is_bm25 else batch.paragraph_vectors[query][paragraphs]
        index = engine.bm25() if is_bm25 else engine.passages
        for document in judged.relevant[query].tolist():
            scores: Floats = np.asarray(to_numpy(index.similarities(inputs, document)))
            best = np.argsort(-scores, axis=1, kind="stable")[:, :per_paragraph]
            rows = np.repeat(np.arange(len(paragraphs)), best.shape[1])
            columns = best.ravel()
            values = scores[rows, columns]
            order = np.argsort(-values, kind="stable")
            order = order[values[order] > 0][:per_document]
            pairs += [
                (query, first + int(paragraphs[rows[i]]), int(offsets[document]) + int(columns[i])) for i in order
            ]
    return np.array(pairs, dtype=_PAIR)


def _evenly(groups: Ints, n: int, rng: np.random.Generator) -> Ints:
    """Draw at most ``n`` rows from the groups in turn, and return them in ascending order."""
    order = rng.permutation(len(groups))
    turn = pd.Series(order).groupby(groups[order]).cumcount().to_numpy()
    return np.sort(order[np.argsort(turn, kind="stable")][:n])


def _negatives(
    engine: Engine,
    judged: JudgedQueries,
    pairs: Pairs,
    n: int,
    kind: str,
    skip: int,
    rng: np.random.Generator,
    same: SameTexts,
) -> Ints:
    """Draw the negatives of each pair: passage numbers (pairs, n), which do not depend on the order of documents."""
    passages, batch = engine.collection.passages, judged.training.batch
    not_empty, _ = in_order_of_ids(engine.collection.doc_ids, np.flatnonzero(np.diff(passages.doc_offsets) > 0))
    drawn = np.empty((len(pairs), n), dtype=np.int64)
    if not n:
        return drawn
    texts = passages.texts
    hard = _hard_negatives(engine, judged, pairs, kind, skip, same) if kind in ("bm25", "vectors") else {}
    allowed, barred = {}, {}
    for query in np.unique(pairs["query"]).tolist():
        allowed[query] = not_empty[~np.isin(not_empty, list(judged.forbidden[query]))]
        barred[query] = set(same.in_documents(judged.forbidden[query]).tolist())
        if not len(allowed[query]):
            raise InputError(
                f"query {batch.ids[query]!r}: no document is left for negatives, all are relevant or its own; "
                "use negatives='none'"
            )
    for row, (query, paragraph, positive) in enumerate(track(pairs.tolist(), "drawing negatives", len(pairs))):
        anchor, used = batch.queries.paragraphs[paragraph].as_py(), {int(same.of[positive])}
        hits = rng.permutation(hard.get(paragraph, np.empty(0, dtype=np.int64))).tolist()
        chosen: list[int] = []
        for attempt in range(len(hits) + 100 * n):  # bounded, since few passages may have texts of their own
            if len(chosen) == n:
                break
            if attempt < len(hits):
                other = hits[attempt]
            else:
                document = int(rng.choice(allowed[query]))
                other = int(rng.integers(*passages.doc_offsets[document : document + 2]))
            text = int(same.of[other])
            if text not in used and text not in barred[query] and texts[other].as_py() != anchor:
                chosen.append(other)
                used.add(text)
        if len(chosen) < n:
            raise InputError(f"query {batch.ids[query]!r} needs {n} different negatives, but has {len(chosen)}")
        drawn[row] = chosen
    return drawn


def _hard_negatives(
    engine: Engine, judged: JudgedQueries, pairs: Pairs, kind: str, skip: int, same: SameTexts
) -> dict[int, Ints]:
    """Return the first hits of each paragraph, without texts that stand in forbidden documents."""
    passages, batch = engine.collection.passages, judged.training.batch
    paragraphs, first = np.unique(pairs["paragraph"], return_index=True)
    queries = pairs["query"][first]
    barred = {query: same.in_documents(judged.forbidden[query]) for query in np.unique(queries).tolist()}
    lengths = np.diff(passages.doc_offsets)
    n_forbidden = max(int(lengths[list(judged.forbidden[query])].sum()) for query in barred)
    n_forbidden += min(
        _MAX_REPEATED_HITS, max(int(same.counts[texts].sum()) for texts in barred.values()) - n_forbidden
    )
    k = min(passages.doc_offsets[-1], skip + _HITS_PER_PARAGRAPH + n_forbidden)
    if kind == "bm25":
        hit_passages = engine.bm25().search(take_strings(batch.queries.paragraphs, paragraphs), int(k)).passages
    else:
        offsets = batch.queries.offsets - batch.queries.offsets[0]
        rows = [batch.paragraph_vectors[q][p - offsets[q]] for q, p in zip(queries, paragraphs, strict=True)]
        vectors: Any = sparse.vstack(rows, format="csr") if sparse.issparse(rows[0]) else np.stack(rows)
        hit_passages = engine.passages.search(vectors, int(k)).to_numpy().passages
    hits = {}
    for paragraph, query, row in zip(paragraphs.tolist(), queries.tolist(), hit_passages, strict=True):
        row = row[row >= 0]
        row = row[~np.isin(same.of[row], barred[query])]
        hits[paragraph] = row[skip : skip + _HITS_PER_PARAGRAPH]
    return hits
