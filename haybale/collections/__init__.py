"""Documents, passages, queries and judgements in memory; one reader a file."""

from haybale.collections.beir import read_beir
from haybale.collections.builder import CollectionBuilder
from haybale.collections.coliee import read_coliee
from haybale.collections.collection import Collection, Links, Passages, Queries, Sections, Split
from haybale.collections.frames import collection_from_frames
from haybale.collections.gerdalir import read_gerdalir
from haybale.collections.ir_datasets import read_ir_datasets
from haybale.collections.open import LAYOUTS, open_collection, open_documents
from haybale.collections.paragraphs import SPLITTERS, Paragraph, Splitter, find_splitter
from haybale.collections.paragraphs.by_name import PARAGRAPHS, with_paragraphs
from haybale.collections.paragraphs.resplit import labels_of, resplit
from haybale.collections.paragraphs.sections import by_section
from haybale.collections.parquet import read_parquet
from haybale.collections.pydocs import read_pydocs
from haybale.collections.qrels import read_qrels
from haybale.collections.saved import load_collection, save_collection
from haybale.collections.structured import read_structured
from haybale.collections.trec import read_trec_run

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
