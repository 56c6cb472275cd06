"""Fixtures: the built-in collection, and a toy one small enough to check by hand."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

# Without a GPU our CUDA kernels run in numba's simulator; numba asks for it when it is first imported.
if find_spec("cupy") is None:
    os.environ.setdefault("NUMBA_ENABLE_CUDASIM", "1")

from cupy_double import installed

from haybale.collections import Collection, CollectionBuilder, read_pydocs


@pytest.fixture(scope="session")
def pydocs() -> Collection:
    return read_pydocs()


@pytest.fixture
def cupy_double() -> Iterator[Any]:
    """A strict stand-in for CuPy, for code that takes arrays of a device; not where there is a real one."""
    if find_spec("cupy") is not None:
        pytest.skip("CuPy is here: the tests marked gpu are the ones to run")
    with installed() as double:
        yield double


TOPICS = {
    "dogs": ["dogs bark at the gate", "a dog needs a lead", "puppies chew old shoes"],
    "cats": ["cats purr on the sofa", "a cat climbs the tree", "kittens chase the yarn"],
    "taxes": ["taxes are due in may", "the tax office sends a letter", "income is taxed twice"],
    "roads": ["roads need winter salt", "a road leads to the gate", "traffic on roads is slow"],
    "soup": ["soup needs salt and onions", "hot soup in winter", "the onions are old"],
}


@pytest.fixture
def toy() -> Collection:
    """Five documents of three passages; four queries each in train and dev, on the first four topics."""
    builder = CollectionBuilder("toy", language="english")
    for name, passages in TOPICS.items():
        builder.add_document(name, passages)
    asked = {"dogs": "barking dogs", "cats": "purring cat", "taxes": "tax letter", "roads": "winter roads"}
    for split in ("train", "dev"):
        for name, text in asked.items():
            own = "soup" if name == "roads" else None
            builder.add_query(f"{split}-{name}", [text, f"{text} again"], own=own, split=split)
            builder.add_judgement(split, f"{split}-{name}", name)
    return builder.build()
