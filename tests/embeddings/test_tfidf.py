"""TF-IDF and LSA against scikit-learn's vectorisers and exact SVD; counted texts; files; bad input."""

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
    how: dict[str, Any] = {"sublinear_tf": sublinear_tf, "min_df": min_df}
    language = "english" if texts is ENGLISH else "german"
    ours = TfidfEncoder(language=language, char_ngrams=sizes, **how).fit(texts)
    of_words = {"analyzer": Analyzer(language).terms}
    theirs = TfidfVectorizer(**how, **of_words if sizes is None else {"analyzer": "char_wb", "ngram_range": sizes})
    expected = theirs.fit_transform(texts).toarray()
    terms = ours.vocabulary_
    found = ours.encode(texts)
    assert (found.dtype, found.shape) == (np.float32, (len(texts), ours.dim))
    np.testing.assert_allclose(found.toarray(), expected[:, [theirs.vocabulary_[t] for t in terms]], atol=1e-6)
    assert len(terms) == len(theirs.vocabulary_)


def test_lsa_is_tfidf_and_svd() -> None:
    """The obvious way: scikit-learn's vectoriser and exact SVD, compared through cosines (signs are free)."""
    texts = ENGLISH[:6]
    vectorizer = TfidfVectorizer(analyzer=Analyzer("english").terms, min_df=2, sublinear_tf=True)
    expected = TruncatedSVD(3, algorithm="arpack", random_state=0).fit_transform(vectorizer.fit_transform(texts))
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    vectors = LSAEncoder(3, min_df=2, n_iter=7).fit(texts).encode(texts)
    np.testing.assert_allclose(vectors @ vectors.T, expected @ expected.T, atol=1e-5)
    assert LSAEncoder(500).fit(texts).encode(texts).shape[1] <= len(texts)  # cut to what the texts allow


def test_a_row_depends_on_its_text_alone(pydocs: Collection) -> None:
    """Bit for bit, so that what a store holds does not depend on the order it was made in."""
    texts = pydocs.passages.texts[:1500].to_pylist()
    for encoder in (TfidfEncoder(char_ngrams=(3, 4), min_df=3).fit(texts), LSAEncoder(70).fit(texts)):
        together = encoder.encode(texts)
        for chosen in ([0], [7, 3, 1499], list(range(11, 400, 3))):
            np.testing.assert_array_equal(dense(together[chosen]), dense(encoder.encode([texts[i] for i in chosen])))


def test_nothing_known_is_the_zero_row() -> None:
    for make in BOTH:
        encoder = make().fit(ENGLISH)
        assert isinstance(encoder, Encoder)
        assert dense(encoder.encode(["zzzz qqqq", "dogs", "the of"])).any(axis=1).tolist() == [False, True, False]
        assert encoder.encode([]).shape == (0, encoder.dim)


def test_settings_that_make_no_encoder() -> None:
    bad: list[tuple[dict[str, Any], str]] = [
        ({"language": "klingon"}, "klingon"),
        ({"sublinear_tf": 2}, "'sublinear_tf' parameter"),
        ({"char_ngrams": (4, 3)}, "1 <= least <= greatest, found"),
        ({"char_ngrams": (3,)}, "two sizes"),
        ({"min_df": 99}, "no term occurs in 99 or more of the 7 texts"),
    ]
    for settings, message in bad:
        for encoder in (TfidfEncoder(**settings), LSAEncoder(**settings)):
            with pytest.raises((InputError, UnknownNameError), match=message):
                encoder.fit(ENGLISH)


@pytest.mark.parametrize("make", BOTH)
def test_bad_texts_are_refused(make: Any) -> None:
    for texts, message in (([], "no texts"), ("one text", "single string"), (["a", 3], "text 1 is no string but int")):
        with pytest.raises(InputError, match=message):
            make().fit(texts)
    with pytest.raises(InputError, match="text 1 of 2 is empty"):
        make().fit(ENGLISH).encode(["a", " "])
    for name in ("n_components", "max_fit_texts", "n_iter", "random_state"):
        with pytest.raises(InputError, match=f"'{name}' parameter of LSAEncoder"):
            LSAEncoder(**{name: -1}).fit(ENGLISH)


