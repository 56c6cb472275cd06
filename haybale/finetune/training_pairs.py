"""Pairs of paragraphs to train an encoder on, from judgements: of passages, or of documents as collections are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from haybale.collections.collection import take_strings
from haybale.collections.queries import QueriesLike
from haybale.device import to_numpy
from haybale.engine import Engine
from haybale.errors import InputError
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
_DEPTH = 50  # hits of a paragraph that its hard negatives are drawn from


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
    """Paragraphs of query documents with passages that they shall be near to, and with others that they shall not.

    Althammer et al., "PARM", ECIR 2022, section 3.3. Labels of passages are taken as they are. Of a document that is
    judged relevant to a query nobody knows which passages made it so: each paragraph of the query goes with those that
    BM25 finds the best match for it.

    Never is a negative of a document that is relevant to the query, or to another query that was taken from the same
    document, nor of that document.

    Parameters
    ----------
    engine : Engine
    queries, qrels : optional
        Judged queries, as a ranker's ``fit`` takes them. ``qrels`` may have ``passage_id`` in place of ``doc_id``:
        labels of passages, of all paragraphs of the query.
    per_paragraph : int or None, default 20
        Passages of each relevant document that go with each paragraph of a query; None: all.
    per_document : int, optional
        Of these, the best matches of each relevant document; default: all.
    match : {"bm25", "vectors"}, default "bm25"
        What measures a match of a paragraph and a passage: BM25, or the cosine in the engine's space.
    marker : str, optional
        Where paragraphs of a query have this text, as one that cites has ``"[?CITATION?]"``, only these are taken.
    negatives : {"none", "random", "bm25", "vectors"}, default "random"
        A passage of a random document, or of the first 50 that BM25 or the engine's space (that of the encoder to be
        trained, if the engine has it) finds for the paragraph. Where hits are too few, random ones fill up.
    n_negatives : int, default 1
        Of each pair.
    skip : int, default 0
        Hits that are passed over, since the very first are often relevant though nobody judged them.
    n_pairs : int, optional
        At most so many: of each query document as many as of any other, as far as it has them.
    random_state : int, default 0

    Returns
    -------
    pa.Table
        ``anchor``, ``positive`` and, as there are, ``negative`` or ``negative_1`` … are texts; ``query_id``; ``group``,
        the number of the query document; ``documents``, of the positive and the negatives; ``forbidden``, the documents
        that are no negative of this row, in a batch as well.

    Raises
    ------
    InputError
        No judged pair; no query with a relevant document besides its own; a query without a paragraph; no document left
        for negatives.
    """
    parameters = {name: value for name, value in locals().items() if name in _CONSTRAINTS}
    check_parameters("training_pairs", parameters, _CONSTRAINTS)
    judged = Judged.of(engine, queries, qrels)
    rng = np.random.default_rng(random_state)
    with timed("match paragraphs"):
        pairs = _matched(engine, judged, per_paragraph, per_document, match, marker)
    if not len(pairs):
        raise InputError("no paragraph of a query has a term in common with a passage of its relevant documents")
    if n_pairs is not None:
        pairs = pairs[_evenly(judged.groups[pairs["query"]], n_pairs, rng)]
    names = [] if negatives == "none" else [f"negative_{i}" for i in range(1, n_negatives + 1)]
    with timed("find negatives"):
        drawn = _negatives(engine, judged, pairs, len(names), negatives, skip, rng)
    texts, passages = engine.collection.passages.texts, engine.collection.passages
    anchors = judged.training.batch.queries.paragraphs
    doc_ids = np.array(engine.collection.doc_ids.to_pylist(), dtype=object)
    of_row = doc_ids[passages.doc_of[np.column_stack([pairs["passage"], drawn])]]
    forbidden = [sorted(doc_ids[list(each)]) for each in judged.forbidden]
    columns: dict[str, Any] = {
        "anchor": take_strings(anchors, pairs["paragraph"]),
        "positive": take_strings(texts, pairs["passage"]),
        **{name: take_strings(texts, drawn[:, i]) for i, name in enumerate(names)},
        "query_id": [judged.training.batch.ids[query] for query in pairs["query"]],
        "group": judged.groups[pairs["query"]],
        "documents": of_row.tolist(),
        "forbidden": [forbidden[query] for query in pairs["query"]],
    }
    if len(names) == 1:
        columns = {("negative" if name == names[0] else name): value for name, value in columns.items()}
    text = pa.large_string()
    types = {"group": pa.int64(), **dict.fromkeys(("documents", "forbidden"), pa.list_(text))}
    schema = pa.schema([(name, types.get(name, text)) for name in columns])
    return pa.table(columns, schema.with_metadata({"haybale": json.dumps(parameters)}))


_PAIR = np.dtype([("query", np.int64), ("paragraph", np.int64), ("passage", np.int64)])
Pairs = np.ndarray[Any, np.dtype[np.void]]  # of _PAIR: rows of the judged queries, and numbers of what goes together


@dataclass(frozen=True)
class Judged:
    """Judged queries by number."""

    training: Training
    groups: Ints  # (n,) queries of one document have one number
    relevant: list[Ints]  # the relevant documents of each query, but for its own
    passages: list[Ints] | None  # the relevant passages, where these were judged
    forbidden: list[set[int]]  # the documents whose passages are no negative

    @classmethod
    def of(cls, engine: Engine, queries: QueriesLike | None, qrels: Frame | None) -> Judged:
        collection, passages = engine.collection, None
        if qrels is not None and "passage_id" in column_names(qrels):
            labels = to_pandas(qrels, ["query_id", "passage_id", "relevance"], "qrels")
            check_filled(labels, "qrels")
            labels = labels[labels["relevance"] > 0].drop_duplicates(["query_id", "passage_id"])
            numbers = collection.passage_numbers(labels["passage_id"])
            of = collection.passages.doc_of[numbers]
            labels = pd.DataFrame(
                {
                    "query_id": labels["query_id"].to_numpy(),
                    "doc_id": np.array(take_strings(collection.doc_ids, of), dtype=object),
                    "relevance": 1,
                    "passage": numbers,
                }
            )
            qrels = labels.drop(columns="passage").drop_duplicates()
            passages = labels.groupby("query_id", sort=False)["passage"].agg(list).to_dict()
        training = Training.of(engine, queries, qrels)
        asked = training.batch.queries
        if empty := [training.batch.ids[row] for row in np.flatnonzero(np.diff(asked.offsets) == 0)]:
            raise InputError(f"query {empty[0]!r} has no paragraph ({len(empty)} have none)")
        known = [collection.document_numbers(found) for found in training.relevant]
        if not any(map(len, known)):
            raise InputError("no query has a relevant document: there is nothing to train on")
        relevant = [found[found != own] for found, own in zip(known, asked.own, strict=True)]
        if not any(map(len, relevant)):
            raise InputError("every query has only its own document relevant: there is nothing to train on")
        groups = asked.groups
        of_group: dict[int, set[int]] = {}
        for group, found, own in zip(groups.tolist(), known, asked.own.tolist(), strict=True):
            of_group.setdefault(group, set()).update(found.tolist(), [own] if own >= 0 else [])
        forbidden = [of_group[group] for group in groups.tolist()]
        judged = (
            None
            if passages is None
            else [np.array(passages.get(query, []), dtype=np.int64) for query in training.batch.ids]
        )
        return cls(training, groups, relevant, judged, forbidden)


def _matched(
    engine: Engine, judged: Judged, per_paragraph: int | None, per_document: int | None, match: str, marker: str | None
) -> Pairs:
    """Paragraphs with the passages of relevant documents, the best matches of each first."""
    batch, offsets = judged.training.batch, engine.collection.passages.doc_offsets
    found: list[tuple[int, int, int]] = []
    for query in track(range(len(batch)), "matching paragraphs"):
        paragraphs = np.arange(len(batch.paragraphs[query]))
        if marker is not None:
            marked = [i for i, text in enumerate(batch.paragraphs[query]) if marker in text]
            paragraphs = np.array(marked or paragraphs)
        first = int(batch.queries.offsets[query] - batch.queries.offsets[0])
        if judged.passages is not None:
            found += [(query, first + i, int(each)) for each in judged.passages[query] for i in paragraphs.tolist()]
            continue
        asked: Any = [batch.paragraphs[query][i] for i in paragraphs.tolist()] if match == "bm25" else None
        if len(judged.relevant[query]):
            asked = engine.bm25().analysed(asked) if match == "bm25" else batch.paragraph_vectors[query][paragraphs]
        for document in judged.relevant[query].tolist():
            index = engine.bm25() if match == "bm25" else engine.passages
            scores: Floats = np.asarray(to_numpy(index.similarities(asked, document)))
            best = np.argsort(-scores, axis=1, kind="stable")[:, :per_paragraph]
            rows = np.repeat(np.arange(len(paragraphs)), best.shape[1])
            columns = best.ravel()
            values = scores[rows, columns]
            order = np.argsort(-values, kind="stable")
            order = order[values[order] > 0][:per_document]
            found += [
                (query, first + int(paragraphs[rows[i]]), int(offsets[document]) + int(columns[i])) for i in order
            ]
    return np.array(found, dtype=_PAIR)


def _evenly(groups: Ints, n: int, rng: np.random.Generator) -> Ints:
    """Rows, ``n`` at most, drawn from the groups in turn."""
    order = rng.permutation(len(groups))
    turn = pd.Series(order).groupby(groups[order]).cumcount().to_numpy()
    return np.sort(order[np.argsort(turn, kind="stable")][:n])


def _negatives(
    engine: Engine, judged: Judged, pairs: Pairs, n: int, kind: str, skip: int, rng: np.random.Generator
) -> Ints:
    """(pairs, n) passages."""
    passages, batch = engine.collection.passages, judged.training.batch
    full = np.flatnonzero(np.diff(passages.doc_offsets) > 0)
    drawn = np.empty((len(pairs), n), dtype=np.int64)
    if not n:
        return drawn
    texts = passages.texts
    hard = _hits(engine, judged, pairs, kind, skip) if kind in ("bm25", "vectors") else {}
    open_to = {}
    for query in np.unique(pairs["query"]).tolist():
        open_to[query] = np.setdiff1d(full, list(judged.forbidden[query]))
        if not len(open_to[query]):
            raise InputError(
                f"query {batch.ids[query]!r}: every document is relevant or its own; there is none for negatives"
            )
    for row, (query, paragraph, positive) in enumerate(track(pairs.tolist(), "drawing negatives", len(pairs))):
        alike = {texts[positive].as_py(), batch.queries.paragraphs[paragraph].as_py()}
        near = hard.get(paragraph, np.empty(0, dtype=np.int64))
        chosen = [each for each in rng.permutation(near).tolist() if texts[each].as_py() not in alike][:n]
        for _ in range(100 * n):  # a collection may be full of one text
            if len(chosen) == n:
                break
            document = int(rng.choice(open_to[query]))
            other = int(rng.integers(*passages.doc_offsets[document : document + 2]))
            if other not in chosen and texts[other].as_py() not in alike:
                chosen.append(other)
        if len(chosen) < n:
            raise InputError(f"query {batch.ids[query]!r}: found {len(chosen)} of {n} different negatives")
        drawn[row] = chosen
    return drawn


def _hits(engine: Engine, judged: Judged, pairs: Pairs, kind: str, skip: int) -> dict[int, Ints]:
    """The passages that each paragraph finds, without those of forbidden documents."""
    passages, batch = engine.collection.passages, judged.training.batch
    asked, first = np.unique(pairs["paragraph"], return_index=True)
    queries = pairs["query"][first]
    lengths = np.diff(passages.doc_offsets)
    hidden = max(int(lengths[list(judged.forbidden[query])].sum()) for query in np.unique(queries).tolist())
    k = min(passages.doc_offsets[-1], skip + _DEPTH + hidden)
    if kind == "bm25":
        found = engine.bm25().search(take_strings(batch.queries.paragraphs, asked), int(k)).passages
    else:
        offsets = batch.queries.offsets - batch.queries.offsets[0]
        vectors = _stacked([batch.paragraph_vectors[q][p - offsets[q]] for q, p in zip(queries, asked, strict=True)])
        found = engine.passages.search(vectors, int(k)).to_numpy().passages
    hits = {}
    for paragraph, query, row in zip(asked.tolist(), queries.tolist(), found, strict=True):
        there = row[row >= 0]
        allowed = there[~np.isin(passages.doc_of[there], list(judged.forbidden[query]))]
        hits[paragraph] = allowed[skip : skip + _DEPTH]
    return hits


def _stacked(rows: Sequence[Any]) -> Any:
    from scipy import sparse

    return sparse.vstack(rows, format="csr") if sparse.issparse(rows[0]) else np.stack(rows)
