"""The files of documents, and pictures of their pages, for requests: drawn in processes, and cached."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from haybale.collections.files.page_picture import DrawnPage
from haybale.engine import Engine
from haybale.engine.original_files import OriginalFile, OriginalFileError, OriginalFiles
from haybale.engine.page_view import PageView, passage_text, view_page
from haybale.search import Snippet
from haybale.service.limited_process import output_of
from haybale.service.page_worker import drawn_page
from haybale.service.request_errors import NotFoundError, check_document

T = TypeVar("T")
MAX_CACHED_BYTES = 64 * 2**20


class FileAnswer(NamedTuple):
    """A file, and whether a browser may show it: a PDF file, which it shows without running anything of it here."""

    name: str
    data: bytes
    is_shown: bool


class DocumentFiles:
    """The files of the documents of an engine. Several threads may use it at once.

    Pages are drawn in processes with limits of memory and time (:mod:`haybale.service.limited_process`), since files
    may be hostile. The pictures that were asked for last are kept in memory.

    Parameters
    ----------
    engine : Engine
    max_cached_bytes : int, default 64 MiB
        Of the pictures in memory.
    on_opened : callable, optional
        Called with the id of a document, what of it was opened (``"page"`` or ``"file"``), and ``page=``.
    """

    def __init__(
        self,
        engine: Engine,
        max_cached_bytes: int = MAX_CACHED_BYTES,
        on_opened: Callable[..., None] = lambda doc_id, part, **more: None,
    ) -> None:
        self.engine, self._on_opened = engine, on_opened
        self._files = OriginalFiles(engine)
        self._cache = _BoundedCache(max_cached_bytes)

    def view(self, doc_id: str, passage_id: str | None = None, page: int | None = None) -> PageView:
        """Return a page of a document as a picture, as :func:`haybale.engine.page_view.view_page` does.

        Raises
        ------
        NotFoundError
            For an unknown document, one without pages, or a file that is not there or has changed.
        """
        check_document(self.engine, doc_id)
        with _as_not_found():
            view = view_page(self._files, doc_id, passage_id, page, self._draw)
        self._on_opened(doc_id, "page", page=view.page)
        return view

    def picture(self, view: PageView, with_boxes: bool = True) -> tuple[bytes, str]:
        """Return the picture of a page with or without its boxes, and its media type."""
        if not with_boxes or not view.boxes:
            return view.picture, view.media_type
        key = "boxes", hashlib.sha256(view.picture).digest(), tuple(view.boxes)
        return self._cache.get(key, view.with_boxes, lambda picture: len(picture[0]))

    def passage_text(self, doc_id: str, passage_id: str) -> str:
        """Return the text of a passage, or of a piece of one; an unknown one raises InputError."""
        return passage_text(self.engine, doc_id, passage_id)

    def file(self, doc_id: str) -> FileAnswer:
        """Return the file of a document; the errors are those of :meth:`view`."""
        check_document(self.engine, doc_id)
        with _as_not_found():
            original = self._files.find(doc_id)
            data = original.read()
        self._on_opened(doc_id, "file")
        is_pdf = original.suffix == ".pdf" and b"%PDF-" in data[:1024]
        return FileAnswer(original.name.rpartition("/")[2], data, is_pdf)

    @property
    def has_files(self) -> bool:
        """Whether the engine was built from files."""
        return self._files.record() is not None

    def is_drawable(self, doc_id: str, metadata: dict[str, Any], snippet: Snippet | None = None) -> bool:
        """Return whether a document, or the page of a snippet of it, can be drawn, so far as the engine knows."""
        return (snippet is None or snippet.page is not None) and self._files.is_drawable(doc_id, metadata)

    def problem(self, doc_id: str) -> str | None:
        """Return why the file of a document cannot be opened; an empty text if it can.

        None if the engine was not built from files.
        """
        if not self.has_files:
            return None
        try:
            self._files.find(doc_id).check()
        except OriginalFileError as error:
            return str(error)
        return ""

    def _draw(self, original: OriginalFile, index: int) -> DrawnPage:
        original.check()

        def draw() -> DrawnPage:
            arguments = [original.suffix, str(index)]
            return drawn_page(output_of("haybale.service.page_worker", arguments, original.read()))

        return self._cache.get((original.identity, index), draw, _n_bytes)


def _n_bytes(page: DrawnPage) -> int:
    characters = page.characters
    return len(page.picture) + 4 * len(characters.letters) + characters.boxes.nbytes + characters.begins_word.nbytes


@contextmanager
def _as_not_found() -> Iterator[None]:
    try:
        yield
    except OriginalFileError as error:
        raise NotFoundError(str(error)) from error


class _BoundedCache:
    """The values that were asked for last, up to a number of bytes."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes, self.n_bytes = max_bytes, 0
        self._values: OrderedDict[Any, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Any, make: Callable[[], T], size_of: Callable[[T], int]) -> T:
        """Return the value of a key, or make it."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                cached: T = self._values[key][0]
                return cached
        value = make()
        size = size_of(value)
        with self._lock:
            if key not in self._values and size <= self.max_bytes:
                self._values[key] = value, size
                self.n_bytes += size
            while self.n_bytes > self.max_bytes:
                self.n_bytes -= self._values.popitem(last=False)[1][1]
        return value
