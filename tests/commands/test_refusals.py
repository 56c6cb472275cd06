"""Bad input ends a command with one line on stderr and exit status 2; nothing is printed on stdout or written."""

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
# E: an engine; DATA: its collection; T: the folder of these files; M: a folder that does not exist. Each message must
# contain the text after the command.
REFUSED = [
    ("index nowhere --out M", "nowhere"),
    ("index DATA --out T/ids", "Not a directory"),
    ("index DATA --out T/full", "notes.txt"),
    ("index DATA --out E --language english --encoder lsa", "'lsa'"),
    ("index DATA --out M --pieces 0", "--pieces"),
    ("index DATA --out M --language latin", "'latin'"),
    ("index DATA --out M --encoder tfidf(query_prompt=q)", "query_prompt"),
    ("index DATA", "--out"),
    ("index DATA --out M --text body", "--text needs a folder of files"),
    ("index pydocs --out M --strict", "--strict needs a folder of files"),
    ("add E T/new.txt T/d00.txt", "'d00'"),
    ("add E T/new.txt T/empty.txt", "empty.txt"),
    ("add E T/new.txt T/twice.jsonl", "twice.jsonl, line 1: "),
    ("add E T/odd.csv", "odd.csv"),
    ("add E T/none.txt", "none.txt"),
    ("remove E nobody", "'nobody'"),
    ("judge E T/none.csv", "none.csv"),
    ("judge E T/odd.csv", "odd.csv, line 1: "),
    ("judge E T/ids", "line 1: "),
    ("train E --ranker learned --out T/full", "full"),
    ("train E --ranker learned(bm25 --out M", "learned(bm25"),
    ("train E --ranker svr --set n_bags --out M", "'n_bags'"),
    ("train E --ranker T/r.yaml --out M", "'ranker'"),
    ("rank E T/empty.txt", "empty.txt"),
    ("rank E T/latin.txt", "latin.txt, line 2: "),
    ("rank E text --ranker rrf(svr,run('other.trec'))", "a text without an id"),
    ("search E text --ranker rrf(svr,run('other.trec'))", "a text without an id"),
    ("serve E --ranker learned(run('other.trec'),svr)", "a text without an id"),
    ("serve E M", "found no folder"),
    ("serve T/full", "full"),
    ("serve E T/full --judgements T/j.sqlite", "--judgements"),
    ("serve E T/full --model learned=M", "MATTER/NAME=FOLDER"),
    ("serve E T/full --ranker learned(run('other.trec'),svr)", "a text without an id"),
    ("rank E dev --ranker rrf(svr,run('other.trec'))", "other.trec"),
    ("rank E text --model M", "/M"),
    ("rank E text --model M --ranker bm25", "--ranker"),
    ("rank E text --within T/ids", "'d99'"),
    ("rank E text --within T/empty.txt", "within"),
    ("rank E text --out T", "folder"),
    ("rank E text --heatmap T/x.bmp", ".svg, .png"),
    ("rank E text --ranker bm25 --heatmap T/x.svg", "found bm25"),
    ("rank E text --device cuda:x", "'cuda:x'"),
    ("index DATA --out M --device cuda:x", "'cuda:x'"),
    ("train E --ranker svr --out M --device cuda:x", "'cuda:x'"),
    ("compare pydocs --rankers bm26", "bm25?"),
    ("compare pydocs --set bags=3", "bags"),
    ("compare DATA --split train", "'train'"),
    ("compare DATA --bags 3", "--bags"),
    ("compare E --model M", "NAME=FOLDER"),
    ("compare E --encoder lsa", "--encoder"),
    ("tune DATA --queries 0", "'--queries'"),
    ("tune DATA --out T/ids", "ids"),
    ("rank E te\udcffxt", r"te\udcffxt"),
    ("compare E --rankers bm25\udcff", r"bm25\udcff"),
    ("train T/none --ranker bm25 --out M", "engine"),
    ("embed DATA --out M --stride 3", "--pieces"),
    ("embed DATA --out M --set rows=3", "'rows'"),
    ("embed DATA --out M --set rows_per_chunk=0", "rows_per_chunk"),
    ("embed DATA --out M --encoder lsa(max_fit_texts=all)", "max_fit_texts"),
    ("embed DATA --out M --encoder lsa(pooling=cls)", "'pooling'"),
    ("embed DATA --out M --dtype int8", "int8"),
    ("embed DATA --out M --shard 1of2", "'1of2'"),
    ("interactions E --ranker bm25 --out M", "found bm25"),
    ("interactions E --ranker pli(bm25) --shard 2 --out M", "shard"),
    ("interactions E --ranker pli(bm25) --split tset --out M", "tset"),
]


# Every command that writes, and places that cannot be written; R: a folder of runs.
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
    "T/lost.svg": "lost.svg",
    "T/lost.svg/x.svg": "lost.svg",
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
def test_bad_input_is_refused_with_one_line(
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
    assert all(line.startswith("  ✓ ") for line in done), said  # stages that were finished before
    assert (sorted(files.rglob("*")), sorted(built.rglob("*"))) == before
    assert not (tmp_path / "M").exists()


@pytest.mark.parametrize("command", WRITE)
@pytest.mark.parametrize("place", PLACES, ids=[place[:20] for place in PLACES])
def test_places_that_cannot_be_written_are_refused(
    command: str, place: str, built: Path, data: Path, files: Path, here: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place is checked before anything is read."""
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
def test_results_that_cannot_be_written_are_saved_elsewhere(
    command: str, name: str, built: Path, data: Path, tmp_path: Path, here: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place could be written before the work, but not after it."""
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
    assert "No space left on device" in last
    [folder] = (tmp_path / "tmp").glob("haybale-*")
    assert str(folder / "m") in last
    assert (folder / name).stat().st_size > 0
    # If there is no space anywhere, the command fails and leaves nothing behind.
    monkeypatch.setattr(os, "replace", lambda source, to: gone(source, tmp_path / "m"))
    assert here(*arguments)[0] == 2
    assert list((tmp_path / "tmp").iterdir()) == [folder]


@pytest.mark.parametrize("bad", ["a b", "", "a\u2003b"])
def test_ids_that_a_trec_file_cannot_hold_are_refused_before_the_work(bad: str, tmp_path: Path, here: Call) -> None:
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
            assert repr(bad) in said
            assert "✓ index" not in said


def test_too_little_memory_is_reported_in_one_line(built: Path, here: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def small(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 7 TiB")

    monkeypatch.setattr(Engine, "open", small)
    status, shown, said = here("rank", str(built), "text")
    assert (status, shown, said.count("\n")) == (2, "", 1)
    assert "Unable to allocate 7 TiB" in said


def test_ctrl_c_while_a_command_is_imported(here: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("haybale.cli.application.app", interrupted)
    assert here("--version") == (130, "", "")
