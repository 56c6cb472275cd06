"""``haybale review`` and ``haybale simulate``: keys on a terminal, judgements on disk, tables and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.processes import forked

import haybale
from haybale import Engine, Review
from haybale.review import simulate

Call = Callable[..., tuple[int, str, str]]
TEXTS = {f"lease-{i}": f"The lease of flat {i} ends with the month. Number{i}x." for i in range(6)} | {
    f"pets-{i}": f"A dog or a cat needs the consent of the landlord. Number{i + 6}x." for i in range(12)
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("review") / "engine"
    Engine.build(TEXTS, folder, language="english", encoder="tfidf(min_df=1)").prepare()
    return folder


def test_keys_judge_skip_undo_and_quit(built: Path, tmp_path: Path) -> None:
    store = str(tmp_path / "store.sqlite")
    command = ["review", str(built), "end of a lease", "--judgements", store, "--judge", "Ada"]
    ended = forked(command, stdin=b"u\ny\ny\nn\nu\n?\np\ns\nq\n")
    assert ended.status == 0, ended.err
    assert "2 relevant of 2 judged" in ended.out
    with Review(Engine.open(built), judgements=store, topic="end of a lease") as review:
        judged = review.judgements()
        assert judged["grade"].tolist() == [1, 1]
        assert judged["judge"].tolist() == ["Ada", "Ada"]
        assert (judged["seconds"] >= 0).all()
        assert review.progress([]).n_skipped == 1
        following = review.next()[0]
    again = forked(["review", str(built), "--topic", "end of a lease", "--judgements", store], stdin=b"n\n")
    assert again.status == 0, again.err
    assert following.doc_id in again.out.splitlines()[1]
    exported = forked(["review", str(built), "end of a lease", "--judgements", store, "--export", "qrels"])
    assert sorted(line.split()[-1] for line in exported.out.splitlines()) == ["0", "1", "1"]


def test_the_second_judge_gets_what_the_first_has_judged(built: Path, tmp_path: Path, here: Call) -> None:
    store = str(tmp_path / "store.sqlite")
    with Review(Engine.open(built), "end of a lease", judgements=store) as review:
        review.judges.screen_double()
        first = review.next()[0].doc_id
        review.judge(first, 1, "Ada")
    command = ["review", str(built), "end of a lease", "--judgements", store]
    assert here(*command)[0] == 2  # without a name
    ended = forked([*command, "--judge", "Bob"], stdin=b"n\n")
    assert ended.status == 0, ended.err
    assert first in ended.out.splitlines()[1]
    assert "%" not in ended.out.splitlines()[1]
    assert "documents that judges judge differently: 1" in ended.out


def test_mistakes_of_the_review_command(built: Path, tmp_path: Path, here: Call) -> None:
    store = ("--judgements", str(tmp_path / "store.sqlite"))
    for options in ((), ("text", "--known", "nowhere"), ("text", "--export", "pdf"), ("text", "--export", "beir")):
        status, shown, said = here("review", str(built), *options, *store)
        assert (status, shown) == (2, ""), said
        assert said.startswith("haybale: ")


def test_simulations_are_printed_and_written(tmp_path: Path, here: Call) -> None:
    path = tmp_path / "flats.csv"
    lines = [f"{name},{text},{int('lease' in name)}" for name, text in TEXTS.items()]
    path.write_text("title,abstract,included\n" + "\n".join(lines) + "\n")
    options = (
        "--start",
        "both",
        "--text",
        "end of a lease",
        "--seeds",
        "2",
        "--stop",
        "consecutive(3)",
        "--stop",
        "cmh",
    )
    expected = simulate(path, start="both", text="end of a lease", seeds=2, rules=["consecutive(3)", "cmh"])
    status, shown, said = here("simulate", str(path), *options, "--format", "json", "--out", str(tmp_path / "out"))
    assert status == 0, said
    found = json.loads(shown)
    assert [run["found_at"] for run in found["runs"]] == [list(run.found_at) for run in expected.runs]
    assert found["means"]["flats"]["WSS@95"] == pytest.approx(expected.table().loc["flats", "WSS@95"])
    assert json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8")) == found
    assert (tmp_path / "out" / "recall.svg").is_file()
    status, shown, said = here("simulate", str(path), *options, "--start", "random", "--out", str(tmp_path / "p.html"))
    assert status == 0, said
    assert "WSS@95" in (tmp_path / "p.html").read_text(encoding="utf-8")
    assert "flats, random" in shown
    status, shown, said = here("simulate", str(path), *options)
    assert status == 0, said
    assert "WSS@95" in shown
    assert f"{expected.table().loc['flats', 'WSS@95']:.3f}" in shown
    assert "consecutive(count=3)" in shown


def test_mistakes_of_the_simulate_command(built: Path, tmp_path: Path, here: Call) -> None:
    (tmp_path / "old.csv").write_text("title,included\na,1\nb,0\n")
    for options in (
        (str(tmp_path / "missing.csv"),),
        (str(built),),
        (str(tmp_path / "old.csv"),),
        (str(tmp_path / "old.csv"), "--start", "text"),
        (str(tmp_path / "old.csv"), "--stop", "quaint"),
        (str(tmp_path / "old.csv"), "--format", "xml"),
        (str(tmp_path / "old.csv"), "--out", str(tmp_path)),
    ):
        status, shown, said = here("simulate", *options)
        assert (status, shown) == (2, ""), (options, said)
        assert said.startswith("haybale: ")


def test_train_learns_from_a_store(built: Path, tmp_path: Path, here: Call) -> None:
    store, engine = tmp_path / "store.sqlite", Engine.open(built)
    for number in range(3):
        with Review(engine, f"question {number} about a lease", judgements=store) as review:
            for _ in range(2):
                review.judge(review.next()[0].doc_id, 1)
    command = ("train", str(built), "--ranker", "knn-queries", "--judgements", str(store))
    status, shown, said = here(*command, "--out", str(tmp_path / "model"))
    assert status == 0, said
    assert "3 queries" in shown
    run = haybale.load(tmp_path / "model", engine).rank({"q": "question about a lease"})
    assert run["q"][0][0].startswith("lease-")
    assert here(*command, "--split", "train", "--out", str(tmp_path / "other"))[0] == 2
    assert (
        here("train", str(built), "--ranker", "svr", "--judgements", "missing", "--out", str(tmp_path / "other"))[0]
        == 2
    )
