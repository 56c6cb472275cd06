"""Options that several commands share, and what they mean together."""

from __future__ import annotations

from typing import Annotated

import typer

from haybale.embeddings import Chunking
from haybale.embeddings.find import LEXICAL, model_name

Encoder = Annotated[
    str, typer.Option(help="lsa, tfidf, a folder or hub id; longformer:NAME and sentence-transformers:NAME decide.")
]
Width = Annotated[int, typer.Option(help="Width of the LSA vectors.")]
Language = Annotated[str | None, typer.Option(help="english or german; guessed by default.")]
Layout = Annotated[str | None, typer.Option(help="gerdalir, beir, coliee, structured or parquet, if not recognised.")]
Pieces = Annotated[int, typer.Option(help="Cut passages into pieces of so many words or tokens; 0 for whole ones.")]
Stride = Annotated[int, typer.Option(help="A piece begins every so many; 0 for the length of a piece.")]
Unit = Annotated[str, typer.Option(help="words or tokens: what pieces are counted in.")]
Tokenizer = Annotated[str | None, typer.Option(help="For tokens: a hub id or folder; the encoder's by default.")]
Paragraphs = Annotated[
    str | None,
    typer.Option(help="Split documents and queries anew: lines, blank-lines, numbered, sentences, headings, sections."),
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, … or auto: where vectors are searched and learned from.")]
QueryPrompt = Annotated[str, typer.Option(help="Put before each query, for models that ask for it.")]
Dask = Annotated[str | None, typer.Option(help="Work on the Dask cluster whose scheduler has this address.")]
PassagePrompt = Annotated[str, typer.Option(help="Put before each passage, likewise.")]


def chunking_of(length: int, stride: int, unit: str, tokenizer: str | None, encoder: str) -> Chunking | None:
    if not length:
        return None
    if unit == "tokens" and tokenizer is None and encoder not in LEXICAL:
        tokenizer = model_name(encoder)
    return Chunking(length, stride or None, unit, tokenizer)
