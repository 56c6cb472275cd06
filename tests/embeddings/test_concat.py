"""ConcatEncoder against the cosines of its members' own vectors."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import sparse

from haybale.embeddings import ConcatEncoder, LSAEncoder, TfidfEncoder, encode_queries
from haybale.errors import InputError, VectorError

TEXTS = ["dogs bark at cats, dogs at doors", "cats meow", "a dog and a cat", "the dogs bark", "cats purr", "of the"]


class Asymmetric:
    """An encoder that encodes queries differently from passages, and not to length 1."""

    dim = 2

    def encode(self, texts):
        return np.array([[2.0, 0.0]] * len(texts))

    def encode_queries(self, texts):
        return np.array([[3.0, 3.0]] * len(texts))


def test_the_inner_product_is_the_weighted_mean_of_cosines() -> None:
    members = [LSAEncoder(2).fit(TEXTS), LSAEncoder(4, char_ngrams=(3, 3)).fit(TEXTS)]
    encoder = ConcatEncoder(members, weights=[1, 3])
    vectors = encoder.encode(TEXTS[:5])
    assert vectors.shape == (5, encoder.dim)
    cosines = [(m.encode(TEXTS[:5]) @ m.encode(TEXTS[:5]).T) for m in members]
    np.testing.assert_allclose(vectors @ vectors.T, (cosines[0] + 3 * cosines[1]) / 4, atol=1e-6)
    described = json.loads(json.dumps(encoder.describe()))
    assert described["width"] == encoder.dim == 6
    np.testing.assert_allclose(described["weights"], [0.25, 0.75])


def test_sparse_spaces_stay_sparse() -> None:
    members = [TfidfEncoder().fit(TEXTS), TfidfEncoder(char_ngrams=(3, 3)).fit(TEXTS)]
    rows = ConcatEncoder(members).encode(TEXTS)
    assert sparse.issparse(rows)
    products = [(m.encode(TEXTS) @ m.encode(TEXTS).T).toarray() for m in members]
    np.testing.assert_allclose((rows @ rows.T).toarray(), (products[0] + products[1]) / 2, atol=1e-6)
    with pytest.raises(VectorError, match=r"encoder 1 .* encoder 0"):
        ConcatEncoder([members[0], LSAEncoder(2).fit(TEXTS)]).encode(TEXTS[:1])


def test_members_encode_queries_in_their_own_way() -> None:
    lsa = LSAEncoder(2).fit(TEXTS)
    encoder = ConcatEncoder([Asymmetric(), lsa])
    half = np.sqrt(0.5)
    np.testing.assert_allclose(encoder.encode(["dogs"])[0, :2], [half, 0], atol=1e-6)
    np.testing.assert_allclose(encode_queries(encoder, ["dogs"])[0, :2], [0.5, 0.5], atol=1e-6)
    np.testing.assert_array_equal(encode_queries(lsa, ["dogs"]), lsa.encode(["dogs"]))


def test_bad_concatenations() -> None:
    lsa = LSAEncoder(2).fit(TEXTS)
    with pytest.raises(InputError, match="encoders"):
        ConcatEncoder([])
    for weights in ([1], [1, 0], [1, -1], [1, np.inf]):
        with pytest.raises(InputError, match="2 positive weights"):
            ConcatEncoder([lsa, lsa], weights)
    with pytest.raises(InputError, match="encoder 1, Asymmetric"):
        ConcatEncoder([lsa, Asymmetric()]).describe()
