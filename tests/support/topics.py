"""An artificial collection for engines and rankers: ten topics, with different words in documents and in queries.

Only the judgements of training queries connect these words, so rankers can learn from them. Two documents have the same
text (``TWINS``), one has no passage, and the ids are not in the order of the rows.
"""

from __future__ import annotations

import numpy as np

from haybale.collections import Collection, CollectionBuilder

N_TOPICS, N_DOCUMENTS = 10, 40
TWINS = ("d07", "a-twin")  # the second is the last row and has the first id
_SYLLABLES = ("ba", "ko", "mi", "tu", "re", "la", "so", "ni", "pe", "du")

# One ranker of each kind with small settings.
SVR = "n_candidates=12,n_bags=8,n_jobs=1"
EVIDENCE = f"evidence=[bm25-doc,knn,knn-queries],{SVR}"
LEARNED = f"learned(bm25,knn,knn-queries,svr({EVIDENCE}),depth=30)"
RANKERS = (
    "bm25",
    "bm25-doc(k1=0.9,b=0.4,k3=0.5)",
    "knn",
    "knn-doc",
    "knn-firstp",
    "parm-rrf",
    "parm-vrrf",
    "parm-vmin(n_hits=20)",
    "bm25-parm-rrf",
    "bm25-parm-combsum(k1=2,k3=0)",
    "knn-queries(k=7)",
    "bm25-weighted(k1=0.9,k3=0.5,min_count=2)",
    f"svr({EVIDENCE})",
    f"svr(unit=passage,{SVR})",
    f"svr(candidates=none,{EVIDENCE})",
    f"svr-memory({SVR})",
    f"rrf(bm25,svr-memory({SVR}),k=20)",
    f"rrf(knn,rrf(bm25,svr({EVIDENCE})),depth=25)",
    LEARNED,
    f"learned(bm25-doc,rrf(knn,knn-queries),{LEARNED})",
    "cut(rrf(bm25,knn-queries),objective=recall,target=0.9,at_least_one=true)",
    "unseen(bm25-doc)",
    "nearby(knn-queries(k=7),distance=2)",
)
LEARNING = tuple(name for name in RANKERS if any(part in name for part in ("svr", "queries", "weighted", "unseen")))


def word(number: int) -> str:
    """Return a word that stemmers and stop lists do not change."""
    return "".join(_SYLLABLES[int(digit)] for digit in f"{number:04d}") + "x"


# New documents to add.
NEW = {"n1": [f"{word(3)} {word(4)} newword", "more of it"], "n2": f"{word(105)} {word(106)} onceagain"}


def topic_collection(n_train: int = 60, n_dev: int = 15, n_test: int = 15, seed: int = 0) -> Collection:
    """Return documents of 1 to 4 passages, and queries of 1 to 3 paragraphs; some have an own document or a grade 0."""
    rng = np.random.default_rng(seed)
    builder = CollectionBuilder("topics", language="english")

    def text(topic: int, formal: int, plain: int, common: int) -> str:
        """Return a text with document words and query words of a topic, and common words."""
        words = [word(100 * topic + int(i)) for i in rng.integers(8, size=formal)]
        words += [word(1000 + 100 * topic + int(i)) for i in rng.integers(6, size=plain)]
        words += [word(5000 + int(i)) for i in np.minimum(rng.geometric(0.1, size=common), 40)]
        rng.shuffle(words)
        return " ".join(words)

    ids = [f"d{number:02d}" for number in rng.permutation(N_DOCUMENTS)]
    topics = {doc_id: row % N_TOPICS for row, doc_id in enumerate(ids)}
    passages = {
        doc_id: [text(topics[doc_id], 5, int(rng.integers(2)), int(rng.integers(3, 9))) for _ in range(n)]
        for doc_id, n in zip(ids, rng.integers(1, 5, size=len(ids)), strict=True)
    }
    for doc_id in ids:
        builder.add_document(doc_id, passages[doc_id])
    builder.add_document("blank", [])
    builder.add_document(TWINS[1], passages[TWINS[0]])
    for split, n in (("train", n_train), ("dev", n_dev), ("test", n_test)):
        for i in range(n):
            relevant = ids[int(rng.integers(len(ids)))]
            paragraphs = [text(topics[relevant], int(rng.integers(2)), 3, 3) for _ in range(int(rng.integers(1, 4)))]
            own = ids[int(rng.integers(len(ids)))] if i % 4 == 0 else None
            query = f"{split}{i}"
            builder.add_query(query, paragraphs, own=own, split=split)
            graded = {relevant: 2}
            if i % 3 == 0:  # another document of the topic, and one that is not relevant
                graded |= {ids[(ids.index(relevant) + N_TOPICS) % N_DOCUMENTS]: 1}
                graded |= {ids[(ids.index(relevant) + 1) % N_DOCUMENTS]: 0}
            for doc_id, grade in graded.items():
                if doc_id != own:
                    builder.add_judgement(split, query, doc_id, grade)
    return builder.build()
