"""Read bibliographic records in RIS format with rispy: a record is a document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from haybale.collections.files.file_reader import EXTRA, FileDocument, FileReader, Unreadable, decoded
from haybale.collections.files.table_rows import documents_of_rows
from haybale.extras import import_optional

_INTERNAL = ("type_of_reference", "unknown_tag")


class RIS(FileReader):
    """Reader of ``.ris`` files, as reference managers and screening programs export them."""

    name = "ris"
    suffixes = (".ris",)
    packages = ("rispy",)

    def read(self, data: bytes, options: Mapping[str, str]) -> Iterator[FileDocument]:
        records = import_optional("rispy", EXTRA).loads(decoded(data))
        if not records:
            raise Unreadable("expected records in RIS format, found none")
        names = dict.fromkeys(name for record in records for name in record if name not in _INTERNAL)
        yield from documents_of_rows(
            ({name: _value(record.get(name)) for name in names} for record in records), options
        )


def _value(value: Any) -> Any:
    return value if isinstance(value, list) else None if value is None else str(value)
