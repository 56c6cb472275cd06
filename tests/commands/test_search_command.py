"""``haybale search``: the best passages as a table, JSON or JSON lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from haybale import Engine, parse

Call = Callable[..., tuple[int, str, str]]


def test_formats_have_the_hits_of_the_api(built: Path, here: Call) -> None:
    expected = parse("rrf(bm25-doc,parm-vrrf)").fit(Engine.open(built)).search("rare5x common1", k=3)
    status, shown, said = here("search", str(built), "rare5x common1", "-k", "3", "--format", "json")
    assert (status, json.loads(shown)) == (0, json.loads(expected.to_json())), said
    assert json.loads(shown)["hits"][0]["snippets"][0]["text"] == expected[0].snippets[0].text
    lines = here("search", str(built), "rare5x common1", "--k", "3", "--format", "jsonl")[1].splitlines()
    assert [json.loads(line) for line in lines] == [
        {"query": "rare5x common1"} | hit for hit in json.loads(expected.to_json())["hits"]
    ]
    status, shown, _ = here("search", str(built), "rare5x common1", "-k", "3")
    assert shown.splitlines()[0] == f"  1  Title 5  d05  {expected[0].score:.4f}"
    assert "rare5x" in shown.splitlines()[1]
    assert "\x1b" not in shown
    assert len(shown.splitlines()) == 6


def test_highlights_are_bold_on_a_terminal(
    built: Path, here: Call, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def terminal() -> Console:
        return Console(highlight=False, force_terminal=True, color_system="standard", no_color=False)

    monkeypatch.setattr("haybale.commands.search.console_for_tables", terminal)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[1mrare5x\x1b[0m" in here("search", str(built), "rare5x", "-k", "1")[1]


def test_trained_rankers_phrases_and_mistakes(built: Path, here: Call, tmp_path: Path) -> None:
    parse("bm25(k1=2)").fit(Engine.open(built)).save(tmp_path / "model")
    status, shown, _ = here("search", str(built), "rare5x", "--model", str(tmp_path / "model"), "--format", "json")
    assert (status, json.loads(shown)["hits"][0]["shares"][0]["source"]) == (0, "bm25(k1=2)")
    assert here("search", str(built), '"rare5x rare6x"')[1] == "no document was found\n"
    for options in (
        ("--format", "xml"),
        ("--model", "m", "--ranker", "bm25"),
        ("--k", "0"),
        ("--ranker", "unknown"),
    ):
        status, shown, said = here("search", str(built), "rare5x", *options)
        assert (status, shown) == (2, "")
        assert said.startswith("haybale: ")


def test_documents_that_belong_together_are_shown_below_each_other(here: Call, tmp_path: Path) -> None:
    (tmp_path / "mails").mkdir()
    for number, (refers, words) in enumerate([("", "rent"), ("", "rent rent rent"), ("<0@x>", "rent rent")]):
        head = f"Subject: mail {number}\nMessage-ID: <{number}@x>\nReferences: {refers}\n"
        (tmp_path / "mails" / f"{number}.eml").write_text(f"{head}\n{words}\n")
    out = str(tmp_path / "engine")
    assert here("index", str(tmp_path / "mails"), "--out", out, "--encoder", "tfidf(min_df=1)")[0] == 0
    search = ("search", out, "rent", "--ranker", "bm25-doc")
    ids = [line.split()[3] for line in here(*search, "--together", "thread")[1].splitlines()[::2]]
    assert sorted(ids) == ["0.eml", "1.eml", "2.eml"]
    assert abs(ids.index("0.eml") - ids.index("2.eml")) == 1
    margins = [len(line) - len(line.lstrip()) for line in here(*search, "--together", "thread")[1].splitlines()[::2]]
    assert sorted(margins)[1] < sorted(margins)[2]
    assert here(*search, "--together", "topic")[0] == 2


def test_copies_are_named_below_a_document(here: Call, tmp_path: Path) -> None:
    source = tmp_path / "files"
    (source / "copies").mkdir(parents=True)
    text = "The lessor keeps the deposit until all claims are settled, at most for six months after the lease ends. "
    for name, content in {"lease.txt": text * 2, "copies/lease.md": text.upper() * 2, "keys.txt": "A deposit."}.items():
        (source / name).write_text(content)
    out = str(tmp_path / "engine")
    assert here("index", str(source), "--out", out, "--encoder", "tfidf(min_df=1)")[0] == 0
    search = ("search", out, "deposit", "--ranker", "bm25-doc", "--together", "copies")
    shown = here(*search)[1]
    assert len([line for line in shown.splitlines() if line[:3].strip().isdecimal()]) == 2
    below = [line.strip() for line in shown.splitlines() if line.strip().startswith("also ")]
    assert below in (["also lease.txt"], ["also copies/lease.md"])
    groups = json.loads(here(*search, "--format", "json")[1])["groups"]
    assert ["copies/lease.md", "lease.txt"] in [sorted(group["doc_ids"]) for group in groups]
