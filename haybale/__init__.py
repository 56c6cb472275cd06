"""haybale finds the few relevant passages and documents in a haystack of long ones.

    engine = haybale.Engine.build("pydocs", "engine/")          # a collection, its encoder and indexes, in a folder
    ranker = haybale.Learned().fit(engine)                       # the best ranker, trained on the collection's queries
    run = ranker.rank({"q1": "interpolate missing values"})
    why = ranker.explain("interpolate missing values", run["q1"][0][0])
    ranker.save("model/"); ranker = haybale.load("model/", engine)

The rooms follow the way of the data, and none imports from one behind it: :mod:`~haybale.collections` →
:mod:`~haybale.embeddings` → :mod:`~haybale.retrieval` → :mod:`~haybale.ensemble` → :mod:`~haybale.engine` →
:mod:`~haybale.context`, :mod:`~haybale.pairs` → :mod:`~haybale.rankers` → :mod:`~haybale.evaluation` →
:mod:`~haybale.finetune`, :mod:`~haybale.reports`.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.2.0"

# Where each name is: imported when it is first asked for, so that `import haybale` costs nothing.
_HOME = {
    "haybale.cluster": ("on_cluster",),
    "haybale.collections": ("Collection", "CollectionBuilder", "find_splitter", "open_collection"),
    "haybale.embeddings": (
        *("CachedEncoder", "Chunking", "ConcatEncoder", "EmbeddingStore", "Encoder", "LSAEncoder", "LongformerEncoder"),
        *("SentenceTransformerEncoder", "TfidfEncoder", "embed", "embed_shards"),
    ),
    "haybale.engine": ("Engine",),
    "haybale.ensemble": ("ProductKernelSVR", "SVREnsemble", "score_frame"),
    "haybale.errors": (
        *("ClusterError", "DeviceError", "FileFormatError", "HaybaleError", "InputError", "MissingExtraError"),
        *("NotFittedError", "OutputExistsError", "StoreError", "TruncationWarning", "UnknownNameError", "VectorError"),
    ),
    "haybale.evaluation": (
        *("compare", "evaluate", "evaluate_passages", "rank_passages", "section_qrels", "tune_bm25"),
    ),
    "haybale.context": (
        *("DocumentGraph", "GraphContext", "LinearContext", "LinkedDocuments", "SectionPropagation", "TokenContext"),
    ),
    "haybale.rankers": (
        *("BM25", "KNN", "PARM", "RRF", "SVR", "EmptyRankingWarning", "Explanation", "InSpace", "Learned"),
        *("LearnedFusion", "Ranker", "SimilarQueries", "load", "parse"),
    ),
    "haybale.pairs": (
        *("BERTPLI", "PLI", "CrossEncoder", "CrossPairs", "InteractionStore", "Interactions", "MaxSim"),
        *("PairEncoder", "Reading", "TokenPairs", "VectorPairs", "interact", "train_pair_encoder"),
    ),
    "haybale.retrieval": (
        *("BM25Index", "Hits", "ParagraphSearch", "PassageIndex", "QueryNeighbours", "Run"),
        *("ShardedIndex", "pool", "rank_documents", "reciprocal_rank_fusion"),
    ),
    "haybale.finetune.recipe": ("Recipe",),
    "haybale.finetune.trainer": ("TrainedEncoder", "train_encoder"),
    "haybale.finetune.training_pairs": ("training_pairs",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
