"""Split BibTeX files into the fields of their entries, with bibtexparser; LaTeX in texts becomes Unicode."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from haybale.collections.files.file_reader import EXTRA, Unreadable
from haybale.collections.files.table_rows import Row
from haybale.collections.unread import UnreadPart
from haybale.extras import import_optional

_ENTRY = re.compile(r"^\s*@(?!comment\b|preamble\b|string\b)[a-z]+\s*[{(]\s*[^\s,{}\"]*\s*,", re.I | re.M)
# The names that other formats have for fields; other fields have their own names, in lower case.
_NAMES = {"author": "authors", "editor": "secondary_authors", "url": "urls", "address": "place_published"}
_PEOPLE = ("authors", "secondary_authors")
_VERBATIM = ("urls", "doi", "file", "eprint", "citation_key", "issn", "isbn", "pmid")  # fields without LaTeX


def is_bibtex(text: str) -> bool:
    """Return whether a text begins with an entry of BibTeX, or with lines that may stand before one.

    >>> is_bibtex("% from Zotero\\n@article{smith2014,\\n title = {Leases}}"), is_bibtex("Write to a@b.de {now}.")
    (True, False)
    """
    first = next((line for line in text[: 2**16].lstrip("\ufeff").split("\n") if line.strip()), "")
    return first.lstrip().startswith(("@", "%")) and _ENTRY.search(text) is not None


def bibtex_records(text: str) -> Iterator[Row | UnreadPart]:
    """Yield the entries of a text, and the blocks that are none."""
    bibtexparser = import_optional("bibtexparser", EXTRA)
    middlewares, model = (import_optional(f"bibtexparser.{name}", EXTRA) for name in ("middlewares", "model"))
    to_text = import_optional("pylatexenc.latex2text", EXTRA).LatexNodes2Text(math_mode="verbatim")
    # The other middlewares refuse names with many commas, and take a % in an address for a comment.
    without_braces = middlewares.RemoveEnclosingMiddleware()
    stack = [middlewares.ResolveStringReferencesMiddleware(), without_braces]
    number = 0
    with _silent("bibtexparser", "pylatexenc"):
        for block in bibtexparser.parse_string(text.lstrip("\ufeff"), parse_stack=stack).blocks:
            # Entries whose key occurs twice are entries: keys are no ids here.
            is_namesake = isinstance(block, model.DuplicateBlockKeyBlock)
            entry = without_braces.transform_entry(block.ignore_error_block, None) if is_namesake else block
            line = (block.start_line or 0) + 1
            if isinstance(entry, model.Entry):
                number += 1
                yield Row(f"entry {number} (line {line})", _values(entry, to_text))
            elif isinstance(block, model.ParsingFailedBlock):
                error = " ".join(str(getattr(block.error, "abort_reason", block.error)).split())
                yield UnreadPart(part=f"line {line}", reason=f"expected an entry, found an error: {error:.200}")
    if not number:
        raise Unreadable("expected entries of BibTeX, found none")


@contextmanager
def _silent(*names: str) -> Iterator[None]:
    """Silence loggers, whose warnings do not say which file they are about; the errors are listed."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _values(entry: Any, to_text: Any) -> dict[str, str | list[str]]:
    """Return the fields of an entry, with its type and its key."""
    values: dict[str, str | list[str]] = {"type_of_reference": entry.entry_type}
    if entry.key:
        values["citation_key"] = entry.key
    for field in entry.fields:
        name = field.key.lower()
        name = _NAMES.get(name, name)
        text = _unwrapped(str(field.value))
        text = text if name in _VERBATIM else _without_latex(text, to_text)
        if name in _PEOPLE:
            values[name] = [part.strip() for part in re.split(r"\s+and\s+", text) if part.strip()]
        elif name == "keywords":
            values[name] = [part.strip() for part in text.split(";" if ";" in text else ",") if part.strip()]
        elif text:
            values[name] = [text] if name == "urls" else text
    return values


def _without_latex(text: str, to_text: Any) -> str:
    """Return a text without the commands of LaTeX; what many programs do not escape, such as %, stays."""
    if re.search(r"[\\{}]", text) is None:
        return text
    escaped = re.sub(r"(?<!\\)[%&#]" if text.count("$") % 2 == 0 else r"(?<!\\)[%&#$]", r"\\\g<0>", text)
    return "\n\n".join(to_text.latex_to_text(paragraph).strip() for paragraph in escaped.split("\n\n"))


def _unwrapped(text: str) -> str:
    r"""Return a text without the line breaks within its paragraphs.

    >>> _unwrapped("A lease\n   of a flat.\n\nAnother paragraph.")
    'A lease of a flat.\n\nAnother paragraph.'
    """
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text)).strip()
