"""Chunking: pieces have equal length, cover the passage, and keep sections and links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haybale.collections import Collection, CollectionBuilder
from haybale.embeddings import Chunking, cut
from haybale.errors import InputError


@given(words=st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=30), data=st.data())
def test_pieces_cover_the_passage(words: list[str], data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 12))
    stride = data.draw(st.integers(1, length))
    text = "  " + " \n".join(words) + " "
    pieces = [text[a:b].split() for a, b in Chunking(length, stride).splitter()(text)]
    assert all(len(piece) == length for piece in pieces[:-1])
    assert 1 <= len(pieces[-1]) <= length
    assert len(pieces) == 1 + max(0, -(-(len(words) - length) // stride))  # no piece contains another
    for number, piece in enumerate(pieces):
        assert piece == words[number * stride : number * stride + length]


def test_a_cut_collection(toy: Collection) -> None:
    whole = cut(toy, Chunking(100, 50))  # changes only the ids
    assert whole.passages.texts.to_pylist() == toy.passages.texts.to_pylist()
    pieces = cut(toy, Chunking(2))
    assert (pieces.n_documents, pieces.splits) == (toy.n_documents, toy.splits)
    ids, texts = pieces.passages.ids.to_pylist(), pieces.passages.texts.to_pylist()
    assert ids[:3] == ["dogs:0#0", "dogs:0#1", "dogs:0#2"]
    assert texts[:3] == ["dogs bark", "at the", "gate"]
    for document, part in zip(toy.document_texts(), pieces.document_texts(), strict=True):
        assert document.split() == part.split()


def test_every_piece_has_the_links_of_its_passage() -> None:
    builder = CollectionBuilder("linked")
    for name in "ab":
        number = builder.add_document(name)
        builder.add_section(number, f"{name}.1", "first", None)
        for i in range(2):
            section = builder.add_section(number, f"{name}.{i + 2}", "more", f"{name}.1")
            builder.add_passage(number, "one two three" if i else "one", f"{name}{i}", section)
    builder.add_internal_link("a1", "a.1")
    builder.add_external_link("b1", "a")
    builder.add_external_link("b.2", "a")
    collection = builder.build()
    cut_up = cut(collection, Chunking(2))
    assert collection.links is not None
    assert cut_up.links is not None
    assert cut_up.sections is collection.sections
    assert cut_up.passages.ids.to_pylist() == ["a0#0", "a1#0", "a1#1", "b0#0", "b1#0", "b1#1"]
    assert cut_up.links.internal.tolist() == [[1, 0], [2, 0]]
    assert cut_up.links.passage_to_document.tolist() == [[4, 0], [5, 0]]
    np.testing.assert_array_equal(cut_up.links.section_to_document, collection.links.section_to_document)
    np.testing.assert_array_equal(cut_up.passages.sections, np.repeat(collection.passages.sections, [1, 2, 1, 2]))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"length": 0}, "length"),
        ({"stride": 4}, "stride .* found 4"),
        ({"unit": "letters"}, "unit"),
        ({"unit": "tokens"}, "tokenizer=None"),
        ({"tokenizer": "x"}, "tokenizer='x'"),
    ],
)
def test_bad_settings(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        Chunking(**{"length": 3} | settings)


@pytest.mark.filterwarnings("default")  # transformers itself warns
def test_pieces_by_tokens(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["[UNK]", "[PAD]", *"abcdefgh", *(f"##{letter}" for letter in "abcdefgh")]
    tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]")
    fast.save_pretrained(tmp_path / "t")
    chunking = Chunking(3, 2, unit="tokens", tokenizer=str(tmp_path / "t"))
    text = "abc d efgh"
    assert [text[a:b] for a, b in chunking.splitter()(text)] == ["abc", "c d e", "efg", "gh"]
    with pytest.raises(InputError, match="nothing"):
        Chunking(3, unit="tokens", tokenizer=str(tmp_path / "nothing")).splitter()
