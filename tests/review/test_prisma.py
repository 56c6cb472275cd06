"""PRISMA numbers add up, for every course of a review, and the diagram says them."""

from __future__ import annotations

import csv
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haybale import Engine
from haybale.errors import InputError, UnknownNameError
from haybale.review import PrismaNumbers, Review

RIS = """TY  - JOUR
TI  - Title {0}
AB  - Abstract {0} about dogs.
DB  - {1}
ER  -

"""
IDS = [f"d{number}" for number in range(9)]


@pytest.fixture(scope="module")
def engine() -> Engine:
    texts = {doc_id: f"Text {doc_id} about dogs and cats." for doc_id in IDS}
    return Engine(texts, language="english", encoder="tfidf(min_df=1)")


def check_sums(numbers: PrismaNumbers) -> None:
    assert numbers.n_identified == numbers.n_duplicates + numbers.n_not_read + numbers.n_screened
    if numbers.n_stages == 1:
        assert numbers.n_included == numbers.n_screened - numbers.n_excluded
        assert numbers.n_sought == numbers.n_assessed == 0
    else:
        assert numbers.n_sought == numbers.n_screened - numbers.n_excluded
        assert numbers.n_sought == numbers.n_not_retrieved + numbers.n_waiting + numbers.n_assessed
        assert numbers.n_assessed == numbers.n_full_texts_excluded + numbers.n_included


DONE = st.tuples(st.sampled_from(IDS), st.sampled_from(["in", "out", "why", "undo", "full in", "full out", "missing"]))


@settings(max_examples=30, deadline=None)
@given(steps=st.lists(DONE, max_size=25), group=st.sets(st.sampled_from(IDS), min_size=2))
def test_numbers_add_up_whatever_was_judged(engine: Engine, steps: list, group: set) -> None:
    with Review(engine, "dogs") as review:
        review.change_protocol(n_stages=2)
        for doc_id, step in steps:
            try:
                match step:
                    case "in" | "out" | "why":
                        review.judge(doc_id, int(step == "in"), reasons=["cats"] if step == "why" else [])
                    case "undo":
                        review.undo()
                    case "missing":
                        review.full_text.not_retrieved(doc_id)
                    case _:
                        review.full_text.judge(doc_id, int(step == "full in"))
            except InputError:
                continue
        check_sums(review.prisma())
        review.duplicates.join(sorted(group))
        numbers = review.prisma()
    check_sums(numbers)
    assert numbers.n_duplicates == len(group) - 1


def test_reasons_and_stages_are_counted(engine: Engine) -> None:
    review = Review(engine, "dogs", topic="Dogs & <cats>")
    review.judge("d0", 0, "Ada", reasons=["cats", "old"])
    review.judge("d1", 0, "Ada", reasons=["old"])
    review.judge("d1", 0, "Bob", reasons=["cats"])  # the last one counts
    review.judge("d2", 0)
    for doc_id in ("d3", "d4", "d5", "d6"):
        review.judge(doc_id, 1)
    one = review.prisma()
    check_sums(one)
    assert one.excluded == {"cats": 2, "no reason given": 1}
    assert (one.n_screened, one.n_not_read, one.n_included) == (7, 2, 4)
    review.change_protocol(n_stages=2)
    assert (review.prisma().n_waiting, review.prisma().n_included) == (4, 0)
    review.full_text.judge("d3", 0, reasons=["cats"])
    review.full_text.not_retrieved("d4")
    review.full_text.judge("d5", 1)
    two = review.prisma()
    check_sums(two)
    assert (two.n_sought, two.n_not_retrieved, two.n_waiting, two.n_assessed, two.n_included) == (4, 1, 1, 2, 1)
    assert two.full_texts_excluded == {"cats": 1}
    review.duplicates.join(["d0", "d1"])
    review.duplicates.join(["d7", "d8"])
    grouped = review.prisma()
    check_sums(grouped)
    assert (grouped.n_duplicates, grouped.n_not_read, grouped.excluded["cats"]) == (2, 1, 1)


