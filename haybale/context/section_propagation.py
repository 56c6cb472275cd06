"""Section propagation as a ranker: a passage counts more if the sections around it score high."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from haybale.context.candidates import QueryCandidates, Scores, best_hits, best_passage, document_scores
from haybale.context.engine_graph import graph_of, node_share
from haybale.parameters import COUNT, SHARE
from haybale.rankers import Explanation, QueryBatch, Ranker, Share, Training
from haybale.rankers.explanation import by_size
from haybale.rankers.reranker import Reranker
from haybale.retrieval import Hits, Run
from haybale.retrieval.hits import Ints


@dataclass(eq=False, repr=False)
class SectionPropagation(Reranker):
    """Re-rank by (1 − λ) · s(p) + λ · mean over the sections around p of the mean score of their other passages.

    s is the inner product of query and passage p; a document scores by its best passage. The sections around p are its
    section and those above it up to the root, each with all that stands below it. This is the baseline of Albarède et
    al., "Passage Retrieval on Structured Documents using Graph Attention Networks", ECIR 2022, whose exact rule is in
    another paper of theirs (CORIA 2021).

    Parameters
    ----------
    ranker : Ranker
        The ranker whose first documents are re-ordered.
    share : float, default 0.5
        λ, from 0 (the passages alone) to 1.
    n_documents : int, default 1000
        Number of documents of each query that are re-ordered.
    """

    name = "section-propagation"
    _parameter_constraints: ClassVar = {"ranker": [Ranker], "n_documents": COUNT, "share": SHARE}

    ranker: Ranker
    _: KW_ONLY
    share: float = 0.5
    n_documents: int = 1000

    def fit_batch(self, training: Training) -> None:
        _ = graph_of(training.batch.engine)  # raises before any work where there is no graph
        self.rankers_ = [self.ranker.fitted(training)]

    def score_passages(self, batch: QueryBatch, candidates: QueryCandidates, fold: int) -> Scores:
        around = graph_of(batch.engine).paths.propagated(candidates.scores, candidates.passages)
        parts = np.stack([candidates.scores[candidates.passages], around], axis=1)
        found: Scores = parts @ np.array([1 - self.share, self.share])
        return found

    def rescore(self, batch: QueryBatch, rows: Ints, documents: Ints, scores: Any, out_of_fold: bool) -> Scores:
        return document_scores(self, batch, rows, documents)

    def passage_hits(self, batch: QueryBatch, k: int) -> Hits:
        """Return the k best passages of each query in the documents that are re-ordered."""
        return best_hits(self, batch, k)

    def document_shares(self, batch: QueryBatch, document: int, first: Run, inner: Explanation) -> list[Share]:
        """Return the shares of the best passage itself and of each section around it."""
        graph = graph_of(batch.engine).graph
        candidates, passage = best_passage(self, batch, document)
        own = node_share(batch.engine, np.array([passage]), (1 - self.share) * float(candidates.scores[passage]))
        around = [
            (section, [int(each) for each in candidates.passages if each != passage and section in graph.above(each)])
            for section in graph.above(passage)
        ]
        levels = [(section, others) for section, others in around if others]
        return by_size(
            [own]
            + [
                Share(
                    f"{len(others)} other passages of section “{graph.titles[section - graph.n_passages]}”",
                    self.share * float(np.mean(candidates.scores[others])) / len(levels),
                )
                for section, others in levels
            ]
        )
