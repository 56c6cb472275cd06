"""Lexical encoders against scikit-learn's vectorisers; their files; bad input."""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer

from haybale.analysis import LANGUAGES, Analyzer, char_ngrams, guess_language, stop_words
from haybale.collections import Collection
from haybale.embeddings import Encoder, LSAEncoder, TfidfEncoder, counting
from haybale.embeddings import lsa as lsa_module
from haybale.embeddings.counting import TermCounts
from haybale.errors import FileFormatError, InputError, OutputExistsError, UnknownNameError
from haybale.retrieval import PassageIndex
from haybale.sealed import signed

TEXTS = [
    "Dogs bark at cats,\tdogs at doors",
    "cats meow",
    "a Dog and a cat",
    "the dogs bark loudly; é, ß, I",
    "cats do meow and purr",
    "barking",
    "of the",
]
GERMAN = ["Die Häuser brennen, ein Haus!", "Das Gericht entschied über Häuser", "Gerichte, Straßen und ein Haus"]


def columns(encoder: TfidfEncoder, kind: str) -> list[str]:
    return list(encoder.vocabularies_[kind])


@pytest.mark.parametrize("language", ["english", "german"])
@pytest.mark.parametrize("sublinear_tf", [True, False])
@pytest.mark.parametrize("min_df", [1, 2])
def test_words_are_scikit_learns(language: str, sublinear_tf: bool, min_df: int) -> None:
    texts = TEXTS if language == "english" else GERMAN
    encoder = TfidfEncoder(language=language, sublinear_tf=sublinear_tf, min_df=min_df).fit(texts)
    vectorizer = TfidfVectorizer(analyzer=Analyzer(language).terms, min_df=min_df, sublinear_tf=sublinear_tf)
    expected = vectorizer.fit_transform(texts).toarray()
    order = [vectorizer.vocabulary_[term] for term in columns(encoder, "word")]
    found = encoder.encode(texts)
    assert found.dtype == np.float32
    assert found.shape == (len(texts), encoder.dim) == expected.shape
    np.testing.assert_allclose(found.toarray(), expected[:, order], atol=1e-6)


@pytest.mark.parametrize("sizes", [(1, 1), (3, 5), (4, 4), (2, 9)])
@pytest.mark.parametrize("texts", [TEXTS, GERMAN], ids=["english", "german"])
def test_character_ngrams_are_scikit_learns(texts: list[str], sizes: tuple[int, int]) -> None:
    encoder = TfidfEncoder(words=False, char_ngrams=sizes).fit(texts)
    vectorizer = TfidfVectorizer(analyzer="char_wb", ngram_range=sizes, min_df=2, sublinear_tf=True)
    expected = vectorizer.fit_transform(texts).toarray()
    order = [vectorizer.vocabulary_[term] for term in columns(encoder, "ngram")]
    assert len(order) == len(vectorizer.vocabulary_)
    np.testing.assert_allclose(encoder.encode(texts).toarray(), expected[:, order], atol=1e-6)


@given(text=st.text(max_size=30), least=st.integers(1, 5), more=st.integers(0, 3))
def test_any_text_has_the_ngrams_of_scikit_learn(text: str, least: int, more: int) -> None:
    analyzer = TfidfVectorizer(analyzer="char_wb", ngram_range=(least, least + more)).build_analyzer()
    found = [gram for word in text.lower().split() for gram in char_ngrams(word, (least, least + more))]
    # scikit-learn's pattern for white space and str.split differ on control characters such as \x1c only.
    if text.lower().split() == " ".join(text.lower().split()).split(" ") or not text.strip():
        assert sorted(found) == sorted(analyzer(text))


def test_words_and_ngrams_are_counted_apart() -> None:
    """The word "cat" and the n-gram "cat" are two terms; the row is normalised over both kinds."""
    encoder = TfidfEncoder(char_ngrams=(3, 3), min_df=1).fit(["cat", "cats and cat"])
    assert encoder.vocabularies_["word"] == {"cat": 0}
    assert encoder.vocabularies_["ngram"]["cat"] == 1
    row = encoder.encode(["cat"])
    assert row.indices.tolist() == [0, 1, 2, 3]  # cat; " ca", "cat", "at "
    np.testing.assert_allclose(sparse.linalg.norm(row), 1, rtol=1e-6)


