"""Make ``saved-files.tar.xz`` for ``tests/test_saved_files.py``, with the checkout of commit 97da212 on the path.

    PYTHONPATH=CHECKOUT_OF_97da212 python tests/data/make_saved_files.py tests/data/saved-files.tar.xz

Whatever this commit wrote must open. The archive has a folder for each engine, fitted model, index and store, a file of
judgements, and ``expected.json``: the rankings of that commit for the split ``dev``, before and after documents were
added and removed, and what the stores held.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import haybale
from haybale import Chunking, EmbeddingStore, Engine, LSAEncoder, PassageIndex, Review, TfidfEncoder
from haybale.collections import Collection, CollectionBuilder, save_collection
from haybale.collections.readers.files import read_files
from haybale.engine.update import record_files, signatures

SVR = "svr(n_candidates=8,n_bags=3,n_jobs=1,evidence=[bm25-doc,knn,knn-queries])"
ENGINES: dict[str, dict[str, Any]] = {
    "tfidf": {},
    "lsa": {"encoder": "lsa(n_components=6,random_state=3)"},
    "pieces": {"chunking": Chunking(6, 4), "language": "english"},
    "object": {"encoder": LSAEncoder(4, min_df=1, language="german")},
    "n-grams": {"encoder": TfidfEncoder(char_ngrams=(3, 4))},
    "compounds": {"language": "german"},
    "segments": {"segments": 2},
}
MODELS = {
    "tfidf": [
        SVR,
        f"learned(bm25,bm25-doc,bm25-weighted,knn,{SVR},depth=20)",
        "knn-queries(k=5)",
        "rrf(bm25,parm-vrrf)",
        "svr-memory(n_candidates=8,n_bags=2,n_jobs=1)",
        "linear-context(bm25)",
    ],
    "lsa": [SVR, "rrf(knn,knn-queries(k=5))", "lim(bm25,epochs=1,heads=2)"],
    "pieces": ["learned(bm25,knn-doc,depth=20)"],
}
UNTRAINED = ("bm25", "bm25-doc(k1=0.9,b=0.4)", "knn", "knn-doc", "knn-firstp", "parm-rrf", "parm-vrrf")
ADDED = {"new1": ["topic1word2 topic1word3 common4", "more of topic1word5"], "new2": "topic2word1 topic3word1 common1"}
REMOVED = ["d03", "d11"]
FILES = {
    "plain.txt": "A text about foxes.",
    "animals.csv": "title,abstract\ndog,The dog is kept in the doghouse.\ncat,The cat is kept in the cathouse.\n",
    "metadata.csv": "file,year\nplain.txt,2014\n",
}


class Numbers:
    """An encoder that is given again when an engine or a store is opened."""

    dim = 3

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        return np.array([[len(text) % 7, len(text) % 5, 1] for text in texts], dtype=np.float32)

    def describe(self) -> dict[str, Any]:
        return {"class": "Numbers", "width": self.dim}


def collection() -> Collection:
    """Return 24 documents of four topics, with 24 training queries, of which two are twins, and 6 of the split dev."""
    rng, builder = np.random.default_rng(0), CollectionBuilder("small", language="english")

    def text(topic: int, kind: str, n_own_words: int, common: int) -> str:
        words = [f"topic{topic}{kind}{i}" for i in rng.integers(6, size=n_own_words)]
        words += [f"common{i}" for i in rng.integers(12, size=common)]
        return " ".join(words)

    for document in range(24):
        passages = [text(document % 4, "word", 5, 4) for _ in range(int(rng.integers(1, 4)))]
        number = builder.add_document(f"d{document:02d}", passages)
        builder.add_section(number, f"s{document:02d}", f"topic{document % 4}word0", None)
        builder.add_external_link(f"s{document:02d}", f"d{document % 4:02d}")
    for split, n in (("train", 24), ("dev", 6)):
        for i in range(n):
            document = int(rng.integers(24))
            paragraphs = [text(document % 4, "asked", 3, 2) + " " + text(document % 4, "word", 1, 0) for _ in range(2)]
            builder.add_query(f"{split}{i}", paragraphs, split=split)
            builder.add_judgement(split, f"{split}{i}", f"d{document:02d}")
            if (split, i) == ("train", 3):
                builder.add_query("twin", paragraphs, split=split)
                builder.add_judgement(split, "twin", f"d{document:02d}")
    return builder.build()


def ranked(ranker: Any) -> dict[str, list[list[Any]]]:
    """Return the ids and scores of the best 20 documents of each query of the split dev."""
    run = ranker.rank("dev", depth=20)
    return {query: [[document, float(score)] for document, score in run[query]] for query in run.query_ids}


def write_engines(folder: Path) -> dict[str, Any]:
    """Write engines with their models; return their rankings."""
    expected: dict[str, Any] = {}
    for name, settings in ENGINES.items():
        engine = Engine.build(collection(), folder / name, **settings).prepare()
        models = [haybale.parse(text).fit(engine) for text in MODELS.get(name, ())]
        for number, model in enumerate(models):
            model.save(folder / f"{name}-model{number}")
        grown = Engine(collection(), **{key: value for key, value in settings.items() if key != "segments"})
        grown.add(ADDED)
        grown.remove(REMOVED)
        expected[name] = {
            "identity": engine.identity,
            "untrained": {text: ranked(haybale.parse(text).fit(engine)) for text in UNTRAINED},
            "models": {f"{name}-model{number}": ranked(model) for number, model in enumerate(models)},
            "after": {text: ranked(haybale.parse(text).fit(grown)) for text in UNTRAINED},
        }
    changed = Engine.build(collection(), folder / "changed").prepare()
    changed.add(ADDED)
    changed.remove(REMOVED)
    changed.prepare()
    after = {"identity": changed.identity, "untrained": expected["tfidf"]["after"], "models": {}, "after": {}}
    return expected | {"changed": after}


def write_files(folder: Path) -> dict[str, Any]:
    """Write a folder of files, its engine with judgements, and a file of judgements; return what was judged."""
    (folder / "files").mkdir()
    for name, text in FILES.items():
        (folder / "files" / name).write_text(text)
    read = read_files(folder / "files")
    engine = Engine.build(read, folder / "engine-of-files", language="english", encoder="tfidf(min_df=1)")
    record_files(engine, signatures(folder / "files"), folder / "files", {})
    engine.write_indexes()
    ids = engine.collection.doc_ids.to_pylist()
    engine.judge(pd.DataFrame({"query_id": "q", "doc_id": ids[:2], "relevance": [1, 0]}), {"q": "dogs and hens"})
    with Review(engine, "dogs", topic="animals", judgements=folder / "engine-of-files-judgements.sqlite") as review:
        review.draw_sample(1)
        review.judge(ids[0], 1, "Ada", note="a note")
        review.judge(ids[1], 0, "Bob")
        review.judge(ids[1], 1, "Ada")
        review.undo("Ada")
        review.skip(ids[2], "Ada")
        rows = review.judgements()[["doc_id", "grade", "judge"]].astype(str).to_numpy().tolist()
    return {"ids": ids, "judged": rows, "identity": engine.identity}


def write_parts(folder: Path) -> dict[str, Any]:
    """Write a collection, encoders, indexes, estimators and stores, each alone; return what they hold or score."""
    documents = collection()
    save_collection(documents, folder / "collection")
    texts = documents.passages.texts.to_pylist()
    vectors = {}
    for name, encoder in (("lsa", LSAEncoder(4, min_df=1)), ("tf-idf", TfidfEncoder(min_df=1))):
        vectors[name] = encoder.fit(texts).encode(texts)
        encoder.save(folder / f"encoder-{name}")
        PassageIndex.from_collection(documents, vectors[name]).save(folder / f"index-{name}")
    haybale.BM25Index.from_collection(documents).save(folder / "index-bm25")
    haybale.embed(documents, LSAEncoder(4, min_df=1), folder / "store", rows_per_chunk=8)
    for shard in (1, 2):
        haybale.embed(documents, Numbers(), folder / "store-in-shards", rows_per_chunk=8, shard=(shard, 2))
    queries, store = vectors["lsa"][:10], EmbeddingStore(folder / "store")
    index = PassageIndex.from_store(store)
    relevant = [[index.doc_ids[row % len(index.doc_ids)].as_py()] for row in range(10)]
    ensemble = haybale.SVREnsemble(3, k=8, n_jobs=1).fit(index, queries, relevant)
    ensemble.save(folder / "ensemble")
    pairs = np.hstack([vectors["lsa"], np.roll(vectors["lsa"], 1, axis=0)])
    svr = haybale.ProductKernelSVR().fit(pairs, np.arange(len(pairs)) % 2)
    svr.save(folder / "svr")
    return {
        "texts": texts,
        "first": {
            name: np.asarray(rows[:1].todense() if name == "tf-idf" else rows[:1]).tolist()
            for name, rows in vectors.items()
        },
        "store": store.vectors().tolist(),
        "shards": EmbeddingStore(folder / "store-in-shards").vectors().tolist(),
        "ensemble": [[hit[0] for hit in hits] for hits in ensemble_hits(ensemble, queries)],
        "svr": svr.predict(pairs[:5]).tolist(),
        "pairs": pairs[:5].tolist(),
    }


def ensemble_hits(ensemble: Any, queries: Any) -> list[list[tuple[str, float]]]:
    """Return the documents of the run of an ensemble, best first, for each query."""
    run = ensemble.rank(queries, [str(row) for row in range(len(queries))], k=5)
    return [run[query] for query in run.query_ids]


def main(archive: Path) -> None:
    """Write the archive."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        expected = {"engines": write_engines(folder), "files": write_files(folder), "parts": write_parts(folder)}
        (folder / "expected.json").write_text(json.dumps(expected))
        with tarfile.open(archive, "w:xz") as file:
            file.add(folder, arcname=".")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
