"""What a service of three matters bears: twenty people, memory after idling, and kills.

python benchmarks/bench_matters.py COLLECTION [--passages 100000] [--work FOLDER] [--seconds 60] [--kills 100]
    [--idle 60] [--results benchmarks/results]
"""

from __future__ import annotations

from pathlib import Path

NAMES = ("birch", "cedar", "maple")  # of the matters


def build(source: Path, folder: Path, n_passages: int) -> None:
    """Build an engine a matter: documents of a collection from different starts, with ids of their own."""
    from haybale import Engine, open_collection

    collection = open_collection(source)
    offsets, doc_ids = collection.passages.doc_offsets, collection.doc_ids.to_pylist()
    texts = collection.passages.texts.to_pylist()
    for number, name in enumerate(NAMES):
        if (folder / name / "engine.json").exists():
            continue
        at, size, documents = number * len(doc_ids) // len(NAMES), 0, {}
        while size < n_passages:
            start, end = int(offsets[at]), int(offsets[at + 1])
            documents[f"{name}/{len(documents)}"] = texts[start:end]
            size, at = size + end - start, (at + 1) % len(doc_ids)
        Engine.build(documents, folder / name, language=collection.language).prepare()