@settings(max_examples=20, deadline=None)
@given(batch=st.integers(1, 9), ngrams=st.booleans())
def test_batches_change_nothing(batch: int, ngrams: bool) -> None:
    given_ngrams = (2, 3) if ngrams else None
    expected = TfidfEncoder(char_ngrams=given_ngrams).fit(TEXTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "BATCH", batch)
        patch.setattr(lsa_module, "BATCH", batch)
        encoder = TfidfEncoder(char_ngrams=given_ngrams).fit(iter(TEXTS))
        assert encoder.describe() == expected.describe()
        rows = encoder.encode(TEXTS)
        np.testing.assert_array_equal(rows.toarray(), expected.encode(TEXTS).toarray())
        lsa = LSAEncoder(3, char_ngrams=given_ngrams).fit(iter(TEXTS))
        vectors = lsa.encode(TEXTS)
    other = LSAEncoder(3, char_ngrams=given_ngrams).fit(TEXTS)
    assert lsa.describe() == other.describe()
    np.testing.assert_array_equal(vectors, other.encode(TEXTS))


def test_a_row_depends_on_its_text_alone(pydocs: Collection) -> None:
    """Bit for bit, so that what a store holds does not depend on the order it was made in."""
    texts = pydocs.passages.texts[:1500].to_pylist()
    for encoder in (TfidfEncoder(char_ngrams=(3, 4), min_df=3).fit(texts), LSAEncoder(70).fit(texts)):
        together = encoder.encode(texts)
        for chosen in ([0], [7, 3, 1499], list(range(11, 400, 3))):
            rows, alone = together[chosen], encoder.encode([texts[i] for i in chosen])
            if sparse.issparse(rows):
                rows, alone = rows.toarray(), alone.toarray()
            np.testing.assert_array_equal(rows, alone)


def test_nothing_known_is_the_zero_row() -> None:
    encoder = TfidfEncoder().fit(TEXTS)
    assert isinstance(encoder, Encoder)
    rows = encoder.encode(["zzzz qqqq", "dogs", "the of"])
    assert np.diff(rows.indptr).tolist() == [0, 1, 0]
    assert encoder.encode([]).shape == (0, encoder.dim)
    index = PassageIndex(rows)
    assert index.search(encoder.encode(["zzzz"]), 3).passages.tolist() == [[-1, -1, -1]]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"language": "klingon"}, "known: english, german"),
        ({"min_df": 0}, "min_df must be at least 1, found 0"),
        ({"words": False}, "without words an encoder needs char_ngrams"),
        ({"char_ngrams": (4, 3)}, "1 <= least <= greatest, found"),
        ({"char_ngrams": (3,)}, "two sizes"),
        ({"char_ngrams": (0, 3)}, "two sizes"),
        ({"min_df": 99}, "no term occurs in 99 or more of the 7 texts"),
    ],
)
def test_settings_that_make_no_encoder(settings: dict, message: str) -> None:
    for encoder in (TfidfEncoder(**settings), LSAEncoder(**settings)):
        with pytest.raises((InputError, UnknownNameError), match=message):
            encoder.fit(TEXTS)


def test_bad_texts_are_refused() -> None:
    for encoder in (TfidfEncoder(), LSAEncoder(2)):
        with pytest.raises(InputError, match="no texts"):
            encoder.fit([])
        with pytest.raises(InputError, match="single string"):
            encoder.fit("one text")
        with pytest.raises(InputError, match="text 1 is no string but int"):
            encoder.fit(["a", 3])
        encoder.fit(TEXTS)
        with pytest.raises(InputError, match="text 1 of 2 is empty"):
            encoder.encode(["a", " "])


