"""``haybale rank``: a document file against a store, as a user meets it."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_cli import haybale

from haybale.collections import Collection
from haybale.embeddings import LSAEncoder, embed
from haybale.retrieval import Run

DOCUMENT = """Barking dogs need
a lead.

The tax office sends a letter.

Salt for the soup."""


@pytest.fixture
def store(toy: Collection, tmp_path: Path) -> str:
    embed(toy, LSAEncoder(8), tmp_path / "store")
    return str(tmp_path / "store")


@pytest.fixture
def document(tmp_path: Path) -> str:
    (tmp_path / "case.txt").write_text(DOCUMENT, encoding="utf-8")
    return str(tmp_path / "case.txt")


def test_a_ranking_with_the_paragraphs_that_carried_it(store: str, document: str, tmp_path: Path) -> None:
    out, picture = tmp_path / "case.trec", tmp_path / "why.svg"
    done = haybale(
        "rank", document, store, "--hits", "3", "--top", "2", "--pairs", "1",
        "--out", str(out), "--heatmap", str(picture),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("case.txt, 3 paragraphs (blank-lines), against 5 documents of ")
    run = Run.from_trec(out)
    assert run.query_ids == ["case"]
    first, second = (doc_id for doc_id, _ in run["case"][:2])
    assert f"\n{first}: rank 1 of " in done.stdout
    assert f"\n{second}: rank 2 of " in done.stdout
    assert done.stdout.count("other pairs") >= 1
    assert "Barking dogs need a lead." in done.stdout or "The tax office sends a letter." in done.stdout
    assert picture.read_text(encoding="utf-8").lstrip().startswith("<?xml")
    assert "\x1b[" not in done.stdout


def test_bm25_and_a_document_of_choice(store: str, document: str) -> None:
    done = haybale("rank", document, store, "--bm25", "--explain", "taxes")
    assert done.returncode == 0, done.stderr
    assert "taxes: rank 1 of " in done.stdout
    assert "1 → taxes:1  (rank 1, similarity " not in done.stdout
    assert "2 → taxes:1  (rank 1, similarity " in done.stdout  # paragraphs are called 1, 2, 3 by their splitter
    without = haybale("rank", document, store, "--bm25", "--exclude", "taxes", "--aggregation", "combsum")
    assert "taxes:" not in without.stdout


def test_what_cannot_be_ranked(store: str, document: str, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text(" \n", encoding="utf-8")
    (tmp_path / "latin.txt").write_bytes("one\nGeb\u00fchr".encode("latin-1"))
    for arguments, message in [
        ((str(tmp_path / "empty.txt"), store), "haybale: empty.txt: no paragraph found by 'blank-lines'\n"),
        ((str(tmp_path / "none.txt"), store), "cannot read the document: No such file or directory\n"),
        ((str(tmp_path / "latin.txt"), store), "latin.txt, line 2: expected UTF-8 text: "),
        ((document, str(tmp_path)), "haybale: "),
        ((document, store, "--paragraphs", "pages"), "unknown splitter 'pages'; known: lines, blank-lines, "),
        ((document, store, "--aggregation", "best"), "unknown aggregation 'best'; known: maxp, "),
        ((document, store, "--bm25", "--aggregation", "vrrf"), "'vrrf' needs vectors, which a BM25 index lacks"),
        ((document, store, "--explain", "nobody"), "unknown document id 'nobody'\n"),
        ((document, store, "--exclude", "nobody"), "unknown document id 'nobody'\n"),
    ]:
        done = haybale("rank", *arguments)
        assert done.returncode == 2, arguments
        assert message in done.stderr
        assert "Traceback" not in done.stderr
        assert done.stderr.count("\n") == 1


def test_paragraphs_longer_than_the_encoder_reads_are_said_to_be(tmp_path: Path, toy: Collection) -> None:
    pytest.importorskip("sentence_transformers")
    from longformers import save_longformer

    from haybale import LongformerEncoder

    folder = save_longformer(tmp_path / "model")
    embed(toy, LongformerEncoder(folder, device="cpu"), tmp_path / "store")
    (tmp_path / "long.txt").write_text("dogs bark " * 3000 + "\n\ncats purr", encoding="utf-8")
    done = haybale("rank", str(tmp_path / "long.txt"), str(tmp_path / "store"))
    assert done.returncode == 0, done.stderr
    assert "1 of 2 texts" in done.stderr
    assert "rank 1 of 5" in done.stdout