def test_lsa_fits_on_a_sample() -> None:
    texts = [f"{word} {other}" for word in ("dog", "cat", "tax", "road") for other in ("salt", "snow", "gate", "law")]
    part = LSAEncoder(4, max_fit_texts=9).fit(texts).describe()
    assert part["fitted"] != LSAEncoder(4).fit(texts).describe()["fitted"]
    assert part == LSAEncoder(4, max_fit_texts=9).fit(iter(texts)).describe()
    counts = np.zeros(20)
    for seed in range(2000):  # every text is as likely as any other
        sample = lsa._sampled([str(i) for i in range(20)], 5, seed)
        counts[[int(text) for text in set(sample)]] += 1
    np.testing.assert_allclose(counts / 2000, 0.25, atol=0.05)


@pytest.mark.parametrize("sublinear_tf", [True, False])
def test_counts_are_weighed_as_their_texts(pydocs: Collection, sublinear_tf: bool) -> None:
    """Bit for bit: fitted on passages or documents; counts of other texts, with another vocabulary, encoded."""
    offsets = pydocs.passages.doc_offsets[:151]
    texts, documents = pydocs.passages.texts[: int(offsets[-1])].to_pylist(), pydocs.document_texts()[:150]
    queries = pydocs.queries.texts(np.arange(20))
    counts, asked = (TermCounts.of(of, Analyzer("english")) for of in (texts, queries))
    for own, own_texts in ((counts, texts), (counts.merged(offsets), documents)):
        expected = TfidfEncoder(sublinear_tf=sublinear_tf).fit(own_texts)
        found = TfidfEncoder(sublinear_tf=sublinear_tf).fit_counts(own)
        assert found.describe() == expected.describe()
        for these, of_texts in ((counts, texts), (counts.merged(offsets), documents), (asked, queries)):
            left, right = found.tfidf_rows(these), expected.encode(of_texts)
            for part in ("data", "indices", "indptr"):
                np.testing.assert_array_equal(getattr(left, part), getattr(right, part))
    for other in (TfidfEncoder(char_ngrams=(3, 3)), TfidfEncoder(language="german")):
        with pytest.raises(InputError, match="counted by another analyzer"):
            other.fit_counts(counts)


def test_encoders_of_before(tmp_path: Path) -> None:
    """Their manifests say whether words are counted, and name the analyzer whose language was guessed."""
    known = TfidfEncoder(language="german").fit(GERMAN)
    known.save(tmp_path / "saved")
    path = tmp_path / "saved" / "manifest.json"
    manifest = json.loads(path.read_text()) | {"analyzer": Analyzer("german").describe()}
    parameters = manifest["parameters"] | {"language": None}
    for more in ({"words": False}, {"char_ngrams": [3, 3]}, {}):
        manifest["parameters"] = parameters | {"words": True, "char_ngrams": None} | more
        path.write_text(json.dumps(with_checksum(manifest)))
        if more:
            with pytest.raises(FileFormatError, match="are read no more"):
                TfidfEncoder.load(tmp_path / "saved")
    loaded = TfidfEncoder.load(tmp_path / "saved")
    np.testing.assert_array_equal(*(dense(model.encode(["der Häuser Straßen"])) for model in (loaded, known)))


@pytest.mark.parametrize("make", BOTH)
def test_a_function_as_analyzer(make: Any, tmp_path: Path) -> None:
    encoder = make(analyzer=str.split, min_df=1).fit(ENGLISH)
    assert "Dog" in encoder.vocabulary_
    with pytest.raises(InputError, match="a function cannot be saved"):
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
    with pytest.raises(OutputExistsError, match="exists and is not empty"):
        encoder.save(tmp_path / "saved")


def _flipped(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def _odd(content: bytes) -> bytes:
    return json.dumps(with_checksum(json.loads(content) | {"parameters": {"n_dogs": 3}})).encode()


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("manifest.json", None, "saved encoder"),
        ("manifest.json", lambda _: b"{", "expected JSON"),
        ("manifest.json", lambda _: b"[]", "expected format 'haybale encoder', found None"),
        ("manifest.json", lambda c: c.replace(b"TfidfEncoder", b"LSAEncoder"), "expected class 'TfidfEncoder', found"),
        ("manifest.json", _odd, "parameters: .*n_dogs"),
        ("vocabulary.parquet", None, "vocabulary.parquet: not found"),
        ("tensors.safetensors", _flipped, "the SHA-256 differs"),
    ],
)
def test_a_damaged_encoder_is_refused(name: str, damage: Any, message: str, tmp_path: Path) -> None:
    TfidfEncoder().fit(ENGLISH).save(tmp_path / "saved")
    path = tmp_path / "saved" / name
    path.unlink() if damage is None else path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(FileFormatError, match=message):
        TfidfEncoder.load(tmp_path / "saved")
