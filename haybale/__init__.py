"""haybale finds the few relevant passages and documents in a haystack of long ones.

The rooms follow the way of the data, and none imports from one behind it:
:mod:`~haybale.collections` → :mod:`~haybale.embeddings` → :mod:`~haybale.retrieval` →
:mod:`~haybale.ensemble` → :mod:`~haybale.evaluation`; :mod:`~haybale.experiments` puts them together, and
:mod:`~haybale.reports` shows what came of it.
"""

from typing import Any

from haybale.cluster import on_cluster
from haybale.collections import Collection, CollectionBuilder, find_splitter, open_collection
from haybale.embeddings import (
    CachedEncoder,
    Chunking,
    ConcatEncoder,
    EmbeddingStore,
    Encoder,
    LSAEncoder,
    SentenceTransformerEncoder,
    TfidfEncoder,
    embed,
    embed_shards,
)
from haybale.ensemble import LearnedFusion, ProductKernelSVR, SVREnsemble, score_frame
from haybale.errors import (
    ClusterError,
    DeviceError,
    FileFormatError,
    HaybaleError,
    InputError,
    MissingExtraError,
    OutputExistsError,
    StoreError,
    TruncationWarning,
    UnknownNameError,
    VectorError,
)
from haybale.evaluation import evaluate
from haybale.experiments import Settings, compare
from haybale.retrieval import (
    PARM,
    ApproximateIndex,
    BM25Index,
    Hits,
    PassageIndex,
    Run,
    ShardedIndex,
    pool,
    rank_documents,
    reciprocal_rank_fusion,
)

__version__ = "0.1.0"

__all__ = [
    "PARM",
    "ApproximateIndex",
    "BM25Index",
    "CachedEncoder",
    "Chunking",
    "ClusterError",
    "Collection",
    "CollectionBuilder",
    "ConcatEncoder",
    "DeviceError",
    "EmbeddingStore",
    "Encoder",
    "FileFormatError",
    "HaybaleError",
    "Hits",
    "InputError",
    "LSAEncoder",
    "LearnedFusion",
    "MissingExtraError",
    "OutputExistsError",
    "PassageIndex",
    "ProductKernelSVR",
    "Run",
    "SVREnsemble",
    "SentenceTransformerEncoder",
    "Settings",
    "ShardedIndex",
    "StoreError",
    "TfidfEncoder",
    "TruncationWarning",
    "UnknownNameError",
    "VectorError",
    "compare",
    "embed",
    "embed_shards",
    "evaluate",
    "find_splitter",
    "on_cluster",
    "open_collection",
    "pool",
    "rank_documents",
    "reciprocal_rank_fusion",
    "score_frame",
]


def __getattr__(name: str) -> Any:
    if name == "LongformerEncoder":  # a module of torch, which the base install lacks
        from haybale import embeddings

        return embeddings.LongformerEncoder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
