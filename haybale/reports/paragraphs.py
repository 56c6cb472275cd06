"""The section of a report that explains one result by pairs of paragraphs.

PARM's score by VRRF is a sum over pairs of a query paragraph and a document paragraph (Althammer et al., "PARM: A
Paragraph Aggregation Retrieval Model for Dense Document-to-Document Retrieval", ECIR 2022). The section has a heatmap
of the pairs' shares, and the texts of the pairs with the largest shares.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from haybale.collections import Queries
from haybale.collections.collection import strings_of
from haybale.collections.splitters import sentences
from haybale.engine import Engine
from haybale.rankers import PARM, QueryBatch
from haybale.reports.charts import share_chart
from haybale.reports.study import Study
from haybale.retrieval import ParagraphExplanation
from haybale.retrieval.run import DEPTH

PAIRS = 5  # the number of pairs whose texts are shown
WINS, LENGTH = 10, 12  # the default query is the one of the 10 largest wins whose length is closest to 12 paragraphs
MAX_TRIED = 100  # queries, until PARM finds a relevant document of one


def paragraphs_section(study: Study, engine: Engine, query: str | None) -> dict[str, Any]:
    """Explain the first relevant document that PARM ranks for a query.

    By default this is one of the largest wins, or else the first of the queries below, for which PARM finds one.
    """
    parm = PARM("vrrf").fit(engine)
    for candidate in [query] if query else _examples(study, engine):
        texts, kind = _paragraphs(engine, candidate)
        if not texts:
            continue
        own_document = engine.collection.queries.own[engine.collection.query_numbers([candidate])]
        batch = QueryBatch(
            engine, Queries(strings_of([candidate]), strings_of(texts), np.array([0, len(texts)]), own_document)
        )
        relevant = set(study.relevant[candidate])
        best = next((document for document, _ in parm.run(batch, DEPTH)[candidate] if document in relevant), None)
        if best is not None:
            why = parm.explained(batch, int(engine.collection.document_numbers([best])[0])).detail
            return {"query": candidate, "kind": kind, **_explained(why, kind)}
    which = f"the query {query}" if query else f"any of {min(len(study.differences), MAX_TRIED):,} queries"
    return {
        "absent": f"PARM finds no relevant document of {which} among the first {DEPTH:,}. Choose another query with "
        "--query."
    }


def _examples(study: Study, engine: Engine) -> list[str]:
    """Return the queries to try: the 10 largest wins, the one of nearly 12 paragraphs first, then those below."""
    queries = [str(query) for query in study.differences.index[:MAX_TRIED]]
    lengths = np.array([len(_paragraphs(engine, query)[0]) for query in queries[:WINS]])
    order = np.abs(np.log(np.maximum(lengths, 1) / LENGTH)).argsort(kind="stable")
    return [*(queries[row] for row in order.tolist()), *queries[WINS:]]


def _paragraphs(engine: Engine, query: str) -> tuple[list[str], str]:
    """Return the parts of a query and their kind: paragraphs, or the sentences of a single paragraph."""
    number = int(engine.collection.query_numbers([query])[0])
    texts = [text for text in engine.collection.queries.paragraphs_of(number) if text.strip()]
    parts = [" ".join(words) for words in sentences(texts[0])] if len(texts) == 1 else []
    return (parts, "sentence") if len(parts) > 1 else (texts, "paragraph")


def _explained(why: ParagraphExplanation, kind: str) -> dict[str, Any]:
    """Return the content of the section."""
    names = [passage.removeprefix(f"{why.doc_id}:") for passage in why.passage_ids]

    def amount(share: float) -> str:
        """Format a share, as a percentage if all shares are positive parts of the score."""
        return f"{100 * share / why.score:.1f} %" if why.in_percent and why.score else f"{share:+.4f}"

    shares = np.maximum(why.share, 0)  # the heatmap shows no negative shares
    titles = {}
    for row, column in np.argwhere(shares > 0).tolist():
        rank = int(why.ranks[row, column])
        rank_text = f", rank {rank:,} of its hits" if rank else ""
        titles[row, column] = f"{kind} {why.labels[row]} → {names[column]}: {amount(shares[row, column])}{rank_text}"
    strongest = []
    pairs = [pair for pair in why.to_frame().head(PAIRS).to_dict("records") if pair["share"] > 0]
    for pair in pairs:
        pair["amount"] = amount(pair["share"])
        pair["place"] = "not among its hits" if pd.isna(pair["rank"]) else f"rank {pair['rank']:,}"
        strongest.append((why.labels.index(pair["query_paragraph"]), why.passage_ids.index(pair["passage_id"])))
    chart = share_chart(
        shares,
        why.labels,
        names,
        titles,
        strongest,
        f"Shares of {len(why.labels)} query {kind}s by {len(names)} paragraphs of {why.doc_id} in its score",
        x_label=f"paragraph of {why.doc_id}",
        y_label=f"{kind} of the query",
    )
    is_hit = why.ranks > 0
    n_found = int(is_hit.any(axis=1).sum()), int(is_hit.any(axis=0).sum())
    return {"why": why, "pairs": pairs, "chart": chart, "n_found": n_found}
