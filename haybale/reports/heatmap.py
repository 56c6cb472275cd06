"""Why a document was found: PARM's heatmap of one query, with the texts of the pairs that carry most.

Althammer et al., "PARM: A Paragraph Aggregation Retrieval Model for Dense Document-to-Document Retrieval",
ECIR 2022: VRRF, whose score is a sum over pairs of paragraphs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from haybale.collections import Queries
from haybale.collections.collection import strings_of
from haybale.collections.splitters import sentences
from haybale.engine import Engine
from haybale.rankers import PARM, Batch
from haybale.reports.differences import differences
from haybale.reports.markup import Html, element, joined
from haybale.reports.section import Section, absent, shortened
from haybale.reports.study import Study
from haybale.reports.svg.axes import Frame, wide_and_narrow
from haybale.reports.svg.heatmap import heatmap
from haybale.reports.vectors import described
from haybale.retrieval import ParagraphExplanation
from haybale.retrieval.run import DEPTH

TITLE = "Paragraph by paragraph"
PAIRS, TEXT = 5, 500  # pairs whose texts are shown, and characters of each
AMONG, TELLING = 10, 12  # of so many large wins one is chosen, by its number of paragraphs


def heatmap_section(study: Study, engine: Engine | None, parm: PARM, query: str | None) -> Section:
    """The query that was asked for, or one of the large wins, and its best relevant document by ``parm``."""
    if engine is None:
        return absent("paragraphs", TITLE, "PARM's heatmap needs vectors; --encoder tfidf or a store would bring them.")
    query = query or _telling_query(study, engine)
    paragraphs, split = _paragraphs(engine, query)
    if not paragraphs:
        return absent("paragraphs", TITLE, f"The query {query} has no text.")
    batch = Batch(engine, _asked(engine, query, paragraphs))
    parm = parm.clone().fit(engine)
    relevant = set(study.relevant[query])
    best = next((document for document, _ in batch.run(parm, DEPTH)[query] if document in relevant), None)
    if best is None:
        reason = (
            f"None of the relevant documents of the query {query} is among the first {DEPTH:,} that its paragraphs "
            "found. --query names another one."
        )
        return absent("paragraphs", TITLE, reason)
    why = parm.explained(batch, int(engine.collection.document_numbers([best])[0])).detail
    return Section("paragraphs", TITLE, _body(why, query, split, described(engine)))


def _asked(engine: Engine, query: str, paragraphs: list[str]) -> Queries:
    """The query with these paragraphs."""
    own = engine.collection.queries.own[engine.collection.query_numbers([query])]
    return Queries(strings_of([query]), strings_of(paragraphs), np.array([0, len(paragraphs)]), own)


def _telling_query(study: Study, engine: Engine) -> str:
    """Of the ten largest wins the one with about a dozen paragraphs: fewer tell little, more are hard to see."""
    ranked = study.query_ids if study.ranker is None else differences(study, study.ranker).queries
    lengths = np.array([len(_paragraphs(engine, query)[0]) for query in ranked[:AMONG]])
    return ranked[int(np.abs(np.log(np.maximum(lengths, 1) / TELLING)).argmin())]


def _paragraphs(engine: Engine, query: str) -> tuple[list[str], str]:
    """The paragraphs of a query, and what they are; a single one is split into its sentences."""
    number = int(engine.collection.query_numbers([query])[0])
    texts = [text for text in engine.collection.queries.paragraphs_of(number) if text.strip()]
    if len(texts) != 1:
        return texts, "paragraph"
    parts = [" ".join(words) for words in sentences(texts[0])]
    return (parts, "sentence") if len(parts) > 1 else (texts, "paragraph")


def _body(best: ParagraphExplanation, query: str, kind: str, vectors: str) -> Html:
    assert best.score is not None
    names = [passage.removeprefix(f"{best.doc_id}:") for passage in best.passage_ids]
    # A share below 0, of vectors that point away from each other, is as good as none in a picture of what carries.
    shares = np.maximum(best.share, 0)
    frame = best.to_frame()
    top = [record for record in frame.head(PAIRS).to_dict("records") if record["share"] > 0]
    cells = [
        (best.labels.index(str(each["query_paragraph"])), best.passage_ids.index(str(each["passage_id"])))
        for each in top
    ]
    n, m = best.share.shape

    def title(row: int, column: int) -> str:
        rank = int(best.ranks[row, column])
        place = f", rank {rank:,} of its hits" if rank else ""
        return f"{kind} {best.labels[row]} → {names[column]}: {_amount(best, shares[row, column])}{place}"

    longest = max(map(len, best.labels))
    charts = []
    for width in (1020, 360):
        left = 12 + 7.5 * longest
        high = min(26.0, max(5.0, 0.62 * width / n)) if width > 400 else min(24.0, max(3.0, 1.2 * width / n))
        size = Frame(width, 56 + high * n, left=left, right=10, top=6, bottom=50)
        if (size.across[1] - left) / m > 60:  # few wide cells are hard to read as a table
            size = _narrower(size, left + 60 * m + 10)
        charts.append(
            heatmap(
                shares,
                best.labels,
                names,
                size,
                label=f"Shares of {n} query {kind}s by {m} paragraphs of {best.doc_id} in its score",
                x_label=f"paragraph of {shortened(best.doc_id, 40)}",
                title=title if width > 400 else None,
                numbered=cells,
            )
        )
    figure = element("figure", wide_and_narrow(*charts), _scale(best, float(shares.max(initial=0))), _caption(kind))
    place = f"{best.rank:,} of {best.n_documents:,}"
    head = element(
        "p",
        "The query ",
        element("b", query),
        f" has {n} {kind}{'s' if n > 1 else ''}. Its relevant document ",
        element("b", best.doc_id),
        f" has {m} paragraph{'s' if m > 1 else ''} and is at rank {place} by PARM (VRRF over {vectors}): "
        f"{(best.ranks > 0).any(axis=1).sum()} of the query's {kind}s found "
        f"{(best.ranks > 0).any(axis=0).sum()} of its paragraphs.",
    )
    return joined(
        [head, figure, element("h3", "The strongest pairs"), element("ol", *_pairs(best, top, kind), class_="pairs")]
    )


def _narrower(frame: Frame, width: float) -> Frame:
    """The same frame, narrower."""
    return frame._replace(width=min(frame.width, max(width, 220)))


def _caption(kind: str) -> Html:
    return element(
        "figcaption",
        f"Down: the {kind}s of the query. Across: the paragraphs of the document. The stronger a cell, the larger the "
        "share of the document's score that comes from this pair; all shares add up to the score.",
    )


def _amount(best: ParagraphExplanation, share: float) -> str:
    """A share in percent of the score, where it is a part of it."""
    return f"{100 * share / best.score:.1f} %" if best.in_percent and best.score else f"{share:+.4f}"


def _scale(best: ParagraphExplanation, greatest: float) -> Html:
    return element(
        "p",
        element("span", "0 %" if best.in_percent else "0"),
        element("span", "", class_="ramp", aria_hidden="true"),
        element("span", f"{_amount(best, greatest)} of the score"),
        class_="scale",
    )


def _pairs(best: ParagraphExplanation, top: list[dict[Any, Any]], kind: str) -> list[Html]:
    items = []
    for pair in top:
        rank = "not among its hits" if pd.isna(pair["rank"]) else f"rank {pair['rank']:,}"
        head = f"{_amount(best, pair['share'])} of the score, {rank}, similarity {pair['similarity']:.3f}"
        texts = [
            element("div", element("h5", name), element("p", shortened(str(text), TEXT), class_="excerpt", dir="auto"))
            for name, text in (
                (f"query, {kind} {pair['query_paragraph']}", pair["query_text"]),
                (str(pair["passage_id"]), pair["passage_text"]),
            )
        ]
        items.append(element("li", element("div", head, class_="ranks"), element("div", *texts, class_="beside")))
    return items
