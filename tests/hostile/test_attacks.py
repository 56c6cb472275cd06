"""A short form of ``make hostile``: some cases of each kind."""

from __future__ import annotations

import pytest
from hostile.driver import KINDS, attack
from hostile.target import Target

N_CASES = {"readers": 100, "saved": 60, "manifests": 60, "full_disk": 6, "options": 80, "parameters": 150, "laws": 60}
N_CASES |= {"at_once": 12, "streams": 16, "kills": 3, "stores": 40, "checkpoints": 2, "bombs": 24, "unicode_forms": 50}
ELSEWHERE = ("environment",)  # new processes, which take long
SEEDS = {"manifests": 3}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ELSEWHERE])
def test_no_case_fails(kind: str, target: Target) -> None:
    tried = attack(target, kind, N_CASES.get(kind, 100), seed=SEEDS.get(kind, 0), seconds=60)
    assert tried.counts or kind == "checkpoints"  # which needs torch
    assert not tried.failed
