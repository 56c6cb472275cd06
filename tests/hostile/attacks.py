"""Hostile input by the thousand: every case ends in a right result, or in one error that says what was wrong.

    python tests/hostile/attacks.py --cases 6000     # make hostile: counts by kind, and whatever fell short

A case falls short if it ends in another error than haybale's (a traceback, for a user), in a result with numbers that
are none, in what the intact input did not give, or in a control character on a terminal.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import io
import itertools
import json
import math
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console
from scipy import sparse

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

import layouts  # noqa: E402
from support.topics import topic_collection  # noqa: E402

import haybale  # noqa: E402
from haybale import Engine, Run, evaluate, open_collection  # noqa: E402
from haybale.cli import main  # noqa: E402
from haybale.collections import CollectionBuilder  # noqa: E402
from haybale.collections.saved import load_collection, save_collection  # noqa: E402
from haybale.errors import HaybaleError  # noqa: E402
from haybale.evaluation import print_table, results  # noqa: E402
from haybale.manifest import digest, with_checksum  # noqa: E402
from haybale.reports import write_report  # noqa: E402

REFUSED, RIGHT = "refused", "right"
NO_NUMBERS = ("nan", "inf", "-inf", "1e999", "x", "", "0x10", "1e3", "1.0")
BAD_TEXTS = ("", " ", "\x1b[2Jx", "\u202etxet", "x" * 300, "../..", "/proc/x", "/dev/null/x", "\udcff", "💥", "a,b=c(d")
BAD_VALUES: tuple[Any, ...] = (
    *(math.nan, math.inf, -math.inf, -1, 0, 0.5, 2**70, 1e308, -1e-300, True, None, "x", "", "\0", b"x", [], {}, 1j),
    *(np.nan, np.float32(-2), np.array([1, 2]), object()),
)
PLAIN = (bool, int, float, str, type(None), np.floating)
STRINGS = (
    *("\0", "a\0b", "\ud800", "a b", "a\tb", "a\nb", "\x1b[31mred", "\x9b2J", "\u202eevil", "e\u0301", "é", "💥" * 50),
    *("", " ", "\ufeff", "\u2028", "<script>alert(1)</script>", "'\"&", "../x", "-1", "nan", "x" * 3000, "=1+1", "٣"),
)


class Case(NamedTuple):
    """``run`` says REFUSED or RIGHT, or raises; AssertionError is a wrong result."""

    kind: str
    name: str
    run: Callable[[], str]


class Tried(NamedTuple):
    """How cases of a kind ended, and those that fell short, with why."""

    counts: Counter[str]
    short: list[tuple[str, str]]


def outcome(case: Case) -> tuple[str, str]:
    """How it ended, and why it fell short."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return case.run(), ""
    except HaybaleError as error:
        message = str(error)
        return (REFUSED, "") if message and "\n" not in message.strip() else ("short", f"message {message!r}")
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        where = traceback.extract_tb(error.__traceback__)[-1]
        if type(error).__name__ == "InvalidParameterError" or "sklearn/utils/" in where.filename:
            return REFUSED, ""  # scikit-learn's own words, of what is a scikit-learn estimator
        return "short", f"{type(error).__name__}: {str(error)[:150]} ({Path(where.filename).name}:{where.lineno})"


def finite(*numbers: Any) -> str:
    """RIGHT, if all numbers are some."""
    for array in numbers:
        assert np.isfinite(np.asarray(array, dtype=np.float64)).all(), "NaN or infinity in a result"
    return RIGHT


def settled(scores: Any) -> str:
    """The same but for places where nothing was found."""
    return finite(np.asarray(scores)[np.asarray(scores) > -np.inf])


# what is attacked, made once --------------------------------------------------------------------------------------


