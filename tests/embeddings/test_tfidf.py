"""TF-IDF and LSA against scikit-learn's vectorisers and exact SVD; counted texts; saved encoders; bad input."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from haybale.analysis import Analyzer
from haybale.collections import Collection
from haybale.embeddings import Encoder, LSAEncoder, TfidfEncoder, lsa
from haybale.embeddings.counting import TermCounts
from haybale.errors import FileFormatError, InputError, OutputExistsError, UnknownNameError
from haybale.manifest import with_checksum

ENGLISH = [
    "Dogs bark at cats,\tdogs at doors",
    "cats meow",
    "a Dog and a cat",
    "the dogs bark loudly; é, ß, I",
    "cats do meow and purr",
    "barking",
    "of the",
]
GERMAN = ["Die Häuser brennen, ein Haus!", "Das Gericht entschied über Häuser", "Gerichte, Straßen und ein Haus"]
CATLESS = Analyzer("english", ["cats", "meow"])
BOTH = [TfidfEncoder, partial(LSAEncoder, 2)]


def dense(rows: Any) -> np.ndarray:
    return rows.toarray() if sparse.issparse(rows) else rows


@pytest.mark.parametrize("texts", [ENGLISH, GERMAN], ids=["english", "german"])
@pytest.mark.parametrize("sublinear_tf", [True, False])
@pytest.mark.parametrize("min_df", [1, 2])
@pytest.mark.parametrize("sizes", [None, (1, 1), (2, 9)])
def test_rows_are_scikit_learns(texts: list[str], sublinear_tf: bool, min_df: int, sizes: Any) -> None:
    settings: dict[str, Any] = {"sublinear_tf": sublinear_tf, "min_df": min_df}
    language = "english" if texts is ENGLISH else "german"
    ours = TfidfEncoder(language=language, char_ngrams=sizes, **settings).fit(texts)
    words = {"analyzer": Analyzer(language).terms}
    theirs = TfidfVectorizer(**settings, **words if sizes is None else {"analyzer": "char_wb", "ngram_range": sizes})
    expected = theirs.fit_transform(texts).toarray()
    terms = ours.vocabulary_
    found = ours.encode(texts)
    assert (found.dtype, found.shape) == (np.float32, (len(texts), ours.dim))
    np.testing.assert_allclose(found.toarray(), expected[:, [theirs.vocabulary_[t] for t in terms]], atol=1e-6)
    assert len(terms) == len(theirs.vocabulary_)


def test_lsa_is_tfidf_and_svd() -> None:
    """Against scikit-learn's vectoriser and exact SVD, by cosines, since the signs of components are arbitrary."""
    texts = ENGLISH[:6]
    vectorizer = TfidfVectorizer(analyzer=Analyzer("english").terms, min_df=2, sublinear_tf=True)
    expected = TruncatedSVD(3, algorithm="arpack", random_state=0).fit_transform(vectorizer.fit_transform(texts))
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    vectors = LSAEncoder(3, min_df=2, n_iter=7).fit(texts).encode(texts)
    np.testing.assert_allclose(vectors @ vectors.T, expected @ expected.T, atol=1e-5)
    assert LSAEncoder(500).fit(texts).encode(texts).shape[1] <= len(texts)


def test_a_row_depends_on_its_text_alone(pydocs: Collection) -> None:
    """Bit for bit, so that a store does not depend on the order in which it was written."""
    texts = pydocs.passages.texts[:1500].to_pylist()
    for encoder in (TfidfEncoder(char_ngrams=(3, 4), min_df=3).fit(texts), LSAEncoder(70).fit(texts)):
        together = encoder.encode(texts)
        for chosen in ([0], [7, 3, 1499], list(range(11, 400, 3))):
            np.testing.assert_array_equal(dense(together[chosen]), dense(encoder.encode([texts[i] for i in chosen])))


def test_a_text_without_known_terms_has_the_zero_row() -> None:
    for make in BOTH:
        encoder = make().fit(ENGLISH)
        assert isinstance(encoder, Encoder)
        assert dense(encoder.encode(["zzzz qqqq", "dogs", "the of"])).any(axis=1).tolist() == [False, True, False]
        assert encoder.encode([]).shape == (0, encoder.dim)


@pytest.mark.parametrize("encoder", [TfidfEncoder, LSAEncoder])
@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"language": "klingon"}, "klingon"),
        ({"sublinear_tf": 2}, "'sublinear_tf'"),
        ({"char_ngrams": (4, 3)}, r"char_ngrams .*\(4, 3\)"),
        ({"char_ngrams": (3,)}, "char_ngrams"),
        ({"min_df": 99}, "min_df=99 of the 7 texts"),
    ],
)
def test_bad_settings_are_refused(encoder: Any, settings: dict[str, Any], named: str) -> None:
    with pytest.raises((InputError, UnknownNameError), match=named):
        encoder(**settings).fit(ENGLISH)


@pytest.mark.parametrize("name", ["n_components", "max_fit_texts", "n_iter", "random_state"])
def test_bad_settings_of_lsa_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"'{name}' parameter of LSAEncoder"):
        LSAEncoder(**{name: -1}).fit(ENGLISH)


@pytest.mark.parametrize("make", BOTH)
def test_bad_texts_are_refused(make: Any) -> None:
    for texts, named in (([], "texts"), ("one text", "'one text'"), (["a", 3], "text 1 .*int")):
        with pytest.raises(InputError, match=named):
            make().fit(texts)
    with pytest.raises(InputError, match="text 1 of 2"):
        make().fit(ENGLISH).encode(["a", " "])


