"""Section propagation as a ranker: a passage counts more where its section, and those around it, do."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import numpy as np

from haybale.context.context_ranker import ContextRanker, QueryCandidates, Scores, graph_of
from haybale.parameters import COUNT, SHARE
from haybale.rankers.explanation import Share
from haybale.rankers.query_batch import QueryBatch
from haybale.rankers.ranker import Ranker
from haybale.vectors import Floats


@dataclass(eq=False, repr=False)
class SectionPropagation(ContextRanker):
    """score(p) = (1 − λ) · s(p) + λ · mean over the sections around p of the mean score of their other passages.

    s is the inner product of query and passage. The sections are that of p and those around it up to the root,
    each with all that stands below it. After the baseline of Albarède et al., "Passage Retrieval on Structured
    Documents using Graph Attention Networks", ECIR 2022, whose rule is in another paper of theirs (CORIA 2021).

    Parameters
    ----------
    ranker : Ranker
        Whose ranking is re-ordered.
    share : float, default 0.5
        λ, from 0 (the passages alone) to 1.
    n_documents : int, default 1000
        Documents of each query that are re-ordered.
    """

    name = "section-propagation"
    variants: ClassVar = {"section-propagation": {}}
    mask: ClassVar[str] = "off"  # type: ignore[misc]  # no link between documents is used
    _parameter_constraints: ClassVar = {
        "ranker": [Ranker],
        "n_documents": COUNT,
        "share": SHARE,
    }

    ranker: Ranker
    _: KW_ONLY
    share: float = 0.5
    n_documents: int = 1000

    def _parts(self, asked: QueryCandidates, batch: QueryBatch, fold: int) -> Floats:
        around = graph_of(batch.engine).paths.propagated(asked.scores, asked.passages)
        return np.stack([asked.scores[asked.passages], around], axis=1)

    def _weights(self, fold: int) -> Scores:
        return np.array([1 - self.share, self.share])

    def _around(self, batch: QueryBatch, asked: QueryCandidates, passage: int) -> list[Share]:
        """One share a section: the graph's sums, level by level."""
        graph = graph_of(batch.engine).graph
        levels, section = [], int(graph.section_of[passage])
        of = np.arange(*graph.doc_offsets[graph.doc_of[passage] : graph.doc_of[passage] + 2])
        above = [[int(graph.section_of[each])] for each in of]
        for chain in above:
            while (parent := int(graph.parent[chain[-1] - graph.n_passages])) >= 0:
                chain.append(parent)
        while section >= 0:
            others = [int(each) for each, chain in zip(of, above, strict=True) if section in chain and each != passage]
            if others:
                levels.append((section, others))
            section = int(graph.parent[section - graph.n_passages])
        return [
            Share(
                f"{len(others)} other passages of section “{graph.titles[section - graph.n_passages]}”",
                self.share * float(np.mean(asked.scores[others])) / len(levels),
            )
            for section, others in levels
        ]
