"""Prepare the process of a command: closed streams, the encoding of arguments, and the limit of memory."""

from __future__ import annotations

import os
import re
import sys

from haybale.errors import InputError

_MIN_ADDRESS_SPACE = 5 * 2**29  # bytes; with less, the compiled libraries crash or hang


def prepare_process() -> None:
    """Open closed output streams, make arguments UTF-8 text, and raise InputError where the command cannot run."""
    _open_closed_streams()
    _decode_arguments()
    if not {"--help", "--version"} & set(sys.argv[1:]):
        _check_address_space()


def _open_closed_streams() -> None:
    """Open closed standard streams as the null device, so that no other file takes their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  (open until the process ends)


def _decode_arguments() -> None:
    """Start Python again in UTF-8 mode if an argument is UTF-8 but was decoded by another encoding (locale C)."""
    odd = [text for text in sys.argv[1:] if re.search(r"[\ud800-\udfff]", text)]  # bytes that could not be decoded
    for text in odd:
        try:
            os.fsencode(text).decode()
        except UnicodeError:
            raise InputError(f"the argument {text} must be UTF-8 text; check the encoding of the terminal") from None
    if odd:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])


def _check_address_space() -> None:
    try:
        import resource  # POSIX only
    except ImportError:
        return
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < _MIN_ADDRESS_SPACE:
        needed, available = _MIN_ADDRESS_SPACE // 1024, limit // 1024
        raise InputError(
            f"the limit 'ulimit -v' must be at least {needed} kB of address space, found {available}; raise it"
        )