def test_documents_that_are_gone_are_counted_apart(engine: Engine) -> None:
    changing = Engine({"a": "dogs", "b": "cats", "c": "cows"}, language="english", encoder="tfidf(min_df=1)")
    review = Review(changing, "dogs")
    for doc_id in ("a", "b"):
        review.judge(doc_id, 1)
    changing.remove(["b"])
    numbers = review.prisma()
    check_sums(numbers)
    assert (numbers.n_identified, numbers.n_screened, numbers.n_gone) == (2, 1, 1)


def test_sources_are_databases_else_files(tmp_path: Path) -> None:
    folder = tmp_path / "records"
    folder.mkdir()
    named = [RIS.format(number, "PubMed" if number < 3 else "Embase") for number in range(5)]
    unnamed = [RIS.format(number, "").replace("DB  - \n", "") for number in range(5, 8)]
    (folder / "all.ris").write_text("".join(named))
    (folder / "more.ris").write_text("".join(unnamed))
    engine = Engine.build(folder, tmp_path / "engine", language="english", encoder="tfidf(min_df=1)")
    review = Review(engine, "dogs")
    assert review.prisma().identified == {"PubMed": 3, "more.ris": 3, "Embase": 2}
    assert review.prisma(source="file").identified == {"all.ris": 5, "more.ris": 3}
    with pytest.raises(UnknownNameError, match="file"):
        review.prisma(source="base")


def test_single_files_are_no_sources(tmp_path: Path) -> None:
    folder = tmp_path / "letters"
    folder.mkdir()
    for number in range(4):
        (folder / f"{number}.txt").write_text(f"Letter {number} about dogs.")
    engine = Engine.build(folder, tmp_path / "engine", language="english", encoder="tfidf(min_df=1)")
    assert Review(engine, "dogs").prisma().identified == {"letters": 4}


def test_files_say_the_numbers(engine: Engine, tmp_path: Path) -> None:
    review = Review(engine, "dogs", topic="Dogs & <cats>")
    review.change_protocol(n_stages=2)
    many = [f"reason {number} <b> {'very ' * 30}long" for number in range(20)]
    for doc_id, reason in zip(IDS, ["=1+1", *many], strict=False):
        review.judge(doc_id, 0, reasons=[reason])
    numbers = review.prisma()
    for suffix in ("svg", "csv", "json"):
        numbers.write(tmp_path / f"flow.{suffix}")
    assert json.loads((tmp_path / "flow.json").read_text()) == numbers.to_dict()
    rows = list(csv.DictReader((tmp_path / "flow.csv").read_text(encoding="utf-8").splitlines()))
    assert [(row["phase"], int(row["n"])) for row in rows] == [(item.phase, item.n) for item in numbers.items()]
    assert not [row["item"] for row in rows if row["item"].startswith("=")]
    root = ET.fromstring((tmp_path / "flow.svg").read_text(encoding="utf-8"))
    name = "{http://www.w3.org/2000/svg}"
    assert (root.findtext(f"{name}title") or "").endswith("Dogs & <cats>")
    assert all(f"{item.what}: {item.n:,}" in (root.findtext(f"{name}desc") or "") for item in numbers.items())
    lines = [text.text or "" for text in root.iter(f"{name}text")]
    assert "Records screened (n\u00a0=\u00a09)" in lines
    assert max(map(len, lines)) < 50
    height = float(root.get("height", 0))
    assert all(float(text.get("y", 0)) < height for text in root.iter(f"{name}text"))
    with pytest.raises(InputError):
        numbers.write(tmp_path / "flow.png")
    with pytest.raises(UnknownNameError):
        numbers.text("png")
    page = ET.fromstring(numbers.to_svg(is_page=True))
    assert "color" not in page.attrib


def test_many_sources_are_summed_in_the_diagram() -> None:
    counts = {f"source {number}": 30 - number for number in range(20)}
    numbers = PrismaNumbers(
        "t", counts, 0, sum(counts.values()), 0, {}, 1, 0, 0, 0, 0, {}, 0, 0
    )  # fmt: skip
    svg = numbers.to_svg().replace("\u00a0", " ")
    assert f"8 others (n = {sum(list(counts.values())[12:])})" in svg
    assert "source 19" in numbers.to_csv()
