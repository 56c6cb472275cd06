"""Times as the interface and the pages say them."""

from __future__ import annotations

from datetime import UTC, datetime


def in_iso(time: float) -> str:
    """Return a Unix time in ISO 8601, to the second, in UTC.

    >>> in_iso(1_000_000_000.25)
    '2001-09-09T01:46:40+00:00'
    """
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds")
