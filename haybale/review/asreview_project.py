"""Read the records and labels of an ASReview project, a ``.asreview`` file of ASReview 2 or 3.

It is a zip file. Version 3 of the format has the tables ``record`` and ``results`` in ``results.db``; version 2 has
them in ``data_store.db`` and ``reviews/ID/results.db``.
"""

from __future__ import annotations

import io
import json
import re
import sqlite3
import zipfile
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

from haybale.collections.files.file_reader import Unreadable
from haybale.collections.files.table_rows import Row

_MAX_DATABASE_BYTES = 2**30
_CONFIG, _DATABASE, _DATA_STORE = "project.json", "results.db", "data_store.db"
_RECORD_COLUMNS = ("title", "abstract", "year", "doi", "url")


def is_project(data: bytes) -> bool:
    """Return whether a file is an ASReview project."""
    if not zipfile.is_zipfile(io.BytesIO(data)):
        return False
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return _CONFIG in archive.namelist()


def project_rows(data: bytes) -> list[Row]:
    """Return the records of a project, with ``asreview_label``, ``asreview_note`` and ``asreview_time`` if labelled.

    A label counts for all records of a group of duplicates, as in ASReview.

    Raises
    ------
    Unreadable
        If the project is damaged, or of ASReview 1.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
            config = json.loads(archive.read(_CONFIG))
            if _DATABASE in names:
                store = results = _read(archive, _DATABASE)
            else:
                reviews = sorted(name for name in names if re.fullmatch(r"reviews/[^/]+/results\.db", name))
                if _DATA_STORE not in names or not reviews:
                    version = config.get("version") if isinstance(config, dict) else None
                    raise Unreadable(
                        f"expected a project of ASReview 2 or 3, found version {version!r:.40}; open it with "
                        "ASReview 3, and export it again"
                    )
                store, results = _read(archive, _DATA_STORE), _read(archive, reviews[0])
        records = _table(store, "record", {"record_id", "title", "abstract"})
        labels = {row["record_id"]: row for row in _table(results, "results", {"record_id", "label"})}
    except (zipfile.BadZipFile, KeyError, ValueError, RecursionError, RuntimeError, sqlite3.Error) as error:
        raise Unreadable(f"expected an ASReview project, found a damaged one ({error})") from None
    rows = []
    for position, record in enumerate(records, 1):
        values = {name: record[name] for name in _RECORD_COLUMNS if record.get(name) is not None}
        duplicate_of = record.get("duplicate_of")
        label = labels.get(record["record_id"] if duplicate_of is None else duplicate_of)
        if label is not None and label["label"] in (0, 1):
            values["asreview_label"] = str(label["label"])
            values |= {f"asreview_{name}": text for name, text in (("note", label.get("note")),) if text}
            if isinstance(label.get("time"), int | float):
                values["asreview_time"] = datetime.fromtimestamp(label["time"], UTC).strftime("%Y-%m-%d %H:%M:%S")
        rows.append(Row(f"record {position}", values))
    return rows


def _read(archive: zipfile.ZipFile, name: str) -> bytes:
    if archive.getinfo(name).file_size > _MAX_DATABASE_BYTES:
        raise Unreadable(f"{name} unpacks to more than {_MAX_DATABASE_BYTES:,} bytes; export the records as RIS")
    return archive.read(name)


def _table(database: bytes, name: str, needed: set[str]) -> list[dict[str, Any]]:
    """Return the rows of a table of an SQLite database by the names of their columns."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(database)
        connection.execute("PRAGMA trusted_schema = OFF")
        cursor = connection.execute(f"SELECT * FROM {name} ORDER BY record_id")
        columns = [column for column, *_ in cursor.description]
        if not needed <= set(columns):
            missing = ", ".join(sorted(needed - set(columns)))
            raise Unreadable(
                f"expected the columns {missing} in the table {name}, found none; export the project again"
            )
        return [dict(zip(columns, row, strict=True)) for row in cursor]
