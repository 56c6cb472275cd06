"""The ranker ``section-propagation``: a passage scores higher if the sections that contain it score high."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from haybale.context.candidates import BestPassage, QueryCandidates, Scores
from haybale.context.engine_graph import graph_of, node_share
from haybale.parameters import COUNT, SHARE
from haybale.rankers import Explanation, QueryBatch, Ranker, Share, Training
from haybale.rankers.reranker import Reranker
from haybale.retrieval import Run
from haybale.search.explanation import by_size


@dataclass(eq=False, repr=False)
class SectionPropagation(BestPassage, Reranker):
    """Re-rank by (1 − λ) · s(p) + λ · mean, over the sections that contain p, of the mean s of their other passages.

    s(p) is the inner product of the query and passage p. A document scores by its best passage. The sections that
    contain p are its own and all ancestors of that, up to the root. This is the baseline of Albarède et al., "Passage
    Retrieval on Structured Documents using Graph Attention Networks", ECIR 2022; their exact rule is in another paper
    (CORIA 2021).

    Parameters
    ----------
    ranker : Ranker
        The ranker whose first documents are re-ranked.
    share : float, default 0.5
        The weight λ of the sections, from 0 (the passages alone) to 1.
    n_documents : int, default 1000
        Number of documents that are re-ranked for each query.
    """

    name = "section-propagation"
    _parameter_constraints: ClassVar = {"ranker": [Ranker], "n_documents": COUNT, "share": SHARE}

    ranker: Ranker
    _: KW_ONLY
    share: float = 0.5
    n_documents: int = 1000

    def fit_batch(self, training: Training) -> None:
        _ = graph_of(training.engine)  # raises before any work if there is no graph
        self.rankers_ = [self.ranker._fitted_copy(training)]

    def score_passages(self, batch: QueryBatch, candidates: QueryCandidates, fold: int) -> Scores:
        around = graph_of(batch.engine).paths.propagated(candidates.scores, candidates.passages)
        parts = np.stack([candidates.scores[candidates.passages], around], axis=1)
        passage_scores: Scores = parts @ np.array([1 - self.share, self.share])
        return passage_scores

    def document_shares(self, batch: QueryBatch, document: int, first: Run, inner: Explanation) -> list[Share]:
        """Return the shares of the best passage itself and of each section that contains it."""
        graph = graph_of(batch.engine).graph
        candidates, passage = self.best_passage(batch, document)
        own_share = node_share(batch.engine, np.array([passage]), (1 - self.share) * float(candidates.scores[passage]))
        around = [
            (
                section,
                [int(other) for other in candidates.passages if other != passage and section in graph.above(other)],
            )
            for section in graph.above(passage)
        ]
        levels = [(section, others) for section, others in around if others]
        return by_size(
            [own_share]
            + [
                Share(
                    f"{len(others)} other passages of section “{graph.titles[section - graph.n_passages]}”",
                    self.share * float(np.mean(candidates.scores[others])) / len(levels),
                )
                for section, others in levels
            ]
        )