class World:
    """A small collection, its engine, two rankers and a store, in a folder, which becomes the working directory."""

    def __init__(self, folder: Path) -> None:
        os.chdir(folder)
        self.folder, self.collection = folder, topic_collection()
        self.engine = Engine.build(self.collection, folder / "engine").prepare()
        self.dense = Engine.build(self.collection, folder / "dense", encoder="lsa", n_components=8).prepare()
        self.data = layouts.beir(folder / "data")
        self.rankers = {name: haybale.parse(name).fit(self.engine) for name in ("bm25-doc", "svr(n_bags=4)")}
        for name, ranker in zip(("bm25", "svr"), self.rankers.values(), strict=True):
            ranker.save(folder / name)
        self.encoder = haybale.LSAEncoder(8).fit(self.collection.passages.texts.to_pylist())
        haybale.embed(self.collection, self.encoder, folder / "store", rows_per_chunk=16)
        vectors = self.encoder.encode(self.collection.passages.texts.to_pylist())
        haybale.PassageIndex.from_collection(self.collection, vectors).save(folder / "index")
        self.vectors, self._numbers = vectors, itertools.count()
        self.run = self.rankers["bm25-doc"].rank("dev", depth=5)

    def new(self) -> Path:
        """A path where nothing is."""
        return self.folder / "tried" / str(next(self._numbers))

    def copy(self, name: str) -> Path:
        return Path(shutil.copytree(self.folder / name, self.new()))

    def ask(self, name: str, folder: Path) -> Any:
        """What a saved thing says, as plain values."""
        if name == "engine":
            return haybale.parse("rrf(bm25,knn,parm-rrf)").fit(Engine.open(folder)).rank("dev", depth=5).to_frame()
        if name in ("bm25", "svr"):
            return haybale.load(folder, self.engine).rank("dev", depth=5).to_frame()
        if name == "store":
            store = haybale.EmbeddingStore(folder)
            return pd.DataFrame(store.vectors()).assign(passage=list(store.passage_ids), doc=list(store.doc_ids))
        hits = haybale.PassageIndex.open(folder).search(self.vectors[:3], 5)
        return pd.DataFrame(hits.scores)


def shell(*arguments: str) -> tuple[int, str]:
    """The command in this process: its status and all that it printed, which no terminal may obey."""
    printed, before = (
        io.TextIOWrapper(io.BytesIO(), "utf-8", errors="surrogateescape"),
        (sys.argv, warnings.showwarning),
    )
    status: Any = 0
    try:
        sys.argv = ["haybale", *arguments]
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            main()
    except SystemExit as left:
        status = left.code or 0
    finally:
        sys.argv, warnings.showwarning = before
    printed.flush()
    text = printed.buffer.getvalue().decode("utf-8", "backslashreplace")  # type: ignore[attr-defined]
    for character in "\x1b\x9b\x00\x07\u202e\u2066":
        assert character not in text, f"{character!r} reaches the terminal"
    assert "Traceback" not in text
    return int(status), text


# kinds of cases ---------------------------------------------------------------------------------------------------


def options(world: World, rng: random.Random) -> Iterator[Case]:
    """Every option of every command × values it cannot mean."""
    import typer

    from haybale.cli.application import app

    given = {
        "index": ["DATA", "--out", "NEW"],
        "add": ["E", "DATA"],
        "remove": ["E", "nobody"],
        "train": ["E", "--ranker", "svr", "--out", "NEW"],
        "rank": ["E", "ba ko"],
        "compare": ["E", "--rankers", "bm25", "--out", "NEW"],
        "tune": ["DATA", "--unit", "document"],
        "report": ["NEW", "--out", "NEW.html"],
        "embed": ["DATA", "--out", "NEW", "--n-components", "2"],
    }
    shell("--version")  # which registers the commands
    commands: Any = typer.main.get_command(app)
    for name, arguments in given.items():
        for parameter in commands.commands[name].params:
            if not parameter.opts[0].startswith("--") or parameter.opts[0] in ("--help", "--explain"):
                continue
            number = parameter.min is not None  # every number has a least value
            for value in (*NO_NUMBERS, "-1", "-9999999999999999999999") if number else BAD_TEXTS:
                option = parameter.opts[0]

                def run(
                    name: str = name,
                    arguments: list[str] = arguments,
                    option: str = option,
                    value: str = value,
                    number: bool = number,
                ) -> str:
                    new = str(world.new())
                    places = {
                        "E": str(world.folder / "engine"),
                        "DATA": str(world.data),
                        "NEW": new,
                        "NEW.html": new + ".html",
                    }
                    own = [places.get(each, each) for each in arguments]
                    if option in own:
                        at = own.index(option)
                        del own[at : at + 2]
                    status, said = shell(name, *own, f"{option}={value}")
                    refused = number and value != "1.0"  # which typer takes for 1
                    assert status == 2 if refused else status in (0, 2), f"status {status}: {said[-200:]}"
                    return REFUSED if status else RIGHT

                yield Case("options", f"{name} {option}={value!r}", run)
    for ranker, parameter, value in itertools.product(
        ("bm25", "parm-rrf", "svr", "knn-queries", "rrf(bm25,knn)", "learned(bm25,knn)"),
        (
            "k1",
            "b",
            "k3",
            "k",
            "n_hits",
            "rrf_k",
            "n_bags",
            "overlap",
            "strategy",
            "rows_per_bag",
            "n_candidates",
            "epsilon",
            "random_state",
            "gamma",
            "C",
            "tol",
            "depth",
            "unseen_share",
            "l2",
            "n_jobs",
            "unit",
        ),
        (*NO_NUMBERS, "-1", "-1e300"),
    ):

        def rank(ranker: str = ranker, parameter: str = parameter, value: str = value) -> str:
            status, said = shell(
                "rank", str(world.folder / "engine"), "ba", "--ranker", ranker, "--set", f"{parameter}={value}"
            )
            may_be = value in ("0x10", "1e3", "1.0") or (parameter, value) == ("n_jobs", "-1")
            assert status == 2 or may_be, f"accepted: {said[-200:]}"
            return REFUSED if status else RIGHT

        yield Case("options", f"--set {parameter}={value!r} of {ranker}", rank)


