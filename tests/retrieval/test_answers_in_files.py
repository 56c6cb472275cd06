"""Answers in the form of COLIEE's task 1, written and read."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from haybale import Run
from haybale.errors import FileFormatError, InputError

FRAME = pd.DataFrame(
    {"query_id": ["000001", "000001", "000002"], "doc_id": ["000018", "000045", "000433"], "score": [0.4, 0.9, 2.0]}
)


def test_a_file_is_what_coliee_asks_for(tmp_path: Path) -> None:
    run = Run.joined([Run.from_frame(FRAME), Run.from_numbers(["000003"], ["x"], [], [], [])])
    run.to_coliee(tmp_path / "answers.txt", tag="univABC")
    text = (tmp_path / "answers.txt").read_bytes()
    assert text == b"000001 000045 univABC\n000001 000018 univABC\n000002 000433 univABC\n"
    again = Run.from_coliee(tmp_path / "answers.txt")
    assert again.query_ids == ["000001", "000002"]  # a query without an answer is not in the file
    for query in again.query_ids:
        assert [doc for doc, _ in again[query]] == [doc for doc, _ in run[query]]


@pytest.mark.parametrize("tag", ["", "two words", "thirteenchars", "with-hyphen", "ünicode"])
def test_other_tags_are_refused_and_nothing_is_written(tmp_path: Path, tag: str) -> None:
    with pytest.raises(InputError, match="letters and digits"):
        Run.from_frame(FRAME).to_coliee(tmp_path / "answers.txt", tag=tag)
    assert list(tmp_path.iterdir()) == []


def test_ids_with_spaces_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="case 18"):
        Run.from_frame(FRAME.assign(doc_id=["case 18", "a", "b"])).to_coliee(tmp_path / "answers.txt")


def test_damaged_files(tmp_path: Path) -> None:
    path = tmp_path / "answers.txt"
    path.write_text("000001 000018 univABC\n\n000001 Q0 000019 2 0.5 univABC\n", encoding="utf-8")
    with pytest.raises(FileFormatError, match=r"answers.txt, line 3.*found 6 columns"):
        Run.from_coliee(path)
    path.write_text("1 2 tag\n1 2 tag\n", encoding="utf-8")
    with pytest.raises(InputError, match="twice"):
        Run.from_coliee(path)
    path.write_text("", encoding="utf-8")
    assert len(Run.from_coliee(path)) == 0
