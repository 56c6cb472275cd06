"""Makes docs/parm.md and its heatmap from the built-in collection.

    python docs/parm_example.py [FOLDER]

The page is what this prints; nothing in it is typed by hand. pydocs is made of installed packages, so their versions
(constraints.txt) are its edition.
"""

from __future__ import annotations

import sys
from pathlib import Path

from haybale import PARM, Engine
from haybale.rankers import Batch

QUERY = "q:scipy.signal.convolve"
PAGE = """\
# A document as a query: PARM by example

*Made by `python docs/parm_example.py`; the numbers are those of the versions in `constraints.txt`.*

A query may be a whole document: a court case, a patent, here the documentation of a function. One vector says little
of a long text, and a relevant document may answer one paragraph of it only. PARM
([Althammer et al. 2022](https://arxiv.org/abs/2201.01614)) searches with every paragraph, and makes one ranking of
what they find.

```python
from haybale import PARM, Engine

engine = Engine("pydocs", encoder="tfidf")  # Engine.build("pydocs", "engine") keeps it in a folder
ranker = PARM("vrrf", n_hits={n_hits}).fit(engine)

numbers = engine.collection.query_numbers(["{query}"])
query = engine.collection.queries.take(numbers)  # or a text of your own: see below
run = ranker.rank(query)
```

The query is the docstring of `{own}` without its *See Also* section, {n} paragraphs of {words} words; its own
document is left out. Each paragraph finds {n_hits} of {n_passages:,} passages; {n_found:,} of {n_documents:,} documents
are found by one or more. What *See Also* named is relevant: {relevant}. The ranking begins

{ranking}

## Why

```python
why = ranker.explain(query, "{doc}").detail
print(why)
```

```text
{why}
```

VRRF is a weighted sum over the pairs (paragraph of the query, paragraph of the document) that were found, so every
pair has an exact share of the score: the shares of all {pairs} pairs sum to {score!r}, the document's score, to the
last bit. `why.to_frame()` has them as a frame, with rank and similarity:

{frame}

`why.heatmap("parm-heatmap.svg")` draws them, query paragraphs down, paragraphs of the document across:

![shares of the score by pair of paragraphs](parm-heatmap.svg)

## Other aggregations

The same hits, aggregated otherwise ({relevant_count} relevant documents; their ranks):

{aggregations}

`rrf`, `combsum`, `maxp` and `firstp` also work over BM25: `PARM("rrf", over="bm25")`. A new aggregation is one function
and one line in [`formulas.py`](../haybale/retrieval/parm/formulas.py). On an index of one's own, without an
engine, `ParagraphSearch(index, "vrrf", encoder=encoder)` does the same.

## A text of one's own

```python
from haybale import find_splitter

split = find_splitter("sentences")  # or "blank-lines", "lines", "numbered" as in court cases and claims, "headings"
text = "Convolve two arrays. The output has the size of the first, and is centred."
found = ranker.rank({{"mine": [part.text for part in split(text)]}}, depth=3)
```

From a file, in a shell; `--explain` prints the pairs that carried each document:

    haybale index FOLDER --encoder sentence-transformers:MODEL --out engine
    haybale rank engine case.txt --ranker parm-vrrf --paragraphs numbered --explain --heatmap why.svg
"""


def make(folder: Path) -> None:
    n_hits = 200
    engine = Engine("pydocs", encoder="tfidf")
    collection = engine.collection
    numbers = collection.query_numbers([QUERY])
    number, batch = int(numbers[0]), Batch(engine, collection.queries.take(numbers))
    paragraphs = batch.paragraphs[0]
    own = collection.doc_ids[int(batch.own[0])].as_py()
    split = next(name for name, part in collection.splits.items() if number in part.queries)
    relevant = collection.relevant_ids(split)[collection.split(split).queries.tolist().index(number)]
    names = ("vrrf", "rrf", "vranks", "vscores", "vsum", "combsum", "maxp", "vmax", "vavg", "vmin")
    rankers = {name: PARM(name, n_hits=n_hits).fit(engine) for name in names}
    runs = {name: batch.run(ranker, 1000) for name, ranker in rankers.items()}
    ranked = runs["vrrf"][QUERY]
    doc = next(doc_id for doc_id, _ in ranked if doc_id in relevant)
    why = rankers["vrrf"].explain(batch.queries, doc).detail
    frame = why.to_frame()
    page = PAGE.format(
        query=QUERY,
        own=own,
        doc=doc,
        n=len(paragraphs),
        words=sum(len(text.split()) for text in paragraphs),
        n_hits=n_hits,
        n_passages=collection.n_passages,
        n_documents=collection.n_documents,
        n_found=why.n_documents,
        relevant=", ".join(f"`{doc_id}`" for doc_id in relevant),
        relevant_count=len(relevant),
        ranking=table(
            ("rank", "document", "score", "relevant"),
            [
                (str(rank), f"`{doc_id}`", f"{score:.4f}", "✓" if doc_id in relevant else "")
                for rank, (doc_id, score) in enumerate(ranked[:10], start=1)
            ],
        ),
        why=why,
        pairs=len(frame),
        score=float(frame["share"].sum()),
        frame=table(
            ("query_paragraph", "passage_id", "rank", "similarity", "share", "share_of_score"),
            [
                (
                    row.query_paragraph,
                    f"`{row.passage_id}`",
                    str(row.rank),
                    *(f"{value:.4f}" for value in (row.similarity, row.share, row.share_of_score)),
                )
                for row in frame.head(5).itertuples()
            ],
        ),
        aggregations=table(
            ("aggregation", "first document", "ranks of the relevant ones"),
            [
                (name, f"`{run[QUERY][0][0]}`", ", ".join(map(str, ranks(run[QUERY], relevant))))
                for name, run in runs.items()
            ],
        ),
    )
    assert why.share.sum() == why.score == dict(ranked)[doc]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "parm.md").write_text(page, encoding="utf-8")
    why.heatmap(folder / "parm-heatmap.svg")


def ranks(ranked: list[tuple[str, float]], relevant: list[str]) -> list[int]:
    return [rank for rank, (doc_id, _) in enumerate(ranked, start=1) if doc_id in relevant]


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
