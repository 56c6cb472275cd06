"""``haybale review``."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
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
KEYS = "y relevant, n irrelevant, s skip, u undo, p progress, c criteria, q quit"
_REASONS = "After n, give reasons for exclusion: their numbers, as in 'n 1,3', or a text."
_PASSAGE_CHARACTERS_IN_TERMINAL = 700


@command(ENGINES)
def review(
    engine: options.EngineFolder,
    text: Annotated[str | None, argument("What you are looking for. Not needed for a topic that exists.")] = None,
    topic: Annotated[str | None, option("The name of the topic in the store. Default: its text.", JUDGING)] = None,
    judgements: options.JudgementsFile = None,
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
        option(
            "Write the judgements and end, without judging: qrels, csv, ris, bibtex, nbib or json to stdout or --out; "
            "docx, xlsx or beir to --out; zip or folder, all of the topic with its documents, to --out. "
            "Default: judge.",
            RESULTS,
        ),
    ] = None,
    out: Annotated[
        Path | None, option("With --export: the file, or the new folder, to write. Default: stdout.", RESULTS)
    ] = None,
    documents: Annotated[
        str,
        option(
            "With --export of a table, records or Word: judged, or all, also unread documents. Default: judged.",
            RESULTS,
        ),
    ] = "judged",
    prisma: Annotated[
        Path | None,
        option(
            "Write the PRISMA 2020 flow diagram (.svg) or its numbers (.csv, .json), and end. Default: judge.", RESULTS
        ),
    ] = None,
) -> None:
    """Judge documents one by one on the terminal: y for relevant, n for irrelevant; the ranking learns from each.

    Judgements are on disk at once, and the same command goes on with the next document.
    """
    from haybale.review import Review, import_decisions, judgement_file_of
    from haybale.review.file_exports import check_format, write_file

    if otherwise is not None and decisions is None:
        raise InputError("--otherwise needs a file with decisions; give --decisions FILE, too")
    if export is not None:
        check_format(export, out)
    elif out is not None:
        raise InputError("--out needs a format; give --export, such as --export docx, too")
    opened = haybale.Engine.open(engine)
    path = judgements or judgement_file_of(opened)
    with Review(opened, text, known=known or [], judgements=path, topic=topic) as topic_review:
        if decisions is not None:
            show(import_decisions(topic_review, decisions, otherwise=otherwise).text())
            note(f"The judgements are in {path}.")
            return
        if export is not None:
            if out is None:
                print(topic_review.export(export, documents=documents), end="")
            else:
                write_file(topic_review, export, out, documents)
                note(f"The export is in {out}.")
            note(f"The judgements are in {path}.")
            return
        if prisma is not None:
            topic_review.prisma().write(prisma)
            note(f"The PRISMA numbers are in {prisma}.")
            return
        topic_review.judges.plan.check_judge(judge)
        show(f"{topic_review.topic.name}: {KEYS}. Each key is followed by Enter.")
        _show_protocol(topic_review)
        _judge_all(topic_review, judge, f"cmh(target={target:g})")
        _show_progress(topic_review.progress([f"cmh(target={target:g})"]))
        show(f"The judgements are in {path}.")


def _judge_all(review: Review, judge: str, rule: str) -> None:
    """Show documents and take judgements until the user quits or nothing is left."""
    while following := review.next(judge=judge if review.judges.plan.is_double else None):
        document = following[0]
        console_for_tables().print(_lines(document), soft_wrap=True)
        start = time.monotonic()
        while (key := (line := _line())[:1].lower()) not in ("y", "n", "s", "u", "q"):
            if key == "p":
                _show_progress(review.progress([rule]))
            elif key == "c":
                _show_protocol(review)
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
            reasons = _reasons(line[1:], review.protocol.exclusion_reasons) if key == "n" else []
            review.judge(document.doc_id, int(key == "y"), judge, seconds=seconds, reasons=reasons)
    show("All documents have been judged.")


def _line() -> str:
    """Return the next line of the input, whose first letter is a key; the end of the input means quit."""
    print("> ", end="", flush=True)
    line = sys.stdin.readline()
    return line.strip() if line else "q"


def _reasons(text: str, listed: Sequence[str]) -> list[str]:
    """Return the reasons for exclusion that follow a key: numbers of listed ones, or a text.

    >>> _reasons(" 2,1", ["no trial", "wrong drug"]), _reasons(" a letter", ["no trial"]), _reasons("", [])
    (['wrong drug', 'no trial'], ['a letter'], [])
    """
    parts = text.replace(",", " ").split()
    if parts and all(part.isdecimal() and 1 <= int(part) <= len(listed) for part in parts):
        return [listed[int(part) - 1] for part in parts]
    return [text.strip()] if text.strip() else []


def _show_protocol(review: Review) -> None:
    """Show the criteria and the numbered reasons for exclusion, where the topic has some."""
    protocol = review.protocol
    for heading, text in (("Include", protocol.inclusion_criteria), ("Exclude", protocol.exclusion_criteria)):
        if text:
            show(f"{heading}:")
            for line in text.splitlines():
                show(f"  {line}")
    if protocol.exclusion_reasons:
        show(_REASONS)
        for number, reason in enumerate(protocol.exclusion_reasons, 1):
            show(f"  {number} {reason}")


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
