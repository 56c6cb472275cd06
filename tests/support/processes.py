"""Run commands in processes of their own: forked from this one, which is fast, or started anew."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, NamedTuple

from haybale.cli import main

Stream = int | IO[bytes] | None  # None is a closed stream


class Ended(NamedTuple):
    """The exit status of a process (negative: the signal that ended it), and its output."""

    status: int
    out: str
    err: str

    def judged(self) -> str:
        """Return "correct" for status 0, "rejected" for 2 with one message; raise AssertionError otherwise."""
        assert not re.search("Traceback|Exception ignored", self.err), self.err[-1500:]
        assert not set("\x1b\x9b\x00\x07\u202e\u2066") & set(self.out + self.err), "a control character is shown"
        assert self.status in (0, 2), f"status {self.status}: {self.err[-300:]}"
        assert self.status == 0 or re.search("haybale: .{15}", self.err), f"no clear message: {self.err[-300:]!r}"
        return "rejected" if self.status else "correct"

    @property
    def numbers(self) -> list[str]:
        """The scores in the output, which do not depend on the width or encoding of a terminal."""
        return re.findall(r"\d\.\d{4}\b", self.out)


def forked(
    arguments: Sequence[str],
    prepare: Callable[[], Any] = lambda: None,
    stdin: Stream | bytes = b"",
    stdout: Stream = -1,
    stderr: Stream = -1,
) -> Ended:
    """Run a command in a forked process; -1 keeps what is written to a stream."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        if isinstance(stdin, bytes):
            given.write(stdin)
            given.seek(0)
            stdin = given
        streams = (stdin, out if stdout == -1 else stdout, err if stderr == -1 else stderr)
        _, status = os.waitpid(start_forked(arguments, prepare, streams), 0)
        out.seek(0)
        err.seek(0)
        texts = [file.read().decode("utf-8", "backslashreplace") for file in (out, err)]
    return Ended(os.waitstatus_to_exitcode(status), *texts)


def start_forked(arguments: Sequence[str], prepare: Callable[[], Any], streams: Sequence[Stream]) -> int:
    """Begin a command in a forked process; return the process id."""
    child = os.fork()
    if child:
        return child
    status, is_running = 1, False
    try:
        opened: list[Any] = []
        for number, stream in enumerate(streams):
            if stream is None:
                os.close(number)
            else:
                os.dup2(stream if isinstance(stream, int) else stream.fileno(), number)
            mode, buffering = "w" if number else "r", 1 if number == 2 else -1
            how: dict[str, Any] = {"encoding": "utf-8", "errors": "surrogateescape", "closefd": False}
            opened.append(None if stream is None else open(number, mode, buffering, **how))  # noqa: SIM115
        sys.stdin, sys.stdout, sys.stderr = opened
        sys.argv = ["haybale", *arguments]
        prepare()
        is_running = True
        try:
            main()
        except SystemExit as left:
            status = left.code if isinstance(left.code, int) else int(left.code is not None)
        is_running = False
        for file in filter(None, (sys.stdout, sys.stderr)):
            try:
                file.flush()
            except OSError as error:
                if not status:  # as Python does
                    status = 120
                    os.write(2, f"Exception ignored: {error}".encode())
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and not is_running:  # before or after the command
            status = 130
        else:
            traceback.print_exc()
    finally:
        os._exit(status)


def started(arguments: Sequence[str], changes: Mapping[str, str | None]) -> Ended:
    """Run a command in a new Python whose environment has some changes; None removes a variable."""
    kept = {name: value for name, value in {**os.environ, **changes}.items() if value is not None}
    call = [sys.executable, "-m", "haybale", *arguments]
    done = subprocess.run(call, env=kept, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    texts = [data.decode("utf-8", "backslashreplace") for data in (done.stdout, done.stderr)]
    return Ended(done.returncode, *texts)


def drop_privileges() -> None:
    """Give up the privileges of root, so that permissions of files count."""
    if os.geteuid() == 0:
        header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        assert ctypes.CDLL(None).capset(header, none) == 0
