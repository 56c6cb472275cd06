"""Documents that stand near those of another ranking, in the order of the collection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar

import numpy as np

from haybale.parameters import COUNT, POSITIVE
from haybale.ranking.ranker import Ranker
from haybale.retrieval import Run
from haybale.search.explanation import Explanation, Share, by_size
from haybale.search.query_batch import QueryBatch

_REACH = 5  # the farthest document that counts, as a multiple of the distance at which a score has fallen to 1 / e


@dataclass(eq=False, repr=False)
class NearbyDocuments(Ranker):
    """Rank documents by how near they stand to documents of another ranking, in the order of the collection.

    score(d) = Σ score(d') · exp(−n / distance), over the first ``n_ranked`` documents d' of the other ranking that have
    a positive score; n ≥ 1 is the number of places from d to d', at most 5 · ``distance``.

    Where the order of documents means something, such as that of the sections of a statute, the neighbours of what was
    relevant to similar training queries are often relevant, although no query has cited them yet. So
    ``nearby(knn-queries)`` finds unseen documents from judgements, as ``knn-queries`` itself cannot, and
    :class:`~haybale.Learned` weighs both. Where the order means nothing, neither does this ranking.

    Places are those among the documents that are searched: ``within`` and ``where`` bring documents nearer together.
    Documents that were added to an engine stand behind the others.

    Parameters
    ----------
    ranker : Ranker
        The other ranker, such as ``SimilarQueries()``. Its scores are summed, so they must be comparable.
    distance : float, default 5.0
        The number of places at which a score has fallen to 1 / e. It was chosen in a trial on dev of gesetze.
    n_ranked : int, default 100
        The number of documents of the other ranking that are looked at.

    Examples
    --------
    >>> from haybale import BM25, Engine
    >>> sections = {"§ 1": "Keeping a dog.", "§ 2": "Its muzzle.", "§ 3": "Its lead.", "§ 4": "The tax of the town."}
    >>> engine = Engine(sections, language="english", encoder="tfidf(min_df=1)")
    >>> run = NearbyDocuments(BM25(), distance=1).fit(engine).rank({"q": "a dog"})
    >>> [doc_id for doc_id, _ in run["q"]]
    ['§ 2', '§ 3', '§ 4']
    """

    name = "nearby"
    variants: ClassVar = {"nearby": {}}
    may_answer_nothing = True
    _parameter_constraints: ClassVar = {"ranker": [Ranker], "distance": POSITIVE, "n_ranked": COUNT}

    ranker: Ranker
    _: KW_ONLY
    distance: float = 5.0
    n_ranked: int = 100

    @property
    def uses_vectors(self) -> bool:
        """False: only the ranker within may use vectors."""
        return False

    @property
    def _ranks_whole_batches(self) -> bool:
        """Whether the ranker within ranks whole batches; the neighbours are little work."""
        return self.rankers_[0]._ranks_whole_batches

    def nested(self) -> Sequence[Ranker]:
        """Return the ranker within."""
        return [self.ranker]

    def rank_batch(self, batch: QueryBatch, depth: int) -> Run:
        return self._ranked(batch, depth, out_of_fold=False)

    def out_of_fold_batch(self, batch: QueryBatch, depth: int) -> Run:
        return self._ranked(batch, depth, out_of_fold=True)

    def _ranked(self, batch: QueryBatch, depth: int, *, out_of_fold: bool) -> Run:
        collection = batch.engine.collection
        run = self.rankers_[0].run(batch, self.n_ranked, out_of_fold=out_of_fold)
        rows, _, ranked = run.numbers_in(collection)
        scores = run.coded()[-1]
        counts = scores > 0
        rows, ranked, scores = rows[counts], ranked[counts], scores[counts]
        reach = int(_REACH * self.distance)
        offsets = np.concatenate([np.arange(-reach, 0), np.arange(1, reach + 1)])
        near = ranked[:, None] + offsets  # (n, 2 · reach) places
        weighted = scores[:, None] * np.exp(-np.abs(offsets) / self.distance)
        exists = (near >= 0) & (near < collection.n_documents)
        pairs = (rows[:, None] * collection.n_documents + near)[exists]
        # Summands are in the order of the other ranking, so that equal sums are equal to the bit.
        distinct, pair_numbers = np.unique(pairs, return_inverse=True)
        sums = np.bincount(pair_numbers, weighted[exists], len(distinct))
        rows, documents = np.divmod(distinct, collection.n_documents)
        is_other = ~batch.exclude.hides(rows, documents)
        columns = rows[is_other], documents[is_other], sums[is_other]
        return Run.from_numbers(batch.ids, collection.doc_ids, *columns, depth)

    def explain_document(self, batch: QueryBatch, document: int, base: Explanation) -> Explanation:
        run = self.rankers_[0].run(batch, self.n_ranked)
        _, ranks, ranked = run.numbers_in(batch.engine.collection)
        scores, shares = run.coded()[-1], []
        for rank, neighbour, score in zip(ranks.tolist(), ranked.tolist(), scores.tolist(), strict=True):
            away = document - neighbour
            if score > 0 and 0 < abs(away) <= int(_REACH * self.distance):
                doc_id = batch.engine.collection.doc_ids[neighbour].as_py()
                where = "after" if away > 0 else "before"
                text = f"{abs(away)} {where} {doc_id}, rank {rank:,} of {self.ranker}"
                shares.append(Share(text, float(score * np.exp(-abs(away) / self.distance))))
        return replace(base, shares=by_size(shares))
