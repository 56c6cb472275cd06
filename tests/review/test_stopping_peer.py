"""Every rule stops where pyterrier-tar's stops."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

from haybale.review import parse_rule

tar = pytest.importorskip("pyterrier_tar", reason="pyterrier-tar is not installed; pip install pyterrier-tar")

# (number of documents, of relevant ones, how much earlier relevant documents come)
CASES = [(40, 3, 2), (300, 30, 8), (900, 5, 20), (900, 120, 6), (1500, 60, 30), (1500, 1, 3), (300, 0, 0)]


def reading_order(n: int, n_relevant: int, skew: float) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(n + n_relevant)
    falling = np.exp(-skew * np.arange(n) / n)
    labels = np.zeros(n, dtype=bool)
    labels[rng.choice(n, n_relevant, replace=False, p=falling / falling.sum())] = True
    sampled = rng.permutation(n) < 2 * n // 3
    return {"labels": labels, "sampled": sampled, "scores": falling * rng.random(n)}


def peers(case: dict[str, np.ndarray], target: float) -> dict[str, Any]:
    """Return the peer's rules for one collection, by the texts of ours."""
    n = len(case["labels"])
    drawn = np.flatnonzero(case["sampled"])
    control = pd.DataFrame({"qid": "q", "docno": drawn.astype(str), "label": case["labels"][drawn].astype(int)})
    return {
        "consecutive(50)": tar.ConsecutiveIrrelevant(50),
        "budget(120)": tar.FixedRound(11, batch_size=10, initial_documents=10),
        f"cmh(target={target},every=25)": tar.CMHHeuristic(target, n, batch_size=25),
        f"iph(target={target},released=true)": tar.IPHyperbolic(target, n),
        f"iph(target={target},rate='power',released=true)": tar.PoissonPoint(target, n),
        f"quant(target={target},every=50)": tar.Quant(target),
        f"quant(target={target},every=50,n_std=2)": tar.QuantCI(target),
        f"qbcb(target={target})": tar.QBCB(control, target),
    }


@pytest.mark.parametrize("target", [0.8, 0.95])
@pytest.mark.parametrize("sizes", CASES, ids=str)
def test_positions_are_those_of_pyterrier_tar(sizes: tuple[int, int, float], target: float) -> None:
    case = reading_order(*sizes)
    n = len(case["labels"])
    ranked = pd.DataFrame({"qid": "q", "docno": np.arange(n).astype(str), "rank": np.arange(n)})
    ranked = ranked.assign(label=case["labels"].astype(int), score=case["scores"])
    ours, theirs = {}, {}
    for text, peer in peers(case, target).items():
        ours[text] = parse_rule(text).first_stop(**case, n_documents=n)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scipy's, on fits that fail
            [(stop, fired)] = peer.stop_report(ranked)[["stop", "fired"]].itertuples(index=False)
        theirs[text] = int(stop) if fired else n
    assert ours == theirs