def parameters(world: World, rng: random.Random) -> Iterator[Case]:
    """Every parameter of every class and function × values of all kinds; what is taken gives numbers."""
    texts = world.collection.passages.texts.to_pylist()
    X, y = np.random.default_rng(0).normal(size=(30, 4)), np.arange(30) % 2
    q, p = world.vectors[:6], world.vectors

    def ranked(**settings: Any) -> str:
        ranker = settings.pop("of")(**settings).fit(world.engine)
        return finite([score for _, score in ranker.rank({"a": "ba ko"}, depth=3)["a"]])

    def of(make: Callable[..., Any]) -> Callable[..., str]:
        return lambda **settings: ranked(of=make, **settings)

    index, store = haybale.BM25Index, haybale.EmbeddingStore(world.folder / "store")
    other, trec = world.rankers["svr(n_bags=4)"].rank("dev", depth=5), world.folder / "run.trec"
    world.run.to_trec(trec)
    neighbours = haybale.QueryNeighbours(q, [["a"]] * 6, ["a", "b"])
    targets: dict[str, tuple[Callable[..., str], tuple[str, ...]]] = {
        "BM25": (of(haybale.BM25), ("unit", "k1", "b", "k3")),
        "KNN": (of(haybale.KNN), ("unit",)),
        "PARM": (of(haybale.PARM), ("aggregation", "over", "n_hits", "rrf_k")),
        "SimilarQueries": (of(haybale.SimilarQueries), ("k", "power")),
        "RRF": (of(lambda **s: haybale.RRF(haybale.BM25(), haybale.KNN(), **s)), ("k", "depth")),
        "SVR": (
            of(lambda **s: haybale.SVR(**{"n_bags": 2} | s)),
            (
                "n_bags",
                "overlap",
                "strategy",
                "rows_per_bag",
                "n_candidates",
                "gamma",
                "C",
                "epsilon",
                "tol",
                "positive_weight",
                "random_state",
                "n_jobs",
                "memory_budget",
                "unit",
            ),
        ),
        "Learned": (
            of(lambda **s: haybale.Learned(haybale.BM25(), haybale.KNN(), **s)),
            ("depth", "unseen_share", "l2"),
        ),
        "ProductKernelSVR": (
            lambda **s: finite(haybale.ProductKernelSVR(**{"split": 2} | s).fit(X, y).predict(X)),
            ("C", "epsilon", "gamma", "tol", "split", "max_iter", "memory_budget", "solver", "device", "n_jobs"),
        ),
        "BM25Index": (
            lambda **s: settled(index.from_collection(world.collection, **s).search(["ba"], 3).scores),
            ("k1", "b", "k3", "unit"),
        ),
        "BM25Index.search": (
            lambda **s: finite(index.from_collection(world.collection).search(["ba"], **s).scores[:, :1]),
            ("k",),
        ),
        "PassageIndex": (
            lambda **s: finite(haybale.PassageIndex(p, **s).search(q, 2).scores),
            ("doc_offsets", "passage_ids", "doc_ids", "backend", "device", "memory_budget"),
        ),
        "PassageIndex.search": (
            lambda **s: finite(haybale.PassageIndex(p).search(q, **{"k": 2} | s).scores),
            ("k", "exclude"),
        ),
        "LSAEncoder": (
            lambda **s: finite(haybale.LSAEncoder(**{"n_components": 4} | s).fit(texts).encode(texts[:2])),
            ("n_components", "language", "min_df", "char_ngrams", "random_state", "max_fit_texts"),
        ),
        "TfidfEncoder": (
            lambda **s: finite(haybale.TfidfEncoder(**s).fit(texts).encode(texts[:2]).data),
            ("language", "min_df", "char_ngrams", "sublinear_tf"),
        ),
        "Chunking": (lambda **s: str(haybale.Chunking(**{"length": 3} | s)) and RIGHT, ("length", "stride", "unit")),
        "fusion": (
            lambda **s: finite(haybale.reciprocal_rank_fusion([world.run], **s).to_frame()["score"]),
            ("rrf_k", "weights", "k"),
        ),
        "evaluate": (lambda **s: finite(evaluate(world.run, world.collection.qrels_frame("dev"), **s)), ("measures",)),
        "rank": (
            lambda **s: finite(world.rankers["bm25-doc"].rank("dev", **s).to_frame()["score"]),
            ("depth", "within"),
        ),
        "QueryNeighbours": (
            lambda **s: finite(
                haybale.QueryNeighbours(q, [["a"]] * 6, ["a", "b"], **s).rank(q, list("abcdef")).to_frame()["score"]
            ),
            ("k", "power", "query_ids"),
        ),
        "embed": (
            lambda **s: str(haybale.embed(world.collection, world.encoder, world.new(), **s)) and RIGHT,
            ("rows_per_chunk", "dtype", "chunking", "shard"),
        ),
        "tune_bm25": (
            lambda **s: str(haybale.tune_bm25(world.collection, **s)) and RIGHT,
            ("k1", "b", "k3", "n_queries", "measure", "unit", "random_state", "language", "split"),
        ),
        "Engine": (
            lambda **s: str(Engine(world.collection, **s).prepare()) and RIGHT,
            (
                *("n_components", "language", "analyzer", "paragraphs", "chunking", "store"),
                *("query_prompt", "passage_prompt", "device", "random_state"),
            ),
        ),
        "compare": (
            lambda **s: str(haybale.compare(world.engine, **{"rankers": "bm25"} | s)) and RIGHT,
            ("rankers", "split", "train", "baseline", "measures", "report"),
        ),
        "ShardedIndex": (
            lambda **s: finite(haybale.ShardedIndex(store, **s).search(q, 2).scores),
            ("n_shards", "memory_budget", "device", "n_jobs"),
        ),
        "SVREnsemble": (
            lambda **s: settled(
                haybale.SVREnsemble(**{"n_bags": 2, "k": 5} | s)
                .fit(haybale.PassageIndex(p), q, [[str(row)] for row in range(6)])
                .rank(q, list("abcdef"), k=3)
                .to_frame()["score"]
            ),
            tuple(haybale.SVREnsemble._parameter_constraints),
        ),
        "LearnedFusion": (
            lambda **s: finite(
                haybale.LearnedFusion(**s)
                .fit({"a": world.run, "b": other}, world.collection.qrels_frame("dev"))
                .fuse({"a": world.run, "b": other})
                .to_frame()["score"]
            ),
            ("depth", "unseen_share", "l2", "max_iter"),
        ),
        "ParagraphSearch": (
            lambda **s: finite(
                haybale.ParagraphSearch(haybale.PassageIndex(p), **s).rank(["a"], [q]).to_frame()["score"]
            ),
            ("aggregation", "n_hits", "rrf_k", "occurrences", "k"),
        ),
        "Run": (lambda **s: finite(Run.from_frame(world.run.to_frame(), **s).to_frame()["score"]), ("k",)),
        "QueryNeighbours.rank": (
            lambda **s: finite(neighbours.rank(q, list("abcdef"), **s).to_frame()["score"]),
            ("depth", "exclude", "training_rows"),
        ),
        "embed_shards": (
            lambda **s: str(haybale.embed_shards(world.collection, world.encoder, world.new(), **s)) and RIGHT,
            ("n_shards", "n_jobs", "dtype", "rows_per_chunk", "chunking", "layout"),
        ),
        "ConcatEncoder": (
            lambda **s: finite(haybale.ConcatEncoder([world.encoder], **s).encode(texts[:2])),
            ("weights",),
        ),
        "write_report": (
            lambda **s: (
                str(
                    write_report(
                        [trec], f"{world.new()}.html", **{"collection": world.collection, "picture": "none"} | s
                    )
                )
                and RIGHT
            ),
            ("queries", "picture", "split", "baseline", "ranker", "query", "title"),
        ),
    }
    for name, (target, names) in targets.items():
        for parameter, value in itertools.product(names, BAD_VALUES):

            def run(target: Callable[..., str] = target, parameter: str = parameter, value: Any = value) -> str:
                try:
                    return target(**{parameter: value})
                except (TypeError, AttributeError, ValueError) as error:
                    # A parameter that there is not, or a value of a type that nobody would give: Python's own errors.
                    if isinstance(error, HaybaleError):
                        raise
                    if "unexpected keyword argument" in str(error) or not isinstance(value, PLAIN):
                        return REFUSED
                    raise

            yield Case("parameters", f"{name}({parameter}={value!r})", run)


