"""Rankers by name: ``bm25``, ``knn``, ``svr`` …, and fusions of them, ``rrf(bm25,svr)`` and ``learned(bm25,svr)``.

A new ranker is one function and one line in :data:`RANKERS`.
"""

from __future__ import annotations

from collections.abc import Callable

from haybale.ensemble import LearnedFusion, novel_queries
from haybale.errors import InputError, UnknownNameError
from haybale.experiments import document_ensemble
from haybale.experiments.training import check_training
from haybale.experiments.workbench import TRAIN_SAMPLE, Workbench
from haybale.retrieval import AGGREGATIONS, Hits, PassageIndex, Run, rank_documents, reciprocal_rank_fusion
from haybale.vectors import Matrix

Ranker = Callable[[Workbench, str], Run]  # of the queries of a part


def _bm25(bench: Workbench, part: str) -> Run:
    return _bm25_of(bench, part, "passage")


def _bm25_doc(bench: Workbench, part: str) -> Run:
    return _bm25_of(bench, part, "document")


def _bm25_of(bench: Workbench, part: str, unit: str) -> Run:
    index, texts, depth = bench.bm25(unit), bench.texts(part), bench.depth(part)
    with bench.stage(f"search BM25 ({unit}s)", part):
        rows, documents, scores = index.documents(texts, depth, exclude=bench.own(part))
        return Run.from_numbers(bench.query_ids(part), bench.collection.doc_ids, rows, documents, scores, depth)


def _knn(bench: Workbench, part: str) -> Run:
    hits = bench.neighbours(part)
    with bench.stage("aggregate knn", part):
        return bench.aggregated(part, "maxp", hits)


def _svr(bench: Workbench, part: str) -> Run:
    hits = bench.memory(part)
    with bench.stage("aggregate svr", part):
        return rank_documents(bench.index, hits, bench.query_ids(part))


def _svr_blend(bench: Workbench, part: str) -> Run:
    hits, ensemble = bench.memory(part), bench.ensemble("svr")
    features = bench.features(part, bench.settings.candidates)
    with bench.stage("aggregate svr-blend", part):
        blended = Hits(hits.passages, ensemble.blended(hits.scores, features))
        return rank_documents(bench.index, blended, bench.query_ids(part))


def _svr_paper(bench: Workbench, part: str) -> Run:
    ensemble = bench.ensemble("svr-paper")
    candidates, queries = bench.neighbours(part).top(ensemble.k), bench.query_vectors(part)
    with bench.stage("score svr-paper", part):
        if not bench.is_training(part):
            return ensemble.rank(queries, bench.query_ids(part), candidates=candidates)
        hits = bench.remembered(ensemble, part, candidates, queries)
        return rank_documents(bench.index, hits, bench.query_ids(part))


def _knn_firstp(bench: Workbench, part: str) -> Run:
    index, queries = bench.first_passages, bench.query_vectors(part)
    return _of_documents(bench, part, index, queries, "first passages")


def _knn_doc(bench: Workbench, part: str) -> Run:
    index, queries = bench.whole_documents, bench.query_vectors(part)
    return _of_documents(bench, part, index, queries, "whole documents")


def _of_documents(bench: Workbench, part: str, index: PassageIndex, queries: Matrix, what: str) -> Run:
    """A run over an index with one vector a document."""
    own, depth = bench.own_with_passages(part), bench.depth(part)
    with bench.stage(f"search {what}", part):
        hits = index.search(queries, min(len(index), depth), exclude=own)
        return rank_documents(index, hits, bench.query_ids(part), depth=depth)


def _knn_queries(bench: Workbench, part: str) -> Run:
    similar, vectors = bench.query_neighbours, bench.query_vectors(part)
    left_out = bench.places(part) if bench.is_training(part) else None
    with bench.stage("search similar queries", part):
        return similar.rank(
            vectors, bench.query_ids(part), exclude=bench.own(part), leave_out=left_out, depth=bench.depth(part)
        )


def _svr_doc(bench: Workbench, part: str) -> Run:
    return document_ensemble.rank_by_ensemble(bench, part, run_of)


def _parm(aggregation: str, lexical: bool = False) -> Ranker:
    def ranker(bench: Workbench, part: str) -> Run:
        found = bench.lexical_paragraph_hits(part) if lexical else bench.paragraph_hits(part)
        with bench.stage(f"aggregate {'bm25-' * lexical}parm-{aggregation}", part):
            return bench.aggregated(part, aggregation, found.hits, found.offsets, found.vectors)

    return ranker


RANKERS: dict[str, Ranker] = {
    "bm25": _bm25,  # BM25, a document's best passage
    "bm25-doc": _bm25_doc,  # BM25 over whole documents
    "knn": _knn,  # nearest passages by inner product, a document's best (MaxP)
    "svr": _svr,  # the SVR ensemble over BM25's and kNN's candidates
    "svr-blend": _svr_blend,  # the same with the evidence of the searches added, by out-of-bag scores
    "svr-paper": _svr_paper,  # the SVR ensemble with the paper's settings over kNN's candidates
    "svr-doc": _svr_doc,  # the SVR ensemble over documents, each one vector, over the candidates of every search
    "knn-queries": _knn_queries,  # documents that were relevant to the most similar training queries
    "knn-firstp": _knn_firstp,  # nearest documents by their first passage (FirstP)
    "knn-doc": _knn_doc,  # nearest documents, each one vector
    **{f"parm-{name}": _parm(name) for name in AGGREGATIONS},  # PARM: what the query's paragraphs retrieve
    "vrrf": _parm("vrrf"),  # short for parm-vrrf
    **{
        f"bm25-parm-{name}": _parm(name, lexical=True)  # PARM over BM25
        for name, aggregation in AGGREGATIONS.items()
        if aggregation.vectors is None
    },
}


