"""Read Excel workbooks with openpyxl: each sheet is a table, and a row is a document."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from haybale.collections.files.file_document import FileDocument
from haybale.collections.files.file_reader import EXTRA, FileReader, Unreadable
from haybale.collections.files.packed_xml import PackedXML, parsed
from haybale.collections.files.table_rows import Row, documents_of_rows
from haybale.collections.unread import UnreadPart
from haybale.delimited_table import named_cells
from haybale.extras import import_optional

_WORKBOOK = "xl/workbook.xml"
_ESCAPE = re.compile("_x([0-9A-Fa-f]{4})_")  # ST_Xstring, ECMA-376 part 1, 22.9.2.19
_COMMENTS = re.compile(r"xl/(?:comments|threadedComments)[^.]*\.xml|xl/(?:comments|threadedComments)/.*\.xml")
_DRAWING = re.compile(r"xl/(?:drawings/drawing|charts/chart|diagrams/data)[^/]*\.xml")


@dataclass
class Sheet:
    """A sheet with a header: its title, its rows, and what was not read of it."""

    title: str
    rows: list[Row]
    unread: list[UnreadPart]


class Spreadsheet(FileReader):
    """Reader of ``.xlsx`` files. The first row with a value of each sheet has the names of its columns."""

    name = "xlsx"
    suffixes = (".xlsx", ".xlsm")
    packages = ("openpyxl", "lxml")

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument | UnreadPart]:
        sheets, unread = sheets_of(data)
        yield from unread
        for sheet in sheets:
            location = f"sheet {sheet.title}"
            try:
                for item in documents_of_rows([*sheet.unread, *sheet.rows], options):
                    if isinstance(item, UnreadPart):
                        yield item.within(location)
                        continue
                    item.table, item.location = sheet.title if len(sheets) > 1 else "", f"{location}, {item.location}"
                    yield item
            except Unreadable as error:  # the other sheets are read
                yield UnreadPart(part=location, reason=str(error))


def sheets_of(data: bytes) -> tuple[list[Sheet], list[UnreadPart]]:
    """Return the sheets of a workbook that have a value, and what is in no sheet.

    Raises
    ------
    Unreadable
        If the workbook is encrypted, or all sheets are empty.
    """
    packed = PackedXML(data)
    book = import_optional("openpyxl", EXTRA).load_workbook(io.BytesIO(data), read_only=True, data_only=True)
    files = _files_by_title(packed)
    sheets = []
    for worksheet in book.worksheets:
        worksheet.reset_dimensions()  # those in the file are a hint, and may be too small
        table = [
            (row, cells) for row, cells in enumerate(worksheet.iter_rows(values_only=True), 1) if _has_value(cells)
        ]
        if not table:
            continue
        _, header = table[0]
        columns = ["" if name is None else str(_text(name)).strip() for name in header]
        columns += [""] * (max(len(cells) for _, cells in table) - len(columns))
        rows = [Row(f"row {row}", named_cells(columns, [*map(_text, cells)])) for row, cells in table[1:]]
        sheets.append(Sheet(worksheet.title, rows, list(_without_value(packed, files.get(worksheet.title, "")))))
    if not sheets:
        raise Unreadable("expected a sheet with a header, found none")
    return sheets, list(_outside_of_cells(packed))


def _has_value(cells: tuple[Any, ...]) -> bool:
    return any(cell is not None and cell != "" for cell in cells)


def _text(value: Any) -> Any:
    r"""Return the value of a cell, without the escapes in texts.

    >>> _text("a_x0009_b, file_x005F_x0009_name"), _text("_xD83D__xDE00_"), _text(7)
    ('a\tb, file_x0009_name', '😀', 7)
    """
    if not isinstance(value, str) or "_x" not in value:
        return value
    text = _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), value)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\r\n", "\n").replace("\x00", "")


def _files_by_title(packed: PackedXML) -> dict[str, str]:
    """Return the files of the sheets by their titles."""
    root, relations = packed.root(_WORKBOOK), packed.relations(_WORKBOOK)
    files = {}
    for sheet in () if root is None else root.iter("{*}sheet"):
        key = next((value for name, value in sheet.attrib.items() if name.endswith("}id")), "")
        if key in relations and relations[key].target in packed.names:
            files[sheet.get("name")] = relations[key].target
    return files


def _without_value(packed: PackedXML, path: str) -> Iterator[UnreadPart]:
    """Yield the cells of a sheet that have a formula but no value, which programs other than Excel may leave out."""
    try:
        xml = packed.read(path) if path in packed.names else b""
    except Unreadable as error:  # a sheet of millions of cells
        yield UnreadPart(part="formulas", reason=f"not checked for their values: {error}")
        return
    if re.search(rb"<(?:\w+:)?f[ />]", xml) is None:
        return
    for cell in parsed(xml).iter("{*}c"):
        is_text = cell.get("t") == "str"  # an empty text is a value
        if cell.find("{*}f") is not None and not is_text and not cell.findtext("{*}v"):
            reason = "a formula without its value; open the file in a spreadsheet program, and save it"
            yield UnreadPart(part=f"cell {cell.get('r')}", reason=reason)


def _outside_of_cells(packed: PackedXML) -> Iterator[UnreadPart]:
    """Yield what is not in cells: comments, text boxes, shapes, charts and diagrams."""
    if any(map(_COMMENTS.fullmatch, packed.names)):
        yield UnreadPart(part="comments", reason="comments on cells are not read")
    for name in sorted(filter(_DRAWING.fullmatch, packed.names)):
        root = packed.root(name)
        words = [] if root is None else " ".join(element.text or "" for element in root.iter("{*}t")).split()
        if words:
            reason = f"{len(words):,} words of boxes and charts are not read, such as {' '.join(words[:5])!r:.60}"
            yield UnreadPart(part=f"drawing {name.rpartition('/')[2]}", reason=reason)
