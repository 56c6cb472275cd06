"""Write the values of parameters as ranker texts do."""

from __future__ import annotations

from typing import Any


def shown(value: Any) -> str:
    """Return the value of a parameter as ranker texts write it.

    >>> shown((8.0, 2.5)), shown(None), shown("rows")
    ('[8,2.5]', 'none', "'rows'")
    """
    if isinstance(value, list | tuple):
        return f"[{','.join(map(shown, value))}]"
    if isinstance(value, str):
        return f'"{value}"' if "'" in value else f"'{value}'"
    if isinstance(value, float):
        return repr(float(value)).removesuffix(".0")  # every digit, so that parsing returns the same number
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
