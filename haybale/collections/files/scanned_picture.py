"""Read pictures of pages, such as scans and photos: their text is recognised (OCR)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from haybale.collections.files.file_document import FileDocument, Part
from haybale.collections.files.file_reader import FileReader, Unreadable
from haybale.collections.files.ocr import ADVICE, page_recogniser
from haybale.collections.files.pdf import joined_pages, page_paragraphs
from haybale.collections.unread import UnreadPart


class ScannedPicture(FileReader):
    """Reader of pictures. Without OCR they are listed as not read."""

    name = "picture"
    suffixes = (".png", ".jpg", ".jpeg", ".tif", ".tiff")

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument | UnreadPart]:
        recogniser = page_recogniser()
        if recogniser is None:
            raise Unreadable(f"a picture; {ADVICE}")
        pages = recogniser.picture(data)
        for number, page in enumerate(pages, 1):
            if page.missing:
                yield UnreadPart(part=f"page {number}" if len(pages) > 1 else "", reason=page.missing)
        parts = [
            Part(text, page=number, by_ocr=True)
            for number, lines in enumerate(joined_pages([page.lines for page in pages]), 1)
            for text in page_paragraphs(lines)
        ]
        if parts:
            yield FileDocument(parts, metadata={"pages": len(pages)})
