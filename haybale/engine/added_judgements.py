"""Judgements that were added to an engine, with the queries that they need; its documents are not touched.

They refer to queries and documents by id, and have a digest of the text that was judged. When documents change, a
judgement follows its text to another id (:mod:`haybale.engine.reattaching`). A judgement of a document that is removed
has no effect until its text, or a document with its id, is added again. Only a judgement with a grade above 0 makes a
document relevant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np
import pyarrow as pa

from haybale.arrow import text_array
from haybale.collections import Collection
from haybale.collections.builder import sorted_splits
from haybale.collections.collection import Ints, Queries, Split, joined_offsets, joined_strings, take_strings
from haybale.collections.dates import UNDATED
from haybale.collections.ids import as_ids
from haybale.collections.qrels import judgements, read_qrels
from haybale.collections.queries import QueriesLike, queries_from
from haybale.engine.reattaching import TextDigests, Unattached, moves_of, unattached
from haybale.errors import FileFormatError, InputError, told_apart
from haybale.frames import Frame
from haybale.manifest import check_kinds

Qrels: TypeAlias = "Frame | str | Path"  # a frame, or the path of a file
Pair = tuple[str, str]  # the ids of a query and of a document

_VALID_GRADES = _VALID_DAYS = range(-(2**31), 2**31)
_JUDGEMENT_KINDS = {
    "queries": [{"id": str, "paragraphs": [str], "own": (str, None), "day": (_VALID_DAYS, None)}],
    "splits": [{"split": str, "queries": [str], "documents": [str], "grades": [_VALID_GRADES], "texts": [(str, None)]}],
}


class Judged(NamedTuple):
    """Return value of :meth:`Engine.judge`.

    Attributes
    ----------
    n_queries : int
        Number of judged queries.
    n_new_queries : int
        How many of them the engine did not have.
    n_judgements : int
        Number of pairs of a query and a document.
    n_replaced : int
        How many of them had another grade before.
    """

    n_queries: int
    n_new_queries: int
    n_judgements: int
    n_replaced: int


class Line(NamedTuple):
    """One judgement of the argument ``qrels``, with its file and line if it is from a file."""

    query: str
    document: str
    grade: int
    at: tuple[Path, int] | None = None

    def fail(self, message: str) -> NoReturn:
        """Raise the error of this judgement."""
        raise InputError(message) if self.at is None else FileFormatError(*self.at, message)


@dataclass(frozen=True)
class AddedJudgements:
    """Judgements that were added to an engine, and the queries that it did not have before.

    ``queries`` maps ids of queries to their paragraphs and the id of their own document; ``splits`` has the grades by
    split and pair of ids, and ``digests``, in the same way, digests of the texts that were judged. ``days`` maps ids of
    queries with a date to its first day (:mod:`haybale.collections.dates`).
    """

    queries: Mapping[str, tuple[list[str], str | None]] = field(default_factory=dict)
    splits: Mapping[str, Mapping[Pair, int]] = field(default_factory=dict)
    digests: Mapping[str, Mapping[Pair, str]] = field(default_factory=dict)
    days: Mapping[str, int] = field(default_factory=dict)

    def with_given(
        self, collection: Collection, qrels: Qrels, queries: QueriesLike | None, split: str
    ) -> tuple[AddedJudgements, Judged]:
        """Return these judgements with those of ``qrels``, which replace others of the same pairs in the same split.

        ``collection`` has the documents of the engine, and the queries and judgements that it has so far.
        :meth:`Engine.judge` describes the other parameters and the errors.
        """
        if not split.strip():
            raise InputError(f"split must be a name such as 'train', found {split!r}")
        as_ids([split], "split")
        lines = _distinct(_lines(qrels))
        ids = list(dict.fromkeys(query for query, _ in lines))
        new, new_days = _new_queries(collection, lines.values(), ids, queries)
        old = [query for query in ids if query not in new]
        _refuse_other_splits(collection, old, lines.values(), split)
        unknown = collection.find_documents([document for _, document in lines]) < 0
        if unknown.any():
            line = list(lines.values())[int(unknown.argmax())]
            shown = told_apart(line.document, collection.doc_ids.to_pylist())
            line.fail(f"expected a document of the engine, found {shown}; add the document, or remove the line")
        grades = {pair: line.grade for pair, line in lines.items()}
        before = _grades(collection, split)
        replaced = sum(before.get(pair, grade) != grade for pair, grade in grades.items())
        splits = {**self.splits, split: {**self.splits.get(split, {}), **grades}}
        digests = {**self.digests, split: {**self.digests.get(split, {}), **_digests_of(grades, collection)}}
        added = AddedJudgements({**self.queries, **new}, splits, digests, {**self.days, **new_days})
        return added, Judged(len(ids), len(new), len(grades), replaced)

    def followed(self, old_texts: TextDigests, texts: TextDigests) -> AddedJudgements:
        """Return these judgements at the documents that have the judged texts after a change; self if none moves."""
        own_ids = sorted({own_id for _, own_id in self.queries.values() if own_id is not None})
        pairs = [(split, pair) for split, grades in self.splits.items() for pair in grades]
        if not pairs and not own_ids:
            return self
        old_digests = old_texts.of(own_ids)

        def judged(split: str, pair: Pair) -> tuple[str, str | None]:
            return pair[1], self.digests.get(split, {}).get(pair)

        moves = moves_of([judged(split, pair) for split, pair in pairs], texts)
        splits: dict[str, dict[Pair, int]] = {}
        moved_digests: dict[str, dict[Pair, str]] = {}
        for split, grades in self.splits.items():
            targets = {pair: (pair[0], moves.get(judged(split, pair), pair[1])) for pair in grades}
            targets = _without_collisions(targets, {pair: judged(split, pair)[1] for pair in grades})
            splits[split] = {targets[pair]: grade for pair, grade in grades.items()}
            digests = self.digests.get(split, {})
            moved_digests[split] = {targets[pair]: digests[pair] for pair in grades if pair in digests}
        own_moves = moves_of([(own_id, old_digests[own_id]) for own_id in own_ids], texts)
        queries = {
            query: (paragraphs, None if own_id is None else own_moves.get((own_id, old_digests[own_id]), own_id))
            for query, (paragraphs, own_id) in self.queries.items()
        }
        followed = AddedJudgements(queries, splits, moved_digests, self.days)
        return self if followed == self else followed

    def unattached(self, texts: TextDigests) -> Unattached:
        """Return which documents do not have the text that was judged."""
        judged = [
            (document, self.digests.get(split, {}).get((query, document)))
            for split, grades in self.splits.items()
            for query, document in grades
        ]
        return unattached(judged, texts)

    def onto(self, collection: Collection) -> Collection:
        """Return a collection to which these queries and judgements were added."""
        if not self.splits:
            return collection
        own_ids = [own_id for _, own_id in self.queries.values()]
        own_documents = np.full(len(own_ids), -1, dtype=np.int64)
        has_own = np.flatnonzero([own_id is not None for own_id in own_ids])
        own_documents[has_own] = collection.find_documents([own_id for own_id in own_ids if own_id is not None])
        paragraphs, old = [parts for parts, _ in self.queries.values()], collection.queries
        dates = None
        if old.dates is not None or self.days:
            old_dates = np.full(len(old), UNDATED) if old.dates is None else old.dates
            dates = np.append(old_dates, [self.days.get(query, UNDATED) for query in self.queries]).astype(np.int64)
        queries = Queries(
            ids=joined_strings(old.ids, pa.chunked_array([text_array(list(self.queries))])),
            paragraphs=joined_strings(
                old.paragraphs, pa.chunked_array([text_array([part for parts in paragraphs for part in parts])])
            ),
            offsets=joined_offsets(old.offsets, np.cumsum([0, *map(len, paragraphs)])),
            own=np.concatenate([old.own, own_documents]),
            dates=dates,
        )
        judged = replace(collection, queries=queries)
        splits = {**collection.splits, **{name: _split(judged, name, grades) for name, grades in self.splits.items()}}
        return replace(judged, splits={name: splits[name] for name in sorted_splits(splits)})

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        queries = [
            {"id": id, "paragraphs": parts, "own": own_id} | ({"day": self.days[id]} if id in self.days else {})
            for id, (parts, own_id) in self.queries.items()
        ]
        splits = [
            {
                "split": name,
                "queries": [query for query, _ in grades],
                "documents": [document for _, document in grades],
                "grades": list(grades.values()),
                "texts": [self.digests.get(name, {}).get(pair) for pair in grades],
            }
            for name, grades in self.splits.items()
        ]
        return {"queries": queries, "splits": splits}

    @classmethod
    def from_dict(cls, path: Path, values: dict[str, Any]) -> AddedJudgements:
        """Return what :meth:`to_dict` returned; ``path`` is for errors."""
        check_kinds(path, values, _JUDGEMENT_KINDS)
        queries = {query["id"]: (query["paragraphs"], query["own"]) for query in values["queries"]}
        splits, digests = {}, {}
        for saved_split in values["splits"]:
            columns = [saved_split[name] for name in ("queries", "documents", "grades", "texts")]
            if len(set(map(len, columns))) != 1:
                raise FileFormatError(path, None, "expected as many 'grades' as 'queries', found others; restore it")
            rows = list(zip(*columns, strict=True))
            name = saved_split["split"]
            splits[name] = {(query, document): grade for query, document, grade, _ in rows}
            digests[name] = {(query, document): digest for query, document, _, digest in rows if digest}
        days = {query["id"]: query["day"] for query in values["queries"] if query.get("day") is not None}
        return cls(queries, splits, digests, days)


def _without_collisions(targets: Mapping[Pair, Pair], digests: Mapping[Pair, str | None]) -> dict[Pair, Pair]:
    """Return the targets of all pairs, changed so that no two pairs have the same one.

    Two judged documents may have had one text, which only one document has now. If the target of a pair is taken, the
    pair stays as it is; if another pair moves to that, its document becomes an id that no document has.
    """
    resolved = {pair: target for pair, target in targets.items() if pair == target}
    taken, wanted = set(resolved), set(targets.values())
    for pair in sorted(targets.keys() - taken):
        target = targets[pair]
        if target in taken:
            target = pair
            while target in taken or target in wanted:
                target = (pair[0], f"{target[1]}@{(digests[pair] or '')[:8]}")
        resolved[pair] = target
        taken.add(target)
    return resolved


def _digests_of(pairs: Iterable[Pair], collection: Collection) -> dict[Pair, str]:
    """Return the digest of the text of each judged document that has one."""
    pairs = list(pairs)
    digests = TextDigests(collection).of([document for _, document in pairs])
    return {pair: digest for pair in pairs if (digest := digests[pair[1]]) is not None}


def _lines(qrels: Qrels) -> Iterator[Line]:
    """Yield the judgements of a file or a frame."""
    if isinstance(qrels, str | Path):
        path = Path(qrels)
        for number, query, document, grade in read_qrels(path):
            yield Line(query, document, grade, (path, number))
    else:
        frame = judgements(qrels)
        for query, document, grade in zip(frame["query_id"], frame["doc_id"], frame["relevance"], strict=True):
            yield Line(query, document, int(grade))


def _distinct(judged_lines: Iterable[Line]) -> dict[Pair, Line]:
    """Return the judgements by their pairs; a pair with two grades is an error."""
    lines: dict[Pair, Line] = {}
    for line in judged_lines:
        if line.grade not in _VALID_GRADES:
            line.fail(f"a grade must fit into 32 bits, found {line.grade:.3g}")
        as_ids([line.query, line.document], "query and document ids")
        first = lines.setdefault((line.query, line.document), line)
        if first.grade != line.grade:
            before = f"{first.grade}" if first.at is None else f"{first.grade} in line {first.at[1]}"
            line.fail(
                f"expected one grade for query {line.query!r} and document {line.document!r}, found {line.grade} and "
                f"{before}; remove one"
            )
    if not lines:
        raise InputError("'qrels' must have at least one judgement, found none; add one")
    return lines


def _new_queries(
    collection: Collection, lines: Iterable[Line], judged: list[str], queries: QueriesLike | None
) -> tuple[dict[str, tuple[list[str], str | None]], dict[str, int]]:
    """Return the judged queries that the collection lacks, and the first days of their dates.

    ``queries`` may also have other queries, which are ignored.
    """
    texts = None if queries is None else queries_from(collection, queries)
    rows = {} if texts is None else {query: row for row, query in enumerate(texts.ids.to_pylist())}
    numbers = {query: number for number, query in enumerate(collection.queries.ids.to_pylist())}
    new: dict[str, tuple[list[str], str | None]] = {}
    for query in judged:
        if texts is None or query not in rows:
            if query not in numbers:
                line = next(line for line in lines if line.query == query)
                line.fail(
                    f"expected a query of the engine or of the given queries, found {query!r}; give its text, too"
                )
            continue
        paragraphs, own_document = texts.paragraphs_of(rows[query]), int(texts.own[rows[query]])
        if query not in numbers:
            new[query] = paragraphs, None if own_document < 0 else str(collection.doc_ids[own_document].as_py())
        elif collection.queries.paragraphs_of(numbers[query]) != paragraphs:
            raise InputError(f"expected the text of the engine for query {query!r}, found another; give it another id")
    days = {}
    if texts is not None and texts.dates is not None:
        days = {query: int(texts.dates[rows[query]]) for query in new if texts.dates[rows[query]] != UNDATED}
    return new, days


def _refuse_other_splits(collection: Collection, queries: list[str], lines: Iterable[Line], split: str) -> None:
    """Raise an error for a query of another split, so that no ranker is measured with a query that it learned from."""
    numbers, splits = collection.query_numbers(queries), collection.splits
    here = splits[split].queries if split in splits else numbers[:0]
    for name, part in splits.items():
        elsewhere = np.isin(numbers, part.queries) & ~np.isin(numbers, here)
        if name != split and elsewhere.any():
            query = queries[int(elsewhere.argmax())]
            line = next(line for line in lines if line.query == query)
            line.fail(
                f"query {query!r} is in the split {name!r}, so it must not be in {split!r}, too; judge it with "
                f"split={name!r} (--split {name})"
            )


def _grades(collection: Collection, split: str) -> dict[Pair, int]:
    """Return the grades of a split by pair of ids; none if there is no such split."""
    if split not in collection.splits:
        return {}
    part = collection.splits[split]
    queries = take_strings(collection.queries.ids, part.judged_queries)
    documents = take_strings(collection.doc_ids, part.judged_documents)
    return dict(zip(zip(queries, documents, strict=True), part.grades.tolist(), strict=True))


def _split(collection: Collection, name: str, grades: Mapping[Pair, int]) -> Split:
    """Return a split of a collection with further or other grades."""
    none = np.empty(0, dtype=np.int64)
    old = collection.splits.get(name, Split(name, none, none, none, none))
    queries = collection.query_numbers([query for query, _ in grades])
    documents = collection.find_documents([document for _, document in grades])
    values = np.array(list(grades.values()), dtype=np.int64)
    added = np.unique(queries[~np.isin(queries, old.queries)])
    here = documents >= 0
    queries_here, documents_here = queries[here], documents[here]

    def pairs(of: Ints, with_: Ints) -> Ints:
        return of * collection.n_documents + with_

    kept = ~np.isin(pairs(old.judged_queries, old.judged_documents), pairs(queries_here, documents_here))
    return Split(
        name=name,
        queries=np.concatenate([old.queries, added]),
        judged_queries=np.concatenate([old.judged_queries[kept], queries_here]),
        judged_documents=np.concatenate([old.judged_documents[kept], documents_here]),
        grades=np.concatenate([old.grades[kept], values[here]]),
    )
