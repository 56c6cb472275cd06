"""Folders of records that change, with judgements whose texts are remembered apart: does each stay at its text?"""

from __future__ import annotations

import csv
import io
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from haybale import Engine, Review
from haybale.collections.readers.files import read_files
from haybale.engine.update import record_files, signatures, update
from support.learners import CountingLearner

Record = dict[str, str]
WORDS = ("lease", "tax", "dog", "cat", "court", "rent", "owl", "fox", "cow", "hen")
TAGS = {"title": "TI", "abstract": "AB", "doi": "DO", "record_id": "ID"}


def as_csv(records: list[Record]) -> bytes:
    out = io.StringIO(newline="")
    table = csv.DictWriter(out, list(records[0]))
    table.writeheader()
    table.writerows(records)
    return out.getvalue().encode()


def as_jsonl(records: list[Record]) -> bytes:
    return "\n".join(map(json.dumps, records)).encode()


def as_ris(records: list[Record]) -> bytes:
    bodies = ("".join(f"{TAGS[name]}  - {value}\n" for name, value in each.items() if value) for each in records)
    return "".join(f"TY  - JOUR\n{body}ER  - \n\n" for body in bodies).encode()


def as_xlsx(records: list[Record]) -> bytes:
    import openpyxl

    book = openpyxl.Workbook()
    book.active.append(list(records[0]))
    for record in records:
        book.active.append(list(record.values()))
    book.save(out := io.BytesIO())
    return out.getvalue()


WRITE: dict[str, Callable[[list[Record]], bytes]] = {"csv": as_csv, "jsonl": as_jsonl, "ris": as_ris, "xlsx": as_xlsx}


