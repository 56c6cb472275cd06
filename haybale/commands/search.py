"""``haybale search``."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import haybale
from haybale.cli import options
from haybale.cli.application import ENGINES, command
from haybale.cli.options import DEFAULT_RANKER, RANKING, RESULTS, argument, option
from haybale.cli.terminal import console_for_tables, note, show, visible
from haybale.cli.values import parse_ranker
from haybale.commands.rank import fitted
from haybale.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from rich.text import Text

    from haybale import SearchHit
    from haybale.search.hit_groups import HitGroup

FORMATS = ("table", "json", "jsonl", "csv")
_EXCERPT_CHARACTERS = 240  # of a passage in the table
_MAX_COPIES = 10  # that are named below a document


@command(ENGINES)
def search(
    engine: options.EnginePlace,
    text: Annotated[str, argument('The query. A phrase in "double quotes" must occur in each document.')],
    model: options.Model = None,
    ranker: options.Ranker = None,
    where: options.Where = None,
    set_values: options.SetValues = None,
    together: Annotated[
        str | None,
        option(
            "Show documents that belong together as one: copies, of nearly the same text; or a column of the metadata, "
            "such as thread for mails, or parent for a mail with its attachments. Default: none.",
            RANKING,
        ),
    ] = None,
    k: Annotated[
        int, option("The number of documents, or of groups with --together. Default: 10.", RANKING, "--k", "-k", min=1)
    ] = 10,
    format: Annotated[
        str,
        option(
            "table for people; json, one value; jsonl, one document in each line; csv, one document in each row. "
            "Default: table.",
            RESULTS,
        ),
    ] = "table",
    out: Annotated[
        Path | None,
        option(
            "Write the documents to a file, which ends in .docx for Word, .csv or .json. Default: to the terminal.",
            RESULTS,
        ),
    ] = None,
    device: options.Device = None,
) -> None:
    """Search an engine for a text, and show the best passage of each document with its terms marked."""
    from haybale.search.taken_hits import HIT_FORMATS

    if format not in FORMATS:
        raise UnknownNameError("format", format, FORMATS)
    if out is not None and out.suffix.lower().removeprefix(".") not in HIT_FORMATS:
        raise InputError(f"--out must end in .docx, .csv or .json, found {out.name!r}; choose another name")
    if model is not None and (ranker is not None or set_values):
        raise InputError("--ranker and --set cannot change a trained ranker; omit them or --model")
    untrained = None if model is not None else parse_ranker(ranker or DEFAULT_RANKER, set_values)
    if untrained is not None:
        untrained._check_answers(None)
    opened = haybale.Engine.open(engine, device=device)
    chosen = haybale.load(str(model), opened) if untrained is None else fitted(untrained, opened)
    results = chosen.search(text, k, where, together=together)
    if out is not None:
        results.write(out)
        note(f"{len(results):,} documents are in {out}.")
    elif format == "csv":
        sys.stdout.write(results.to_csv().replace("\r\n", "\n"))
    elif format == "json":
        print(results.to_json(indent=1))
    elif format == "jsonl":
        for hit in results:
            print(json.dumps({"query": results.query} | hit.to_dict(), ensure_ascii=False, allow_nan=False))
    elif not results:
        show("no document was found")
    else:
        console = console_for_tables()
        groups = {group.shown[-1]: group for group in results.groups or ()}
        is_below = {rank for group in groups.values() for rank in group.shown[1:]}
        for hit in results:
            console.print(_lines(hit, "     " if hit.rank in is_below else ""), soft_wrap=True)
            if hit.rank in groups and (others := _more(groups[hit.rank], str(together))):
                console.print(f"          {others}", soft_wrap=True)


def _more(group: HitGroup, together: str) -> str:
    """Return what a group has besides the documents that are shown; the copies of a document by their ids."""
    others = group.doc_ids[len(group.shown) :]
    if together == "copies" and others:
        names = ", ".join(map(visible, others[:_MAX_COPIES]))
        return f"also {names}{f' and {len(others) - _MAX_COPIES:,} more' if len(others) > _MAX_COPIES else ''}"
    return f"and {len(others):,} more of this {visible(together)}" if others else ""


def _lines(hit: SearchHit, margin: str = "") -> Text:
    """Return the lines of a document: rank, title, place, id and score; and the best passage, its highlights bold."""
    from rich.text import Text

    best = hit.snippets[0] if hit.snippets else None
    passage_place = f", {best.place}" if best is not None and best.place else ""
    name = "" if hit.title == hit.doc_id else f"  {hit.doc_id}"
    lines = Text(f"{margin}{hit.rank:>3}  {visible(f'{hit.title}{passage_place}{name}')}  {hit.score:.4f}")
    if best is not None:
        lines.append(f"\n{margin}     ")
        for piece, highlighted in best.excerpt(_EXCERPT_CHARACTERS):
            lines.append(visible(re.sub(r"\s+", " ", piece)), style="bold" if highlighted else None)
    return lines
