"""``haybale rank``: the documents of a store for one document file, with the paragraphs that carried them."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console

from haybale.cluster import on_cluster
from haybale.collections import find_splitter
from haybale.collections.lines import read_text
from haybale.embeddings import EmbeddingStore
from haybale.errors import InputError
from haybale.retrieval import PARM, BM25Index, PassageIndex, ShardedIndex


def run_rank(
    file: str,
    store: str,
    *,
    aggregation: str | None,
    bm25: bool,
    paragraphs: str,
    hits: int,
    top: int,
    pairs: int,
    exclude: str | None,
    explain: list[str],
    heatmap: Path | None,
    out: Path | None,
    device: str = "cpu",
    dask: str | None = None,
) -> None:
    """Split the file, search the store with every paragraph, aggregate, and print why.

    ``device``: where the vectors are searched. ``dask``: the scheduler of a cluster whose workers search the store,
    each on its device of that name, so that it need not fit into this machine.
    """
    if dask is not None and bm25:
        raise InputError("--dask searches vectors; --bm25 has none")
    splitter = find_splitter(paragraphs)
    text, name = read_document(file)
    parts = splitter(text)
    if not parts:
        raise InputError(f"{name}: no paragraph found by {paragraphs!r}")
    opened = EmbeddingStore(store)
    aggregation = aggregation or ("rrf" if bm25 else "vrrf")
    if bm25:
        parm = PARM(BM25Index.from_store(opened), aggregation, n_hits=hits)
    else:
        index = (PassageIndex.from_store if dask is None else ShardedIndex)(opened, device=device)
        parm = PARM(index, aggregation, encoder=opened.encoder(), n_hits=hits)
    texts, labels = [part.text for part in parts], [part.label for part in parts]
    query = Path(name).stem or name
    with nullcontext() if dask is None else on_cluster(dask):
        hits_found = parm.search([texts], exclude=[exclude], query_ids=[query])
    run = parm.aggregate([query], hits_found)
    shown = explain or [doc_id for doc_id, _ in run[query][:top]]
    found = parm.explain_all(texts, shown, labels=labels, passage_texts=opened.texts(), found=hits_found)
    console = Console(highlight=False, markup=False)
    count = "1 paragraph" if len(parts) == 1 else f"{len(parts):,} paragraphs"
    n_found = found[0].n_documents if found else 0
    console.print(
        f"{name}, {count} ({paragraphs}), against {len(parm.index.doc_ids):,} documents of {store}: "
        f"{n_found:,} found by {'BM25 and ' if bm25 else ''}{aggregation}",
        soft_wrap=True,
    )
    for explanation in found:
        console.print()
        console.print(explanation.text(top=pairs), soft_wrap=True)
    if heatmap is not None:
        if not found:
            raise InputError("nothing was found, so there is no heatmap to draw")
        found[0].heatmap(heatmap)
    if out is not None:
        run.to_trec(out, tag=f"haybale-{aggregation}")


def read_document(file: str) -> tuple[str, str]:
    """``(text, name)`` of a UTF-8 file, or of what stands on stdin for ``-``."""
    if file == "-":
        return sys.stdin.read(), "stdin"
    path = Path(file)
    try:
        return read_text(path), path.name
    except OSError as error:
        raise InputError(f"{file}: cannot read the document: {error.strerror}") from error
