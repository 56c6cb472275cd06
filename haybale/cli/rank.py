"""``haybale rank``: an engine's documents for queries, with reasons."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from haybale.cli.arguments import opened, ranker_of
from haybale.cli.output import check_file, reporter, say, visible
from haybale.collections import Collection, find_splitter
from haybale.collections.collection import pick
from haybale.collections.lines import decoded, read_lines, read_text
from haybale.drawing import check_figure
from haybale.engine import Engine
from haybale.errors import FileFormatError, InputError
from haybale.evaluation.comparison import file_name
from haybale.folders import whole_file
from haybale.rankers import PARM, Explanation, Ranker, load, queries_from
from haybale.rankers.batch import Asked
from haybale.rankers.ranker import warn_of_empty
from haybale.retrieval import Run
from haybale.retrieval.parm.explanation import ParagraphExplanation, shortened
from haybale.retrieval.run import DEPTH
from haybale.stages import listening

DEFAULT = "rrf(bm25-doc,parm-vrrf)"
_SEVERAL = (".jsonl", ".tsv", ".gz")  # files that hold queries, a line each
_WIDTH = 100  # characters of a title or a text

Reasons = dict[str, Explanation]  # by document


def run_rank(
    folder: Path,
    queries: str,
    *,
    model: Path | None,
    ranker: str | None,
    values: list[str] | None,
    depth: int | None,
    within: Path | None,
    paragraphs: str | None,
    top: int,
    explain: bool,
    documents: list[str],
    heatmap: Path | None,
    out: Path | None,
    device: str | None,
) -> None:
    """Rank, print and write; ``documents`` are explained in place of the ``top`` ones."""
    if model is not None and (ranker is not None or values):
        raise InputError("a model ranks as it was trained: leave out --ranker and --set")
    given = ranker_of(ranker or DEFAULT, values) if model is None else None
    check_file(out)
    check_file(heatmap)
    if heatmap is not None:
        check_figure(heatmap)
    engine = opened(folder, device)
    given_queries, labels = queries_of(engine, queries, paragraphs)
    asked = queries_from(engine, given_queries)
    limits = None if within is None else [line.strip() for _, line in read_lines(within)]
    searched = engine if limits is None else engine.within(limits)
    numbers = dict(zip(documents, searched.collection.document_numbers(documents).tolist(), strict=True))
    chosen = _fitted(given, engine) if model is None else load(model, engine)
    if heatmap is not None and not any(isinstance(each, PARM) for each in _all(chosen)):
        raise InputError(f"--heatmap draws the paragraphs of PARM, which is not in {chosen}")
    runs: list[Run] = []
    reasons: dict[tuple[str, str], Explanation] = {}
    for batch in chosen.batches(asked, within=limits):
        run = batch.run(chosen, depth or DEPTH)
        for row, query_id in enumerate(batch.ids):
            first = run[query_id][:top]
            wanted = numbers or _numbered(searched.collection, [doc_id for doc_id, _ in first])
            if not explain and not documents:  # the first document alone, if it is drawn
                wanted = dict(list(wanted.items())[: int(heatmap is not None and not reasons)])
            found = {}
            if wanted:
                part = batch.take(np.array([row]))
                found = {doc_id: chosen.explained(part, number) for doc_id, number in wanted.items()}
            reasons |= {(query_id, doc_id): each for doc_id, each in found.items()}
            shown = found if explain or documents else {}
            for line in _lines(engine.whole, query_id, batch.texts[row], first, shown):
                print(visible(line))
        runs.append(run)
    ranked = Run.joined(runs)
    warn_of_empty(ranked, str(chosen))
    if out is not None:
        _write(ranked, engine.whole, reasons if explain or documents else {}, str(chosen), out)
    if heatmap is not None:
        _draw(next(iter(reasons.values()), None), labels, heatmap)


def _numbered(collection: Collection, doc_ids: Sequence[str]) -> dict[str, int]:
    return dict(zip(doc_ids, collection.document_numbers(doc_ids).tolist(), strict=True))


def _fitted(ranker: Ranker | None, engine: Engine) -> Ranker:
    assert ranker is not None
    if not ranker.needs_training:
        return ranker.fit(engine)
    say(f"{ranker} is trained first; haybale train would keep it")
    with listening(reporter()):
        return ranker.fit(engine)


def _all(ranker: Ranker) -> Iterator[Ranker]:
    yield ranker
    for inner in ranker.nested():
        yield from _all(inner)


# what is asked --------------------------------------------------------------------------------------------


def queries_of(engine: Engine, given: str, paragraphs: str | None) -> tuple[Asked, list[str]]:
    """What QUERIES stands for: stdin, a file, the name of a split, or a text; and what a document calls its paragraphs.

    A document is split by ``paragraphs``; others have their paragraphs already.
    """
    splitter = find_splitter(paragraphs or "blank-lines")
    path = Path(given)
    name, text = "", ""
    if given == "-":
        name, text = "stdin", decoded("stdin", sys.stdin.buffer.read())
    elif _is_file(path) and path.suffix not in _SEVERAL:
        name, text = path.stem, read_text(path)
    elif paragraphs is not None:
        raise InputError("--paragraphs splits one document: give a .txt file, or - for stdin")
    if name:
        parts = splitter(text)
        if not parts:
            raise FileFormatError(given, None, f"no paragraph found by {paragraphs or 'blank-lines'}")
        return {name: [part.text for part in parts]}, [part.label for part in parts]
    if _is_file(path):
        return path, []
    if path.suffix in (".txt", *_SEVERAL) and not any(map(str.isspace, given)):
        raise InputError(f"{given}: no such file")
    return given, []


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a text that no file could be called
        return False


# what is shown --------------------------------------------------------------------------------------------


def _lines(
    collection: Collection, query_id: str, text: str, ranked: Sequence[tuple[str, float]], reasons: Reasons
) -> Iterator[str]:
    """A query with its documents: place, id, score, title or beginning, and reasons below."""
    yield f"{query_id}: {shortened(text, _WIDTH)}"
    if not ranked:
        yield "      nothing was found"
    doc_ids = [doc_id for doc_id, _ in ranked]
    width = max(map(len, doc_ids), default=0)
    beginnings = beginnings_of(collection, doc_ids)
    for place, ((doc_id, score), beginning) in enumerate(zip(ranked, beginnings, strict=True), 1):
        yield f"{place:>4}  {doc_id:<{width}}  {score:>10.4f}  {beginning}".rstrip()
        if doc_id in reasons:
            yield from (f"    {line}" for line in reasons[doc_id].text().splitlines()[1:])
    for doc_id, reason in reasons.items():
        if doc_id not in doc_ids:
            yield from (f"      {line}" for line in reason.text().splitlines())
    yield ""


def beginnings_of(collection: Collection, doc_ids: Sequence[str]) -> list[str]:
    """The title of each document, or, where that says nothing, the beginning of its first passage."""
    numbers = collection.document_numbers(doc_ids)
    offsets, texts = collection.passages.doc_offsets, collection.passages.texts
    beginnings = []
    titles = pick(collection.doc_titles, numbers)
    for number, doc_id, title in zip(numbers.tolist(), doc_ids, titles, strict=True):
        if title.strip() in ("", doc_id) and offsets[number] < offsets[number + 1]:
            title = texts[int(offsets[number])].as_py()
        beginnings.append(shortened(title, _WIDTH))
    return beginnings


def _write(run: Run, collection: Collection, reasons: dict[tuple[str, str], Explanation], name: str, out: Path) -> None:
    """All that is ranked, in the form that the ending of the file says."""
    if out.suffix == ".trec":
        out.parent.mkdir(parents=True, exist_ok=True)
        run.to_trec(out, tag=file_name(name))
        return
    with whole_file(out) as file:
        if out.suffix != ".jsonl":
            file.write("query\trank\tdocument\tscore\tbeginning\n")
        for query_id in run.query_ids:
            ranked = run[query_id]
            if out.suffix == ".jsonl":
                for rank, (doc_id, score) in enumerate(ranked, 1):
                    record = {"query_id": query_id, "doc_id": doc_id, "rank": rank, "score": score}
                    reason = reasons.get((query_id, doc_id))
                    record |= {} if reason is None else {"explanation": reason.to_dict()}
                    file.write(json.dumps(record, ensure_ascii=False, default=float) + "\n")
                continue
            beginnings = beginnings_of(collection, [doc_id for doc_id, _ in ranked])
            for rank, ((doc_id, score), beginning) in enumerate(zip(ranked, beginnings, strict=True), 1):
                columns = (query_id, str(rank), doc_id, f"{score:.6g}", beginning)
                file.write("\t".join(map(visible, columns)) + "\n")


def _draw(reason: Explanation | None, labels: Sequence[str], path: Path) -> None:
    """The heatmap of PARM's reasons, also of a PARM within another ranker."""
    if reason is None:
        raise InputError("nothing was found, so there is no heatmap to draw")
    detail = next(_details(reason), None)
    if detail is None:
        raise InputError(f"PARM does not have {reason.doc_id!r}, so there is no heatmap to draw")
    if len(labels) == len(detail.labels):
        detail = replace(detail, labels=list(labels))
    detail.heatmap(path)


def _details(reason: Explanation) -> Iterator[ParagraphExplanation]:
    if isinstance(reason.detail, ParagraphExplanation):
        yield reason.detail
    for share in reason.shares:
        if share.of is not None:
            yield from _details(share.of)
