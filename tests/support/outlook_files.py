"""Write messages of Outlook: compound files (MS-CFB) with the properties of MS-OXMSG."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from itertools import pairwise
from typing import Any

from haybale.collections.files.outlook_message import _RTF_DICTIONARY

_SECTOR, _MINI_SECTOR, _MINI_CUTOFF = 512, 64, 4096
_END, _FREE, _FAT = 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFD
Tree = dict[str, Any]  # streams are bytes, storages are trees


class Property(Enum):
    """A property of a message or attachment: its number, or None for what is in storages."""

    CLASS, SUBJECT, BODY, HTML, RTF, HEADERS, SENT = 0x1A, 0x37, 0x1000, 0x1013, 0x1009, 0x7D, 0x39
    LONG_NAME, DATA, TYPE, METHOD = 0x3707, 0x3701, 0x370E, 0x3705
    MESSAGE, ATTACHMENTS = "message", "attachments"


def outlook_file(message: Mapping[Property, Any], codec: str = "utf-16-le") -> bytes:
    """Return a message as a file; ``codec`` is that of its texts, UTF-16 or a code page such as ``"cp65001"``."""
    names = dict.fromkeys(("__substg1.0_00020102", "__substg1.0_00030102", "__substg1.0_00040102"), b"")
    tree = _storage({Property.CLASS: "IPM.Note"} | dict(message), codec, 32)
    return _compound_file(tree | {"__nameid_version1.0": names})


def _storage(properties: Mapping[Property, Any], codec: str, header: int) -> Tree:
    tree: Tree = {}
    fixed = b"" if codec == "utf-16-le" else _entry(0x3FFD, 0x03, int(codec[2:]))
    for key, value in properties.items():
        if key is Property.ATTACHMENTS:
            for number, attachment in enumerate(value):
                method = {} if Property.MESSAGE in attachment else {Property.METHOD: 1}
                tree[f"__attach_version1.0_#{number:08X}"] = _storage(dict(attachment) | method, codec, 8)
        elif key is Property.MESSAGE:
            tree["__substg1.0_3701000D"] = _storage({Property.CLASS: "IPM.Note"} | dict(value), codec, 24)
            fixed += _entry(Property.METHOD.value, 0x03, 5)
        elif isinstance(value, int):
            fixed += _entry(key.value, 0x03, value)
        elif isinstance(value, str):
            kind, encoding = (0x1F, codec) if codec == "utf-16-le" else (0x1E, codec.replace("cp65001", "utf-8"))
            tree[f"__substg1.0_{key.value:04X}{kind:04X}"] = value.encode(encoding)
        elif isinstance(value, bytes):
            tree[f"__substg1.0_{key.value:04X}0102"] = value
        else:
            fixed += _entry(key.value, 0x40, int((value - datetime(1601, 1, 1)).total_seconds()) * 10**7)
    return tree | {"__properties_version1.0": bytes(header) + fixed}


def _entry(number: int, kind: int, value: int) -> bytes:
    return struct.pack("<HHIQ", kind, number, 6, value)


def packed_rtf(rtf: bytes) -> bytes:
    """Return compressed RTF (MS-OXRTFCP): text that occurred before is a reference to it."""
    written, content, position = bytearray(_RTF_DICTIONARY), b"", 0
    tokens: list[bytes] = []
    while position < len(rtf):
        size = next(
            (n for n in range(17, 1, -1) if len(rtf) >= position + n and rtf[position : position + n] in written), 1
        )
        piece = rtf[position : position + size]
        offset = written.find(piece)
        is_reference = size > 1 and len(written) < 4000
        tokens.append(((offset << 4) | (size - 2)).to_bytes(2, "big") if is_reference else piece[:1])
        written += piece if is_reference else piece[:1]
        position += size if is_reference else 1
    tokens.append((len(written) % 4096 << 4).to_bytes(2, "big"))  # the end
    for start in range(0, len(tokens), 8):
        run = tokens[start : start + 8]
        content += bytes([sum(1 << bit for bit, token in enumerate(run) if len(token) == 2)]) + b"".join(run)
    return struct.pack("<II4sI", len(content) + 12, len(rtf), b"LZFu", 0) + content


def _compound_file(tree: Tree) -> bytes:
    """Return a compound file with a tree of streams."""
    entries: list[list[Any]] = []  # name, kind, left, right, child, stream
    root = _add(entries, "Root Entry", tree)
    assert root == 0
    sectors: list[bytes] = []
    fat: list[int] = []
    mini, mini_fat = bytearray(), list[int]()

    def stored(data: bytes) -> int:
        """Append a stream to the sectors, and return the first of them."""
        if not data:
            return _END
        first, n = len(sectors), -(-len(data) // _SECTOR)
        sectors.extend(data[i * _SECTOR : (i + 1) * _SECTOR].ljust(_SECTOR, b"\0") for i in range(n))
        fat.extend([*range(first + 1, first + n), _END])
        return first

    places = []
    for entry in entries:
        data = entry[5]
        if data is None or not data:
            places.append((_END, 0))
        elif len(data) >= _MINI_CUTOFF:
            places.append((stored(data), len(data)))
        else:
            first, n = len(mini_fat), -(-len(data) // _MINI_SECTOR)
            mini += data.ljust(n * _MINI_SECTOR, b"\0")
            mini_fat.extend([*range(first + 1, first + n), _END])
            places.append((first, len(data)))
    places[0] = (stored(bytes(mini)), len(mini))
    directory = b"".join(
        _directory_entry(entry, start, size) for entry, (start, size) in zip(entries, places, strict=True)
    )
    first_directory = stored(directory)
    n_mini_fat = -(-len(mini_fat) * 4 // _SECTOR)
    padded = mini_fat + [_FREE] * (n_mini_fat * _SECTOR // 4 - len(mini_fat))
    first_mini_fat = stored(struct.pack(f"<{len(padded)}I", *padded))
    n_fat = 1
    while n_fat * _SECTOR // 4 < len(fat) + n_fat:
        n_fat += 1
    first_fat = len(fat)
    fat += [_FAT] * n_fat
    fat += [_FREE] * (n_fat * _SECTOR // 4 - len(fat))
    sectors += [struct.pack("<128I", *fat[i * 128 : (i + 1) * 128]) for i in range(n_fat)]
    difat = [*range(first_fat, first_fat + n_fat), *[_FREE] * (109 - n_fat)]
    head = struct.pack(
        "<8s16x5H6x9I", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", 0x3E, 3, 0xFFFE, 9, 6,
        0, n_fat, first_directory, 0, _MINI_CUTOFF, first_mini_fat, n_mini_fat, _END, 0,
    )  # fmt: skip
    return head + struct.pack("<109I", *difat) + b"".join(sectors)


def _add(entries: list[list[Any]], name: str, content: Any) -> int:
    """Append an entry of the directory and those in it; return its number."""
    number = len(entries)
    is_stream = isinstance(content, bytes)
    kind = 2 if is_stream else 1 if number else 5
    entries.append([name, kind, _FREE, _FREE, _FREE, content if is_stream else None])
    if not is_stream:
        names = sorted(content, key=lambda name: (len(name), name.upper()))
        members = [_add(entries, member, content[member]) for member in names]
        for member, following in pairwise(members):
            entries[member][3] = following  # a tree that is a list
        entries[number][4] = members[0] if members else _FREE
    return number


def _directory_entry(entry: list[Any], start: int, size: int) -> bytes:
    name, kind, left, right, child, _ = entry
    encoded = name.encode("utf-16-le") + b"\0\0"
    return struct.pack("<64sHBBIII16xI8x8xIQ", encoded, len(encoded), kind, 1, left, right, child, 0, start, size)