def _damaged(data: bytes, rng: random.Random) -> tuple[str, bytes]:
    """The bytes of a file, spoilt in one way."""
    at = rng.randrange(len(data) + 1)
    ways: dict[str, Callable[[], bytes]] = {
        "truncated": lambda: data[:at],
        "a bit flipped": lambda: (
            data[: max(0, at - 1)] + bytes([data[max(0, at - 1)] ^ 1 << rng.randrange(8)]) + data[max(1, at) :]
        ),
        "empty": lambda: b"",
        "bytes inserted": lambda: (
            data[:at]
            + rng.choice((b"\0", b"\xff", b"\xed\xa0\x80", b"\r", b"\t\t", b"\xef\xbb\xbf", b"\x1b[2J"))
            + data[at:]
        ),
        "lines exchanged": lambda: b"\n".join(rng.sample(data.split(b"\n"), data.count(b"\n") + 1)),
        "a line twice": lambda: data + b"\n" + rng.choice(data.split(b"\n")) + b"\n",
        "a line gone": lambda: b"\n".join(
            line for n, line in enumerate(data.split(b"\n")) if n != at % (data.count(b"\n") + 1)
        ),
        "noise": lambda: rng.randbytes(200),
        "nested": lambda: data + b"[" * 100_000,
        "a long number": lambda: data.replace(b"1", b"9" * 5000, 1),
        "zipped in part": lambda: gzip.compress(data)[:-9],
        "a surrogate": lambda: data.replace(b'"text": "', b'"text": "\\ud800', 1),
        "null": lambda: data.replace(b'"', b"null", 2) if rng.random() < 0.5 else data.replace(b"one", b"", 1),
        "a list": lambda: data.replace(b'"title": "', b'"title": ["x"], "y": "', 1).replace(
            b'"parent": null', b'"parent": []', 1
        ),
        "invalid": lambda: data[:at] + b"\x80" + data[at:] + b"\xc3",
        "a long grade": lambda: data.replace(b"\t1\n", b"\t" + b"9" * 20 + b"\n"),
        "no newline": lambda: data.replace(b"\n", b" "),
    }
    way = rng.choice(list(ways)) if data else "noise"
    return way, ways[way]()


