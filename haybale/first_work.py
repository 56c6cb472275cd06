"""Let NumPy do the first work of a process, until it is worth while to load numba.

Importing numba and loading its first compiled loop takes half a second of a core: a command that searches once is
faster with NumPy. Both compute the same bits.
"""

from __future__ import annotations

import sys

_MAX_VALUES = 2**23  # values of arrays that NumPy computes in a process, in about 0.2 s
_n_values = 0  # that were computed so far; threads need not agree on it


def numpy_is_faster(n_values: int) -> bool:
    """Return whether NumPy should compute about ``n_values`` more values, because numba is not loaded yet."""
    global _n_values
    if "numba" in sys.modules:
        return False
    _n_values += n_values
    return _n_values <= _MAX_VALUES
