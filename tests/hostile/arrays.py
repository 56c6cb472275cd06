"""Pass unusual vectors, labels and frames to every function that takes arrays."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from hostile.target import Cases, Target, finite, finite_scores
from scipy import sparse

import haybale
from haybale import Run


def arrays(target: Target, rng: random.Random) -> Cases:
    good = target.vectors[:8]

    def put(value: Any) -> np.ndarray:
        array = good.astype(np.asarray(value).dtype if isinstance(value, complex) else np.float64)
        array[3, 1] = value
        return array

    bad: dict[str, Any] = {
        "NaN": put(np.nan),
        "infinite": put(np.inf),
        "complex": put(1j),
        "huge": put(1e300),
        "large": put(1e30),
        "tiny": put(1e-320),
        "objects": good.astype(object),
        "strings": good.astype(str),
        "3 axes": good[None],
        "1 axis": good[0],
        "no rows": good[:0],
        "no columns": good[:, :0],
        "narrow": good[:, :3],
        "integers": (good * 9).astype(int),
        "booleans": good > 0,
        "half": good.astype(np.float16),
        "fortran": np.asfortranarray(good),
        "strided": good[::2],
        "sparse": sparse.csr_matrix(good),
        "coo": sparse.coo_matrix(good),
        "list": good.tolist(),
        "ragged": [[1.0], [1.0, 2.0]],
        "frame": pd.DataFrame(good),
        "masked": np.ma.masked_invalid(put(np.nan)),
        "dates": np.array([["2020-01-01"]], dtype="M8[D]"),
        "read-only": np.lib.stride_tricks.as_strided(good, good.shape, good.strides, writeable=False),
        "none": None,
        "swapped": good.astype(">f4"),
        "sparse NaN": sparse.csr_matrix(put(np.nan)),
        "sparse complex": sparse.csr_matrix(put(1j)),
    }
    index = haybale.PassageIndex(good)

    def flat(value: Any) -> Any:
        try:
            return value if sparse.issparse(value) else np.ravel(np.asarray(value))
        except ValueError:  # ragged
            return np.ravel(np.asarray(value, dtype=object))

    def fitted(y: Any, of_pairs: bool = True, weight: Any = None) -> Any:
        rows = np.arange(64 if sparse.issparse(y) else len(y)) % 8
        model = haybale.ProductKernelSVR()
        if of_pairs:
            return model.fit_pairs(good, good, rows, rows, y, weight).predict_pairs(good, good, [0], [0])
        return model.fit(good[rows], y, weight).predict(good)

    def svr(value: Any) -> Any:
        ours = haybale.ProductKernelSVR().fit_pairs(value, value, [0, 1, 2], [1, 2, 0], [0.0, 1.0, 0.5])
        return ours.predict_pairs(value, value, [0], [0])

    def framed(value: Any) -> Any:
        scores = np.ravel(flat(value))
        frame = pd.DataFrame({"query_id": "a", "doc_id": np.arange(len(scores)), "score": scores})
        return Run.from_frame(frame).to_frame()["score"]

    uses: dict[str, Callable[[Any], str]] = {
        "PassageIndex": lambda v: finite_scores(haybale.PassageIndex(v).search(v, 1).scores),
        "queries": lambda v: finite_scores(index.search(v, 1).scores),
        "ProductKernelSVR": lambda v: finite(svr(v)),
        "fit X": lambda v: finite(haybale.ProductKernelSVR().fit(v, np.arange(8.0)).predict(good)),
        "y": lambda v: finite(fitted(flat(v), False)),
        "y of pairs": lambda v: finite(fitted(flat(v))),
        "sample_weight": lambda v: finite(fitted(np.arange(64.0), False, flat(v))),
        "sample_weight of pairs": lambda v: finite(fitted(np.arange(64.0), True, flat(v))),
        "Run.from_frame": lambda v: finite(framed(v)),
    }
    for (use, call), (name, value) in product(uses.items(), bad.items()):
        not_real = name in ("dates", "ragged") and use != "y"  # scikit-learn's check of y accepts them
        yield f"{use} of {name}", partial(used, call, value, not_real or "complex" in name)


def used(call: Callable[[Any], str], value: Any, must_be_rejected: bool) -> str:
    found = call(value)
    assert not must_be_rejected, "accepted as real numbers"
    return found
