"""What heatmap and picture are made of: the engine of the comparison and its PARM, as far as the settings tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from haybale.collections import Collection
from haybale.embeddings import Chunking, EmbeddingStore
from haybale.embeddings.encoder import FITTED, rebuild
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.rankers import PARM, from_spec
from haybale.reports.load import Source

NONE = "none"  # in place of an encoder: no vectors
KEPT = ("paragraphs", "query_prompt", "passage_prompt", "width", "language", "random_state")  # with them, vectors are


def engine_for(
    sources: Sequence[Source], opened: Collection | Engine, *, encoder: str | None, store: str | None
) -> Engine | None:
    """The engine that was opened, or one in memory, whose indexes are made when they are asked for.

    ``encoder`` and ``store`` stand in place of those of the first source that has settings; without either, TF-IDF.
    None for ``encoder="none"``.
    """
    if encoder == NONE:
        return None
    if isinstance(opened, Engine) and encoder is None and store is None:
        return opened
    recorded = _recorded(sources)
    kept: dict[str, Any] = {name: recorded[name] for name in KEPT if name in recorded}
    if isinstance(opened, Engine):
        opened, kept = opened.whole, kept | {"paragraphs": None}  # they are split already
    chosen: Any = encoder
    if encoder is None and store is None:
        chosen, store = _made(recorded.get("encoder", "tfidf")), recorded.get("store")
    if store is None and recorded.get("chunking"):
        kept["chunking"] = Chunking(**recorded["chunking"])
    if encoder is not None and encoder != recorded.get("encoder"):
        kept = {name: value for name, value in kept.items() if not name.endswith("_prompt")}  # of another model
    return Engine(opened, encoder=chosen or "tfidf", store=store, **kept)


def parm_for(sources: Sequence[Source]) -> PARM:
    """VRRF with the hits that the comparison took; whose share of a score is exact for every pair of paragraphs.

    Settings of earlier versions have the number of hits beside the rankers, now each ranker has its own.
    """
    recorded = _recorded(sources)
    for spec in _specs(recorded.get("rankers")):
        if spec["ranker"] == PARM.name and spec.get("over", "vectors") == "vectors":
            ranker = from_spec(spec)
            assert isinstance(ranker, PARM)
            return ranker.set_params(aggregation="vrrf")
    return PARM("vrrf", n_hits=recorded.get("parm_hits", 1000))


def described(engine: Engine) -> str:
    """What the vectors are, in words."""
    settings = engine.settings
    if settings["store"] is not None:
        made = EmbeddingStore(settings["store"]).manifest["encoder"]
        return f"vectors of a store ({made.get('model') or made.get('class')})"
    encoder = settings["encoder"]
    name = encoder if isinstance(encoder, str) else str(encoder.get("model") or encoder["class"])
    named = {"tfidf": "TF-IDF vectors", "lsa": f"LSA vectors of width {settings['width']}"}
    return named.get(name, f"vectors of {name.rstrip('/').rpartition('/')[2]}")


def _recorded(sources: Sequence[Source]) -> Mapping[str, Any]:
    return next((source.settings for source in sources if source.settings), {})


def _made(encoder: Any) -> Any:
    """An encoder by name, or from what one that was given as an object said of itself."""
    if not isinstance(encoder, Mapping):
        return encoder
    kind = FITTED.get(str(encoder.get("class")))
    if kind is not None and "fitted" not in encoder:
        return kind(**encoder.get("parameters", {}))
    try:
        return rebuild(dict(encoder))
    except InputError:
        raise InputError(
            f"the comparison was given its encoder, of class {encoder.get('class')!r}, which cannot be made again from "
            "what is recorded; --encoder tfidf makes other vectors, --encoder none leaves heatmap and picture out"
        ) from None


def _specs(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every ranker among plain values, also within others."""
    if isinstance(value, Mapping):
        if isinstance(value.get("ranker"), str):
            yield value
        for inner in value.values():
            yield from _specs(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _specs(inner)
