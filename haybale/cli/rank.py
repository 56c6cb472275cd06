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
SHOWN = 10  # documents of a query
_SEVERAL = (".jsonl", ".tsv", ".gz")  # files that hold queries, a line each
_WIDTH = 100  # characters of a title or a text


def run_rank(
    engine: Path,
    queries: str,
    model: Path | None = None,
    ranker: str | None = None,
    set_values: Sequence[str] = (),
    k: int | None = None,
    within: Path | None = None,
    paragraphs: str | None = None,
    explain: bool = False,
    explain_document: Sequence[str] = (),
    heatmap: Path | None = None,
    out: Path | None = None,
    device: str | None = None,
) -> None:
    """Rank, print and write; ``explain_document`` are explained in place of those that are shown."""
    if model is not None and (ranker is not None or set_values):
        raise InputError("a model ranks as it was trained: leave out --ranker and --set")
    named = ranker_of(ranker or DEFAULT, set_values) if model is None else None
    check_file(out)
    check_file(heatmap)
    if heatmap is not None:
        check_figure(heatmap)
    base = opened(engine, device)
    given_queries, labels = queries_of(queries, paragraphs)
    asked = queries_from(base, given_queries)
    limits = None if within is None else [line.strip() for _, line in read_lines(within)]
    collection = (base if limits is None else base.within(limits)).collection
    only = _numbered(collection, explain_document)
    chosen = load(model, base) if model is not None else _fitted(named, base)
    if heatmap is not None and not any(isinstance(each, PARM) for each in _all(chosen)):
        raise InputError(f"--heatmap draws the paragraphs of PARM, which is not in {chosen}")
    runs: list[Run] = []
    reasons: dict[tuple[str, str], Explanation] = {}
    drawn: Explanation | None = None
    for batch in chosen.batches(asked, within=limits):
        run = batch.run(chosen, k or DEPTH)
        for row, query_id in enumerate(batch.ids):
            first = run[query_id][: k or SHOWN]
            wanted = only or _numbered(collection, [doc_id for doc_id, _ in first])
            if not explain and not only:  # the first document alone, if it is drawn
                wanted = dict(list(wanted.items())[: int(heatmap is not None and drawn is None)])
            part = batch.take(np.array([row])) if wanted else batch
            found = {doc_id: chosen.explained(part, number) for doc_id, number in wanted.items()}
            drawn = drawn or next(iter(found.values()), None)
            shown = found if explain or only else {}
            reasons |= {(query_id, doc_id): each for doc_id, each in shown.items()}
            for line in _lines(base.whole, query_id, batch.texts[row], first, shown):
                print(visible(line))
        runs.append(run)
    ranked = Run.joined(runs)
    warn_of_empty(ranked, str(chosen))
    if out is not None:
        _write(ranked, base.whole, reasons, str(chosen), out)
    if heatmap is not None:
        _draw(drawn, labels, heatmap)


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


def queries_of(given: str, paragraphs: str | None) -> tuple[Asked, list[str]]:
    """What QUERIES stands for: stdin, a file, the name of a split, or a text; and what a document calls its paragraphs.

    A document is split by ``paragraphs``; others have their paragraphs already.
    """
    splitter = find_splitter(paragraphs or "blank-lines")
    path = Path(given)
    try:
        is_file = path.is_file()
    except (OSError, ValueError):  # a text that no file could be called
        is_file = False
    if given == "-" or (is_file and path.suffix not in _SEVERAL):
        text = decoded("stdin", sys.stdin.buffer.read()) if given == "-" else read_text(path)
        parts = splitter(text)
        if not parts:
            raise FileFormatError(given, None, f"no paragraph found by {paragraphs or 'blank-lines'}")
        return {"stdin" if given == "-" else path.stem: [part.text for part in parts]}, [part.label for part in parts]
    if paragraphs is not None:
        raise InputError("--paragraphs splits one document: give a .txt file, or - for stdin")
    if not is_file and path.suffix in (".txt", *_SEVERAL) and not any(map(str.isspace, given)):
        raise InputError(f"{given}: no such file")
    return path if is_file else given, []


def _lines(
    collection: Collection,
    query_id: str,
    text: str,
    ranked: Sequence[tuple[str, float]],
    reasons: dict[str, Explanation],
) -> Iterator[str]:
    """A query with its documents: place, id, score, title or beginning, and reasons below."""
    yield f"{query_id}: {shortened(text, _WIDTH)}"
    if not ranked:
        yield "      nothing was found"
    doc_ids = [doc_id for doc_id, _ in ranked]
    width = max(map(len, doc_ids), default=0)
    for place, ((doc_id, score), beginning) in enumerate(zip(ranked, _beginnings(collection, doc_ids), strict=True), 1):
        yield f"{place:>4}  {doc_id:<{width}}  {score:>10.4f}  {beginning}".rstrip()
        if doc_id in reasons:
            yield from (f"    {line}" for line in reasons[doc_id].text().splitlines()[1:])
    for doc_id, reason in reasons.items():
        if doc_id not in doc_ids:
            yield from (f"      {line}" for line in reason.text().splitlines())
    yield ""


def _beginnings(collection: Collection, doc_ids: Sequence[str]) -> list[str]:
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
            beginnings = _beginnings(collection, [doc_id for doc_id, _ in ranked])
            for rank, ((doc_id, score), beginning) in enumerate(zip(ranked, beginnings, strict=True), 1):
                if out.suffix == ".jsonl":
                    record = {"query_id": query_id, "doc_id": doc_id, "rank": rank, "score": score}
                    if (query_id, doc_id) in reasons:
                        record["explanation"] = reasons[query_id, doc_id].to_dict()
                    file.write(json.dumps(record, ensure_ascii=False, default=float) + "\n")
                else:
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
