"""``haybale review``."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import haybale
from haybale.cli import options
from haybale.cli.application import ENGINES, command
from haybale.cli.options import RESULTS, TEXTS, argument, option
from haybale.cli.terminal import console_for_tables, note, show, visible
from haybale.errors import InputError

if TYPE_CHECKING:
    from haybale.review import Progress, Review, ReviewDocument

JUDGING = "Judging"  # a panel of the help
KEYS = "y relevant, n irrelevant, s skip, u undo, p progress, q quit"
_PASSAGE_CHARACTERS_IN_TERMINAL = 700


@command(ENGINES)
def review(
    engine: options.EngineFolder,
    text: Annotated[str | None, argument("What you are looking for. Not needed for a topic that exists.")] = None,
    topic: Annotated[str | None, option("The name of the topic in the store. Default: its text.", JUDGING)] = None,
    judgements: Annotated[
        Path | None,
        option("The file that keeps the judgements. Default: ENGINE-judgements.sqlite beside the engine.", RESULTS),
    ] = None,
    known: Annotated[
        list[str] | None, option("The id of a document known to be relevant. Repeatable. Default: none.", TEXTS)
    ] = None,
    judge: Annotated[str, option("Who judges. Default: nobody is named.", JUDGING)] = "",
    target: Annotated[float, option("The recall that the estimate is about. Default: 0.95.", JUDGING)] = 0.95,
    decisions: Annotated[
        Path | None,
        option(
            "Add the decisions of a file and end, without judging: an export of ASReview, Rayyan, Covidence or haybale "
            "(.csv, .xlsx, .ris, .nbib, .bib, .xml), or an .asreview project. Default: judge.",
            TEXTS,
        ),
    ] = None,
    otherwise: Annotated[
        int | None,
        option("The grade of records of that file that say none: 0 or 1. Default: they are left out.", TEXTS, min=0),
    ] = None,
    export: Annotated[
        str | None,
        option("Write the judgements and end, without judging: qrels, csv or ris to stdout. Default: judge.", RESULTS),
    ] = None,
    documents: Annotated[
        str, option("With --export csv or ris: judged, or all, also unread documents. Default: judged.", RESULTS)
    ] = "judged",
) -> None:
    """Judge documents one by one on the terminal: y for relevant, n for irrelevant; the ranking learns from each.

    Judgements are on disk at once, and the same command goes on with the next document.
    """
    from haybale.review import Review, import_decisions, judgement_file_of

    if otherwise is not None and decisions is None:
        raise InputError("--otherwise needs a file with decisions; give --decisions FILE, too")
    opened = haybale.Engine.open(engine)
    path = judgements or judgement_file_of(opened)
    with Review(opened, text, known=known or [], judgements=path, topic=topic) as topic_review:
        if decisions is not None:
            show(import_decisions(topic_review, decisions, otherwise=otherwise).text())
            note(f"The judgements are in {path}.")
            return
        if export is not None:
            if export == "beir":
                raise InputError("--export beir needs a folder; call Review.export('beir', FOLDER) in Python")
            print(topic_review.export(export, documents=documents), end="")
            note(f"The judgements are in {path}.")
            return
        topic_review.judges.plan.check_judge(judge)
        show(f"{topic_review.topic.name}: {KEYS}. Each key is followed by Enter.")
        _judge_all(topic_review, judge, f"cmh(target={target:g})")
        _show_progress(topic_review.progress([f"cmh(target={target:g})"]))
        show(f"The judgements are in {path}.")


def _judge_all(review: Review, judge: str, rule: str) -> None:
    """Show documents and take judgements until the user quits or nothing is left."""
    while following := review.next(judge=judge if review.judges.plan.is_double else None):
        document = following[0]
        console_for_tables().print(_lines(document), soft_wrap=True)
        start = time.monotonic()
        while (key := _key()) not in ("y", "n", "s", "u", "q"):
            if key == "p":
                _show_progress(review.progress([rule]))
            else:
                show(KEYS)
        if key == "q":
            return
        if key == "u":
            try:
                show(f"undone: {review.undo(judge)}")
            except InputError as error:
                show(str(error))
        elif key == "s":
            review.skip(document.doc_id, judge)
        else:
            seconds = round(time.monotonic() - start, 1)
            review.judge(document.doc_id, int(key == "y"), judge, seconds=seconds)
    show("All documents have been judged.")


def _key() -> str:
    """Return the first letter of the next line of the input; the end of the input means quit."""
    print("> ", end="", flush=True)
    line = sys.stdin.readline()
    return line.strip().lower()[:1] if line else "q"


def _lines(document: ReviewDocument) -> object:
    """Return the lines of a document: title, place, id, probability, and the passage with its highlights bold."""
    from rich.text import Text

    best = document.snippets[0]
    name = "" if document.title == document.doc_id else f"  {document.doc_id}"
    location = f", {best.place}" if best.place else ""
    likely = "" if document.probability is None else f"  {document.probability:.0%}"
    lines = Text(visible(f"{document.title}{location}{name}{likely}") + "\n  ")
    for piece, highlighted in best.excerpt(_PASSAGE_CHARACTERS_IN_TERMINAL):
        lines.append(visible(piece), style="bold" if highlighted else None)
    return lines


def _show_progress(progress: Progress) -> None:
    counts = f"{progress.n_relevant:,} relevant of {progress.n_judged:,} judged; {progress.n_documents:,} documents"
    show(f"{counts}; {progress.n_since_relevant:,} since the last relevant one")
    if progress.n_waiting:
        show(f"documents that wait for a second judge: {progress.n_waiting:,}")
    if progress.contradictory:
        show(f"documents that judges judge differently: {len(progress.contradictory):,}")
    for rule, advice in progress.advice.items():
        show(f"{rule}: {'stop' if advice.stop else 'go on'}: {advice.reason}")
