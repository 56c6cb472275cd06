"""Bombs are refused while they are read: long lines, packed files, YAML aliases, deep nesting."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from haybale.errors import FileFormatError, InputError
from haybale.rankers import parse, read_yaml
from haybale.text_files import read_json, read_tsv

READ = r"""
import re, sys
from pathlib import Path
from haybale import open_collection
from haybale.collections.queries import read_text
from haybale.errors import FileFormatError
try:
    open_collection(sys.argv[1]) if Path(sys.argv[1]).is_dir() else read_text(Path(sys.argv[1]))
except FileFormatError as error:
    print(error)
print(int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) // 1024)  # the largest so far
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of a process from Linux's /proc")
@pytest.mark.parametrize(("name", "line", "limit"), [("corpus.jsonl.gz", b"", 128), ("query.txt.gz", b"\n", 256)])
def test_packed_files_that_unpack_to_too_much_are_refused(tmp_path: Path, name: str, line: bytes, limit: int) -> None:
    """600 MB in one line, or in many, are refused after as much as the limit has been read."""
    path = tmp_path / name
    path.write_bytes(gzip.compress(b"a" * 10_000_000 + line) * 60)  # members of a gzip file follow each other
    source = path if limit == 256 else tmp_path
    done = subprocess.run([sys.executable, "-c", READ, str(source)], capture_output=True, text=True)
    message, memory = done.stdout.splitlines()
    assert name in message
    assert f"{limit} MiB" in message
    assert int(memory) < 250 + 2 * limit


def test_json_files_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"a": "x" * 100}))
    assert read_json(path)["a"] == "x" * 100
    monkeypatch.setattr("haybale.text_files.MAX_TEXT", 100)
    with pytest.raises(FileFormatError, match=r"settings\.json: .*100 bytes"):
        read_json(path)
    path.write_text("[" * 100_000)
    monkeypatch.undo()
    with pytest.raises(FileFormatError, match=r"settings\.json: .*levels"):
        read_json(path)


def bomb() -> str:
    """Return 300 bytes of YAML that stand for 9⁸ values."""
    names = "abcdefgh"
    lines = [f"a: &a [{','.join('x' * 9)}]"]
    lines += [f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]" for old, new in pairwise(names)]
    return "\n".join(["ranker: rrf", *lines])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (bomb(), r"alias \*a"),
        ("{ranker: rrf, rankers: [" * 500 + "bm25" + "]}" * 500, "128 levels"),
        ("{ranker: rrf, rankers: [" * 50 + "bm25" + "]}" * 50, "32 rankers"),
        ("ranker: bm25\n#" + "x" * 2**20, "1 MiB"),
    ],
    ids=["aliases", "levels", "rankers", "size"],
)
def test_bombs_as_rankers_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "ranker.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_yaml(path)


def test_rankers_nested_too_deeply_are_refused() -> None:
    assert str(parse("rrf(" * 31 + "bm25" + ")" * 31)).endswith(")" * 31)
    with pytest.raises(InputError, match="32 rankers"):
        parse("rrf(" * 190 + "bm25" + ")" * 190)


def test_blank_lines_are_skipped_at_once_and_counted(tmp_path: Path) -> None:
    """100 MB of line ends are a file of 100 kB."""
    path = tmp_path / "queries.tsv.gz"
    path.write_bytes(gzip.compress(b"a\tx\n\n") + gzip.compress(b"\n" * 10_000_000) * 10 + gzip.compress(b"b\ty"))
    assert list(read_tsv(path, 2)) == [(1, ["a", "x"]), (100_000_003, ["b", "y"])]


def test_texts_of_rankers_and_numbers_that_are_too_long(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"20,000 characters.*found 'bm25, bm25"):
        parse("bm25, " * 10_000)
    path = tmp_path / "ranker.yaml"
    path.write_text("ranker: bm25\nk1: " + "1:" * 50_000 + "1")  # a number in base 60
    with pytest.raises(InputError, match=r"'k1'.*too long"):
        read_yaml(path)
