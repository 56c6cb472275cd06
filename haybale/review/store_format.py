"""What distinguishes the SQLite files of haybale: an application id, a version, and rows that stay."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Container, Mapping
from typing import NamedTuple

# The tables that all formats have: the id of the file with the number of its writes, and the engines of the file.
STORE_TABLES = """CREATE TABLE store (id TEXT NOT NULL, writes INTEGER NOT NULL);
    INSERT INTO store VALUES (lower(hex(randomblob(16))), 0);
    CREATE TABLE engines (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        identity TEXT NOT NULL,
        folder TEXT,
        time TEXT NOT NULL
    );"""


class StoreFormat(NamedTuple):
    """The format of an SQLite file, which has the tables ``store`` and ``engines`` beside others.

    ``store`` has one row: a random id of the file, and how often it was written. ``engines`` has a row for each engine
    that the file was bound to.

    Attributes
    ----------
    name : str
        What messages call such a file, such as ``"store of judgements"``.
    application : int
        SQLite's application id.
    version : int
        The version of the tables.
    upgradable : container of int
        Earlier versions, which :attr:`upgrade` turns into this one.
    create, upgrade : callable
        Make the tables in an empty database; give those of an earlier version the tables of today. Both run within a
        transaction of the caller.
    permanent : mapping of str to str
        The tables whose rows are never changed or deleted, each with the columns that stay.
    whole : str
        An SQL query whose value is true if no row is missing.
    """

    name: str
    application: int
    version: int
    upgradable: Container[int]
    create: Callable[[sqlite3.Connection], None]
    upgrade: Callable[[sqlite3.Connection], None]
    permanent: Mapping[str, str]
    whole: str


def run_script(connection: sqlite3.Connection, script: str) -> None:
    """Execute the statements of a script within the caller's transaction; each ends in a line of its own."""
    statement = ""
    for line in script.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""