def test_lsa_fits_on_a_sample() -> None:
    texts = [f"{word} {other}" for word in ("dog", "cat", "tax", "road") for other in ("salt", "snow", "gate", "law")]
    whole = LSAEncoder(4).fit(texts)
    part = LSAEncoder(4, max_fit_texts=9).fit(texts)
    assert part.describe()["fitted"] != whole.describe()["fitted"]
    assert part.describe() == LSAEncoder(4, max_fit_texts=9).fit(iter(texts)).describe()
    other = LSAEncoder(4, max_fit_texts=9, random_state=1).fit(texts)
    assert other.describe()["fitted"] != part.describe()["fitted"]
    enough = LSAEncoder(4, max_fit_texts=16).fit(texts)
    assert enough.describe()["fitted"] == whole.describe()["fitted"]
    with pytest.raises(InputError, match="max_fit_texts must be at least 1"):
        LSAEncoder(max_fit_texts=0).fit(texts)


def test_every_text_is_as_likely_in_the_sample() -> None:
    counts = np.zeros(20)
    for seed in range(2000):
        sample = lsa_module._sampled([str(i) for i in range(20)], 5, seed)
        assert len(set(sample)) == 5
        counts[[int(text) for text in sample]] += 1
    np.testing.assert_allclose(counts / 2000, 0.25, atol=0.05)


# terms that were counted before ---------------------------------------------------------------------------

PARTS = ["Dogs", "dog's", "cat", "the", "\n", "é", "x", "Straße", "42"]
SOME = st.lists(st.sampled_from(PARTS), max_size=8).map(" ".join)


@settings(max_examples=50, deadline=None)
@given(texts=st.lists(SOME, max_size=12), cuts=st.lists(st.integers(0, 12), max_size=5), batch=st.integers(1, 5))
def test_counts_of_runs_are_those_of_the_joined_texts(texts: list[str], cuts: list[int], batch: int) -> None:
    offsets = np.array(sorted([0, len(texts), *(min(cut, len(texts)) for cut in cuts)]))
    analyzer = Analyzer("english")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "BATCH", batch)
        counts = TermCounts.of(texts, analyzer)
    expected = TermCounts.of(["\n".join(texts[a:b]) for a, b in pairwise(offsets.tolist())], analyzer)
    merged = counts.merged(offsets)
    assert list(merged.vocabulary) == list(expected.vocabulary)
    np.testing.assert_array_equal(merged.matrix.toarray(), expected.matrix.toarray())
    assert merged.lengths.tolist() == expected.lengths.tolist()
    assert merged.matrix.has_canonical_format
    half = len(texts) // 2
    extended = TermCounts.of(texts[:half], analyzer).extended(texts[half:])
    assert extended.vocabulary == counts.vocabulary
    np.testing.assert_array_equal(extended.matrix.toarray(), counts.matrix.toarray())
    taken = counts.take(np.arange(len(texts))[::-2])
    np.testing.assert_array_equal(taken.matrix.toarray(), counts.matrix.toarray()[::-2])
    words = [Counter(analyzer.terms(text)) for text in texts]
    names = list(counts.vocabulary)
    assert [{names[i]: row[i] for i in np.flatnonzero(row)} for row in counts.matrix.toarray()] == words


def test_an_arrow_column_is_counted_as_its_texts(toy: Collection) -> None:
    column, analyzer = toy.passages.texts, Analyzer("english")
    counts = [TermCounts.of(texts, analyzer) for texts in (column, column.to_pylist(), iter(column.to_pylist()))]
    for other in counts[1:]:
        np.testing.assert_array_equal(counts[0].matrix.toarray(), other.matrix.toarray())
    with pytest.raises(InputError, match="single string"):
        TermCounts.of("one text", analyzer)
    for wrong in ([], [1, 15], [0, 3], [0, 9, 8, 15]):
        with pytest.raises(InputError, match="offsets must rise from 0 to the number of texts, 15"):
            counts[0].merged(np.array(wrong))


