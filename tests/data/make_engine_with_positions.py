"""Make ``engine-with-positions.tar.xz`` for ``tests/review/test_reattachment.py``, with an earlier haybale.

    PYTHONPATH=CHECKOUT_OF_4e0241c python tests/data/make_engine_with_positions.py engine-with-positions.tar.xz

The ids of records were their positions in a file then. The archive has the files, the engine that was built from them,
a file of judgements, and ``expected.json``: what was judged, by text.
"""

from __future__ import annotations

import csv
import io
import json
import sys
import tarfile
import tempfile
import zipfile
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pandas as pd

from haybale import Engine, Review
from haybale.collections.readers.files import read_files
from haybale.engine.update import record_files, signatures

ANIMALS = ("dog", "cat", "cow", "hen", "owl", "fox")


def rows(file: str) -> list[dict[str, str]]:
    """Return six records; the last two have the same title and text."""
    texts = [f"The {animal} of {file} is kept in the {animal}house." for animal in (*ANIMALS[:5], ANIMALS[4])]
    dois = [f"10.1000/{file}.1", "", "NA", "10.1000/twice", "10.1000/twice", ""]
    return [{"title": text.split()[1], "abstract": text, "doi": doi} for text, doi in zip(texts, dois, strict=True)]


def as_csv(file: str) -> str:
    """Return a table of records."""
    out = io.StringIO(newline="")
    table = csv.DictWriter(out, ("title", "abstract", "doi"))
    table.writeheader()
    table.writerows(rows(file))
    return out.getvalue()


def write_files(folder: Path) -> None:
    """Write a file of each kind that has several documents, and one without records."""
    import openpyxl

    (folder / "sub").mkdir(parents=True)
    (folder / "plain.txt").write_text("A text about foxes.")
    (folder / "r.csv").write_text(as_csv("r.csv"))
    (folder / "sub" / "r.jsonl").write_text("\n".join(map(json.dumps, rows("r.jsonl"))))
    ris = (f"TY  - JOUR\nTI  - {row['title']}\nAB  - {row['abstract']}\nER  - \n\n" for row in rows("r.ris"))
    (folder / "r.ris").write_text("".join(ris))
    with zipfile.ZipFile(folder / "z.zip", "w") as archive:
        archive.writestr("inner.csv", as_csv("inner.csv"))
    message = EmailMessage()
    message["subject"], message["from"] = "Animals", "a@example.org"
    message.set_content("See the table.")
    message.add_attachment(as_csv("mail").encode(), maintype="text", subtype="csv", filename="table.csv")
    (folder / "m.eml").write_bytes(bytes(message))
    book = openpyxl.Workbook()
    book.remove(book.active)
    for title in ("one", "two"):
        sheet = book.create_sheet(title)
        sheet.append(["title", "abstract", "doi"])
        for row in rows(f"sheet {title}"):
            sheet.append(list(row.values()))
    book.save(folder / "book.xlsx")


def main() -> None:
    """Write the archive."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder / "files")
        read, skipped = read_files(folder / "files")
        engine = Engine.build(read, folder / "engine", language="english", encoder="tfidf(min_df=1)")
        record_files(engine, signatures(folder / "files"), skipped)
        engine.write_indexes()
        ids = engine.collection.doc_ids.to_pylist()
        texts = dict(zip(ids, engine.collection.document_texts(), strict=True))
        grades = {doc_id: int("dog" in texts[doc_id] or "hen" in texts[doc_id]) for doc_id in ids}
        expected: dict[str, Any] = {"judged": {}, "engine": {}}
        with Review(engine, "dogs and hens", topic="animals", judgements=folder / "judgements.sqlite") as review:
            drawn = review.draw_sample(5)
            for number, doc_id in enumerate(ids):
                if number % 4 == 3:
                    review.skip(doc_id, "Ada")
                    expected.setdefault("skipped", []).append(texts[doc_id])
                else:
                    review.judge(doc_id, grades[doc_id], "Ada", note=f"note {number}")
                    expected["judged"].setdefault(texts[doc_id], []).append(grades[doc_id])
            review.judge(ids[0], 1, "Bob")
            review.undo("Bob")
            expected["drawn"] = [texts[doc_id] for doc_id in drawn]
        with Review(engine, "owls", known=[ids[2], ids[5]], judgements=folder / "judgements.sqlite"):
            expected["known"] = [texts[ids[2]], texts[ids[5]]]
        judged = {doc_id: grade for number, (doc_id, grade) in enumerate(grades.items()) if number % 3}
        qrels = pd.DataFrame({"query_id": "q", "doc_id": list(judged), "relevance": list(judged.values())})
        engine.judge(qrels, {"q": "dogs and hens"})
        for doc_id, grade in judged.items():
            expected["engine"].setdefault(texts[doc_id], []).append(grade)
        expected["ids"] = ids
        (folder / "expected.json").write_text(json.dumps(expected, indent=1))
        with tarfile.open(sys.argv[1], "w:xz") as archive:
            for path in sorted(folder.iterdir()):
                archive.add(path, path.name)


if __name__ == "__main__":
    main()