def split_names(text: str) -> list[str]:
    """Split at commas outside parentheses.

    >>> split_names("bm25, rrf(bm25,svr)")
    ['bm25', 'rrf(bm25,svr)']
    """
    names, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if depth < 0:
            break
        if character == "," and depth == 0:
            names.append("")
        elif not character.isspace():
            names[-1] += character
    if depth != 0:
        raise InputError(f"rankers {text!r}: parentheses do not match")
    if not all(names):
        raise InputError(f"rankers {text!r}: a name is missing between commas")
    return names


FUSIONS = ("rrf", "learned")
# What the ranker "learned" fuses: whatever helps on dev of four collections.
EVERYTHING = ("bm25", "bm25-doc", "knn", "knn-doc", "parm-rrf", "parm-vrrf", "knn-queries", "svr-doc")


def parts_of(name: str) -> list[str] | None:
    """The rankers that ``rrf(…)`` or ``learned(…)`` fuses; None for a plain ranker. Unknown names raise.

    >>> parts_of("rrf(bm25,svr)"), parts_of("bm25"), parts_of("learned") == list(EVERYTHING)
    (['bm25', 'svr'], None, True)
    """
    if name == "learned":
        return list(EVERYTHING)
    if name in RANKERS:
        return None
    kind, opened, inside = name.partition("(")
    if kind not in FUSIONS or not opened or not inside.endswith(")"):
        raise UnknownNameError("ranker", name, [*RANKERS, "learned", *(f"{fusion}(…,…)" for fusion in FUSIONS)])
    parts = split_names(inside[:-1])
    for part in parts:
        parts_of(part)
    return parts


def learns(name: str) -> bool:
    """Whether a ranker, or one that it fuses, has to be trained."""
    return _is_learned(name) or any(map(learns, parts_of(name) or ())) or remembers(name)


def _is_learned(name: str) -> bool:
    return name == "learned" or name.startswith("learned(")


def remembers(name: str) -> bool:
    """Whether a ranker, or one that it fuses, knows documents from the training queries they were relevant to."""
    return any(map(remembers, parts_of(name) or ())) or name.startswith("svr") or name == "knn-queries"


def run_of(bench: Workbench, name: str, part: str) -> Run:
    """The run of a ranker for the queries of a part; the workbench keeps it, and those that it needed."""
    key = ("run", name, part)
    if key not in bench.made:
        fused = parts_of(name)
        if fused is None:
            bench.made[key] = RANKERS[name](bench, part)
        elif _is_learned(name):
            bench.made[key] = _learned(bench, name, fused, part)
        else:
            runs = [run_of(bench, other, part) for other in fused]
            with bench.stage("fuse", part):
                bench.made[key] = reciprocal_rank_fusion(runs, depth=bench.depth(part))
    return bench.made[key]  # type: ignore[no-any-return]


def _learned(bench: Workbench, name: str, fused: list[str], part: str) -> Run:
    """The fusion whose weights are learned on training queries, which memories rank as new ones."""
    if bench.is_training(part):
        raise InputError(f"{name} is learned on the training queries: it cannot rank them, nor be part of learned(…)")
    fusion = learned_fusion(bench, name, fused)
    runs = {other: run_of(bench, other, part) for other in fused}
    with bench.stage("fuse (learned)", part):
        return fusion.fuse(runs).top(bench.depth(part))


def learned_fusion(bench: Workbench, name: str, fused: list[str]) -> LearnedFusion:
    """The fitted weights of ``learned(…)``, made once."""
    key = ("fusion", name)
    if key not in bench.made:
        check_training(bench, name)
        fusion, n_new = fit_fusion(bench, fused, bench.settings.cold)
        bench.made[key] = fusion
        weights = fusion.weights_
        bench.facts[name] = {"training queries": fusion.n_queries_, "of them new": n_new, "cold": fusion.cold} | {
            f"{run} {feature}": weight
            for run, feature, weight in zip(weights.run, weights.feature, weights.standardised, strict=True)
        }
    return bench.made[key]  # type: ignore[no-any-return]


def fit_fusion(bench: Workbench, fused: list[str], cold: float) -> tuple[LearnedFusion, int]:
    """Weights of rankers, learned on a sample of the training queries; and how many of these are new."""
    runs = {other: run_of(bench, other, TRAIN_SAMPLE) for other in fused}
    all_relevant, ids = bench.collection.relevant_ids(bench.settings.train_split), bench.query_ids(TRAIN_SAMPLE)
    places, novel = bench.places(TRAIN_SAMPLE), novel_queries(all_relevant)
    relevant = {query: all_relevant[place] for query, place in zip(ids, places, strict=True)}
    new = [query for query, place in zip(ids, places, strict=True) if novel[place]]
    memories = [other for other in fused if remembers(other)]
    with bench.stage("learn fusion"):
        fusion = LearnedFusion(depth=bench.settings.fusion_depth, cold=cold)
        return fusion.fit(runs, relevant, memories=memories, novel=new), len(new)
