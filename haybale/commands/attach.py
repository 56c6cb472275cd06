"""``haybale attach``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import haybale
from haybale.cli import options
from haybale.cli.application import MORE, command
from haybale.cli.options import argument
from haybale.cli.terminal import note, show

_MAX_IDS_SHOWN = 10  # document ids of each kind


@command(MORE)
def attach(
    engine: options.EngineFolder,
    judgements: Annotated[
        Path | None,
        argument(
            "The file that keeps the judgements, or saved searches. Default: the judgements that the engine uses."
        ),
    ] = None,
) -> None:
    """Bind a file of judgements, or of saved searches, to an engine, and say which judgements fit it.

    Use it after an engine was built again from documents that have changed. Whoever uses the engine sees all judgements
    of the file. Judgements whose text the engine has under another id move there. Nothing is deleted: judgements of
    documents that the engine does not have are kept and exported.
    """
    from haybale.review import JudgementStore, judgement_file_of, reattach
    from haybale.review import attach as attached
    from haybale.service.matter_store import attach_searches, is_matter_store

    opened = haybale.Engine.open(engine)
    path = judgements or judgement_file_of(opened)
    if path.is_file() and is_matter_store(path):
        attach_searches(path, opened)
        show(f"{path} belongs to the engine in {engine} now")
        return
    fit = attached(path, opened)
    show(f"{path} belongs to the engine in {engine} now: {fit.n_judged:,} judged documents")
    show(f"with the text that was judged: {len(fit.same):,}")
    for what, ids in (("with another text", fit.changed), ("not in the engine", fit.missing)):
        show(f"{what}: {len(ids):,}")
        for doc_id in ids[:_MAX_IDS_SHOWN]:
            elsewhere = fit.moved.get(doc_id, [])
            note(f"  {doc_id}" + (f", whose text is now {', '.join(elsewhere[:3])}" if elsewhere else ""))
        if len(ids) > _MAX_IDS_SHOWN:
            note(f"  and {len(ids) - _MAX_IDS_SHOWN:,} more")
    with JudgementStore(path) as store:
        show(f"moved to the document with the text that was judged: {reattach(store, opened).n_moved:,}")
