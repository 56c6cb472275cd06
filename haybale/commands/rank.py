"""``haybale rank``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import haybale
from haybale.cli import options
from haybale.cli.application import ENGINES, command
from haybale.cli.options import DEFAULT_RANKER, RANKING, RESULTS, TEXTS, argument, option
from haybale.cli.terminal import note, reporter, show, visible
from haybale.cli.values import parse_ranker
from haybale.errors import InputError

if TYPE_CHECKING:
    from haybale import Collection, Engine, Explanation, Ranker, Run
    from haybale.rankers import QueryBatch
    from haybale.ranking.contract import RankerContract
    from haybale.retrieval import ParagraphExplanation

SHOWN, WRITTEN = 10, 1000  # default numbers of documents for each query
WIDTH = 100  # the largest number of characters of a title or text in a line
_TREC_SUFFIXES = (".trec", ".trec.gz")
_COLIEE_SUFFIX = ".coliee"


@command(ENGINES)
def rank(
    engine: options.EnginePlace,
    queries: Annotated[
        str,
        argument(
            "A text; a file of queries (.jsonl, .csv, .tsv) or with one document; - for standard input; or a split."
        ),
    ],
    model: options.Model = None,
    ranker: options.Ranker = None,
    set_values: options.SetValues = None,
    adapt: Annotated[
        bool, option("Adapt learned weights to the estimated share of unseen queries.", RANKING, "--adapt")
    ] = False,
    k: Annotated[
        int | None,
        option("The number of documents for each query. Default: print 10, write 1000.", RANKING, "--k", min=1),
    ] = None,
    within: Annotated[
        Path | None, option("Search only the documents whose ids are the lines of this file. Default: all.", RANKING)
    ] = None,
    where: options.Where = None,
    before: options.Before = None,
    paragraphs: Annotated[
        str | None,
        option(
            "How to split a query document: blank-lines, lines, numbered, sentences or headings. Default: blank-lines.",
            TEXTS,
        ),
    ] = None,
    explain: Annotated[bool, option("Explain the score of each printed document.", RESULTS, "--explain")] = False,
    heatmap: Annotated[
        Path | None,
        option("Draw the matching paragraphs of PARM for the first document: an .svg, .png or .pdf file.", RESULTS),
    ] = None,
    out: Annotated[
        Path | None,
        option(
            "Write the ranking: .trec, .trec.gz, .coliee (its name is the run tag), .jsonl (with explanations), or "
            "else a tab-separated table.",
            RESULTS,
        ),
    ] = None,
    device: options.Device = None,
    dask: options.Dask = None,
) -> None:
    """Rank the documents of an engine for queries, and explain the ranking.

    With --out, the rankings of many queries are kept in OUT.ranking until the file is written. If the command is
    interrupted, run it again to continue.
    """
    from haybale.cli.resuming import resuming
    from haybale.collections.queries import queries_argument, queries_from
    from haybale.drawing import check_figure
    from haybale.folders import check_file, write_or_rescue
    from haybale.ranking.empty_rankings import warn_of_empty
    from haybale.ranking.ranker import batches_of
    from haybale.retrieval.run import check_coliee, check_trec
    from haybale.text_files import read_lines

    if model is not None and (ranker is not None or set_values):
        raise InputError("--ranker and --set cannot change a trained ranker; omit them or --model")
    untrained = None if model is not None else parse_ranker(ranker or DEFAULT_RANKER, set_values)
    for path in filter(None, (out, heatmap)):
        check_file(path)
    if heatmap is not None:
        check_figure(heatmap)
    opened = haybale.Engine.open(engine, device=device)
    collection = opened.whole
    asked = queries_from(opened.collection, queries_argument(queries), paragraphs)
    limits = None if within is None else [line.strip() for _, line in read_lines(within)]
    if where is not None:
        opened.documents_where(where)  # raises for a wrong condition
    if out is not None and out.name.endswith((*_TREC_SUFFIXES, _COLIEE_SUFFIX)):
        names = [*asked.ids.to_pylist(), *(opened.collection.doc_ids.to_pylist() if limits is None else limits)]
        check_coliee(names, out.stem) if out.suffix == _COLIEE_SUFFIX else check_trec(names)
    chosen = untrained or haybale.load(str(model), opened)
    if adapt and not isinstance(chosen, haybale.Learned):
        raise InputError(f"--adapt needs a ranker with learned weights, such as learned(bm25,svr), found {chosen}")
    if heatmap is not None and not any(nested.name == "parm" for nested in _with_nested(chosen)):
        raise InputError(f"--heatmap needs a ranker with PARM, such as parm-vrrf, found {chosen}")
    chosen._check_answers(asked)
    if untrained is not None:
        chosen = fitted(untrained, opened, before)
    runs: list[Run] = []
    reasons: dict[tuple[str, str], Explanation] = {}
    with resuming(out, "ranking"), options.on_cluster_of(dask):
        batches: Iterable[QueryBatch] = batches_of(chosen, asked, within=limits, where=where, before=before)
        if adapt and isinstance(chosen, haybale.Learned):
            batches = list(batches)
            chosen = chosen.adapted_to(batches, k or WRITTEN)
            share = chosen.fit_report_["queries expected to be new"]
            unseen = f"{share:.0%} of the queries are expected to have unseen relevant documents"
            note(f"{unseen}; the ranker is now {chosen}")
        for batch in batches:
            run = chosen.run(batch, k or WRITTEN)
            runs.append(run)
            for row, query_id in enumerate(batch.ids):
                first = run[query_id][: k or SHOWN]
                wanted = first if explain else first[:1] if heatmap is not None and not reasons else []
                explanations = _explained(chosen, batch, row, [doc_id for doc_id, _ in wanted])
                reasons |= {(query_id, explanation.doc_id): explanation for explanation in explanations}
                for line in _lines(collection, query_id, batch.texts[row], first, explanations if explain else []):
                    show(line)
        ranked = haybale.Run.joined(runs)
        warn_of_empty(ranked, chosen, dated=before is not None)
        if out is not None:
            kept = reasons if explain else {}
            write_or_rescue(lambda path: _write(ranked, collection, kept, str(chosen), path), out)
    if heatmap is not None:
        write_or_rescue(lambda path: _draw(next(iter(reasons.values()), None), path), heatmap)


def _explained(ranker: Ranker, batch: QueryBatch, row: int, doc_ids: list[str]) -> list[Explanation]:
    """Return the explanations of documents for one query of a batch."""
    import numpy as np

    if not doc_ids:
        return []
    part = batch.take(np.array([row]))
    return [ranker.explained(part, number) for number in batch.engine.collection.document_numbers(doc_ids).tolist()]


def fitted(ranker: Ranker, engine: Engine, before: str | None = None) -> Ranker:
    """Fit a ranker on an engine, and print a note if that includes training."""
    from haybale.timing import record_timings

    if not ranker.needs_training:
        return ranker.fit(engine)
    note(f"{ranker} is trained first. To keep the trained ranker, use haybale train.")
    with record_timings(reporter()):
        return ranker.fit(engine, before=before)


def _with_nested(ranker: RankerContract) -> Iterator[RankerContract]:
    """Yield a ranker and the rankers inside it."""
    yield ranker
    for inner in ranker.nested():
        yield from _with_nested(inner)


def _lines(
    collection: Collection, query_id: str, text: str, ranked: Sequence[tuple[str, float]], reasons: list[Explanation]
) -> Iterator[str]:
    """Yield the printed lines of a query: rank, id, score, beginning and explanation of each document."""
    from haybale.search.explanation import shortened

    yield f"{query_id}: {shortened(text, WIDTH)}"
    if not ranked:
        yield "      no document was found"
    doc_ids = [doc_id for doc_id, _ in ranked]
    width = max(map(len, doc_ids), default=0)
    for rank, ((doc_id, score), beginning) in enumerate(zip(ranked, _beginnings(collection, doc_ids), strict=True), 1):
        yield f"{rank:>4}  {doc_id:<{width}}  {score:>10.4f}  {beginning}".rstrip()
        if reasons:
            yield from (f"    {line}" for line in reasons[rank - 1].text().splitlines()[1:])
    yield ""


def _beginnings(collection: Collection, doc_ids: list[str]) -> Iterator[str]:
    """Yield the title of each document, or the beginning of its first passage if it has none."""
    from haybale.search.explanation import shortened

    offsets, texts = collection.passages.doc_offsets, collection.passages.texts
    for number, doc_id in zip(collection.document_numbers(doc_ids).tolist(), doc_ids, strict=True):
        title = collection.doc_titles[number].as_py() or ""
        if title.strip() in ("", doc_id) and offsets[number] < offsets[number + 1]:
            title = texts[int(offsets[number])].as_py()
        yield shortened(title, WIDTH)


def _write(run: Run, collection: Collection, reasons: dict[tuple[str, str], Explanation], name: str, out: Path) -> None:
    """Write a ranking in the format that the ending of the file names."""
    from haybale.evaluation.comparison import file_name
    from haybale.folders import whole_file

    if out.name.endswith(_TREC_SUFFIXES):
        run.to_trec(out, tag=file_name(name))
        return
    if out.suffix == _COLIEE_SUFFIX:
        run.to_coliee(out, tag=out.stem)
        return
    rows = run.to_frame()[["query_id", "doc_id", "rank", "score", "true_score"]].to_dict("records")
    with whole_file(out) as file:
        if out.suffix == ".jsonl":
            for row in rows:
                reason = reasons.get((row["query_id"], row["doc_id"]))
                row |= {} if reason is None else {"explanation": reason.to_dict()}
                file.write(json.dumps(row, ensure_ascii=False, default=float) + "\n")
            return
        file.write("query\trank\tdocument\tscore\tbeginning\n")
        for row, beginning in zip(rows, _beginnings(collection, [row["doc_id"] for row in rows]), strict=True):
            cells = (row["query_id"], str(row["rank"]), row["doc_id"], repr(float(row["score"])), beginning)
            file.write("\t".join(map(visible, cells)) + "\n")


def _draw(reason: Explanation | None, path: Path) -> None:
    """Draw the heatmap of an explanation by PARM, which may be inside another ranker's explanation."""
    if reason is None:
        raise InputError("--heatmap needs a document, but none was found; change the query")
    detail = next(_paragraph_explanations(reason), None)
    if detail is None:
        raise InputError(
            f"--heatmap needs a document that PARM found, unlike {reason.doc_id!r}; use --ranker parm-vrrf"
        )
    detail.heatmap(path)


def _paragraph_explanations(reason: Explanation) -> Iterator[ParagraphExplanation]:
    """Yield the explanations by PARM in an explanation, its own first."""
    if hasattr(reason.detail, "heatmap"):
        yield reason.detail
    for share in reason.shares:
        if share.of is not None:
            yield from _paragraph_explanations(share.of)
