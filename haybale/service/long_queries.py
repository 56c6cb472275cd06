"""Long texts that were searched, kept by their digest, so that a link leads to exactly the same search again."""

from __future__ import annotations

import hashlib
import json
import re
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

from haybale.collections.files.file_reader import reader_of
from haybale.errors import InputError, MissingExtraError
from haybale.folders import whole_file
from haybale.service.file_worker import MAX_PARAGRAPHS, MAX_TEXT
from haybale.service.limited_process import MAX_MEMORY, MAX_SECONDS, output_of

_MAX_TEXTS_IN_MEMORY = 1000  # without a folder
# Formats whose files are one document, not a table of many.
_QUERY_SUFFIXES = (".txt", ".md", ".pdf", ".docx", ".odt", ".rtf", ".html", ".eml")
_ID_PATTERN = re.compile(r"[0-9a-f]{32}")


class LongQueries:
    """Texts by the first 32 digits of their SHA-256, each in a file of a folder; or the latest 1,000 in memory.

    Parameters
    ----------
    folder : Path, optional
        It is made with the first text. Default: in memory.

    Examples
    --------
    >>> queries = LongQueries()
    >>> queries.text(queries.keep("The lease ended.\\n\\nThe tenant stayed."))
    'The lease ended.\\n\\nThe tenant stayed.'
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._texts: OrderedDict[str, str] = OrderedDict()

    def keep(self, text: str) -> str:
        """Keep a text, and return its id; a longer one than a search takes raises InputError."""
        if len(text) > MAX_TEXT:
            raise InputError(f"a text must have at most {MAX_TEXT:,} characters, found {len(text):,}; shorten it")
        n_paragraphs = 1 + len(re.findall(r"\n\s*\n", text))
        if n_paragraphs > MAX_PARAGRAPHS:
            raise InputError(
                f"a text must have at most {MAX_PARAGRAPHS:,} paragraphs, found {n_paragraphs:,}; shorten it"
            )
        id = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        if self.folder is None:
            self._texts[id] = text
            while len(self._texts) > _MAX_TEXTS_IN_MEMORY:
                self._texts.popitem(last=False)
        elif not (path := self.folder / f"{id}.txt").exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            with whole_file(path) as file:
                file.write(text)
        return id

    def text(self, id: str) -> str:
        """Return the text of an id; an unknown one raises InputError."""
        path = None if self.folder is None or not _ID_PATTERN.fullmatch(id) else self.folder / f"{id}.txt"
        if path is not None and path.is_file():
            with suppress(UnicodeDecodeError):
                return path.read_text(encoding="utf-8")
        if id in self._texts:
            return self._texts[id]
        raise InputError(f"the long query {id!r:.80} is not kept; paste its text, or give the file again")


def query_suffixes() -> list[str]:
    """Return the ends of the names of files that can be a query, if the packages that read them are installed."""
    suffixes = []
    for suffix in _QUERY_SUFFIXES:
        reader = reader_of(suffix)
        try:
            if reader is not None:
                reader.check_packages()
                suffixes.append(suffix)
        except MissingExtraError:
            pass
    return suffixes


def query_of_file(name: str, data: bytes) -> str:
    """Return the text of a file as a query: its paragraphs, separated by blank lines.

    The file is read in a process of its own, with limits (:mod:`haybale.service.limited_process`).

    >>> query_of_file("letter.txt", b"The lease ended.\\n\\nThe tenant stayed.")
    'The lease ended.\\n\\nThe tenant stayed.'

    Raises
    ------
    InputError
        If the file is of another format, damaged, or has no text, or takes too long or too much memory to read, or if
        its text is longer than a search takes.
    """
    reader = reader_of(name)
    if reader is None or not name.lower().endswith(tuple(query_suffixes())):
        raise InputError(f"a query must be a file of {', '.join(query_suffixes())}, found {name!r:.100}")
    output = output_of("haybale.service.file_worker", [f"query{reader.suffixes[0]}"], data)
    try:
        answer = json.loads(output)
    except ValueError:
        limits = f"{MAX_SECONDS} seconds or {MAX_MEMORY // 2**20:,} MiB"
        answer = {"problem": f"it takes more than {limits} to read; send a smaller one, or paste its text"}
    text = answer.get("text")
    if text is None:
        raise InputError(f"a query must be a file that can be read, found {name!r:.100}: {answer.get('problem')}")
    return str(text)
