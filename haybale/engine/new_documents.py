"""Make the documents of a new engine from the arguments of :class:`~haybale.Engine`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from haybale.analysis import Analyzer, as_analyzer
from haybale.collections import Collection, open_documents, with_paragraphs
from haybale.collections.open import Documents as DocumentsLike
from haybale.device import find_device
from haybale.embeddings import Chunking
from haybale.embeddings.encoder import encoder_text
from haybale.engine.changes import LiveDocuments
from haybale.engine.encoder_source import describe_encoder
from haybale.engine.learned_compounds import learn_here
from haybale.engine.segment import Segment
from haybale.engine.snapshot import Snapshot
from haybale.engine.storage import Storage
from haybale.errors import InputError
from haybale.parameters import BOOLEAN, TEXT_OR_NONE, Constraints, check_parameters
from haybale.retrieval.bm25_index import language_of_sample

_RANGES: dict[str, Constraints] = {
    **dict.fromkeys(("language", "paragraphs", "device"), TEXT_OR_NONE),
    "analyzer": [Analyzer, str, callable, None],
    "compounds": [*BOOLEAN, None],
    "chunking": [Chunking, None],
    "store": [str, Path, None],
}


class NewDocuments(NamedTuple):
    """The documents of a new engine, in memory, with what its manifest will hold about them."""

    live: LiveDocuments
    settings: dict[str, Any]
    language: str


def new_documents(
    collection: DocumentsLike,
    arguments: Mapping[str, Any],
    n_segments: int | None = None,
    learn: Callable[..., Analyzer] = learn_here,
) -> NewDocuments:
    """Read documents, and choose their language and analyzer.

    Parameters
    ----------
    collection : Collection, str, Path, mapping or frame
    arguments : mapping
        All other parameters of :class:`~haybale.Engine`, which describes the errors.
    n_segments : int, optional
        The number of segments in which the documents are indexed, at least 2; None for one index of all.
    learn : callable
        Learns the compounds, as :func:`~haybale.engine.learned_compounds.learn_here` does.
    """
    check_parameters("Engine", arguments, _RANGES)
    encoder, analyzer, device = arguments["encoder"], arguments["analyzer"], arguments["device"]
    chunking, store, compounds = arguments["chunking"], arguments["store"], arguments["compounds"]
    if store is not None and chunking is not None:
        raise InputError("'store' has a chunking of its own, so 'chunking' cannot be set; omit it")
    if analyzer is not None and arguments["language"] is not None:
        raise InputError("give 'language' or 'analyzer', not both")
    chosen_analyzer = None if analyzer is None else as_analyzer(analyzer)
    settings: dict[str, Any] = {
        "encoder": encoder_text(str(encoder)) if isinstance(encoder, str | Path) else describe_encoder(encoder),
        "language": arguments["language"],
        "analyzer": None if chosen_analyzer is None else chosen_analyzer.describe(),
        "paragraphs": arguments["paragraphs"],
        "chunking": None if chunking is None else chunking.describe(),
        "store": None if store is None else str(store),
        "segments": n_segments,
    }
    find_device(device or "cpu")  # raises for a missing device before any work
    whole = split_documents(collection, arguments["paragraphs"])
    language = arguments["language"] or whole.language or language_of_sample(whole.passages.texts)
    if chosen_analyzer is None:
        learned = learn(whole, language, settings, compounds)
        if learned.compounds is not None:
            chosen_analyzer, settings["analyzer"] = learned, learned.describe()
    elif compounds:
        raise InputError("an 'analyzer' splits compounds or not itself, so 'compounds' cannot be set; omit it")
    first = Segment.first(
        whole,
        settings,
        language,
        chosen_analyzer,
        encoder=str(encoder) if isinstance(encoder, Path) else encoder,
        storage=Storage(),
        device=device,
    )
    return NewDocuments(LiveDocuments(Snapshot([first])), settings, language)


def split_documents(documents: DocumentsLike, paragraphs: str | None) -> Collection:
    """Return documents in any form as a collection, split into paragraphs again if ``paragraphs`` names a splitter."""
    collection = open_documents(documents)
    return collection if paragraphs is None else with_paragraphs(collection, paragraphs)