_FRAMES = {
    "passages": {"doc_id": ["a", "a", "b"], "text": ["one text", "two", "three"]},
    "queries": {"query_id": ["q"], "text": ["one"], "own": ["b"]},
    "qrels": {"query_id": ["q"], "doc_id": ["b"], "relevance": [1]},
}


def readers(world: World, rng: random.Random) -> Iterator[Case]:
    """Files of every layout, damaged; what is read can be ranked."""
    makers = {"beir": layouts.beir, "gerdalir": layouts.gerdalir, "structured": layouts.structured}
    for number in itertools.count():
        name = rng.choice([*makers, "trec", "qrels", "coliee", "parquet", "collection", "queries", "texts"])

        def run(name: str = name, seed: int = rng.randrange(2**32), number: int = number) -> str:
            own, folder = random.Random(seed), world.new()
            if name in makers:
                makers[name](folder, zipped=own.random() < 0.2)
            elif name == "coliee":
                layouts.folder_of(
                    folder,
                    {
                        "files/001.txt": "[1] One.\n[2] Two.\n",
                        "files/002.txt": "[1] Three.\n",
                        "labels.json": '{"001.txt": ["002.txt"]}',
                    },
                )
            elif name == "parquet":
                folder.mkdir(parents=True)
                for part, columns in _FRAMES.items():
                    pd.DataFrame(columns).to_parquet(folder / f"{part}.parquet")
            elif name == "collection":
                save_collection(world.collection, folder)
            else:
                layouts.folder_of(
                    folder,
                    {
                        "a.tsv": "q1\td1\t1\nq2\td2\t2\n",
                        "a.trec": "q1 Q0 d1 1 2.0 x\nq1 Q0 d2 2 1.0 x\n",
                        "q.jsonl": '{"_id": "q1", "text": "ba ko", "own": "d1"}\n{"_id": "q2", "text": "one"}\n',
                        "q.tsv": "q1\tba ko\nq2\tone\n",
                        "q.txt": "ba ko\n\none\n",
                    },
                )
            path = own.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
            kind = own.random()
            if kind < 0.06:
                path.unlink()
                path.mkdir()
            elif kind < 0.1:
                path.unlink()
                places = (path, path.parent, "/nowhere", "/dev/null", "/proc/self/mem", "/dev", "x" * 300)
                path.symlink_to(own.choice(places))
            else:
                path.write_bytes(_damaged(path.read_bytes(), own)[1])
            if name == "collection":
                return load_collection(folder).digest() and RIGHT  # which reads all of it
            if name == "texts":
                asked = own.choice((folder / "q.jsonl", folder / "q.tsv", folder / "q.txt", Path("x" * 300)))
                return finite(world.rankers["bm25-doc"].rank(asked, depth=3).to_frame()["score"])
            if name == "trec":
                return finite(Run.from_trec(folder / "a.trec").to_frame()["score"])
            if name in ("qrels", "queries"):
                status, _ = shell(
                    "train",
                    str(world.folder / "engine"),
                    "--ranker",
                    "knn-queries",
                    "--out",
                    str(world.new()),
                    "--queries",
                    str(folder / "a.tsv"),
                    "--qrels",
                    str(folder / "a.tsv"),
                )
                assert status in (0, 2)
                return REFUSED if status else RIGHT
            collection = open_collection(folder)
            run = haybale.BM25Index.from_collection(collection).search(["one text"], 1)
            return finite(run.scores[np.isfinite(run.scores)])

        yield Case("readers", f"{name} {number}", run)


