"""A short form of ``make hostile``: some cases of each kind."""

from __future__ import annotations

import pytest
from hostile.driver import KINDS, attack
from hostile.target import Target

N_CASES = {"readers": 60, "saved": 40, "manifests": 40, "full_disk": 4, "options": 40, "parameters": 80, "laws": 30}
N_CASES |= {"at_once": 8, "streams": 8, "kills": 2, "stores": 20, "checkpoints": 1, "bombs": 12, "unicode_forms": 25}
ELSEWHERE = ("environment",)  # new processes, which take long
SEEDS = {"manifests": 3}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ELSEWHERE])
def test_no_case_fails(kind: str, target: Target) -> None:
    tried = attack(target, kind, N_CASES.get(kind, 100), seed=SEEDS.get(kind, 0), seconds=60)
    assert tried.counts or kind == "checkpoints"  # which needs torch
    assert not tried.failed
