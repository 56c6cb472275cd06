"""Values out of range, and numbers that are not real, are refused in one line before any work."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import haybale
from haybale import BM25Index, Engine, PassageIndex, ProductKernelSVR, Run, evaluate
from haybale.errors import InputError
from haybale.evaluation import recall_curves
from haybale.retrieval import aggregate

TEXTS = {"a": "a lead for dogs", "b": "taxes are due", "c": "the dog tax"}
HUGE = 2**70
EYE = np.eye(3, dtype=np.float32)
RUN = Run.from_frame(pd.DataFrame({"query_id": ["q"], "doc_id": ["a"], "score": [1.0]}))
QRELS = pd.DataFrame({"query_id": ["q"], "doc_id": ["a"], "relevance": [1]})


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(TEXTS, language="english", encoder=haybale.TfidfEncoder(min_df=1))


def embed(**settings: Any) -> Any:
    return haybale.embed(haybale.open_collection("pydocs"), None, "/nowhere", **settings)


def cases() -> Iterator[tuple[Callable[..., Any], str, Any]]:
    """What is called, by which parameter, with what values."""
    texts = list(TEXTS.values())
    made: list[tuple[Callable[..., Any], dict[str, tuple[Any, ...]]]] = [
        (lambda **s: BM25Index(texts, **s), {"k1": (-1, math.nan, HUGE, 1e7), "b": (2, math.nan), "language": (1,)}),
        (lambda **s: haybale.BM25(**s).check_params(), {"k1": (HUGE, True), "b": (-5,), "k3": (-1, HUGE, math.nan)}),
        (lambda **s: haybale.PARM(over="bm25", **s).check_params(), {"k1": (HUGE,), "rrf_k": (HUGE,)}),
        (lambda **s: haybale.RRF(haybale.BM25(), **s).check_params(), {"k": (HUGE,), "depth": (HUGE, 0)}),
        (
            lambda **s: haybale.SVR(**s).check_params(),
            {"tol": (HUGE,), "gamma": ((1.0, math.inf), (1.0,), (True, 1.0)), "n_jobs": (0, HUGE)},
        ),
        (
            lambda **s: ProductKernelSVR(**s).fit_pairs(EYE, EYE, [0, 1], [0, 1], [0.0, 1.0]),
            {"max_iter": (HUGE,), "epsilon": (HUGE,), "gamma": ([(1.0, math.inf)],), "n_jobs": (0,)},
        ),
        (lambda **s: haybale.TfidfEncoder(**s).fit(texts), {"language": (5,), "char_ngrams": (3, math.nan)}),
        (
            lambda **s: haybale.LSAEncoder(**s).fit(texts),
            {"language": (5,), "n_components": (HUGE,), "n_iter": (HUGE,)},
        ),
        (
            lambda **s: haybale.Chunking(**{"length": 3} | s),
            {"length": (HUGE, 0), "stride": (HUGE,), "tokenizer": (1,)},
        ),
        (
            embed,
            {"rows_per_chunk": (HUGE,), "chunking": ("x", 3), "shard": (0, (), (1,), (1.0, 2), (3, 2), (0, 1), "1/2")},
        ),
        (lambda **s: Engine(TEXTS, **s), {"language": (1,), "chunking": (8,), "device": (0,), "encoder": (None,)}),
        (lambda **s: PassageIndex(EYE, **s), {"doc_offsets": ([0, 1.7, 3], HUGE), "device": (1,)}),
        (lambda **s: RUN.top(**s), {"k": (-1, math.nan, HUGE)}),
        (lambda **s: haybale.reciprocal_rank_fusion([RUN], **s), {"rrf_k": (HUGE,), "k": (HUGE,)}),
        (lambda **s: evaluate(RUN, QRELS, **s), {"measures": (math.nan, None, "P@5", [1])}),
        (lambda **s: recall_curves({"a": RUN}, QRELS, **s), {"cutoffs": ([1.5],)}),
        (
            lambda **s: aggregate(PassageIndex(EYE).search(EYE, 2), "rrf", np.arange(3), **s),
            {"offsets": ([0, 1.5, 3],)},
        ),
        (
            lambda **s: haybale.tune_bm25(haybale.open_collection("pydocs"), **s),
            {"k1": (1.2, [HUGE]), "b": (None,), "k3": (0, [-1]), "measure": (1,), "unit": ("x",), "n_queries": (HUGE,)},
        ),
    ]
    for call, values in made:
        yield from ((call, name, value) for name, several in values.items() for value in several)


@pytest.mark.parametrize(("call", "name", "value"), list(cases()))
def test_values_out_of_range_are_refused(call: Callable[..., Any], name: str, value: Any) -> None:
    with pytest.raises((InputError, ValueError), match=f"(?i){name.rstrip('s').replace('_', '.')}") as refused:
        call(**{name: value})
    assert isinstance(refused.value, InputError) or "parameter of ProductKernelSVR" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("settings", [{"rankers": math.nan}, {"measures": 3}, {"report": "x"}, {"split": 1}])
def test_compare_refuses_values_out_of_range(engine: Engine, settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(settings))):
        haybale.compare(engine, **settings)


PAIRS = ([0, 1, 2], [1, 2, 0])
VECTORS: list[Callable[[Any], Any]] = [
    PassageIndex,
    lambda given: PassageIndex(EYE).search(given, 1),
    lambda given: ProductKernelSVR().fit_pairs(given, EYE, *PAIRS, [0, 1, 2]),
]


@pytest.mark.parametrize(
    "call",
    [
        *VECTORS,
        lambda given: ProductKernelSVR().fit_pairs(EYE, EYE, *PAIRS, given[0]),
        lambda given: ProductKernelSVR().fit_pairs(EYE, EYE, *PAIRS, [0, 1, 2], given[0]),
        lambda given: Run.from_numbers(["q"], list("abc"), [0, 0, 0], [0, 1, 2], given[0]),
        lambda given: Run.from_frame(pd.DataFrame({"query_id": "q", "doc_id": list("abc"), "score": list(given[0])})),
    ],
)
@pytest.mark.parametrize("given", [EYE * (1 + 1j), np.full((3, 3), "2020-01-01", dtype="M8[D]")])
def test_numbers_that_are_not_real_are_refused(call: Callable[[Any], Any], given: Any) -> None:
    with pytest.raises(InputError, match=r"expected (real )?numbers"):
        call(given)


@pytest.mark.parametrize("call", VECTORS)
def test_rows_of_several_lengths_are_refused(call: Callable[[Any], Any]) -> None:
    with pytest.raises(InputError, match="expected an array"):
        call([[1.0], [1.0, 2.0], [1.0]])


def test_sparse_vectors_that_are_not_real_are_refused() -> None:
    with pytest.raises(InputError, match=r"expected real numbers .*complex128"):
        PassageIndex(sparse.identity(3, dtype=complex, format="csr"))


def test_a_path_with_a_nul_and_an_encoder_without_a_name_are_refused(tmp_path: Path) -> None:
    for settings, message in (({"store": "\0"}, "NUL"), ({"encoder": ""}, "name of an encoder")):
        with pytest.raises(InputError, match=message):
            Engine(TEXTS, **settings).prepare()
