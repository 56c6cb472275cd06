"""``haybale judge``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import haybale
from haybale.cli import options
from haybale.cli.application import ENGINES, command
from haybale.cli.options import TEXTS, argument, given, option
from haybale.cli.terminal import note, show


@command(ENGINES)
def judge(
    engine: options.EngineFolder,
    file: Annotated[
        Path,
        argument("Judgements: a .csv file with the columns query_id, doc_id and relevance, or a file of TREC or BEIR."),
    ],
    queries: Annotated[
        Path | None,
        option(
            "A file with the texts of new queries: .csv (query_id, text), .jsonl or .tsv. "
            "Default: all are queries of the engine.",
            TEXTS,
        ),
    ] = None,
    split: Annotated[str | None, option("The split that gets the judgements. Default: train.", TEXTS)] = None,
) -> None:
    """Add judged queries to an engine, or replace judgements, for train and compare. Nothing is indexed again.

    A grade above 0 means relevant. Queries of another split are refused: what rankers learn from must not measure them.
    A process that has the engine open sees the change when it calls Engine.refresh() or opens the engine again.
    """
    opened = haybale.Engine.open(engine)
    added = opened.judge(file, queries, **given(split=split))
    name = split or "train"
    total = len(opened.whole.split(name).queries)
    new = f" ({added.n_new_queries:,} new)" if added.n_new_queries else ""
    replaced = f", {added.n_replaced:,} of them in place of another grade" if added.n_replaced else ""
    show(
        f"{added.n_judgements:,} judgements of {added.n_queries:,} queries{new}{replaced}; "
        f"the split {name} has {total:,} queries now"
    )
    folder = shlex.quote(str(engine))
    if name == "train":
        note(f"Next: haybale train {folder} --ranker learned --out MODEL")
    else:
        note(f"Next: haybale compare {folder} --split {shlex.quote(name)}")
