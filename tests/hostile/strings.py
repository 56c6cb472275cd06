"""Unusual ids, titles and texts, from a collection through ranking to files, measures and terminals."""

from __future__ import annotations

import io
import json
import random
from functools import partial
from itertools import product

import pandas as pd
from hostile.target import CORRECT, REJECTED, Cases, Target, command, finite, shell
from rich.console import Console
from support.layouts import folder_of

import haybale
from haybale import Engine, Run, evaluate
from haybale.collections import CollectionBuilder
from haybale.evaluation import print_table, results

STRINGS = (
    *("\0", "a\0b", "\ud800", "a b", "a\tb", "a\nb", "\x1b[31mred", "\x9b2J", "\u202eevil", "e\u0301", "é", "💥" * 50),
    *("", " ", "\ufeff", "\u2028", "<script>alert(1)</script>", "'\"&", "../x", "-1", "nan", "x" * 3000, "=1+1", "٣"),
)
PLACES = ("doc_id", "query_id", "passage", "title", "query", "run", "add")


def strings(target: Target, rng: random.Random) -> Cases:
    for where, text in product(PLACES, STRINGS):
        yield f"{where} {text[:20]!r}", partial(round_trip, target, where, text)
    for text in STRINGS:
        yield f"table {text[:20]!r}", partial(printed_table, text)
        yield f"shown {text[:20]!r}", partial(command_line_round_trip, target, text)


def round_trip(target: Target, where: str, text: str) -> str:
    """Rank a collection with the string; the run must not change when it is written and read."""
    given = {"doc_id": "d", "query_id": "q", "passage": "one text", "title": "t", "query": "one"} | {where: text}
    if where == "run":
        ids = {"query_id": [text] * 2, "doc_id": [text, "other"]}
        run = Run.from_frame(pd.DataFrame(ids, dtype=object).assign(score=[1.0, 0.5]))
    else:
        builder = CollectionBuilder("hostile", language="english")
        builder.add_document(given["doc_id"], [given["passage"], "other text"], title=given["title"])
        builder.add_document("e", ["something else"])
        builder.add_query(given["query_id"], [given["query"]], split="dev")
        builder.add_judgement("dev", given["query_id"], given["doc_id"], 1)
        collection = builder.build()
        engine = Engine(collection)
        if where == "add":
            engine.add({text: ["new text"]})
        run = haybale.BM25("document").fit(engine).rank("dev", depth=2)
        finite(evaluate(run, collection.qrels_frame("dev")))
    path = target.new().with_suffix(".trec")
    run.to_trec(path)
    again = Run.from_trec(path)
    expected = {q: [d for d, _ in run[q]] for q in run.query_ids if len(run[q])}
    assert {q: [d for d, _ in again[q]] for q in again.query_ids} == expected, "the run changed"
    return CORRECT


def printed_table(text: str) -> str:
    """Print a table of results with the string; the output must not have control characters."""
    values = pd.DataFrame({"nDCG@10": [0.5]}, index=pd.Index(["q"], name="query_id"))
    console = Console(width=9000, file=io.StringIO(), force_terminal=True, color_system=None)
    print_table(console, results({text: values, "bm25": values}, text), text)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert not set("\x1b\x9b\x00\x07\r\u202e\u2066") & set(printed), "a control character reaches the terminal"
    return CORRECT


def command_line_round_trip(target: Target, text: str) -> str:
    """Index, rank and explain a collection with the string on the command line."""
    record = {"_id": text, "title": text, "text": f"one {text}"}
    files = {
        "corpus.jsonl": json.dumps(record) + "\n" + json.dumps({"_id": "e", "text": "two"}),
        "queries.jsonl": json.dumps({"_id": text, "text": f"one {text}"}),
        "qrels/dev.tsv": "query-id\tcorpus-id\tscore\n",
    }
    engine = str(target.new())
    status, _ = shell("index", str(folder_of(target.new(), files)), "--out", engine)
    assert status in (0, 2)
    return command("rank", engine, "one two", "--explain") if status == 0 else REJECTED
