"""Rankers that differ in one thing, where names, texts and paths are equal: none gets what was cached for another."""

from __future__ import annotations

import random
from functools import partial
from itertools import count

from hostile.target import CORRECT, Cases, Target
from support.differing_rankers import ANY, GIVEN, LEARNING, SLOW, Differ, World, check_apart

_SHARE_OF_SLOW = 0.05


def _apart(world: World, differ: Differ, name: str, target: Target, seed: int) -> str:
    rng, folder = random.Random(seed), target.new()
    folder.mkdir(parents=True)
    check_apart(world, differ(world, name, rng, folder), rng, compared=rng.random() < 0.15)
    return CORRECT


def shared_keys(target: Target, rng: random.Random) -> Cases:
    worlds = [World(target.folder / f"world{number}", rng.randrange(1000)) for number in range(2)]
    for number in count():
        differ, seed = rng.choice((*ANY, *ANY, *GIVEN)), rng.randrange(2**32)
        name = rng.choice(SLOW if rng.random() < _SHARE_OF_SLOW else LEARNING)
        what = f"{differ.__name__} of {name} {number}"
        yield what, partial(_apart, rng.choice(worlds), differ, name, target, seed)
