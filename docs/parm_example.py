"""Makes docs/parm.md and its heatmap from the built-in collection.

    python docs/parm_example.py [FOLDER]

The page is what this prints; nothing in it is typed by hand. pydocs is made of installed packages, so their versions
(constraints.txt) are its edition.
"""

from __future__ import annotations

import sys
from pathlib import Path

from haybale import PARM, PassageIndex, TfidfEncoder, open_collection

QUERY = "q:scipy.signal.convolve"
PAGE = """\
# A document as a query: PARM by example

*Made by `python docs/parm_example.py`; the numbers are those of the versions in `constraints.txt`.*

A query may be a whole document: a court case, a patent, here the documentation of a function. One vector says little
of a long text, and a relevant document may answer one paragraph of it only. PARM
([Althammer et al. 2022](https://arxiv.org/abs/2201.01614)) searches with every paragraph, and makes one ranking of
what they find.

```python
from haybale import PARM, PassageIndex, TfidfEncoder, open_collection

collection = open_collection("pydocs")
texts = collection.passages.texts.to_pylist()
encoder = TfidfEncoder().fit(texts)
index = PassageIndex.from_collection(collection, encoder.encode(texts))

number = collection.query_numbers(["{query}"])[0]
paragraphs = collection.queries.paragraphs_of(number)  # or a splitter's, of any text: see below
parm = PARM(index, "vrrf", encoder=encoder, n_hits={n_hits})
run = parm.rank(["{query}"], [paragraphs], exclude=["{own}"])
```

The query is the docstring of `{own}` without its *See Also* section, {n} paragraphs of {words} words; its own
document is left out. Each paragraph finds {n_hits} of {n_passages:,} passages; {n_found:,} of {n_documents:,} documents
are found by one or more. What *See Also* named is relevant: {relevant}. The ranking begins

{ranking}

## Why

```python
why = parm.explain(paragraphs, "{doc}", exclude="{own}", passage_texts=texts)
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

`rrf`, `combsum`, `maxp` and `firstp` also work on a `BM25Index`. A new aggregation is one function and one line in
[`registry.py`](../haybale/retrieval/aggregation/registry.py).

## From a file

    haybale embed COLLECTION --encoder sentence-transformers:MODEL --out STORE
    haybale rank case.txt STORE --paragraphs numbered --heatmap why.svg

splits a text file into paragraphs (`blank-lines`, `lines`, `numbered` as in court cases and claims, `sentences` up to
200 words, `headings`), ranks the documents of a store for it, and prints the pairs that carried each. With `--bm25` it
searches the store's texts.
"""


def make(folder: Path) -> None:
    n_hits = 200
    collection = open_collection("pydocs")
    texts = collection.passages.texts.to_pylist()
    encoder = TfidfEncoder().fit(texts)
    index = PassageIndex.from_collection(collection, encoder.encode(texts))
    number = int(collection.query_numbers([QUERY])[0])
    paragraphs = collection.queries.paragraphs_of(number)
    own = collection.doc_ids[int(collection.queries.own[number])].as_py()
    split = next(name for name, part in collection.splits.items() if number in part.queries)
    relevant = collection.relevant_ids(split)[collection.split(split).queries.tolist().index(number)]
    found = PARM(index, "vrrf", encoder=encoder, n_hits=n_hits).search([paragraphs], exclude=[own])
    runs = {}
    for name in ("vrrf", "rrf", "vranks", "vscores", "vsum", "combsum", "maxp", "vmax", "vavg", "vmin"):
        runs[name] = PARM(index, name, n_hits=n_hits).aggregate([QUERY], found)
    ranked = runs["vrrf"][QUERY]
    doc = next(doc_id for doc_id, _ in ranked if doc_id in relevant)
    parm = PARM(index, "vrrf", encoder=encoder, n_hits=n_hits)
    why = parm.explain(paragraphs, doc, exclude=own, passage_texts=collection.passages.texts)
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
