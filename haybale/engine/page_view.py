"""Show the page of a passage as a picture, with the place of the passage on it."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from html import escape

import numpy as np

from haybale.collections import Collection
from haybale.collections.files.file_reader import Unreadable
from haybale.collections.files.ocr import kept_tables
from haybale.collections.files.page_characters import PageCharacters, characters_of_table
from haybale.collections.files.page_picture import DRAWN_SUFFIXES, PICTURE_SUFFIXES, DrawnPage, draw_page, with_boxes
from haybale.collections.files.page_titles import TitledPage, page_of_title
from haybale.collections.files.passage_boxes import (
    Box,
    LocatedPassage,
    boxes_of_lines,
    locate_end_of_word,
    locate_passages,
    locate_piece,
)
from haybale.engine.engine import Engine
from haybale.engine.original_files import OriginalFile, OriginalFileError, OriginalFiles
from haybale.engine.storage import RECOGNISED
from haybale.errors import InputError

Draw = Callable[[OriginalFile, int], DrawnPage]  # draws a page of a file, by its number from 0
_NOT_LOCATED = "the passage could not be located on the page; compare its text"


@dataclass(frozen=True)
class PageView:
    """A page of a document as a picture, and where a passage is on it.

    Parameters
    ----------
    doc_id : str
    passage_id : str or None
    page : int
        From 1.
    pages : list of int
        The pages that the passage is on: two if its last word is divided between them.
    n_pages : int
        The number of pages of the file.
    picture : bytes
        The page without boxes, as PNG or JPEG.
    media_type : {"image/png", "image/jpeg"}
    width, height : int
        Of the picture, in pixels.
    boxes : list of Box
        A box around each line of the passage, as shares of width and height from the upper left corner.
    note : str
        Why the passage has no box, or what the picture does not show; empty if it shows all.
    """

    doc_id: str
    passage_id: str | None
    page: int
    pages: list[int]
    n_pages: int
    picture: bytes
    media_type: str
    width: int
    height: int
    boxes: list[Box]
    note: str

    def with_boxes(self) -> tuple[bytes, str]:
        """Return the picture with the boxes drawn on it, and its media type."""
        return with_boxes(self.picture, self.boxes) if self.boxes else (self.picture, self.media_type)

    def _repr_html_(self) -> str:
        """Return the page for notebooks."""
        picture, media_type = self.with_boxes()
        about = f"{self.doc_id}, page {self.page} of {self.n_pages}" + (f": {self.note}" if self.note else "")
        source = f"data:{media_type};base64,{base64.b64encode(picture).decode()}"
        return f'<figure><figcaption>{escape(about)}</figcaption><img src="{source}" alt="{escape(about)}"></figure>'


def _drawn(original: OriginalFile, index: int) -> DrawnPage:
    return draw_page(original.read(), original.suffix, index)


def view_page(
    files: OriginalFiles,
    doc_id: str,
    passage_id: str | None = None,
    page: int | None = None,
    draw: Draw = _drawn,
) -> PageView:
    """Return a page of a document with the place of a passage.

    Parameters
    ----------
    files : OriginalFiles
        The files of the engine.
    doc_id : str
    passage_id : str, optional
        A passage of the document, such as that of a snippet. Default: none, and no boxes.
    page : int, optional
        The number of the page, from 1. Default: that of the passage, or the first.
    draw : callable, optional
        Draws a page of an :class:`~haybale.engine.original_files.OriginalFile`, by its number from 0. Default: in this
        process.

    Raises
    ------
    InputError
        For an unknown document or passage.
    OriginalFileError
        If the file has no pages, is not there, has changed, or cannot be drawn.
    """
    engine = files.engine.snapshot()
    original = files.find(doc_id)
    if original.suffix not in DRAWN_SUFFIXES:
        raise OriginalFileError(
            f"expected a document of {', '.join(DRAWN_SUFFIXES)}, found {original.name!r:.200}, which has no pages; "
            "read its passages"
        )
    passage = None if passage_id is None else _passage_of(engine.whole, engine.collection, doc_id, passage_id)
    own_page = 1 if passage is None else passage.page.number
    shown = own_page if page is None else page
    try:
        drawn = draw(original, shown - 1)
        located, pages, note = _located(files, original, passage, own_page, shown, drawn, draw)
    except Unreadable as error:
        raise OriginalFileError(f"expected a page that can be drawn, found {original.name!r:.200}: {error}") from error
    boxes = [] if located is None else boxes_of_lines(*located)
    note = "; ".join(filter(None, (_NOT_LOCATED if located is not None and not boxes else note, drawn.note)))
    about = drawn.n_pages, drawn.picture, drawn.media_type, drawn.width, drawn.height
    return PageView(doc_id, passage_id, shown, pages, *about, boxes, note)


def _located(
    files: OriginalFiles,
    original: OriginalFile,
    passage: _PagePassage | None,
    own_page: int,
    shown: int,
    drawn: DrawnPage,
    draw: Draw,
) -> tuple[tuple[PageCharacters, LocatedPassage] | None, list[int], str]:
    """Return where a passage is on the page that is shown, the pages that it is on, and why it has no place there."""
    if passage is None:
        return None, [], ""
    first = drawn if shown == own_page else draw(original, own_page - 1)
    layouts = _layouts(files, original, passage.page, first)
    for characters in layouts:
        located = locate_passages(passage.texts, characters)[passage.position]
        if located is None:
            continue
        if passage.piece is not None:
            located = locate_piece(passage.piece, located, characters)
        if not located.letters_over:
            on_shown = (characters, located) if shown == own_page else None
            return on_shown, [own_page], "" if on_shown else f"the passage is on page {own_page}"
        pages = [own_page, own_page + 1]
        if shown == own_page:
            return (characters, located), pages, ""
        if shown == own_page + 1:
            for following in _layouts(files, original, TitledPage(shown, passage.page.reading), drawn):
                rest = locate_end_of_word(located.letters_over, following)
                if rest is not None:
                    return (following, rest), pages, ""
        return None, pages, f"the passage is on page {own_page}"
    not_kept = "the places of recognised words were not kept; run haybale index again with --ocr missing"
    return None, [own_page], _NOT_LOCATED if layouts else not_kept


def _layouts(files: OriginalFiles, original: OriginalFile, page: TitledPage, drawn: DrawnPage) -> list[PageCharacters]:
    """Return the characters of a page: those of the file, or of each time that they were recognised."""
    if not page.by_ocr:
        return [drawn.characters]
    assert files.engine.folder is not None
    folder, index = files.engine.folder / RECOGNISED, page.number - 1
    is_picture = original.suffix in PICTURE_SUFFIXES
    tables = kept_tables(folder, original.content_digest, None if is_picture else index)
    pages = [characters_of_table(table) for table in tables]
    return [table[index if is_picture else 0] for table in pages if len(table) > (index if is_picture else 0)]


@dataclass(frozen=True)
class _PagePassage:
    """A passage among those of its page: their texts, its position, and the piece of it that is shown, if any."""

    page: TitledPage
    texts: list[str]
    position: int
    piece: str | None


def _passage_of(whole: Collection, collection: Collection, doc_id: str, passage_id: str) -> _PagePassage:
    """Return a passage of a document with the others of its page."""
    piece, whole_id = None, passage_id
    numbers = _passage_numbers(whole, doc_id)
    if passage_id not in numbers:
        pieces = _passage_numbers(collection, doc_id)
        if passage_id not in pieces:
            raise _unknown_passage(doc_id, passage_id)
        piece = str(collection.passages.texts[pieces[passage_id]].as_py())
        whole_id = passage_id.rpartition("#")[0]
    pages = {number: _page_of(whole, number) for number in numbers.values()}
    page = pages.get(numbers.get(whole_id, -1))
    if page is None:
        raise OriginalFileError(f"expected a passage that is on a page, found {passage_id!r:.200}; read its text")
    (document,) = whole.document_numbers([doc_id]).tolist()
    title = str(whole.doc_titles[document].as_py() or "")
    on_page = [number for number, other in pages.items() if other is not None and other.number == page.number]
    texts = [_without_title(str(whole.passages.texts[number].as_py()), title) for number in on_page]
    piece = None if piece is None else _without_title(piece, title)
    return _PagePassage(page, texts, on_page.index(numbers[whole_id]), piece)


def passage_text(engine: Engine, doc_id: str, passage_id: str) -> str:
    """Return the text of a passage of a document, or of a piece of one; an unknown one raises InputError."""
    snapshot = engine.snapshot()
    for collection in (snapshot.whole, snapshot.collection):
        number = _passage_numbers(collection, doc_id).get(passage_id)
        if number is not None:
            return str(collection.passages.texts[number].as_py())
    raise _unknown_passage(doc_id, passage_id)


def _unknown_passage(doc_id: str, passage_id: str) -> InputError:
    return InputError(f"expected a passage of the document {doc_id!r:.200}, found {passage_id!r:.200}; search again")


def _passage_numbers(collection: Collection, doc_id: str) -> dict[str, int]:
    """Return the numbers of the passages of a document by their ids."""
    (document,) = collection.document_numbers([doc_id]).tolist()
    start, end = (int(bound) for bound in collection.passages.doc_offsets[document : document + 2])
    ids = collection.passages.ids.slice(start, end - start).to_pylist()
    return dict(zip(ids, np.arange(start, end).tolist(), strict=True))


def _page_of(collection: Collection, passage: int) -> TitledPage | None:
    sections = collection.passages.sections
    section = -1 if sections is None else int(sections[passage])
    if section < 0 or collection.sections is None:
        return None
    return page_of_title(str(collection.sections.titles[section].as_py() or ""))


def _without_title(text: str, title: str) -> str:
    """Return a passage without the title of the document, which stands before the first one, and not on the page."""
    first, newline, rest = text.partition("\n")
    return rest if newline and " ".join(first.split()) == title else text