@pytest.mark.parametrize("sublinear_tf", [True, False])
def test_encoders_of_counts_are_those_of_texts(pydocs: Collection, sublinear_tf: bool) -> None:
    """Bit for bit: fitted on passages or documents; counts of other texts, with another vocabulary, encoded."""
    passages = pydocs.passages
    n_documents = 150
    offsets = passages.doc_offsets[: n_documents + 1]
    texts, documents = passages.texts[: int(offsets[-1])].to_pylist(), pydocs.document_texts()[:n_documents]
    queries = pydocs.queries.texts(np.arange(20))
    analyzer = Analyzer("english")
    counts, asked = TermCounts.of(texts, analyzer), TermCounts.of(queries, analyzer)
    for kind in (TfidfEncoder, partial(LSAEncoder, 8)):
        for own, own_texts in ((counts, texts), (counts.merged(offsets), documents)):
            expected = kind(sublinear_tf=sublinear_tf).fit(own_texts)
            found = kind(sublinear_tf=sublinear_tf).fit_counts(own)
            assert found.describe() == expected.describe()
            for these, of_texts in ((counts, texts), (counts.merged(offsets), documents), (asked, queries)):
                left, right = found.encode_counts(these), expected.encode(of_texts)
                if sparse.issparse(left):
                    for part in ("data", "indices", "indptr"):
                        np.testing.assert_array_equal(getattr(left, part), getattr(right, part))
                else:
                    np.testing.assert_array_equal(left, right)


def test_counts_that_do_not_fit_an_encoder() -> None:
    counts = TermCounts.of(TEXTS, Analyzer("english"))
    for encoder in (TfidfEncoder(char_ngrams=(3, 3)), LSAEncoder(2, words=False, char_ngrams=(3, 3))):
        with pytest.raises(InputError, match="an encoder with char_ngrams needs the texts"):
            encoder.fit_counts(counts)
    with pytest.raises(InputError, match="counted by another analyzer"):
        TfidfEncoder(language="german").fit_counts(counts)
    with pytest.raises(InputError, match="counted by another analyzer"):
        TfidfEncoder().fit(TEXTS).encode_counts(TermCounts.of(GERMAN, Analyzer("german")))
    with pytest.raises(InputError, match="a sample is drawn of texts"):
        LSAEncoder(2, max_fit_texts=3).fit_counts(counts)


# analysers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [TfidfEncoder, partial(LSAEncoder, 2)])
def test_a_language_that_is_not_known_is_guessed(make, tmp_path: Path) -> None:
    german = [f"{text} und das ist nicht alles, was die Stadt hat" for text in GERMAN]
    guessed, known = make(language=None).fit(iter(german)), make(language="german").fit(german)
    assert guessed.describe()["fitted"] == known.describe()["fitted"]
    assert guessed.get_params()["language"] is None
    assert "analyzer" not in known.describe()  # as it ever was
    guessed.save(tmp_path / "saved")
    loaded = type(guessed).load(tmp_path / "saved")
    assert loaded.describe() == guessed.describe()
    left, right = (model.encode(["der Häuser Straßen"]) for model in (loaded, known))
    np.testing.assert_array_equal(*[row.toarray() if sparse.issparse(row) else row for row in (left, right)])
    counts = TermCounts.of(german, Analyzer("german"))
    assert make(language=None).fit_counts(counts).describe() == guessed.describe()


@pytest.mark.parametrize("make", [TfidfEncoder, partial(LSAEncoder, 2)])
def test_own_analysers(make, tmp_path: Path) -> None:
    own = make(analyzer=Analyzer("english", ["cats", "meow"]), min_df=1).fit(TEXTS)
    own.save(tmp_path / "saved")
    loaded = type(own).load(tmp_path / "saved")
    assert loaded.describe() == own.describe() != make(min_df=1).fit(TEXTS).describe()
    assert loaded.get_params() == own.get_params()
    function = make(analyzer=str.split, min_df=1).fit(TEXTS)
    vocabularies = getattr(function, "tfidf_", function).vocabularies_
    assert "cats,\tdogs" not in vocabularies["word"]
    assert "Dog" in vocabularies["word"]
    with pytest.raises(InputError, match="a function cannot be saved"):
        function.save(tmp_path / "function")
    assert not (tmp_path / "function").exists()


