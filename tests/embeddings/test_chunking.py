"""Pieces: of equal length, covering the passage, mapped back."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haybale.collections import Collection, CollectionBuilder
from haybale.embeddings import Chunking, cut
from haybale.errors import InputError, UnknownNameError
from haybale.retrieval import Hits, passage_hits


@given(words=st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=30), data=st.data())
def test_pieces_cover_the_passage(words: list[str], data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 12))
    stride = data.draw(st.integers(1, length))
    text = "  " + " \n".join(words) + " "
    chunking = Chunking(length, stride)
    pieces = [piece.split() for piece in chunking.pieces(text)]
    assert all(len(piece) == length for piece in pieces[:-1])
    assert 1 <= len(pieces[-1]) <= length
    assert len(pieces) == 1 + max(0, -(-(len(words) - length) // stride))  # no piece inside another
    for number, piece in enumerate(pieces):
        assert piece == words[number * stride : number * stride + length]
    assert chunking.pieces(text) == [text[a:b] for a, b in chunking.splitter()(text)]


def test_a_cut_collection(toy: Collection) -> None:
    whole = cut(toy, Chunking(100, 50))  # changes nothing but the ids
    assert whole.collection.passages.texts.to_pylist() == toy.passages.texts.to_pylist()
    assert whole.passage.tolist() == list(range(toy.n_passages))
    pieces = cut(toy, Chunking(2))
    assert pieces.collection.n_documents == toy.n_documents
    assert pieces.collection.splits is toy.splits
    ids, texts = pieces.collection.passages.ids.to_pylist(), pieces.collection.passages.texts.to_pylist()
    assert ids[:3] == ["dogs:0#0", "dogs:0#1", "dogs:0#2"]
    assert texts[:3] == ["dogs bark", "at the", "gate"]
    originals = toy.passages.texts.to_pylist()
    for number, (start, end) in enumerate(pieces.spans):
        assert originals[pieces.passage[number]][start:end] == texts[number]
    owners = toy.passages.doc_of[pieces.passage]
    np.testing.assert_array_equal(pieces.collection.passages.doc_of, owners)
    starts = [number for number, (a, b) in enumerate(pairwise([-1, *pieces.passage])) if a != b]
    assert [" ".join(texts[a:b]) for a, b in pairwise([*starts, len(texts)])] == originals


def test_links_go_out_from_every_piece() -> None:
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
    cut_up = cut(collection, Chunking(2)).collection
    assert collection.links is not None
    assert cut_up.links is not None
    assert cut_up.sections is collection.sections
    assert cut_up.passages.ids.to_pylist() == ["a0#0", "a1#0", "a1#1", "b0#0", "b1#0", "b1#1"]
    assert cut_up.links.internal.tolist() == [[1, 0], [2, 0]]
    assert cut_up.links.passage_to_document.tolist() == [[4, 0], [5, 0]]
    np.testing.assert_array_equal(cut_up.links.section_to_document, collection.links.section_to_document)
    np.testing.assert_array_equal(cut_up.passages.sections, np.repeat(collection.passages.sections, [1, 2, 1, 2]))


@given(st.integers(0, 2**32 - 1))
def test_passages_rank_by_their_best_piece(seed: int) -> None:
    rng = np.random.default_rng(seed)
    passage = np.sort(rng.integers(5, size=12))
    k = int(rng.integers(1, 13))
    pieces = np.stack([rng.permutation(12)[:k] for _ in range(3)])
    pieces[rng.random(pieces.shape) < 0.2] = -1
    scores = np.where(pieces < 0, -np.inf, rng.integers(4, size=pieces.shape)).astype(np.float32)
    found = passage_hits(Hits(pieces, scores), passage)
    for row in range(3):
        best: dict[int, float] = {}
        for piece, score in zip(pieces[row], scores[row], strict=True):
            if piece >= 0:
                best[passage[piece]] = max(best.get(passage[piece], -np.inf), score)
        expected = sorted(best.items(), key=lambda item: (-item[1], item[0]))
        real = found.passages[row] >= 0
        assert list(zip(found.passages[row][real], found.scores[row][real], strict=True)) == expected
    with pytest.raises(InputError, match="expected numbers below 12"):
        passage_hits(Hits(np.array([[12]]), np.ones((1, 1), dtype=np.float32)), passage)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"length": 0}, "at least 1, found 0"),
        ({"length": 3, "stride": 4}, "between 1 and the length, 3, found 4"),
        ({"length": 3, "stride": 0}, "between 1 and the length"),
        ({"length": 3, "unit": "tokens"}, "need a tokenizer"),
        ({"length": 3, "tokenizer": "x"}, "and only they, need a tokenizer"),
        ({"length": 3, "unit": "letters"}, "known: words, tokens"),
    ],
)
def test_bad_settings(settings: dict, message: str) -> None:
    with pytest.raises((InputError, UnknownNameError), match=message):
        Chunking(**settings)


@pytest.mark.filterwarnings("default")  # transformers warns about itself
def test_pieces_by_tokens(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["[UNK]", "[PAD]", *"abcdefgh"]
    tokenizer = Tokenizer(
        models.WordPiece(
            {word: i for i, word in enumerate([*words, *(f"##{w}" for w in "abcdefgh")])}, unk_token="[UNK]"
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]"
    ).save_pretrained(tmp_path / "t")
    chunking = Chunking(3, 2, unit="tokens", tokenizer=str(tmp_path / "t"))
    assert chunking.pieces("abc d efgh") == ["abc", "c d e", "efg", "gh"]
    with pytest.raises(InputError, match="cannot load the tokenizer"):
        Chunking(3, unit="tokens", tokenizer=str(tmp_path / "nothing")).pieces("a")
