"""Make ``engines-0.2.tar.xz`` for ``tests/engine/test_engines_of_0_2.py``, with haybale 0.2 on the path.

    PYTHONPATH=CHECKOUT_OF_58a36c0 python tests/data/make_engines_0_2.py tests/data/engines-0.2.tar.xz

The archive has a folder for each engine and each fitted model, and ``expected.json``: the rankings of haybale 0.2 for
the split ``dev``, before and after documents were added and removed.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import haybale
from haybale import Chunking, Engine, LSAEncoder, TfidfEncoder
from haybale.collections import Collection, CollectionBuilder

SVR = "svr(n_candidates=8,n_bags=3,n_jobs=1,evidence=[bm25-doc,knn,knn-queries])"
ENGINES: dict[str, dict[str, Any]] = {
    "tfidf": {},
    "lsa": {"encoder": "lsa", "n_components": 6, "random_state": 3},
    "pieces": {"chunking": Chunking(6, 4), "language": "english"},
    "object": {"encoder": LSAEncoder(4, min_df=1, language="german")},
    "n-grams": {"encoder": TfidfEncoder(char_ngrams=(3, 4))},
}
MODELS = {
    "tfidf": [SVR, f"learned(bm25,bm25-doc,knn,{SVR},depth=20)", "knn-queries(k=5)", "rrf(bm25,parm-vrrf)"],
    "lsa": [SVR, "rrf(knn,knn-queries(k=5))"],
    "pieces": ["learned(bm25,knn-doc,depth=20)"],
}
UNTRAINED = ("bm25", "bm25-doc(k1=0.9,b=0.4)", "knn", "knn-doc", "knn-firstp", "parm-rrf", "parm-vrrf")
ADDED = {"new1": ["topic1word2 topic1word3 common4", "more of topic1word5"], "new2": "topic2word1 topic3word1 common1"}
REMOVED = ["d03", "d11"]


def collection() -> Collection:
    """Return 24 documents of four topics, with 24 training queries and 6 queries of the split dev."""
    rng, builder = np.random.default_rng(0), CollectionBuilder("small", language="english")

    def text(topic: int, kind: str, own: int, common: int) -> str:
        words = [f"topic{topic}{kind}{i}" for i in rng.integers(6, size=own)]
        words += [f"common{i}" for i in rng.integers(12, size=common)]
        return " ".join(words)

    for document in range(24):
        passages = [text(document % 4, "word", 5, 4) for _ in range(int(rng.integers(1, 4)))]
        builder.add_document(f"d{document:02d}", passages)
    for split, n in (("train", 24), ("dev", 6)):
        for i in range(n):
            document = int(rng.integers(24))
            paragraphs = [text(document % 4, "asked", 3, 2) + " " + text(document % 4, "word", 1, 0) for _ in range(2)]
            builder.add_query(f"{split}{i}", paragraphs, split=split)
            builder.add_judgement(split, f"{split}{i}", f"d{document:02d}")
    return builder.build()


def ranked(ranker: Any) -> dict[str, list[list[Any]]]:
    run = ranker.rank("dev", depth=20)
    return {query: [[document, float(score)] for document, score in run[query]] for query in run.query_ids}


def main(archive: Path) -> None:
    expected: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for engine_name, settings in ENGINES.items():
            engine = Engine.build(collection(), folder / engine_name, **settings).prepare()
            models = [haybale.parse(text).fit(engine) for text in MODELS.get(engine_name, ())]
            for number, model in enumerate(models):
                model.save(folder / f"{engine_name}-model{number}")
            grown = Engine(collection(), **settings)
            grown.add(ADDED)
            grown.remove(REMOVED)
            expected[engine_name] = {
                "id": engine.id,
                "untrained": {text: ranked(haybale.parse(text).fit(engine)) for text in UNTRAINED},
                "models": {f"{engine_name}-model{number}": ranked(model) for number, model in enumerate(models)},
                "after": {text: ranked(haybale.parse(text).fit(grown)) for text in UNTRAINED},
            }
        changed = Engine.build(collection(), folder / "changed").prepare()
        changed.add(ADDED)
        changed.remove(REMOVED)
        changed.prepare()
        expected["changed"] = {"id": changed.id, "untrained": expected["tfidf"]["after"], "models": {}, "after": {}}
        (folder / "expected.json").write_text(json.dumps(expected))
        with tarfile.open(archive, "w:xz") as file:
            file.add(folder, arcname=".")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
