"""Standard streams that are files, pipes, devices or nothing: texts that come in, readers that leave."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count

from hostile.target import CORRECT, Cases, Target
from support.damage import damaged
from support.processes import Ended, forked
from support.topics import word

TEXT = f"{word(3)} {word(104)} mix\n\n{word(1203)} rex Bürger\n\n"
CONTENTS: tuple[Callable[[random.Random], bytes], ...] = (
    *(lambda rng, text=text: text.encode() for text in ("", " \n\t\n", TEXT, "\ufeff" + TEXT, TEXT.replace(" ", "\0"))),  # type: ignore[misc]
    *(lambda rng, end=end: TEXT.replace("\n", end).encode() for end in ("\r", "\r\n", "\u2028", "\x0c", "\x85")),  # type: ignore[misc]
    *(lambda rng, name=name: TEXT.encode(name) for name in ("latin-1", "utf-16")),  # type: ignore[misc]
    *(lambda rng: damaged(TEXT.encode(), rng), lambda rng: rng.randbytes(3000)),
    lambda rng: rng.choice((b"babax ", b"a", b"babax kox\n\n")) * rng.choice((1000, 30_000)),
    lambda rng: rng.choice((b"babax ", b"a")) * 1_000_000,
)
COMMANDS = ("rank E dev --k 30", "rank E dev --explain", "compare E --rankers bm25,knn --split dev", "--help")
ODD = ("/dev/null", "/dev/stdout", "/dev/full", "-", "/proc/self/fd/1", "/dev/tty", ".", "/dev/zero", "/dev/stdin")


def streams(target: Target, rng: random.Random) -> Cases:
    engine = str(target.folder / "engine")
    commands = [[engine if each == "E" else each for each in command.split()] for command in COMMANDS]
    expected = [forked(arguments) for arguments in commands]
    for number in count():
        row, seed, kind = rng.randrange(len(commands)), rng.randrange(2**32), rng.choice("ttrrfow")
        if kind == "t":
            content, way = rng.choice(CONTENTS), rng.choice(("-", "/dev/stdin", "pipe", "fifo"))
            yield f"text {number} by {way}", partial(_given, target, content(random.Random(seed)), way)
        elif kind == "r":
            most = int(2 ** rng.uniform(0, 14)) * rng.randint(0, 1)
            yield f"{COMMANDS[row]} to a reader of {most} bytes", partial(_reader, commands[row], most, expected[row])
        elif kind == "f":
            yield f"{COMMANDS[row]} with full {number}", partial(_full, commands[row], rng.choice(("stdout", "stderr")))
        elif kind == "o":
            arguments = rng.choice(("dev --out", "ba --within", "ba --model", "ba --ranker", "ba --heatmap"))
            given = ["rank", engine, *arguments.split(), rng.choice(ODD)]
            yield f"{arguments} {given[-1]}", lambda given=given: forked(given).judged()  # type: ignore[misc]
        else:
            yield f"stdin is for output {number}", partial(_wrong, ["rank", engine, "-"])


def _given(target: Target, data: bytes, way: str) -> str:
    """A text gives the same ranking by every way, or is rejected by every way."""
    call, path = ["rank", str(target.folder / "engine")], target.new().with_suffix(".txt")
    path.write_bytes(data)
    expected = forked([*call, str(path)])
    if way in ("-", "/dev/stdin"):
        found = forked([*call, way], stdin=data)
    else:
        pipe = path.with_suffix(".pipe")
        os.mkfifo(pipe)
        if not (writer := os.fork()):
            try:
                end = os.open(pipe, os.O_WRONLY)
                for start in range(0, len(data), 4099):
                    os.write(end, data[start : start + 4099])
            finally:
                os._exit(0)
        read = os.open(pipe, os.O_RDONLY)
        found = forked([*call, "-" if way == "pipe" else "/dev/fd/0"], stdin=read)
        os.close(read)
        os.waitpid(writer, 0)
    if way in ("-", "pipe"):
        assert found.status == expected.status, f"{way}: {found.err[-200:]}, in a file: {expected.err[-200:]}"
        assert found.numbers == expected.numbers, f"{way} ranks differently from a file"
    return found.judged()


def _reader(arguments: list[str], most: int, expected: Ended) -> str:
    """A reader that leaves ends the command quietly; what it has read is the beginning of the output."""
    (read, write), got = os.pipe(), []

    def keep_reading() -> None:
        while (left := most - sum(map(len, got))) and (data := os.read(read, left)):
            got.append(data)
        os.close(read)

    def close_both() -> None:
        os.close(write)
        with suppress(OSError):  # the reader may have left before the process began
            os.close(read)

    thread = threading.Thread(target=keep_reading)
    thread.start()
    found = forked(arguments, close_both, stdout=write)
    os.close(write)
    thread.join()
    if arguments[0] != "compare":  # which prints seconds
        assert expected.out.startswith(b"".join(got).decode("utf-8", "ignore")), "other output"
    assert "Errno" not in found.err, found.err[-300:]
    return found._replace(status=0 if found.status in (1, 141, -13) else found.status).judged()


def _full(arguments: list[str], stream: str) -> str:
    """A full disk behind stdout is an error with a message, and never status 0 with lost output."""
    with open("/dev/full", "wb") as full:
        found = forked(arguments, **{stream: full})
    assert stream == "stderr" or found.status != 0, "status 0, but the output is lost"
    return found.judged() if stream == "stdout" or found.status not in (1, 2) else CORRECT


def _wrong(arguments: list[str]) -> str:
    with open("/dev/null", "wb") as stream:
        return forked(arguments, stdin=stream).judged()