def saved(world: World, rng: random.Random) -> Iterator[Case]:
    """Files of everything that is saved, damaged: refused, or what the intact folder says."""
    intact = {name: world.ask(name, world.folder / name) for name in ("engine", "bm25", "svr", "store", "index")}
    for number in itertools.count():
        name = rng.choice(list(intact))

        def run(name: str = name, seed: int = rng.randrange(2**32)) -> str:
            own, folder = random.Random(seed), world.copy(name)
            try:
                files = sorted(path for path in folder.rglob("*") if path.is_file())
                path, kind = own.choice(files), own.random()
                if kind < 0.1:
                    path.unlink()
                elif kind < 0.25:
                    other = own.choice(files)
                    held = path.read_bytes()
                    path.write_bytes(other.read_bytes())
                    other.write_bytes(held)
                else:
                    path.write_bytes(_damaged(path.read_bytes(), own)[1])
                found = world.ask(name, folder)
                pd.testing.assert_frame_equal(found, intact[name])
                return RIGHT
            finally:
                shutil.rmtree(folder)

        yield Case("saved", f"{name} {number}", run)


def manifests(world: World, rng: random.Random) -> Iterator[Case]:
    """Entries of manifests changed and the digests made anew, as by somebody who knows how."""
    values = (None, -1, 0, 1.5, 10**13, 2**70, "", "x", [], {}, [1], True, "../../x", math.nan)
    for number in itertools.count():
        name = rng.choice(("engine", "bm25", "svr", "store", "index"))

        def run(name: str = name, seed: int = rng.randrange(2**32)) -> str:
            own, folder = random.Random(seed), world.copy(name)
            try:
                path = own.choice(sorted(folder.rglob("*.json")))
                content = json.loads(path.read_text())
                at: Any = content
                while isinstance(at, dict | list) and at:
                    key = own.choice(list(at) if isinstance(at, dict) else range(len(at)))
                    if not isinstance(at[key], dict | list) or own.random() < 0.3:
                        at[key] = own.choice(values)
                        break
                    at = at[key]
                if isinstance(content, dict) and "sha256" in content:
                    content = with_checksum(content)
                path.write_text(json.dumps(content))
                above = path.parent
                while above != folder.parent:  # manifests of the folders above hold digests of this one
                    for manifest in above.glob("*.json"):
                        listing = json.loads(manifest.read_text())
                        if manifest != path and isinstance(listing, dict) and isinstance(listing.get("files"), dict):
                            for listed in listing["files"]:
                                if (above / listed).is_file():
                                    listing["files"][listed] = digest(above / listed)
                            manifest.write_text(json.dumps(with_checksum(listing) if "sha256" in listing else listing))
                    above = above.parent
                found = world.ask(name, folder)
                for column in found.select_dtypes("number"):
                    finite(found[column])
                return RIGHT
            finally:
                shutil.rmtree(folder)

        yield Case("manifests", f"{name} {number}", run)


def strings(world: World, rng: random.Random) -> Iterator[Case]:
    """Ids, titles and texts of all kinds, from a builder through ranking and measures to files and back."""
    for where, text in itertools.product(("doc_id", "query_id", "passage", "title", "query", "run", "add"), STRINGS):

        def run(where: str = where, text: str = text) -> str:
            given = {"doc_id": "d", "query_id": "q", "passage": "one text", "title": "t", "query": "one"} | {
                where: text
            }
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
            path = world.new().with_suffix(".trec")
            path.parent.mkdir(exist_ok=True)
            run.to_trec(path)
            again = Run.from_trec(path)
            assert {q: [d for d, _ in again[q]] for q in again.query_ids} == {
                q: [d for d, _ in run[q]] for q in run.query_ids if len(run[q])
            }, "another run comes back"
            return RIGHT

        yield Case("strings", f"{where} {text[:20]!r}", run)
    for text in STRINGS:  # as a terminal and a page show them

        def table(text: str = text) -> str:
            values = pd.DataFrame({"nDCG@10": [0.5]}, index=pd.Index(["q"], name="query_id"))
            console = Console(width=9000, file=io.StringIO(), force_terminal=True, color_system=None)
            print_table(console, results({text: values, "bm25": values}, text), text)
            printed = console.file.getvalue()  # type: ignore[attr-defined]
            assert not set("\x1b\x9b\x00\x07\r\u202e\u2066") & set(printed), "a control character reaches the terminal"
            return RIGHT

        yield Case("strings", f"table {text[:20]!r}", table)

        def shown(text: str = text) -> str:
            folder = world.new()
            record = {"_id": text, "title": text, "text": f"one {text}"}
            layouts.folder_of(
                folder,
                {
                    "corpus.jsonl": json.dumps(record) + "\n" + json.dumps({"_id": "e", "text": "two"}),
                    "queries.jsonl": json.dumps({"_id": text, "text": f"one {text}"}),
                    "qrels/dev.tsv": "query-id\tcorpus-id\tscore\n",
                },
            )
            engine = world.new()
            status, _ = shell("index", str(folder), "--out", str(engine))
            if status == 0:
                status, _ = shell("rank", str(engine), "one two", "--explain")
            assert status in (0, 2)
            return REFUSED if status else RIGHT

        yield Case("strings", f"shown {text[:20]!r}", shown)


