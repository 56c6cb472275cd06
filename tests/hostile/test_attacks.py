"""A short form of ``make hostile``: some cases of each kind."""

from __future__ import annotations

import pytest
from hostile.driver import KINDS, attack
from hostile.target import Target

N_CASES = {"readers": 30, "saved": 20, "manifests": 20, "full_disk": 4, "options": 20, "parameters": 40, "laws": 15}
N_CASES |= {"at_once": 4, "streams": 4, "kills": 1, "stores": 10, "checkpoints": 1, "bombs": 6, "unicode_forms": 12}
N_CASES |= {"shared_keys": 12, "units": 20, "requests": 20, "twins": 15, "judging": 15, "records": 6}
N_CASES |= {"segments": 6, "rebuilt": 6, "columns": 12, "merges": 3}
ELSEWHERE = ("environment",)  # new processes, which take long
# Kinds whose laws are those of property tests, too.
RARER = ("streams", "segments", "columns", "merges", "shared_keys", "twins", "rebuilt", "stores", "records", "strings")
SEEDS = {"manifests": 3}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.thorough if kind in RARER else ())
        for kind in KINDS
        if kind not in ELSEWHERE
    ],
)
def test_no_case_fails(kind: str, target: Target) -> None:
    tried = attack(target, kind, N_CASES.get(kind, 50), seed=SEEDS.get(kind, 0), seconds=60)
    assert tried.counts or kind == "checkpoints"  # which needs torch
    assert not tried.failed
