"""An engine with all that a service keeps beside it, for tests of backups."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from haybale import Engine, parse
from haybale.review import Judgement, JudgementStore
from haybale.review.engine_of_judgements import bind
from haybale.service.long_queries import LongQueries
from haybale.service.trainings import Trainings
from support.decisions import decisions

SEARCHES = """
    CREATE TABLE engines (id INTEGER PRIMARY KEY, identity TEXT NOT NULL, folder TEXT, time TEXT NOT NULL);
    CREATE TABLE searches (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
    PRAGMA journal_mode = WAL;
"""


def make_matter(folder: Path, name: str = "smith") -> Path:
    """Make an engine with judgements, a trained ranker that was accepted, a long query, and a database of searches."""
    engine = Engine.build(decisions(12), folder / name, language="english", encoder="tfidf(min_df=1)").prepare()
    judgements = folder / f"{name}-judgements.sqlite"
    with JudgementStore(judgements) as store:
        bind(store, engine)
        topic = store.add_topic("bites", "dogs that bite")
        store.add(topic, Judgement("dog/1", "judged", 1, judge="Ada"), Judgement("tax/2", "judged", 0, judge="Ben"))
    trainings = Trainings(folder / f"{name}-judgements-models", engine, judgements)
    model = trainings.model_folder(1)
    parse("bm25(k1=0.7)").fit(engine).save(model)
    for kind in ("request", "result"):
        (model.parent / f"{kind}.json").write_text('{"time": "2026-01-01T00:00:00+00:00"}')
    trainings.accept(1)
    LongQueries(judgements.with_name(f"{judgements.name}.queries")).keep(f"The long query of {name}.")
    searches = folder / f"{name}-searches.sqlite"
    with closing(sqlite3.connect(searches)) as connection, connection:
        connection.executescript(SEARCHES)
        connection.execute("INSERT INTO engines VALUES (1, ?, NULL, '')", [engine.identity])
        connection.execute("INSERT INTO searches VALUES (1, ?)", [f"of {name}"])
    return folder / name


def state_of(engine: Path) -> dict[str, Any]:
    """Return what a matter holds, without an order of files or the places where they are."""
    judgements = engine.with_name(f"{engine.name}-judgements.sqlite")
    state: dict[str, Any] = {"judgements": None}
    if judgements.exists() or judgements.with_name(f"{judgements.name}.restoring").exists():
        with JudgementStore(judgements) as store:
            state["judgements"] = [
                [row.doc_id, row.judge] for topic in store.topics() for row in store.judgements(topic)
            ]
    models = engine.with_name(f"{judgements.stem}-models")
    accepted = models / "accepted.json"
    state["accepted"] = json.loads(accepted.read_text()) if accepted.exists() else None
    state["models"] = sorted(str(path.relative_to(models)) for path in models.rglob("*") if path.is_file())
    queries = engine.with_name(f"{judgements.name}.queries")
    state["queries"] = sorted(path.read_text() for path in queries.glob("*.txt"))
    searches = engine.with_name(f"{engine.name}-searches.sqlite")
    state["searches"] = None
    if searches.exists():
        with closing(sqlite3.connect(searches)) as connection:
            state["searches"] = [name for (name,) in connection.execute("SELECT name FROM searches ORDER BY id")]
    state["engine"] = (engine / "engine.json").exists()
    return state
