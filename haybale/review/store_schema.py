"""The tables of a file of judgements, and how a file of an older version gets those of today."""

from __future__ import annotations

import sqlite3

from haybale.review.store_format import STORE_TABLES, run_script

VERSION = 4  # of the schema

_EVENTS = """
    CREATE TABLE topic_events (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        topic INTEGER NOT NULL REFERENCES topics (id),
        kind TEXT NOT NULL,
        value TEXT NOT NULL,
        judge TEXT NOT NULL,
        time TEXT NOT NULL
    );
    CREATE INDEX events_of_topic ON topic_events (topic, id);
    CREATE TRIGGER events_stay BEFORE UPDATE ON topic_events
    BEGIN SELECT RAISE(ABORT, 'events never change'); END;
    CREATE TRIGGER events_remain BEFORE DELETE ON topic_events
    BEGIN SELECT RAISE(ABORT, 'events never change'); END;
"""
# store: a random id of this file, and how often it was written; each transaction writes its one page, so that a
# write-ahead log of another file is recognised. engines: the engine that the judgements belong to is the last row.
# moves: the document at which a row of judgements is now. attachments: the documents, by a digest, for which all rows
# up to a number were compared with the texts of their documents. topic_events: what was
# decided about a topic as a whole.
SCHEMA = f"""
    CREATE TABLE topics (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        text TEXT NOT NULL,
        settings TEXT NOT NULL,
        time TEXT NOT NULL
    );
    CREATE TABLE judgements (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        topic INTEGER NOT NULL REFERENCES topics (id),
        doc_id TEXT NOT NULL,
        kind TEXT NOT NULL CHECK (kind IN ('judged', 'known', 'skipped', 'undone', 'drawn', 'reached')),
        grade INTEGER CHECK (grade >= 0),
        judge TEXT NOT NULL,
        time TEXT NOT NULL,
        seconds REAL CHECK (seconds >= 0),
        note TEXT,
        passage_id TEXT,
        passage TEXT,
        rank INTEGER CHECK (rank >= 1),
        model TEXT,
        document TEXT,
        undoes INTEGER REFERENCES judgements (id),
        details TEXT,
        CHECK ((kind IN ('judged', 'known')) = (grade IS NOT NULL)),
        CHECK ((kind = 'undone') = (undoes IS NOT NULL))
    );
    CREATE INDEX judgements_of_topic ON judgements (topic, id);
    CREATE UNIQUE INDEX undone_once ON judgements (undoes) WHERE undoes IS NOT NULL;
    CREATE TRIGGER no_update BEFORE UPDATE ON judgements BEGIN SELECT RAISE(ABORT, 'judgements never change'); END;
    CREATE TRIGGER no_delete BEFORE DELETE ON judgements BEGIN SELECT RAISE(ABORT, 'judgements never change'); END;
    {STORE_TABLES}
    CREATE TRIGGER engines_stay BEFORE UPDATE ON engines BEGIN SELECT RAISE(ABORT, 'engines never change'); END;
    CREATE TRIGGER engines_remain BEFORE DELETE ON engines BEGIN SELECT RAISE(ABORT, 'engines never change'); END;
    CREATE TABLE moves (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        judgement INTEGER NOT NULL REFERENCES judgements (id),
        doc_id TEXT NOT NULL,
        time TEXT NOT NULL
    );
    CREATE INDEX moves_of_judgement ON moves (judgement, id);
    CREATE TABLE attachments (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        documents TEXT NOT NULL,
        last INTEGER NOT NULL,
        time TEXT NOT NULL
    );
    CREATE TRIGGER moves_stay BEFORE UPDATE ON moves
    BEGIN SELECT RAISE(ABORT, 'moves never change'); END;
    CREATE TRIGGER moves_remain BEFORE DELETE ON moves
    BEGIN SELECT RAISE(ABORT, 'moves never change'); END;
{_EVENTS}"""

# The statements that turn a file of a version into one of the next version; what it holds stays.
UPGRADES = {3: f"ALTER TABLE judgements ADD COLUMN details TEXT;{_EVENTS}"}


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables in an empty database, within the caller's transaction."""
    run_script(connection, SCHEMA)


def upgrade_tables(connection: sqlite3.Connection) -> None:
    """Give a database of an older version the tables of today, within the caller's transaction."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    for old in range(version, VERSION):
        run_script(connection, UPGRADES[old])
    if version != VERSION:
        connection.execute("UPDATE store SET writes = writes + 1")
        connection.execute(f"PRAGMA user_version = {VERSION}")