def arrays(world: World, rng: random.Random) -> Iterator[Case]:
    """Vectors, labels and frames of all kinds."""
    good = world.vectors[:8]

    def put(value: Any) -> np.ndarray:
        array = good.astype(np.asarray(value).dtype if isinstance(value, complex) else np.float64)
        array[3, 1] = value
        return array

    bad: dict[str, Any] = {
        "NaN": put(np.nan),
        "infinite": put(np.inf),
        "complex": put(1j),
        "huge": put(1e300),
        "large": put(1e30),
        "tiny": put(1e-320),
        "objects": good.astype(object),
        "strings": good.astype(str),
        "3 axes": good[None],
        "1 axis": good[0],
        "no rows": good[:0],
        "no columns": good[:, :0],
        "narrow": good[:, :3],
        "whole": (good * 9).astype(int),
        "truth": good > 0,
        "half": good.astype(np.float16),
        "fortran": np.asfortranarray(good),
        "strided": good[::2],
        "sparse": sparse.csr_matrix(good),
        "coo": sparse.coo_matrix(good),
        "list": good.tolist(),
        "ragged": [[1.0], [1.0, 2.0]],
        "frame": pd.DataFrame(good),
        "masked": np.ma.masked_invalid(put(np.nan)),
        "dates": np.array([["2020-01-01"]], dtype="M8[D]"),
        "read-only": np.lib.stride_tricks.as_strided(good, good.shape, good.strides, writeable=False),
        "none": None,
        "swapped": good.astype(">f4"),
        "sparse NaN": sparse.csr_matrix(put(np.nan)),
        "sparse complex": sparse.csr_matrix(put(1j)),
    }
    index = haybale.PassageIndex(good)

    def flat(value: Any) -> Any:
        try:
            return value if sparse.issparse(value) else np.ravel(np.asarray(value))
        except ValueError:  # ragged
            return np.ravel(np.asarray(value, dtype=object))

    def learned(y: Any, of_pairs: bool = True, weight: Any = None) -> Any:
        rows = np.arange(64 if sparse.issparse(y) else len(y)) % 8
        model = haybale.ProductKernelSVR()
        if of_pairs:
            return model.fit_pairs(good, good, rows, rows, y, weight).predict_pairs(good, good, [0], [0])
        return model.fit(good[rows], y, weight).predict(good)

    def svr(value: Any) -> Any:
        ours = haybale.ProductKernelSVR().fit_pairs(value, value, [0, 1, 2], [1, 2, 0], [0.0, 1.0, 0.5])
        return ours.predict_pairs(value, value, [0], [0])

    def neighbours(value: Any) -> Any:
        found = haybale.QueryNeighbours(value, [["a"]] * 8, ["a", "b"])
        return found.rank(value, list("abcdefgh")).to_frame()["score"]

    def framed(value: Any) -> Any:
        scores = np.ravel(flat(value))
        frame = pd.DataFrame({"query_id": "a", "doc_id": np.arange(len(scores)), "score": scores})
        return Run.from_frame(frame).to_frame()["score"]

    uses: dict[str, Callable[[Any], str]] = {
        "PassageIndex": lambda v: settled(haybale.PassageIndex(v).search(v, 1).scores),
        "queries": lambda v: settled(index.search(v, 1).scores),
        "QueryNeighbours": lambda v: settled(neighbours(v)),
        "ProductKernelSVR": lambda v: finite(svr(v)),
        "fit X": lambda v: finite(haybale.ProductKernelSVR().fit(v, np.arange(8.0)).predict(good)),
        "y": lambda v: finite(learned(flat(v), False)),
        "y of pairs": lambda v: finite(learned(flat(v))),
        "sample_weight": lambda v: finite(learned(np.arange(64.0), False, flat(v))),
        "sample_weight of pairs": lambda v: finite(learned(np.arange(64.0), True, flat(v))),
        "Run.from_frame": lambda v: finite(framed(v)),
    }
    for (use, call), (name, value) in itertools.product(uses.items(), bad.items()):

        def run(call: Callable[[Any], str] = call, value: Any = value, name: str = name) -> str:
            found = call(value)
            assert "complex" not in name, "the imaginary part is lost"
            return found

        yield Case("arrays", f"{use} of {name}", run)


