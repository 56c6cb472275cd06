"""Hold documents, passages, queries and judgements in memory; each layout has its own reader in ``readers/``."""

from haybale.collections.builder import CollectionBuilder
from haybale.collections.collection import Collection, Links, Passages, Queries, Sections, Split
from haybale.collections.open import open_collection, open_documents
from haybale.collections.qrels import read_qrels, read_trec_run
from haybale.collections.reader import READERS, FolderReader, Reader
from haybale.collections.readers.parquet_folder import collection_from_frames
from haybale.collections.readers.pydocs import read_pydocs
from haybale.collections.resplit import PARAGRAPHS, by_section, resplit, with_paragraphs
from haybale.collections.saved import load_collection, save_collection
from haybale.collections.splitters import SPLITTERS, Paragraph, Splitter, find_splitter
from haybale.collections.unread import UnreadPart

__all__ = [
    "PARAGRAPHS",
    "READERS",
    "SPLITTERS",
    "Collection",
    "CollectionBuilder",
    "FolderReader",
    "Links",
    "Paragraph",
    "Passages",
    "Queries",
    "Reader",
    "Sections",
    "Split",
    "Splitter",
    "UnreadPart",
    "by_section",
    "collection_from_frames",
    "find_splitter",
    "load_collection",
    "open_collection",
    "open_documents",
    "read_pydocs",
    "read_qrels",
    "read_trec_run",
    "resplit",
    "save_collection",
    "with_paragraphs",
]
__dir__ = __all__.copy  # dir() lists the public names only
