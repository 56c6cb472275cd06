"""What a command refuses: one line on stderr, exit status 2, nothing on stdout, nothing written."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from haybale import Engine
from haybale.collections import CollectionBuilder

Call = Callable[..., tuple[int, str, str]]

FILES = {
    "empty.txt": b" \n",
    "latin.txt": "one\nGeb\u00fchr".encode("latin-1"),
    "new.txt": b"a new one",
    "d00.txt": b"an old one",
    "odd.csv": b"a,b\n",
    "twice.jsonl": b'{"_id": "new", "text": "one"}\n',
    "r.yaml": b"rankers: [bm25]\n",
    "ids": b"d07\nd99\n",
    "full/notes.txt": b"x",
}
# E: an engine; DATA: its collection; T: the folder of these files; M: nothing that is there.
REFUSED = [
    ("index nowhere --out M", "nowhere: no such folder"),
    ("index DATA --out T/ids", "Not a directory"),
    ("index DATA --out T/full", "holds other files (notes.txt); give a new folder"),
    ("index DATA --out E --language english --encoder lsa", "begun with encoder 'tfidf', now it is 'lsa'"),
    ("index DATA --out M --pieces 0", "Invalid value for '--pieces'"),
    ("index DATA --out M --language latin", "'latin'"),
    ("index DATA --out M --encoder tfidf(query_prompt=q)", "unknown parameter of tfidf 'query_prompt'"),
    ("index DATA", "Missing option '--out'"),
    ("add E T/new.txt T/d00.txt", "'d00'"),
    ("add E T/new.txt T/empty.txt", "empty.txt: the text is empty"),
    ("add E T/new.txt T/twice.jsonl", "twice.jsonl, line 1: duplicate document id 'new'"),
    ("add E T/odd.csv", "odd.csv: expected a folder, or a file that ends in .jsonl or .txt"),
    ("add E T/none.txt", "none.txt: no such file or folder"),
    ("remove E nobody", "unknown document id 'nobody'"),
    ("train E --ranker learned --out T/full", "full exists and is not empty"),
    ("train E --ranker learned(bm25 --out M", "cannot be read: '(' was never closed"),
    ("train E --ranker svr --set n_bags --out M", "--set takes name=value, found 'n_bags'"),
    ("train E --ranker T/r.yaml --out M", "an object with 'ranker'"),
    ("rank E T/empty.txt", "empty.txt: the text is empty"),
    ("rank E T/latin.txt", "latin.txt, line 2: expected UTF-8 text"),
    ("rank E text --model M", "saved ranker"),
    ("rank E text --model M --ranker bm25", "leave out --ranker and --set"),
    ("rank E text --within T/ids", "unknown document id 'd99'"),
    ("rank E text --within T/empty.txt", "to search within"),
    ("rank E text --out T", "found a folder"),
    ("rank E text --heatmap T/x.bmp", ".svg, .png, .pdf"),
    ("rank E text --ranker bm25 --heatmap T/x.svg", "of PARM, which is not in bm25"),
    ("rank E text --device cuda:x", "'cuda:x'"),
    ("index DATA --out M --device cuda:x", "'cuda:x'"),
    ("train E --ranker svr --out M --device cuda:x", "'cuda:x'"),
    ("compare pydocs --rankers bm26", "unknown ranker 'bm26' (did you mean bm25?)"),
    ("compare pydocs --set bags=3", "unknown parameter of "),
    ("compare DATA --split train", "on the same split, "),
    ("compare DATA --bags 3", "No such option: --bags"),
    ("compare E --model M", "--model takes NAME=FOLDER of haybale train, found "),
    ("compare E --encoder lsa", "is an engine, which was built with its settings: leave out --encoder"),
    ("tune DATA --queries 0", "'--queries'"),
    ("tune DATA --out T/ids", "ids exists already"),
    ("rank E te\udcffxt", r"te\udcffxt is not UTF-8"),
    ("compare E --rankers bm25\udcff", r"bm25\udcff is not UTF-8"),
    ("train T/none --ranker bm25 --out M", "engine"),
]


# The same for every command that writes; R: runs.
WRITE = (
    "index DATA --out",
    "train E --ranker bm25 --out",
    "rank E text --out",
    "rank E text --heatmap",
    "compare E --out",
    "tune DATA --out",
    "report R --out",
    "embed DATA --out",
)
PLACES = {
    "/proc/x.svg": "No such file or directory",
    "T/ids/x.svg": "Not a directory",
    "T/lost.svg": "lost.svg is a broken link",
    "T/lost.svg/x.svg": "lost.svg is a broken link",
    f"T/{'x' * 300}.svg": "File name too long",
    "T/full.svg": "No space left on device",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    for name, content in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "lost.svg").symlink_to("nowhere")
    return folder


@pytest.mark.parametrize(("command", "message"), REFUSED, ids=[command for command, _ in REFUSED])
def test_it_is_one_line(
    command: str, message: str, built: Path, data: Path, files: Path, tmp_path: Path, here: Call
) -> None:
    before = sorted(files.rglob("*")), sorted(built.rglob("*"))
    places = {"E": str(built), "DATA": str(data), "T": str(files), "M": str(tmp_path / "M")}
    arguments = ["/".join(places.get(part, part) for part in each.split("/")) for each in command.split()]
    status, shown, said = here(*arguments)
    assert (status, shown) == (2, "")
    *done, last = said.splitlines()
    assert last.startswith("haybale: ")
    assert message in last
    assert all(line.startswith("  ✓ ") for line in done), said  # stages that came to an end before
    assert (sorted(files.rglob("*")), sorted(built.rglob("*"))) == before


@pytest.mark.parametrize("command", WRITE)
@pytest.mark.parametrize("place", PLACES, ids=[place[:20] for place in PLACES])
def test_where_nothing_can_be_written(
    command: str, place: str, built: Path, data: Path, files: Path, here: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said before anything is read."""
    write = Path.write_bytes

    def full(path: Path, content: bytes) -> int:
        if "full.svg" in str(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    before = sorted(files.rglob("*"))
    places = {"E": str(built), "DATA": str(data), "R": str(files)}
    arguments = [places.get(each, each) for each in command.split()]
    status, shown, said = here(*arguments, place.replace("T", str(files)))
    assert (status, shown, said.count("\n")) == (2, "", 1), said
    assert PLACES[place] in said
    assert sorted(files.rglob("*")) == before


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("compare E --rankers bm25 --out M", "m/runs/bm25.trec"),
        ("train E --ranker bm25 --out M", "m/ranker.json"),
        ("rank E text --ranker bm25 --out M", "m"),
        ("rank E rare5x --ranker parm-rrf --heatmap M.svg", "m.svg"),
        ("tune DATA --split dev --out M", "m"),
        ("report M.trec --collection E --split dev --picture none --out M", "m"),
    ],
)
@pytest.mark.filterwarnings("ignore::haybale.rankers.EmptyRankingWarning")
def test_what_was_computed_is_not_lost(
    command: str, name: str, built: Path, data: Path, tmp_path: Path, here: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place was there before the work, and is not after it."""
    target, rename = tmp_path / "m", os.replace
    (tmp_path / "tmp").mkdir()
    (tmp_path / "m.trec").write_text("dev0 Q0 d01 1 1.0 x\n")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))

    def gone(source: Path, to: Path) -> None:
        if Path(to).parent == tmp_path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(source), None, str(to))
        rename(source, to)

    monkeypatch.setattr(os, "replace", gone)
    places = {"E": str(built), "DATA": str(data), "M": f"{target}"}
    places |= {f"M.{suffix}": f"{target}.{suffix}" for suffix in ("svg", "trec")}
    arguments = [places.get(each, each) for each in command.split()]
    status, _, said = here(*arguments)
    assert status == 2
    last = said.splitlines()[-1]
    assert f"{target}" in last
    assert "No space left on device; the results are in " in last
    [folder] = (tmp_path / "tmp").glob("haybale-*")
    assert str(folder / "m") in last
    assert (folder / name).stat().st_size > 0
    # There is no room anywhere: what went wrong is said, and nothing is left behind.
    monkeypatch.setattr(os, "replace", lambda source, to: gone(source, tmp_path / "m"))
    assert here(*arguments)[0] == 2
    assert list((tmp_path / "tmp").iterdir()) == [folder]


@pytest.mark.parametrize("bad", ["a b", "", "a\u2003b"])
def test_ids_that_no_trec_file_can_hold_are_found_before_the_work(bad: str, tmp_path: Path, here: Call) -> None:
    for doc_id, query_id in ((bad, "q"), ("d", bad)):
        builder = CollectionBuilder("odd", language="english")
        builder.add_document(doc_id, ["one two"] * 2)
        builder.add_query(query_id, ["one"], split="dev")
        builder.add_judgement("dev", query_id, doc_id, 1)
        engine = str(tmp_path / f"e{len(doc_id)}-{len(query_id)}")
        Engine.build(builder.build(), engine)
        for command in (("compare", engine, "--out"), ("rank", engine, "dev", "--out")):
            status, shown, said = here(*command, str(tmp_path / "run.trec"))
            assert (status, shown) == (2, "")
            assert f"{bad!r} cannot stand in a TREC file" in said
            assert "✓ index" not in said


def test_too_little_memory_is_one_line(built: Path, here: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def small(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 7 TiB")

    monkeypatch.setattr(Engine, "open", small)
    assert here("rank", str(built), "text") == (2, "", "haybale: memory is too small: Unable to allocate 7 TiB\n")
