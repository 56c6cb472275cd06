"""Parse the values of options: rankers, ``--set name=value``, and parts such as ``2/8``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import haybale
from haybale.errors import InputError

if TYPE_CHECKING:
    from haybale import Ranker


def parse_ranker(text: str, values: Sequence[str] | None) -> Ranker:
    """Return the ranker that a name or a YAML or JSON file describes, with the values of ``--set``.

    >>> parse_ranker("rrf(bm25,bm25-doc)", ["k1=0.9"])
    RRF(BM25(k1=0.9), BM25(unit='document', k1=0.9))
    """
    from haybale.rankers import read_yaml, set_values

    is_file = Path(text).suffix in (".yaml", ".yml", ".json")
    return set_values(read_yaml(Path(text)) if is_file else haybale.parse(text), parse_values(values))


def parse_values(texts: Sequence[str] | None, *, rankers: bool = True) -> dict[str, Any]:
    """Return the values of ``--set name=value`` by name; if a name occurs twice, the last value counts.

    The name of a ranker is parsed to that ranker if ``rankers`` is true; otherwise it stays a string.

    >>> parse_values(["k1=0.9", "strategy=rows", "gamma=[8,2.5]", "match=bm25"], rankers=False)
    {'k1': 0.9, 'strategy': 'rows', 'gamma': (8, 2.5), 'match': 'bm25'}
    """
    from haybale.rankers import Ranker, parse_value

    values = {}
    for text in texts or ():
        name, _, value = text.partition("=")
        if not name.strip() or not value.strip():
            raise InputError(f"--set must be name=value, found {text!r}")
        parsed = parse_value(value)
        values[name.strip()] = value.strip() if isinstance(parsed, Ranker) and not rankers else parsed
    return values


def parse_part(name: str, text: str | None, example: str) -> tuple[int, int] | None:
    """Return i and n of an option whose value is ``i/n``; None if it was not given.

    >>> parse_part("shard", "2/8", "2/8")
    (2, 8)
    """
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if match is None:
        raise InputError(f"{name} must be i/n, such as {example}, found {text!r}")
    return int(match[1]), int(match[2])
