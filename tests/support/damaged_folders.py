"""Copies of a folder with one file or subfolder damaged, in every way and place."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ODD: tuple[Any, ...] = (None, True, -1, 10**30, "", [[]], {"x": None})


def damaged_copies(folder: Path, copy: Path, only: Callable[[str], bool] = lambda name: True) -> Iterator[str]:
    """Yield what was damaged in ``copy``, which is made anew from ``folder`` each time; ``only`` chooses the paths."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not only(name):
            continue
        ways = _of_folder(path) if path.is_dir() else _of_file(path)
        for way, damage in ways:
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(folder, copy)
            damage(copy / name)
            yield f"{name}: {way}"


def _of_folder(path: Path) -> Iterator[tuple[str, Callable[[Path], Any]]]:
    yield "missing", shutil.rmtree
    yield "empty", lambda place: [shutil.rmtree(place), place.mkdir()]
    yield "a file", lambda place: [shutil.rmtree(place), place.write_bytes(b"a file")]


def _of_file(path: Path) -> Iterator[tuple[str, Callable[[Path], Any]]]:
    content = path.read_bytes()
    flipped = bytearray(content)
    if flipped:
        flipped[-1] ^= 1
    for way, other in (
        ("half", content[: len(content) // 2]),
        ("empty", b""),
        ("garbage", b"\x93\x00garbage" * 50),
        ("one bit flipped", bytes(flipped)),
        ("other JSON", b"[1]"),
    ):
        if other != content:
            yield way, lambda place, other=other: place.write_bytes(other)  # type: ignore[misc]
    yield "missing", Path.unlink
    yield "a folder", lambda place: [place.unlink(), place.mkdir()]
    if path.suffix != ".json":
        return
    values = json.loads(content)
    for key in values:
        for odd in ODD:
            if odd != values[key]:
                changed = json.dumps(values | {key: odd}).encode()
                yield f"{key} = {odd!r}", lambda place, changed=changed: place.write_bytes(changed)  # type: ignore[misc]
        fewer = json.dumps({name: value for name, value in values.items() if name != key}).encode()
        yield f"no {key}", lambda place, fewer=fewer: place.write_bytes(fewer)  # type: ignore[misc]
