"""Units that mean nothing, such as the scale of scores and the script of texts, change no probability and no test."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from itertools import count

import numpy as np
from hostile.target import CORRECT, Cases, Target

from haybale import Engine
from haybale.evaluation.significance import paired_tests
from haybale.pairs.interactions import levels
from haybale.review.calibration import fit_sigmoid, sigmoid
from haybale.review.minhash import near_duplicates

# The first and the last character of scripts without spaces.
_ALPHABETS = (
    (0x4E00, 0x9FA5),
    (0x3041, 0x3090),
    (0x30A1, 0x30F0),
    (0x0E01, 0x0E2E),
    (0x1780, 0x17A2),
    (0xAC00, 0xD7A3),
)


def _probabilities(rng: np.random.Generator) -> str:
    n = int(rng.integers(2, 80))
    scores, targets, weights = rng.normal(size=n) * rng.choice([1, 50]), rng.random(n), rng.uniform(0.1, 3, size=n)
    if rng.random() < 0.3:
        scores += 20 * (targets > 0.5)
    others = (scores + rng.choice([0, 1, -100, 1e5])) * 10 ** rng.uniform(-12, 12)
    found = []
    for values in (scores, others):
        slope, offset = fit_sigmoid(values, targets, weights)
        assert np.isfinite([slope, offset]).all(), "no slope"
        assert slope >= 0, "a falling probability"
        found.append(sigmoid(slope * values + offset))
    assert np.allclose(*found, atol=1e-5), "other probabilities"
    return CORRECT


def _significance(rng: np.random.Generator) -> str:
    values = rng.random((2, int(rng.integers(1, 40)))).round(int(rng.integers(1, 6)))
    scale, shift = 10 ** rng.uniform(-200, 200), rng.choice([0, 1, -10, 1e3])
    one, two = paired_tests(*values), paired_tests(*((values + shift) * scale))
    assert np.isclose(one.p_t, two.p_t, rtol=1e-5), "another p of the t-test"
    assert np.isclose(one.p_randomization, two.p_randomization), "another p of the randomisation test"
    assert (one.effect_size is None) == (two.effect_size is None), "another effect size"
    if one.effect_size is not None and two.effect_size is not None:
        assert np.isclose(one.effect_size, two.effect_size, rtol=1e-5, atol=1e-8), "another effect size"
    return CORRECT


def _levels(rng: np.random.Generator) -> str:
    scores, queries = rng.random(20).round(1), rng.integers(4, size=20)
    scale, shift = 10 ** rng.uniform(-12, 12), rng.choice([0, 1, -10])
    assert np.allclose(levels(queries, scores), levels(queries, (scores + shift) * scale), atol=1e-5), "other levels"
    return CORRECT


def _duplicates(rng: np.random.Generator) -> str:
    documents = {}
    for number in range(3):
        first, last = _ALPHABETS[int(rng.integers(len(_ALPHABETS)))]
        letters = [character for character in map(chr, range(first, last + 1)) if character.isalnum()]
        text = "".join(rng.choice(letters, size=int(rng.integers(150, 300))).tolist())
        place = int(rng.integers(len(text)))
        documents[f"{number} a"] = text
        documents[f"{number} b"] = text[:place] + str(rng.choice([*letters, " ", "x", "。"])) + text[place + 1 :]
    engine = Engine(documents, language="none", encoder="tfidf(min_df=1)")
    assert near_duplicates(engine) == [[f"{number} a", f"{number} b"] for number in range(3)], "not found"
    return CORRECT


def units(target: Target, rng: random.Random) -> Cases:
    laws: list[Callable[[np.random.Generator], str]] = [_probabilities, _significance, _levels]
    if find_spec("datasketch"):
        laws.append(_duplicates)
    for number in count():
        law, seed = rng.choice(laws), rng.randrange(2**32)
        yield f"{law.__name__} {number}", partial(law, np.random.default_rng(seed))
