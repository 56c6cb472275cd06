"""Add, replace and set metadata of any type: what filters find of the other documents stays the same."""

from __future__ import annotations

import math
import random
import shutil
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from hostile.target import CORRECT, Cases, Target

from haybale import BM25, Engine
from haybale.errors import HaybaleError

VALUES: dict[str, tuple[Any, ...]] = {
    "integer": (1, 7, 2015, -3, 2**40, "12", np.int64(5), Decimal(4)),
    "float": (0.5, 1e300, -2.25, "1.5", np.float32(0.25), Decimal("1.5")),
    "string": ("land", "007", "n.d.", "1.10", "x y"),
    "date": (date(2015, 1, 31), date(9999, 12, 31), date(1, 1, 1), "2020-02-02", pd.Timestamp("2001-01-01")),
    "boolean": (True, False, "true", np.bool_(True)),
    "list": (["tax", "land"], ["a"], [], ("b", "tax")),
}
ODD: tuple[Any, ...] = (
    None,
    "",
    math.nan,
    math.inf,
    -math.inf,
    pd.NA,
    pd.NaT,
    np.nan,
    np.datetime64("NaT"),
    2**64,
    10**400,
)
ODD += (10**5000, np.datetime64("20000-01-01"), Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity"), Decimal("1e400"))
ODD += (b"text", b"\xff", [None, "x"], [["a"], ["b"]], [], {"a": 1}, {1, 2}, datetime(2001, 1, 1, 5), 1 + 2j, object())
CONDITIONS = {
    "integer": ("x > 3", "x = 7", "x between 1 and 2015", "x > '999'", "x is null", "x != 1"),
    "float": ("x > 0.4", "x < 0", "x = 1.5", "x is null"),
    "string": ("x = '007'", "x > 'm'", "x like 'l%'", "x is null"),
    "date": ("x >= '2015-01-01'", "x < date '2020-01-01'", "year(x) = 2015", "x is null"),
    "boolean": ("x", "not x", "x = true", "x is null"),
    "list": ("'tax' in x", "len(x) > 1", "list_contains(x, 'a')", "x is null"),
}


def columns(target: Target, rng: random.Random) -> Cases:
    for number in count():
        seed = rng.randrange(2**32)
        yield f"seed {seed} {number}", partial(changed, target.new(), seed)


def changed(folder: Path, seed: int) -> str:
    """Change the metadata of some documents; filters find of the others what they found before."""
    rng = random.Random(seed)
    kind = rng.choice(tuple(VALUES))
    documents = {f"d{n}": _document(rng.choice(VALUES[kind]), rng, 0.2 * (n > 0)) for n in range(rng.randint(2, 5))}
    how: dict[str, Any] = {"language": "english", "encoder": "tfidf(min_df=1)"}
    engine = Engine.build(documents, folder, **how) if rng.random() < 0.5 else Engine(documents, **how)
    touched: set[str] = set()
    before = {where: _found(engine, where) for where in CONDITIONS[kind]}
    for step in range(rng.randint(1, 3)):
        other = rng.choice(ODD if rng.random() < 0.4 else VALUES[rng.choice(tuple(VALUES))])
        change, doc_id = rng.choice(("add", "replace", "set")), rng.choice(list(documents)[1:])
        try:
            if change == "add":
                doc_id = f"n{step}"
                engine.add({doc_id: _document(other, rng)})
            elif change == "replace":
                engine.replace({doc_id: _document(other, rng)})
            else:
                engine.set_metadata({doc_id: {"x": other}})
            touched.add(doc_id)
        except HaybaleError:
            pass
        if engine.folder is not None and rng.random() < 0.5:
            engine = Engine.open(folder)
        for where, expected in before.items():
            found = _found(engine, where)
            assert found is None if expected is None else found is not None, f"{where}: {expected} became {found}"
            if found is not None and expected is not None:
                assert found - touched == expected - touched, f"{where}: {sorted(expected)} became {sorted(found)}"
        BM25().fit(engine).search("land").to_json()
    shutil.rmtree(folder, ignore_errors=True)
    return CORRECT


def _document(value: Any, rng: random.Random, empty: float = 0.0) -> dict[str, Any]:
    return {"text": "land and sea", "y": 1} | ({} if rng.random() < empty else {"x": value})


def _found(engine: Engine, where: str) -> set[str] | None:
    """Return the ids of the documents that fulfil a condition; None if it does not fit the columns."""
    try:
        numbers = engine.documents_where(where)
    except HaybaleError:
        return None
    ids = engine.whole.doc_ids.to_pylist()
    return {ids[number] for number in numbers}
