"""Change files of records at random: each judgement stays at the text that was judged, or is listed."""

from __future__ import annotations

import random
from functools import partial
from itertools import count

from hostile.target import CORRECT, Cases, Target
from support.record_worlds import WRITE, run_world


def records(target: Target, rng: random.Random) -> Cases:
    for number in count():
        suffix, has_ids, seed = rng.choice(list(WRITE)), rng.random() < 0.3, rng.randrange(2**32)
        yield f"{suffix}{' with ids' * has_ids} {number} {seed}", partial(_changed, target, suffix, has_ids, seed)


def _changed(target: Target, suffix: str, has_ids: bool, seed: int) -> str:
    run_world(target.new(), random.Random(seed), suffix, has_ids=has_ids, steps=1)
    return CORRECT
