"""The frame libraries for tests; cuDF only with a GPU."""

from __future__ import annotations

import pytest

from haybale.frames import LIBRARIES

in_every_library = pytest.mark.parametrize(
    "library", [pytest.param(name, marks=pytest.mark.gpu) if name == "cudf" else name for name in LIBRARIES]
)
