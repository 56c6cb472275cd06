"""Small inputs that would take very long, or very much memory, where nothing limits them."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hostile.target import CORRECT, Cases, Target, command
from support.layouts import beir, gerdalir, structured

import haybale
from haybale.embeddings.encoder import parse_encoder

MILLION = 1_000_000
UNITS = (
    "[",
    "(",
    "{",
    '"',
    "\\",
    "a",
    "9",
    "\u0301",
    "\t",
    "a,",
    "a b ",
    "A. ",
    "\n",
    " ",
    "a-",
    "a=",
    "ﷺ",
    "rrf(",
    "a: ",
)
TEXTS: dict[str, Callable[[int], str]] = {
    **{repr(unit): lambda n, unit=unit: unit * (n // len(unit.encode())) for unit in UNITS},  # type: ignore[misc]
    "objects": lambda n: '{"a":' * (n // 5) + "1" + "}" * (n // 5),
    "lists": lambda n: "[" * (n // 2) + "]" * (n // 2),
    "nested rankers": lambda n: "rrf(" * (n // 5) + "bm25" + ")" * (n // 5),
    "many rankers": lambda n: "rrf(" + ",".join(["bm25"] * (n // 5)) + ")",
}
ENDS = ("ranker: rrf\nrankers: *a", "ranker: *a", "ranker: bm25\nk1: *a", "ranker: {ranker: *a}", "*a: bm25")
SPECS: tuple[Callable[[], str], ...] = (
    *(partial(lambda *given: _aliases(*given), *given) for given in product((4, 9, 30, 60), (2, 3, 9), ENDS)),
    lambda: "ranker: rrf\nrankers: &a [bm25, *a]",
    lambda: "&a\nranker: rrf\nrankers: [*a]",
    lambda: "a: &a {x: 1}\nranker: bm25\n<<: [" + ",".join(["*a"] * 50_000) + "]",
    lambda: "\n".join(" " * n + "ranker:" for n in range(3000)),
    lambda: "ranker: bm25\nk1: " + "1:" * 50_000 + "1",
    lambda: "ranker: bm25\n" + "".join(f"k{n}: 1\n" for n in range(20_000)),
    lambda: "ranker: !!binary " + "A" * MILLION,
    lambda: "ranker: !!python/object/apply:os.system [true]",
    lambda: '{"ranker":"rrf","rankers":[' * 400 + '"bm25"' + "]}" * 400,
)


def _aliases(depth: int, width: int, end: str) -> str:
    lines = [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * width)}]" for n in range(1, depth)]
    return "\n".join(["a0: &a0 bm25", *lines, end.replace("*a", f"*a{depth - 1}")])


def bombs(target: Target, rng: random.Random) -> Cases:
    engine = str(target.folder / "engine")
    for number, (spec, ending) in enumerate(product(SPECS, (".yaml", ".json"))):
        yield (
            f"{ending} {number} of a ranker",
            lambda s=spec, e=ending: command(  # type: ignore[misc]
                "rank", engine, "ba", "--ranker", _file(target, e, s())
            ),
        )
    for name, length in product(TEXTS, (10_000, MILLION)):
        text = partial(TEXTS[name], length)
        yield f"{name} × {length} as ranker", lambda text=text: str(haybale.parse(text())) and CORRECT  # type: ignore[misc]
        yield f"{name} × {length} as encoder", lambda text=text: str(parse_encoder(text())) and CORRECT  # type: ignore[misc]
        yield f"{name} × {length} as query", lambda text=text: command("rank", engine, "x" + text())  # type: ignore[misc]
        for make, place in product((beir, gerdalir, structured), range(5)):
            yield f"{name} × {length} in {make.__name__} {place}", partial(_in_layout, target, make, place, text)
    for name, length, ending in product(
        TEXTS, (MILLION, 20 * MILLION), ("txt", "tsv", "csv", "jsonl", "txt.gz", "csv.gz")
    ):
        yield f"{name} × {length} in {ending}", partial(_queries, target, partial(TEXTS[name], length), f".{ending}")
    lines = ("a", "\n", "\0", "a b\n", "[", '{"_id":"a","text":"x"}\n')
    for size, line, make, place in product((1, 100, 700), lines, (beir, gerdalir, structured), range(3)):
        yield (
            f"gzip of {size} MB of {line!r} in {make.__name__} {place}",
            partial(_gzip, target, make, place, size, line),
        )
    # Ten million rows, which a user may have, take half a minute; a hundred million do not fit into the memory.
    rows = ((10**5, "a"), (10**6, "a"), (10**8, ""), (3, "a" * 10**7))
    for (n, value), name in product(rows, ("passages", "queries", "qrels")):
        yield f"{n} rows of {len(value)} letters of {name}", partial(_parquet, target, name, n, value)
    for n in (10**3, 10**4):
        yield f"{n} columns", partial(_columns, target, n)


def _file(target: Target, ending: str, text: str) -> str:
    path = target.new().with_suffix(ending)
    path.write_bytes(gzip.compress(text.encode(), 1) if ending.endswith("gz") else text.encode())
    return str(path)


def _queries(target: Target, text: Callable[[], str], ending: str) -> str:
    content = {".jsonl": json.dumps({"_id": "q", "text": text()}), ".tsv": f"q\t{text()}"}.get(ending, text())
    content = f"id,text\nq,{content}" if "csv" in ending else content
    return command("rank", str(target.folder / "engine"), _file(target, ending, content))


def _file_of(target: Target, make: Callable[[Path], Path], place: int) -> tuple[Path, Path]:
    folder = make(target.new())
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return folder, files[place % len(files)]


def _in_layout(target: Target, make: Callable[[Path], Path], place: int, text: Callable[[], str]) -> str:
    folder, path = _file_of(target, make, place)
    content = path.read_text()
    path.write_text(content + text() if place % 2 else content.replace("paragraph", text(), 1))
    return command("index", str(folder), "--out", str(target.new()))


def _gzip(target: Target, make: Callable[[Path], Path], place: int, size: int, line: str) -> str:
    folder, path = _file_of(target, make, place)
    path.unlink()
    with gzip.open(path.with_name(path.name + ".gz"), "wb", compresslevel=1) as file:
        for _ in range(size):
            file.write(line.encode() * (MILLION // len(line)))
    return command("index", str(folder), "--out", str(target.new()))


def _parquet(target: Target, name: str, rows: int, value: str) -> str:
    columns = {"passages": {"doc_id": value or "a", "text": value}, "queries": {"query_id": value, "text": "x"}}
    (folder := target.new()).mkdir()
    for each, content in (columns | {"qrels": {"query_id": value, "doc_id": "a", "relevance": "1"}}).items():
        codes = pa.array(np.zeros(rows if each == name else 1, dtype=np.int32))
        table = {column: pa.DictionaryArray.from_arrays(codes, [text]) for column, text in content.items()}
        pq.write_table(pa.table(table), folder / f"{each}.parquet")
    return command("index", str(folder), "--out", str(target.new()))


def _columns(target: Target, n: int) -> str:
    (folder := target.new()).mkdir()
    pq.write_table(pa.table({f"c{column}": ["a"] for column in range(n)}), folder / "passages.parquet")
    return command("index", str(folder), "--out", str(target.new()))