def full_disk(world: World, rng: random.Random) -> Iterator[Case]:
    """A disk that is full at any byte of any file: one line, and what is there is whole or can be gone on with."""
    import resource
    import signal

    jobs: dict[str, Callable[[Path], Any]] = {
        "engine": lambda folder: Engine.build(world.collection, folder).prepare(),
        "bm25": lambda folder: world.rankers["bm25-doc"].save(folder),
        "svr": lambda folder: world.rankers["svr(n_bags=4)"].save(folder),
        "store": lambda folder: haybale.embed(world.collection, world.encoder, folder, rows_per_chunk=16),
        "index": lambda folder: haybale.PassageIndex(world.vectors).save(folder),
        "compare": lambda folder: shell(
            "compare", str(world.folder / "engine"), "--rankers", "bm25,knn", "--out", str(folder)
        ),
        "rank": lambda folder: shell("rank", str(world.folder / "engine"), "dev", "--out", f"{folder}.trec"),
        "train": lambda folder: shell("train", str(world.folder / "engine"), "--ranker", "bm25", "--out", str(folder)),
        "tune": lambda folder: shell("tune", str(world.data), "--split", "dev", "--out", f"{folder}.json"),
        "embed": lambda folder: shell("embed", str(world.data), "--n-components", "2", "--out", str(folder)),
    }
    for number in itertools.count():
        name = rng.choice(list(jobs))

        def run(name: str = name, size: int = int(2 ** rng.uniform(0, 17))) -> str:
            folder = world.new()
            folder.parent.mkdir(exist_ok=True)
            read, write = os.pipe()
            child = os.fork()
            if not child:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
                try:
                    done = jobs[name](folder)
                    said = f"{RIGHT if not isinstance(done, tuple) or done[0] == 0 else REFUSED}"
                except (HaybaleError, OSError):
                    said = REFUSED
                except BaseException as error:
                    said = f"{type(error).__name__}: {error}"[:200]
                os.write(write, said.encode())
                os._exit(0)
            os.close(write)
            _, status = os.waitpid(child, 0)
            said = os.read(read, 400).decode()
            os.close(read)
            assert status == 0, f"died of {status}"
            assert said in (REFUSED, RIGHT), said
            if name in ("engine", "store"):  # the same job goes on
                jobs[name](folder)
                assert world.ask(name, folder).shape[1]
            elif name not in ("compare", "rank", "train", "tune", "embed") and folder.exists():
                assert world.ask(name, folder).shape[1], "half a folder"
            return said

        yield Case("full disk", f"{name} {number}", run)


KINDS: dict[str, Callable[[World, random.Random], Iterator[Case]]] = {
    each.__name__: each for each in (options, parameters, readers, saved, manifests, strings, arrays, full_disk)
}
SHARE = {"readers": 0.25, "saved": 0.2, "manifests": 0.12, "full_disk": 0.04}  # of all; the others are finite


def attack(world: World, kind: str, most: int, seed: int = 0) -> Tried:
    """Try up to ``most`` cases of a kind: of a finite one a sample, where there are more."""
    rng = random.Random(seed)
    cases: Iterator[Case] = KINDS[kind](world, rng)
    if kind not in SHARE:
        listed = list(cases)
        cases = iter(listed if len(listed) <= most else random.Random(seed).sample(listed, most))
    counts: Counter[str] = Counter()
    short = []
    for case in itertools.islice(cases, most):
        how, why = outcome(case)
        counts[how] += 1
        if how == "short":
            short.append((case.name, why))
    return Tried(counts, short)


def report(n_cases: int, seed: int, kinds: list[str]) -> int:
    """Try them all, print the table; how many fell short."""
    missing = 0
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        print(f"{'kind':12} {'tried':>6} {'right':>6} {'refused':>8} {'short':>6} {'seconds':>8}")
        total = 0
        for kind in kinds:
            start = time.perf_counter()
            tried = attack(world, kind, int(n_cases * SHARE.get(kind, 1)), seed)
            n, seconds = sum(tried.counts.values()), time.perf_counter() - start
            total += n
            missing += len(tried.short)
            print(
                f"{kind:12} {n:6} {tried.counts[RIGHT]:6} {tried.counts[REFUSED]:8} {len(tried.short):6} {seconds:8.1f}"
            )
            for name, why in tried.short:
                print(f"    {name}: {why}".encode("ascii", "backslashreplace").decode())
        print(f"{total} tried, {missing} fell short")
    return missing


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    chosen = parser.parse_args()
    raise SystemExit(min(1, report(chosen.cases, chosen.seed, chosen.kinds)))
