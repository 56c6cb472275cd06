"""Values out of range are rejected with a message of one line that names the parameter."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hostile.parameters import uses
from hostile.target import Target

from haybale.errors import InputError

HUGE = 2**70
# Wrong values by function of ``hostile.parameters`` and by parameter.
WRONG: dict[str, dict[str, tuple[Any, ...]]] = {
    "BM25Index": {"k1": (-1, math.nan, HUGE, 1e7), "b": (2, math.nan), "language": (1,)},
    "BM25": {"k1": (HUGE, True), "b": (-5,), "k3": (-1, HUGE, math.nan)},
    "PARM": {"rrf_k": (HUGE,)},
    "RRF": {"k": (HUGE,), "depth": (HUGE, 0)},
    "SVR": {"tol": (HUGE,), "gamma": ((1.0, math.inf), (1.0,), (True, 1.0)), "n_jobs": (0, HUGE)},
    "ProductKernelSVR": {"max_iter": (HUGE,), "epsilon": (HUGE,), "gamma": ([(1.0, math.inf)],), "n_jobs": (0,)},
    "TfidfEncoder": {"language": (5,), "char_ngrams": (3, math.nan)},
    "LSAEncoder": {"language": (5,), "n_components": (HUGE,), "n_iter": (HUGE,)},
    "Chunking": {"length": (HUGE, 0), "stride": (HUGE,), "tokenizer": (1,)},
    "embed": {"rows_per_chunk": (HUGE,), "chunking": ("x", 3), "shard": (0, (), (1,), (1.0, 2), (3, 2), (0, 1), "1/2")},
    "Engine": {"language": (1,), "chunking": (8,), "device": (0,), "encoder": (None, "")},
    "PassageIndex": {"doc_offsets": ([0, 1.7, 3], HUGE), "device": (1,)},
    "Run.top": {"k": (-1, math.nan, HUGE)},
    "rank": {"depth": (0, math.nan)},
    "fusion": {"rrf_k": (HUGE,), "k": (HUGE,)},
    "evaluate": {"measures": (math.nan, None, "P@5", [1])},
    "tune_bm25": {
        "k1": (1.2, [HUGE]),
        "b": (None,),
        "k3": (0, [-1]),
        "measure": (1,),
        "unit": ("x",),
        "n_queries": (HUGE,),
    },
    "compare": {"rankers": (math.nan,), "measures": (3,), "report": ("x",), "split": (1,)},
}
CASES = [(call, name, value) for call, names in WRONG.items() for name, values in names.items() for value in values]


@pytest.mark.parametrize(("call", "name", "value"), CASES)
def test_values_out_of_range_are_rejected(target: Target, call: str, name: str, value: Any) -> None:
    with pytest.raises((InputError, ValueError), match=f"(?i){name.rstrip('s').replace('_', '.')}") as raised:
        uses(target)[call][0](**{name: value})
    assert isinstance(raised.value, InputError) or "parameter of ProductKernelSVR" in str(raised.value)
    assert "\n" not in str(raised.value)
