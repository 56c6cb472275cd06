"""The vectors that heatmap and picture are made of: those of the comparison, as far as its settings tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from haybale.collections import Collection
from haybale.embeddings import Chunking
from haybale.experiments import Settings
from haybale.experiments.workbench import Workbench
from haybale.reports.load import Source

NONE = "none"  # in place of an encoder: no vectors
KEPT = (
    "paragraphs",
    "query_prompt",
    "passage_prompt",
    "width",
    "language",
    "parm_hits",
    "random_state",
)  # of the settings of a comparison: what texts and vectors depend on


def workbench(
    sources: Sequence[Source],
    collection: Collection,
    split: str,
    *,
    encoder: str | None,
    store: str | None,
    report: Callable[[str, float], None],
) -> Workbench | None:
    """Indexes and vectors of a collection, each made when it is asked for; None for ``encoder="none"``.

    ``encoder`` and ``store`` stand in place of those of the first source that has settings; without either, TF-IDF.
    """
    if encoder == NONE:
        return None
    recorded = next((source.settings for source in sources if source.settings), {})
    names = {each.name for each in fields(Settings)}
    kept: dict[str, Any] = {name: recorded[name] for name in KEPT if name in recorded and name in names}
    if encoder is None and store is None:
        encoder, store = recorded.get("encoder", "tfidf"), recorded.get("store")
    if store is None and recorded.get("chunking"):
        kept["chunking"] = Chunking(**recorded["chunking"])
    if encoder is not None and encoder != recorded.get("encoder"):
        kept = {name: value for name, value in kept.items() if not name.endswith("_prompt")}  # of another model
    return Workbench(
        collection, Settings(split=split, encoder=encoder or "tfidf", store=store, rankers=(), **kept), report
    )


def described(bench: Workbench) -> str:
    """What the vectors are, in words."""
    if bench.store is not None:
        made = bench.store.manifest["encoder"]
        return f"vectors of a store ({made.get('model') or made.get('class')})"
    named = {"tfidf": "TF-IDF vectors", "lsa": f"LSA vectors of width {bench.settings.width}"}
    name = bench.settings.encoder
    return named.get(name, f"vectors of {name.rstrip('/').rpartition('/')[2]}")
