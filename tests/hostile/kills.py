"""End commands and calls by signals at any moment: what was acknowledged survives, and the next call goes on."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from hostile.target import CORRECT, Cases, Target
from support.processes import Ended, forked, start_forked

import haybale
from haybale import Engine

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP)
COMMANDS = (
    "index DATA --out NEW",
    "train E --ranker learned(bm25,svr(n_bags=6,n_jobs=1)) --out NEW",
    "embed DATA --out NEW --encoder lsa(2)",
    "rank E dev --out NEW.trec",
    "compare E --rankers bm25,knn --out NEW",
)
CHANGES: list[tuple[str, Any]] = [("add", {f"n{n}": [f"babax kox newword{n}", "more"]}) for n in range(6)]
CHANGES += [("remove", [f"n{n}"]) for n in range(3)] + [("add", {f"n{n}": f"tux newword{n}"}) for n in range(6, 9)]
CHANGES += [("replace", {f"n{n}": [f"other text {n}"]}) for n in range(3, 6)]


def kills(target: Target, rng: random.Random) -> Cases:
    engine, states = Engine.open(target.copy("engine")), []
    for kind, value in [("add", None), *CHANGES]:
        if value is not None:
            getattr(engine, kind)(value)
        states.append(_state(engine))
    seconds = {}
    for command in COMMANDS:
        start = time.perf_counter()
        assert forked(_arguments(target, command)).status == 0, command
        seconds[command] = time.perf_counter() - start
    for number in count():
        command, with_signal, share = rng.choice((*COMMANDS, *["changes"] * 3)), rng.choice(SIGNALS), rng.random()
        case: Callable[[], str] = partial(_changes, target, with_signal, share, states)
        if command != "changes":
            case = partial(_ended, target, command, with_signal, seconds[command] * share)
        yield f"{command.split()[0]}, {with_signal.name} {number}", case


def _arguments(target: Target, command: str) -> list[str]:
    places = {
        "E": target.folder / "engine",
        "DATA": target.data,
        "NEW": (new := target.new()),
        "NEW.trec": f"{new}.trec",
    }
    return [str(places.get(each, each)) for each in command.split()]


def _ended(target: Target, command: str, with_signal: signal.Signals, wait: float) -> str:
    """End a command after some seconds; the same command must then finish."""
    arguments = _arguments(target, command)
    with tempfile.TemporaryFile() as output, open(os.devnull, "rb") as none:
        child = start_forked(arguments, lambda: None, (none, output, output))
        time.sleep(wait)
        os.kill(child, with_signal)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        output.seek(0)
        printed = output.read().decode()
    ending = (128 + with_signal, -with_signal)
    Ended(0 if status in ending else status, "", printed).judged()
    again = forked(arguments)
    # The output is there, so it is not written again; a comparison prints its table after that.
    is_complete = again.status == 2 and (status == 0 or (Path(arguments[-1]) / "results.json").is_file())
    assert is_complete or again.judged() == CORRECT, again.err[-300:]
    return CORRECT


def _changes(target: Target, with_signal: signal.Signals, share: float, states: list[Any]) -> str:
    """End a process that adds, replaces and removes documents; what it acknowledged is in the engine, and no half."""
    folder, (read, write) = target.copy("engine"), os.pipe()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            engine = Engine.open(folder)
            for kind, value in CHANGES:
                getattr(engine, kind)(value)
                os.write(write, b".")
        finally:
            os._exit(0)
    os.close(write)
    n_done = sum(len(os.read(read, 1)) for _ in range(int(share * len(CHANGES))))
    time.sleep(share * 0.05)
    os.kill(child, with_signal)
    os.waitpid(child, 0)
    n_done += len(os.read(read, 100))
    os.close(read)
    engine = Engine.open(folder)
    assert _state(engine) in states[n_done : n_done + 2], f"not the documents after {n_done} or {n_done + 1} changes"
    for kind, value in CHANGES[n_done + (_state(engine) != states[n_done]) :]:  # a second process goes on
        getattr(engine, kind)(value)
    assert _state(Engine.open(folder)) == states[-1], "the second process does not end the same"
    assert len(haybale.parse("rrf(bm25,knn)").fit(Engine.open(folder)).rank("dev", depth=5).to_frame())
    return CORRECT


def _state(engine: Engine) -> dict[str, list[str]]:
    found, offsets = engine.collection, engine.collection.passages.doc_offsets.tolist()
    texts = found.passages.texts.to_pylist()
    return {doc_id: texts[offsets[n] : offsets[n + 1]] for n, doc_id in enumerate(found.doc_ids.to_pylist())}
