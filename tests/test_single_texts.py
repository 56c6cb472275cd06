"""Where a list of texts is expected, a plain string is one text or refused; its letters are never texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.longformers import save_longformer, tokenizer
from support.tiny_models import save_bi_encoder

from haybale import BM25, BM25Index, CollectionBuilder, ConcatEncoder, Engine, LSAEncoder, ParagraphSearch, TfidfEncoder
from haybale.analysis import Analyzer, guess_language
from haybale.collections.queries import queries_from
from haybale.embeddings import LongformerEncoder, SentenceTransformerEncoder
from haybale.embeddings.counting import TermCounts
from haybale.errors import InputError

TEXT = "taxes are due in may"
PETS = ["a dog needs a lead", "cats purr", "taxes"]


def test_a_string_is_one_paragraph_of_a_built_query_and_one_passage_of_a_built_document() -> None:
    builder = CollectionBuilder("x", language="english")
    builder.add_document("d", TEXT)
    builder.add_query("q", TEXT, split="dev")
    built = builder.build()
    assert built.passages.texts.to_pylist() == built.queries.paragraphs.to_pylist() == [TEXT]
    with pytest.raises(InputError, match="'blank' is empty"):
        builder.add_query("blank", " ")


def test_a_string_is_one_text_of_engines_and_rankers() -> None:
    engine = Engine({"d": TEXT}, encoder=TfidfEncoder(min_df=1), language="english")
    engine.add({"e": "cats purr"})
    assert engine.collection.passages.texts.to_pylist() == [TEXT, "cats purr"]
    ranker = BM25().fit(engine)
    for queries in (TEXT, [TEXT], {"q": TEXT}, {"q": [TEXT]}):
        assert queries_from(engine.collection, queries).paragraphs.to_pylist() == [TEXT]
        [query] = ranker.rank(queries).query_ids
        assert [doc_id for doc_id, _ in ranker.rank(queries)[query]] == ["d"]
    assert ranker.explain(TEXT, "d").score == ranker.explain([TEXT], "d").score


INDEX = BM25Index(PETS, language="english")
TFIDF = TfidfEncoder(min_df=1, analyzer=Analyzer("english")).fit(PETS)
LSA = LSAEncoder(n_components=2, min_df=1, analyzer=Analyzer("english")).fit(PETS)


@pytest.mark.parametrize(
    "call",
    [
        lambda: BM25Index(TEXT),
        lambda: BM25Index(TEXT, language="english"),
        lambda: INDEX.search(TEXT, 1),
        lambda: INDEX.documents(TEXT, 1),
        lambda: INDEX.similarities(TEXT, 0),
        lambda: INDEX.analysed(TEXT),
        lambda: INDEX.extended(TEXT, None, passage_ids=["x"], doc_ids=["x"]),
        lambda: ParagraphSearch(INDEX, "rrf").rank(["q"], TEXT[:1]),
        lambda: ParagraphSearch(INDEX, "rrf").rank(["q"], [TEXT]),
        lambda: ParagraphSearch(INDEX, "rrf").search([TEXT]),
        lambda: ParagraphSearch(INDEX, "rrf").explain(TEXT, "0"),
        lambda: Analyzer("english")(TEXT),
        lambda: list(Analyzer("english").numbered(TEXT, {}, grow=True)),
        lambda: guess_language(TEXT),
        lambda: TermCounts.of(TEXT, Analyzer("english")),
        lambda: TfidfEncoder().fit(TEXT),
        lambda: LSAEncoder().fit(TEXT),
        lambda: TFIDF.encode(TEXT),
        lambda: TFIDF.encode_queries(TEXT),
        lambda: LSA.encode(TEXT),
        lambda: ConcatEncoder([TFIDF, TFIDF]).encode(TEXT),
    ],
)
def test_a_string_in_place_of_texts_is_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(InputError, match=r"string"):
        call()


def test_neural_encoders_refuse_a_string(tmp_path: Any) -> None:
    pytest.importorskip("torch")
    save_longformer(tmp_path / "longformer")
    tokenizer().save_pretrained(tmp_path / "longformer")
    for encoder in (
        LongformerEncoder(str(tmp_path / "longformer")),
        SentenceTransformerEncoder(save_bi_encoder(tmp_path / "bi-encoder")),
    ):
        for encode in (encoder.encode, encoder.encode_queries):
            with pytest.raises(InputError, match="single string"):
                encode(TEXT)
            assert np.isfinite(encode([TEXT])).all()
