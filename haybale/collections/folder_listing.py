"""List the files of a folder on disk: what can be read, and why the rest is left out.

A link is followed if it leads to a file of the same folder that is not read under its own name. Links that leave the
folder, links to folders, pipes, sockets and devices are left out, so that a folder has only documents of its own, each
once, and reading never waits.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

from haybale.collections.files.file_reader import reader_of
from haybale.collections.unread import UnreadPart, sorted_parts
from haybale.errors import InputError


class Listing(NamedTuple):
    """The files of a folder by their names relative to it, what was left out, and the folders that cannot be listed."""

    paths: dict[str, Path]
    unread: list[UnreadPart]
    closed: list[str]


def list_files(source: Path) -> Listing:
    """List the files of a folder, or a single file; zip files are not opened, and hidden files are left out.

    Raises :class:`InputError` if the folder itself cannot be listed.
    """
    if source.is_file():
        return Listing({"" if source.suffix.lower() == ".zip" else source.name: source}, [], [])
    unread: list[UnreadPart] = []
    closed: list[str] = []
    file_paths: list[str] = []
    start = len(os.path.join(source, ""))

    def name_of(path: str) -> str:
        return "/".join(path[start:].split(os.sep))

    def unreadable(error: OSError) -> None:
        name = name_of(str(error.filename))
        if not name:
            raise InputError(f"{source}: cannot be read: {error.strerror}; give a folder that can be read") from None
        unread.append(UnreadPart(file=name, reason=f"cannot be read: {error.strerror}"))
        closed.append(name)

    links: list[str] = []
    for folder, folders, names in os.walk(source, onerror=unreadable):
        folders[:] = (name for name in folders if not name.startswith("."))
        for name in (*folders, *names):
            path = os.path.join(folder, name)
            if name.startswith("."):
                continue
            if os.path.islink(path):
                links.append(path)
            elif name in names:
                reason = _not_a_file(path)
                if reason is None:
                    file_paths.append(path)
                else:
                    unread.append(UnreadPart(file=name_of(path), reason=reason))
    root = os.path.realpath(source)
    paths = {name_of(path): path for path in file_paths}
    for path in links:
        reason = _reason_against(path, root, set(paths))
        if reason is None:
            paths[name_of(path)] = path
        else:
            unread.append(UnreadPart(file=name_of(path), reason=reason))
    for name in [name for name in paths if not _is_utf8(name)]:
        del paths[name]
        shown = name.encode(errors="backslashreplace").decode()
        unread.append(UnreadPart(file=shown, reason="its name is not UTF-8; rename it"))
    unread = [part.of_file(part.file.encode(errors="backslashreplace").decode()) for part in unread]
    names = sorted(paths, key=lambda name: name.split("/"))
    return Listing({name: source.joinpath(*name.split("/")) for name in names}, sorted_parts(unread), closed)


def refuse_special_file(path: Path) -> None:
    """Raise OSError for a pipe, a socket or a device, which may wait for ever when it is read."""
    reason = _not_a_file(str(path))
    if reason is not None:
        raise OSError(reason)


def link_that_leaves(path: Path) -> str | None:
    """Return why a file is not read if it is a link that leaves its folder, else None."""
    leaves = path.is_symlink() and not _is_within(os.path.realpath(path), os.path.realpath(path.parent))
    return "a link that leaves the folder; put the file into the folder" if leaves else None


def _not_a_file(path: str) -> str | None:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return "no longer there"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return None if stat.S_ISREG(mode) else "no regular file, but a pipe, a socket, a device or a folder"


def _reason_against(link: str, root: str, names: set[str]) -> str | None:
    """Return why a link is left out, None if it is read: it leads to a file that is not read under its own name."""
    target = os.path.realpath(link)
    if not _is_within(target, root):
        return "a link that leaves the folder; put the file into the folder"
    if not os.path.exists(target):
        return "a link to a file that does not exist"
    if os.path.isdir(target):
        return "a link to a folder, whose files are read at their own place"
    name = "/".join(os.path.relpath(target, root).split(os.sep))
    if name in names and reader_of(name) is not None:
        return f"a link to {name!r}, which is read"
    return _not_a_file(target)


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_within(path: str, root: str) -> bool:
    return path == root or path.startswith(os.path.join(root, ""))
