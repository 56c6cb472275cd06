"""Documents, passages, queries and judgements in memory; one reader a file."""

from haybale.collections.builder import CollectionBuilder
from haybale.collections.collection import Collection, Links, Passages, Queries, Sections, Split
from haybale.collections.open import LAYOUTS, open_collection, open_documents
from haybale.collections.qrels import read_qrels, read_trec_run
from haybale.collections.readers.beir import read_beir
from haybale.collections.readers.coliee import read_coliee
from haybale.collections.readers.frames import collection_from_frames, read_parquet
from haybale.collections.readers.gerdalir import read_gerdalir
from haybale.collections.readers.ir_datasets import read_ir_datasets
from haybale.collections.readers.pydocs import read_pydocs
from haybale.collections.readers.structured import read_structured
from haybale.collections.resplit import PARAGRAPHS, by_section, labels_of, resplit, with_paragraphs
from haybale.collections.saved import load_collection, save_collection
from haybale.collections.splitters import SPLITTERS, Paragraph, Splitter, find_splitter

__all__ = [
    "LAYOUTS",
    "PARAGRAPHS",
    "SPLITTERS",
    "Collection",
    "CollectionBuilder",
    "Links",
    "Paragraph",
    "Passages",
    "Queries",
    "Sections",
    "Split",
    "Splitter",
    "by_section",
    "collection_from_frames",
    "find_splitter",
    "labels_of",
    "load_collection",
    "open_collection",
    "open_documents",
    "read_beir",
    "read_coliee",
    "read_gerdalir",
    "read_ir_datasets",
    "read_parquet",
    "read_pydocs",
    "read_qrels",
    "read_structured",
    "read_trec_run",
    "resplit",
    "save_collection",
    "with_paragraphs",
]
