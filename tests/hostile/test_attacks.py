"""A short form of ``make hostile``: some hundred cases of each kind."""

from __future__ import annotations

import pytest
from hostile.driver import KINDS, attack
from hostile.target import Target

N_CASES = {"readers": 220, "saved": 120, "manifests": 120, "full_disk": 14, "options": 160, "parameters": 250}
SEEDS = {"manifests": 3}


@pytest.mark.parametrize("kind", KINDS)
def test_no_case_fails(kind: str, target: Target) -> None:
    tried = attack(target, kind, N_CASES.get(kind, 1000), seed=SEEDS.get(kind, 0))
    assert sum(tried.counts.values()) >= min(N_CASES.get(kind, 100), 100) or kind == "full_disk"
    assert not tried.failed