def test_lsa_fits_on_a_sample() -> None:
    texts = [f"{word} {other}" for word in ("dog", "cat", "tax", "road") for other in ("salt", "snow", "gate", "law")]
    part = LSAEncoder(4, max_fit_texts=9).fit(texts).describe()
    assert part["fitted"] != LSAEncoder(4).fit(texts).describe()["fitted"]
    assert part == LSAEncoder(4, max_fit_texts=9).fit(iter(texts)).describe()
    counts = np.zeros(20)
    for seed in range(2000):  # every text has the same probability
        sample = lsa._sampled([str(i) for i in range(20)], 5, seed)
        counts[[int(text) for text in set(sample)]] += 1
    np.testing.assert_allclose(counts / 2000, 0.25, atol=0.05)


@pytest.mark.parametrize("sublinear_tf", [True, False])
def test_counts_give_the_vectors_of_their_texts(pydocs: Collection, sublinear_tf: bool) -> None:
    """Bit for bit, fitted on passages or documents, and for counts with another vocabulary."""
    offsets = pydocs.passages.doc_offsets[:151]
    texts, documents = pydocs.passages.texts[: int(offsets[-1])].to_pylist(), pydocs.document_texts()[:150]
    queries = pydocs.queries.texts(np.arange(20))
    counts, query_counts = (TermCounts.of(of, Analyzer("english")) for of in (texts, queries))
    cases = [(counts, texts), (counts.merged(offsets), documents), (query_counts, queries)]
    for fit_counts, fit_texts in cases[:2]:
        expected = TfidfEncoder(sublinear_tf=sublinear_tf).fit(fit_texts)
        found = TfidfEncoder(sublinear_tf=sublinear_tf).fit_counts(fit_counts)
        assert found.describe() == expected.describe()
        for these, of_texts in cases:
            left, right = found.tfidf_rows(these), expected.encode(of_texts)
            for part in ("data", "indices", "indptr"):
                np.testing.assert_array_equal(getattr(left, part), getattr(right, part))
    for other in (TfidfEncoder(char_ngrams=(3, 3)), TfidfEncoder(language="german")):
        with pytest.raises(InputError, match="analyzer"):
            other.fit_counts(counts)


@pytest.mark.parametrize("make", BOTH)
def test_a_function_as_analyzer(make: Any, tmp_path: Path) -> None:
    encoder = make(analyzer=str.split, min_df=1).fit(ENGLISH)
    assert "Dog" in encoder.vocabulary_
    with pytest.raises(InputError, match="function"):
        encoder.save(tmp_path / "function")
    assert not (tmp_path / "function").exists()


@pytest.mark.parametrize(
    "encoder", [TfidfEncoder(char_ngrams=(3, 4)), TfidfEncoder(analyzer=CATLESS, sublinear_tf=False), LSAEncoder(3)]
)
def test_a_saved_encoder_encodes_bit_for_bit(encoder: Any, tmp_path: Path) -> None:
    encoder.fit(ENGLISH).save(tmp_path / "saved")
    loaded = type(encoder).load(tmp_path / "saved")
    rows = [dense(model.encode([*ENGLISH, "unknown: zzz"])) for model in (encoder, loaded)]
    np.testing.assert_array_equal(*rows)
    assert loaded.describe() == encoder.describe()
    assert json.loads(json.dumps(loaded.describe()))["width"] == loaded.dim == rows[0].shape[1]
    assert loaded.get_params() == encoder.get_params()
    with pytest.raises(OutputExistsError, match="saved"):
        encoder.save(tmp_path / "saved")


def _flipped(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def _other_parameters(content: bytes) -> bytes:
    return json.dumps(with_checksum(json.loads(content) | {"parameters": {"n_dogs": 3}})).encode()


@pytest.mark.parametrize(
    ("name", "damage", "named"),
    [
        ("manifest.json", None, "saved"),
        ("manifest.json", lambda _: b"{", r"manifest\.json.*JSON"),
        ("manifest.json", lambda _: b"[]", r"manifest\.json.*'haybale encoder'"),
        ("manifest.json", lambda c: c.replace(b"TfidfEncoder", b"LSAEncoder"), "class 'TfidfEncoder'"),
        ("manifest.json", _other_parameters, r"manifest\.json.*n_dogs"),
        ("vocabulary.parquet", None, r"vocabulary\.parquet"),
        ("tensors.safetensors", _flipped, r"tensors\.safetensors.*SHA-256"),
    ],
)
def test_a_damaged_encoder_is_refused(name: str, damage: Any, named: str, tmp_path: Path) -> None:
    TfidfEncoder().fit(ENGLISH).save(tmp_path / "saved")
    path = tmp_path / "saved" / name
    path.unlink() if damage is None else path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(FileFormatError, match=named):
        TfidfEncoder.load(tmp_path / "saved")


def test_a_few_texts_without_a_common_term_keep_all_terms() -> None:
    texts = ["dogs bark", "cats purr"]
    assert TfidfEncoder().fit(texts).vocabulary_ == TfidfEncoder(min_df=1).fit(texts).vocabulary_
    assert set(TfidfEncoder().fit([*texts, "dogs sleep"]).vocabulary_) == {"dog"}
    for wrong in (TfidfEncoder(min_df=3), TfidfEncoder()):
        with pytest.raises(InputError, match="min_df"):
            wrong.fit(texts if wrong.min_df == 3 else ["the", "of"])
