"""Take the content out of a signed message in a container of S/MIME (CMS SignedData, RFC 5652), without checking it."""

from __future__ import annotations

from typing import NamedTuple

_SIGNED_DATA = bytes.fromhex("06092a864886f70d010702")  # 1.2.840.113549.1.7.2
_SEQUENCE, _OCTETS, _OCTETS_IN_PARTS, _CONTENT = 0x30, 0x04, 0x24, 0xA0


class _Value(NamedTuple):
    """A value of ASN.1 in BER: its tag, where its content begins and ends, and where the next value begins."""

    tag: int
    start: int
    end: int
    after: int


def signed_content(data: bytes) -> bytes | None:
    """Return what was signed; None if the container is encrypted, damaged, or has only signatures."""
    try:
        return _signed_content(data)
    except (IndexError, RecursionError):
        return None


def _signed_content(data: bytes) -> bytes | None:
    outer = _value(data, 0)
    kind = _value(data, outer.start)
    if outer.tag != _SEQUENCE or data[outer.start : kind.after] != _SIGNED_DATA:
        return None
    signed = _value(data, _value(data, kind.after).start)  # the sequence in [0]
    version = _value(data, signed.start)
    algorithms = _value(data, version.after)
    encapsulated = _value(data, algorithms.after)
    content_type = _value(data, encapsulated.start)
    content = _value(data, content_type.after)
    if content.tag != _CONTENT or content_type.after >= encapsulated.end:
        return None
    return b"".join(_octets(data, _value(data, content.start)))


def _octets(data: bytes, value: _Value) -> list[bytes]:
    """Return the pieces of a string of octets."""
    if value.tag == _OCTETS:
        return [data[value.start : value.end]]
    pieces: list[bytes] = []
    position = value.start
    while value.tag == _OCTETS_IN_PARTS and position < value.end:
        member = _value(data, position)
        pieces += _octets(data, member)
        position = member.after
    return pieces


def _value(data: bytes, position: int) -> _Value:
    """Return the value at a position; raise IndexError if the data end before."""
    tag, length = data[position], data[position + 1]
    start = position + 2
    if length < 0x80:
        end = start + length
    elif length > 0x80:
        size = length - 0x80
        end = start + size + int.from_bytes(data[start : start + size], "big")
        start += size
    else:  # its members end with two zeros
        end = start
        while data[end : end + 2] != b"\0\0":
            end = _value(data, end).after
        return _Value(tag, start, end, end + 2)
    if end > len(data):
        raise IndexError("the data end before the value")
    return _Value(tag, start, end, end)
