"""What distinguishes the SQLite files of haybale: an application id, a version, and rows that stay."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Container, Mapping
from typing import NamedTuple


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