def test_every_language_has_its_stemmer() -> None:
    stemmer = pytest.importorskip("Stemmer")
    variants = {"porter", "dutch_porter"}  # other stemmers of English and Dutch
    assert set(stemmer.algorithms()) - variants <= set(LANGUAGES)
    for language in set(stemmer.algorithms()) - variants | {"none"}:
        assert len(Analyzer(language).terms("xyzzy 1234")) == 2
    assert Analyzer("french").terms("les chevaux") == ["cheval"]
    assert Analyzer("none").terms("The dogs; a DOG") == ["the", "dogs", "dog"]
    with pytest.raises(InputError, match="single string"):
        Analyzer("english", "the")
    with pytest.raises(InputError, match="language 'none'"):
        Analyzer("english", function=str.split)


@given(st.text(max_size=40))
def test_words_are_those_of_scikit_learns_pattern(text: str) -> None:
    assert Analyzer("none").terms(text) == re.findall(r"(?u)\b\w\w+\b", text.lower())


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("", "english"),
        ("xylophone", "english"),
        (">>> a = la.norm(os.path) as None, os as la", "english"),  # a few stop words of other languages
        ("El tribunal ha decidido que la demanda no puede ser admitida porque el plazo no era ese.", "spanish"),
        ("De rechtbank oordeelt dat het beroep niet kan, omdat de termijn voor het geding om was.", "dutch"),
        (
            "Суд решил, что жалоба не может быть принята, потому что для её подачи уже было поздно, и они.",
            "russian",
        ),
    ],
)
def test_guessed_languages(text: str, language: str) -> None:
    assert guess_language([text]) == language


def test_guesses_of_english_and_german_stay(pydocs: Collection) -> None:
    """Whichever of the two has more stop words, each passage by itself; none is taken for another language."""
    stop = {language: stop_words(language) for language in ("english", "german")}
    for text in pydocs.passages.texts[:1000].to_pylist():
        words = re.findall(r"\w{2,}", text.lower())
        expected = max(stop, key=lambda language: sum(word in stop[language] for word in words))
        assert guess_language([text]) == expected


# files ----------------------------------------------------------------------------------------------------


ENCODERS = [TfidfEncoder(char_ngrams=(3, 4)), TfidfEncoder(sublinear_tf=False), LSAEncoder(3, char_ngrams=(2, 2))]


@pytest.mark.parametrize("encoder", ENCODERS, ids=["tfidf with n-grams", "tfidf", "lsa"])
def test_a_saved_encoder_encodes_bit_for_bit(encoder: TfidfEncoder, tmp_path: Path) -> None:
    encoder.fit(TEXTS)
    encoder.save(tmp_path / "saved")
    loaded = type(encoder).load(tmp_path / "saved")
    rows = [model.encode([*TEXTS, "unknown: zzz"]) for model in (encoder, loaded)]
    np.testing.assert_array_equal(*[row.toarray() if sparse.issparse(row) else row for row in rows])
    assert loaded.describe() == encoder.describe()
    assert json.loads(json.dumps(loaded.describe()))["width"] == loaded.dim == rows[0].shape[1]
    assert loaded.get_params() == encoder.get_params()
    with pytest.raises(OutputExistsError, match="exists and is not empty"):
        encoder.save(tmp_path / "saved")


def _other_class(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace("TfidfEncoder", "LSAEncoder"))


def _flip(folder: Path) -> None:
    path = folder / "tensors.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def _odd_parameter(folder: Path) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(signed(manifest | {"parameters": {"n_dogs": 3}})))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "manifest.json").unlink(), "is no saved encoder"),
        (lambda folder: (folder / "manifest.json").write_text("{"), "expected JSON"),
        (lambda folder: (folder / "manifest.json").write_text("[]"), "expected format 'haybale encoder', found None"),
        (lambda folder: (folder / "vocabulary.parquet").unlink(), "vocabulary.parquet: not found"),
        (_other_class, "expected class 'TfidfEncoder', found 'LSAEncoder'"),
        (_flip, "the SHA-256 differs"),
        (_odd_parameter, "parameters: .*n_dogs"),
    ],
)
def test_a_damaged_encoder_is_refused(damage, message: str, tmp_path: Path) -> None:
    TfidfEncoder().fit(TEXTS).save(tmp_path / "saved")
    damage(tmp_path / "saved")
    with pytest.raises(FileFormatError, match=message):
        TfidfEncoder.load(tmp_path / "saved")