class RecordWorld:
    """A folder of one or two files of records, its engine, and judgements in a file and in the engine.

    ``judged`` has the text of each judgement in the file by its note, ``undone`` that of those that were taken back,
    ``put_off`` that of skipped and known documents by the number of the row, and ``graded`` that of each judgement in
    the engine by its grade, which is different for each.
    """

    def __init__(self, folder: Path, rng: random.Random, suffix: str = "csv", has_ids: bool = False) -> None:
        self.folder, self.rng, self.suffix, self.has_ids = folder, rng, suffix, has_ids
        self.source, self.store = folder / "files", folder / "judgements.sqlite"
        self.source.mkdir(parents=True)
        self.n_made = self.n_judged = 0
        self.judged: dict[str, str] = {}
        self.graded: dict[int, str] = {}
        self.put_off: dict[int, str] = {}
        self.undone: dict[str, str] = {}
        self.files = {
            f"{name}.{suffix}": [self.record() for _ in range(rng.randint(2, 6))] for name in "ab"[: rng.randint(1, 2)]
        }
        self.write()
        read = read_files(self.source)
        self.engine = Engine.build(read, folder / "engine", language="english", encoder="tfidf(min_df=1)")
        record_files(self.engine, signatures(self.source), self.source)
        self.review: Review | None = None

    def record(self) -> Record:
        self.n_made += 1
        abstract = " ".join(self.rng.choice(WORDS) for _ in range(4)) + f" number {self.n_made}"
        doi = self.rng.choice(("", "", "NA", f"10.1000/{self.n_made}", "10.1000/many"))
        record = {"title": f"Title {self.n_made % 3}", "abstract": abstract, "doi": doi}
        return {"record_id": str(self.n_made)} | record if self.has_ids else record

    def write(self) -> None:
        for path in self.source.iterdir():
            if path.name not in self.files:
                path.unlink()
        for name, records in self.files.items():
            shown = records
            if self.has_ids:  # numbered anew, as spreadsheets are
                shown = [record | {"record_id": str(number)} for number, record in enumerate(records, 1)]
            data = WRITE[self.suffix](shown)
            if not (self.source / name).is_file() or (self.source / name).read_bytes() != data:
                (self.source / name).write_bytes(data)

    def texts(self) -> dict[str, str]:
        whole = self.engine.collection
        return dict(zip(whole.doc_ids.to_pylist(), whole.document_texts(), strict=True))

    def change(self) -> str:
        """Change the files at random, and return what was done."""
        rng, name = self.rng, self.rng.choice(sorted(self.files))
        records, way = self.files[name], self.rng.choice(WAYS)
        if way == "permute":
            rng.shuffle(records)
        elif way == "insert":
            records.insert(rng.randint(0, len(records)), self.record())
        elif way == "delete" and len(records) > 1:
            records.pop(rng.randrange(len(records)))
        elif way == "edit":
            row = rng.randrange(len(records))
            records[row] = records[row] | {"abstract": f"{records[row]['abstract']} edited"}
        elif way == "restore":
            row = rng.randrange(len(records))
            records[row] = records[row] | {"abstract": records[row]["abstract"].replace(" edited", "")}
        elif way == "duplicate":
            records.insert(rng.randint(0, len(records)), dict(rng.choice(records)))
        elif way == "swap keys":
            one, other = rng.choice(records), rng.choice(records)
            one["doi"], other["doi"] = other["doi"], one["doi"]
        elif way == "new key":
            rng.choice(records)["doi"] = f"10.1000/new{rng.randrange(9)}"
        elif way == "rename" and len(self.files) < 4:
            del self.files[name]
            self.files[f"{rng.choice('cdefgh')}{len(self.files)}.{self.suffix}"] = records
        elif way == "move" and len(records) > 1:
            self.files[rng.choice(sorted(self.files))].append(records.pop(rng.randrange(len(records))))
        self.write()
        return way

    def update(self) -> None:
        """Update the engine, which may be opened again before, as may the review."""
        if self.rng.random() < 0.3:
            self.engine = Engine.open(self.folder / "engine")
            self.close()
        update(self.engine, self.source)

    def opened(self) -> Review:
        if self.review is None:
            how = {"topic": "pets", "judgements": self.store, "learner": CountingLearner}
            self.review = Review(self.engine, "leases and dogs", duplicates=False, **how)
        return self.review

    def close(self) -> None:
        if self.review is not None:
            self.review.close()
            self.review = None

    def judge(self) -> None:
        """Judge some documents that nobody has judged, in the file and in the engine; skip and draw others."""
        review, texts = self.opened(), self.texts()
        done = {row.doc_id for row in review.store.judgements(review.topic)}
        in_engine = {document for grades in self.engine_judgements().values() for _, document in grades}
        added: list[tuple[str, int]] = []
        for doc_id, text in sorted(texts.items()):
            chance = self.rng.random()
            if doc_id not in done and chance < 0.5:
                self.n_judged += 1
                self.judged[f"note {self.n_judged}"] = text
                review.judge(doc_id, self.n_judged % 2, self.rng.choice(("Ada", "Bob")), note=f"note {self.n_judged}")
                if self.rng.random() < 0.1:
                    review.undo()
                    self.undone[f"note {self.n_judged}"] = self.judged.pop(f"note {self.n_judged}")
            elif doc_id not in done and chance < 0.6:
                review.skip(doc_id)
                self.put_off[review.store.judgements(review.topic)[-1].number] = text
            elif doc_id not in done and chance < 0.65:
                grade = {doc_id: 1}
                review.add_judgements(grade)
                self.put_off[review.store.judgements(review.topic)[-1].number] = text
            if doc_id not in in_engine and self.rng.random() < 0.4:
                self.n_judged += 1
                self.graded[self.n_judged] = text
                added.append((doc_id, self.n_judged))
        if added:
            qrels = pd.DataFrame(added, columns=["doc_id", "relevance"]).assign(query_id="q")
            self.engine.judge(qrels, {"q": "leases and dogs"})

    def engine_judgements(self) -> dict[str, dict[tuple[str, str], int]]:
        return self.engine._live.snapshot.judgements.splits  # type: ignore[return-value]

    def check(self) -> None:
        """Assert that each judgement is at the text that was judged, or is listed."""
        texts, review = self.texts(), self.opened()
        present, progress = set(texts.values()), review.progress([])
        every = review.store.judgements(review.topic)
        undone = {row.undoes: row.doc_id for row in every if row.undoes is not None}
        for row in every:
            text = self.put_off.get(row.number) or self.undone.get(row.note or "")
            if text in present:
                assert texts[row.doc_id] == text, f"a {row.kind} document is {row.doc_id!r} instead of {text!r}"
            assert undone.get(row.number, row.doc_id) == row.doc_id, "a judgement is undone elsewhere"
        rows = [row for row in every if row.grade is not None and row.number not in undone]
        noted = Counter(row.note for row in rows if row.note)
        assert noted == Counter(self.judged.keys()), "a judgement is lost"
        where = [(row.doc_id, self.put_off.get(row.number) or self.judged[row.note or ""]) for row in rows]
        _check_listed(where, texts, present, {*progress.removed}, {*progress.replaced})
        summary = {row.doc_id for row in rows}
        assert progress.n_judged == len(summary)
        grades = self.engine_judgements().get("train", {})
        assert Counter(grades.values()) == Counter(self.graded.keys()), "a judgement in the engine is lost"
        where = [(document, self.graded[grade]) for (_, document), grade in grades.items()]
        listed = getattr(self.engine, "unattached_judgements", lambda: None)()
        orphaned, replaced = ({*listed.orphaned}, {*listed.replaced}) if listed else (set[str](), set[str]())
        # Of two judged documents with one text, one that is deleted keeps its judgement, if the other one has its own.
        at_text = {doc_id for doc_id, judged in where if texts.get(doc_id) == judged}
        free = {text for doc_id, text in texts.items() if doc_id not in at_text}
        _check_listed(where, texts, free, orphaned, replaced)


WAYS = (
    "permute", "insert", "insert", "delete", "edit", "restore", "duplicate", "swap keys", "new key", "rename", "move"
)  # fmt: skip


def _check_listed(
    where: list[tuple[str, str]], texts: dict[str, str], present: set[str], orphaned: set[str], replaced: set[str]
) -> None:
    """Compare where judgements are with the texts that were judged, and with what is listed."""
    lost, changed = set(), set()
    for doc_id, judged in where:
        if texts.get(doc_id) == judged:
            continue
        assert judged not in present, f"{doc_id!r} does not have the judged text {judged!r}, but another document has"
        (changed if doc_id in texts else lost).add(doc_id)
    assert orphaned == lost, f"orphaned: {sorted(orphaned ^ lost)}"
    assert replaced == changed, f"replaced: {sorted(replaced ^ changed)}"


def run_world(folder: Path, rng: random.Random, suffix: str, *, has_ids: bool = False, steps: int = 4) -> None:
    """Change the files of a world several times, and check all judgements after each."""
    world = RecordWorld(folder, rng, suffix, has_ids)
    try:
        world.judge()
        world.check()
        for _ in range(steps):
            done = [world.change() for _ in range(rng.randint(1, 3))]
            try:
                world.update()
                world.check()
                world.judge()
                world.check()
            except AssertionError as error:
                raise AssertionError(f"after {done}: {error}") from None
    finally:
        world.close()
