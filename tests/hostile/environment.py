"""Run commands in unusual environments: variables, closed streams, limits, and folders that cannot be written."""

from __future__ import annotations

import os
import random
import resource
import shutil
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from hostile.target import CORRECT, Cases, Target
from support.case_workers import address_space
from support.processes import Ended, drop_privileges, forked, started
from support.topics import word

NOWHERE = "/nonexistent/folder"
FOLDERS = ("HOME", "TMPDIR", "NUMBA_CACHE_DIR", "MPLCONFIGDIR", "XDG_CACHE_HOME", "HF_HOME", "JOBLIB_TEMP_FOLDER")
VARIABLES: tuple[dict[str, str | None], ...] = (
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    *({"PYTHONIOENCODING": value} for value in ("ascii", "latin-1")),
    *({name: NOWHERE} for name in FOLDERS),
    *({"HOME": None}, {"HOME": ""}, {"TMPDIR": "/dev/null"}, {"TMPDIR": ""}, {"PATH": ""}, {"TZ": "nonsense"}),
    *({"PYTHONOPTIMIZE": "2"}, {"PYTHONWARNINGS": "error"}, {"PYTHONDEVMODE": "1"}, {"PYTHONUNBUFFERED": "1"}),
    *({"COLUMNS": value} for value in ("1", "x", "-5", "99999")),
    *({"TERM": None}, {"TERM": "dumb"}, {"NO_COLOR": "1"}, {"LANG": "tr_TR.UTF-8"}, {"OMP_NUM_THREADS": "x"}),
)
COMMANDS = {
    "rank": "rank E QUERY --explain",
    "out": "rank E dev --out NEW.trec",
    "index": "index DATA --out NEW",
    "train": "train E --ranker bm25 --out NEW",
    "compare": "compare E --rankers bm25,knn --split dev",
    "add": "add COPY MORE",
    "remove": "remove COPY d01",
    "tune": "tune DATA --split dev",
    "embed": "embed DATA --out NEW --encoder lsa(2)",
    "model": "rank E dev --model MODEL --k 3",
    "help": "rank --help",
}
QUERY = f"{word(3)} Bürger b\u0301 كتاب 東京"
PERMISSIONS = {  # modes of files and of folders
    "nothing can be written": (0o444, 0o555),
    "nothing can be read": (0o200, 0o755),
    "folders cannot be entered": (0o600, 0o600),
}


def environment(target: Target, rng: random.Random) -> Cases:
    expected = {name: forked(_arguments(target, name)) for name in COMMANDS}
    assert not any(found.status for found in expected.values()), expected
    started(_arguments(target, "compare"), {"PYTHONOPTIMIZE": "2"})  # compiles all modules, which takes long
    for changes, name in product(VARIABLES, list(COMMANDS)[:5]):
        yield f"{name} with {changes}", partial(_run, target, name, expected[name], partial(started, changes=changes))
    for closed, name in product(range(1, 8), COMMANDS):
        streams = [each for number, each in enumerate(("stdin", "stdout", "stderr")) if closed >> number & 1]
        yield f"{name} without {streams}", partial(_closed, target, name, streams, expected[name])
    for (limit, prepare), name in product(_limits().items(), COMMANDS):
        yield f"{name} with {limit}", partial(_run, target, name, expected[name], partial(forked, prepare=prepare))
    for what, name in product(PERMISSIONS, COMMANDS):
        yield f"{name}, {what}", partial(_forbidden, target, name, what, expected[name])


def _arguments(target: Target, name: str) -> list[str]:
    """Return the arguments of a command, with new paths and copies for what it changes."""
    new = target.new()
    more = new.with_name(f"{new.name}-more")
    more.mkdir()
    (more / "corpus.jsonl").write_text('{"_id": "m1", "text": "babax another"}\n')
    shutil.copytree(target.folder / "engine", engine := new.with_name(f"{new.name}-engine"))
    places = {"E": engine, "COPY": engine, "MODEL": target.folder / "bm25", "DATA": target.data, "MORE": more}
    places |= {"NEW": new, "NEW.trec": new.with_suffix(".trec"), "QUERY": Path(QUERY)}
    return [str(places.get(each, each)) for each in COMMANDS[name].split()]


def _run(target: Target, name: str, expected: Ended, run: Callable[[list[str]], Ended], hidden: bool = False) -> str:
    """Check the outcome; a command that was refused must work afterwards, where nothing hinders it."""
    arguments = _arguments(target, name)
    os.chdir(target.new().parent)
    found = run(arguments)
    if hidden:  # the message or the output cannot be seen
        found = found._replace(out=expected.out, err=found.err + "haybale: a message that is not seen")
    outcome = found.judged()
    if outcome == CORRECT:
        assert found.numbers == expected.numbers, f"other results: {found.out[-300:]!r}"
    for path in target.new().parent.rglob("*"):  # made under another umask
        path.chmod(0o755)
    if outcome != CORRECT:
        again = forked(arguments)
        assert again.status == 0, f"refused afterwards: {again.err[-300:]}"
        assert again.numbers == expected.numbers, "other results afterwards"
    return outcome


def _closed(target: Target, name: str, streams: list[str], expected: Ended) -> str:
    hidden = "stdout" in streams or "stderr" in streams
    return _run(target, name, expected, partial(forked, **dict.fromkeys(streams)), hidden)


def _limits() -> dict[str, Callable[[], Any]]:
    def limit(kind: int, value: int) -> Callable[[], None]:
        def apply() -> None:
            most = value + (address_space() if kind == resource.RLIMIT_AS else 0)
            resource.setrlimit(kind, (most, most))

        return apply

    def without_folder() -> None:
        os.mkdir("gone")
        os.chdir("gone")
        os.rmdir("../gone")

    return {
        **{f"{n} MiB": limit(resource.RLIMIT_AS, n << 20) for n in (0, 1, 4, 8, 16, 32, 64, 128)},
        **{f"{n} files": limit(resource.RLIMIT_NOFILE, n) for n in (3, 4, 6, 12, 24)},
        "umask 777": lambda: (drop_privileges(), os.umask(0o777)),
        "removed working directory": without_folder,
        "working directory /proc": lambda: os.chdir("/proc/self"),
    }


def _forbidden(target: Target, name: str, what: str, expected: Ended) -> str:
    of_file, of_folder = PERMISSIONS[what]

    def run(arguments: list[str]) -> Ended:
        changed = {path: path.stat().st_mode for path in target.new().parent.rglob("*")}
        for path in changed:
            path.chmod(of_folder if path.is_dir() else of_file)
        try:
            return forked(arguments, drop_privileges)
        finally:
            for path, mode in changed.items():
                path.chmod(mode)

    return _run(target, name, expected, run)
