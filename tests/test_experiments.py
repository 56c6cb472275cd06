"""Comparisons as a whole: every ranker on a toy collection, what is written, what is refused, what a kill leaves."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from haybale.collections import Collection, CollectionBuilder
from haybale.errors import InputError, OutputExistsError, UnknownNameError
from haybale.evaluation import evaluate
from haybale.experiments import RANKERS, Settings, check_output, classify_injected, compare, split_names, write
from haybale.experiments.injected import CAVEAT
from haybale.experiments.rankers import learns
from haybale.retrieval import Run, reciprocal_rank_fusion

SMALL = Settings(
    rankers=(*RANKERS, "rrf(bm25,svr)", "rrf(knn,rrf(bm25,svr))"),
    width=8,
    train_candidates=5,
    candidates=6,
    ensemble={"n_bags": 2, "k": 5},
    n_jobs=1,
)


def test_every_ranker_ranks(toy: Collection, tmp_path: Path) -> None:
    stages: list[str] = []
    outcome = compare(toy, SMALL, lambda stage, seconds: stages.append(stage))
    assert list(outcome.runs) == list(SMALL.rankers)
    for name, run in outcome.runs.items():
        assert run.query_ids == ["dev-dogs", "dev-cats", "dev-taxes", "dev-roads"], name
        assert all(doc != "soup" for doc, _ in run["dev-roads"]), name  # its own document
        # The training queries are the same texts, so a ranker that works puts the right document first.
        assert outcome.results.values[name]["MRR@10"].mean() > 0.7, name
    assert outcome.runs["vrrf"] == outcome.runs["parm-vrrf"]
    assert outcome.runs["rrf(bm25,svr)"] == reciprocal_rank_fusion([outcome.runs["bm25"], outcome.runs["svr"]])
    assert set(stages) == set(outcome.seconds)
    assert len(stages) == len(set(stages)) + 2  # only fusing, and aggregating for the alias, happen twice
    assert outcome.facts["svr"]["training queries"] == 4

    write(outcome, tmp_path / "new" / "out")
    files = sorted(p.relative_to(tmp_path / "new").as_posix() for p in tmp_path.rglob("*") if p.is_file())
    names = [f"out/runs/{name.replace('(', '-').replace(',', '-').replace(')', '')}.trec" for name in SMALL.rankers]
    assert files == sorted([*names, "out/results.json", "out/settings.json", "out/table.md"])
    assert Run.from_trec(tmp_path / "new/out/runs/rrf-bm25-svr.trec") == outcome.runs["rrf(bm25,svr)"]
    record = json.loads((tmp_path / "new/out/results.json").read_text())
    assert record["rankers"]["svr"]["measures"]["MRR@10"] == outcome.results.values["svr"]["MRR@10"].mean()
    assert "p_t" in record["rankers"]["svr"]["against_baseline"]["nDCG@10"]
    assert record["settings"]["rankers"] == list(SMALL.rankers)
    assert (
        Settings(**json.loads((tmp_path / "new/out/settings.json").read_text()) | {"rankers": SMALL.rankers}) == SMALL
    )


def test_the_written_run_measures_the_same(toy: Collection, tmp_path: Path) -> None:
    outcome = compare(toy, Settings(rankers=("bm25-doc",), baseline="bm25-doc"))
    write(outcome, tmp_path / "out")
    run = Run.from_trec(tmp_path / "out/runs/bm25-doc.trec")
    assert evaluate(run, toy.qrels_frame("dev")).equals(outcome.results.values["bm25-doc"])


def test_no_label_of_the_ranked_split_is_seen(toy: Collection) -> None:
    """End to end: other judgements of the dev queries change the measures, and not one ranking."""
    dev = toy.splits["dev"]
    turned = type(dev)(dev.name, dev.queries, dev.judged_queries, np.roll(dev.judged_documents, 1), dev.grades)
    other = Collection(**{**vars(toy), "splits": {**toy.splits, "dev": turned}})
    first, second = compare(toy, SMALL), compare(other, SMALL)
    for name in SMALL.rankers:
        assert first.runs[name] == second.runs[name], name
    assert not first.results.values["bm25"].equals(second.results.values["bm25"])


def test_the_same_seed_gives_the_same_runs(pydocs: Collection) -> None:
    settings = Settings(rankers=("bm25", "svr"), width=32, rows_per_bag=200, ensemble={"n_bags": 4})
    first, second = compare(pydocs, settings), compare(pydocs, settings)
    assert first.runs == second.runs


def test_injected_classifies(toy: Collection) -> None:
    settings = Settings(protocol="injected", width=8, ensemble={"n_bags": 2, "k": 5}, n_jobs=1)
    outcome = classify_injected(toy, settings)
    assert outcome.figures.n_positive == 4  # the last passage of each relevant document
    assert outcome.figures.n_rows == 4 * 5 + 4
    assert 0 <= outcome.figures.recall <= 1
    assert "cannot be compared" in CAVEAT
    with pytest.raises(InputError, match="compared end to end"):
        compare(toy, settings)
    with pytest.raises(InputError, match="expected protocol 'injected'"):
        classify_injected(toy, Settings())
    with pytest.raises(UnknownNameError, match="unknown split of toy 'test'"):
        classify_injected(toy, Settings(protocol="injected", split="test"), never)


def never(stage: str, seconds: float) -> None:
    raise AssertionError(f"{stage} was done first")


def test_names_and_settings_are_checked_before_the_work(toy: Collection) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown ranker 'bm26'; known: bm25, bm25-doc, knn, svr,.*rrf\(…,…\)"):
        compare(toy, Settings(rankers=("bm25", "rrf(bm25,bm26)")), never)
    with pytest.raises(UnknownNameError, match="unknown split of toy 'test'; known: train, dev"):
        compare(toy, Settings(split="test"), never)
    for text in ("rrf(bm25,svr", "bm25)", "bm25,,svr", ""):
        with pytest.raises(InputError, match="rankers"):
            split_names(text)
    with pytest.raises(UnknownNameError, match="known: english, german"):
        Settings(language="latin")
    with pytest.raises(UnknownNameError, match="known: end-to-end, injected"):
        Settings(protocol="both")
    with pytest.raises(UnknownNameError, match="unknown ensemble parameter 'bags'"):
        Settings(ensemble={"bags": 3})
    with pytest.raises(InputError, match="depth must be at least 1"):
        Settings(depth=0)
    with pytest.raises(InputError, match="cold is a share, 0 to 1, found 2"):
        Settings(cold=2)


def test_training_needs_another_split(toy: Collection) -> None:
    with pytest.raises(InputError, match="trained and evaluated on the same split, 'train'"):
        compare(toy, Settings(split="train", rankers=("svr",), width=8))
    builder = CollectionBuilder("no train")
    builder.add_document("d", ["a dog barks", "a dog sleeps"])
    builder.add_query("q", ["dog"], split="test")
    builder.add_judgement("test", "q", "d")
    with pytest.raises(
        InputError, match=r"rrf\(bm25,svr\) needs a split to learn from: no train has no split 'train', only test"
    ):
        compare(builder.build(), Settings(split="test", rankers=("rrf(bm25,svr)",)), never)


def test_a_full_folder_is_refused_and_untouched(toy: Collection, tmp_path: Path) -> None:
    outcome = compare(toy, Settings(rankers=("bm25",)))
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(OutputExistsError, match="exists and is not empty"):
        write(outcome, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]
    with pytest.raises(OutputExistsError):
        check_output(tmp_path / "notes.txt")
    (tmp_path / "empty").mkdir()
    write(outcome, tmp_path / "empty")
    assert (tmp_path / "empty" / "table.md").is_file()


def test_a_failure_while_writing_leaves_nothing(
    toy: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = compare(toy, Settings(rankers=("bm25",)))

    def full(self: Run, path: Path, tag: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Run, "to_trec", full)
    with pytest.raises(OSError, match="No space left"):
        write(outcome, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from conftest import TOPICS
from haybale.collections import CollectionBuilder
from haybale.experiments import Settings, compare, write
builder = CollectionBuilder("toy", language="english")
for name, passages in TOPICS.items():
    builder.add_document(name, passages)
builder.add_query("q", ["dogs in winter"], split="dev")
builder.add_judgement("dev", "q", "dogs")
outcome = compare(builder.build(), Settings(rankers=("bm25", "bm25-doc")))
print("writing", flush=True)
for i in range(100_000):
    write(outcome, Path(sys.argv[2]) / str(i))
"""


def test_a_killed_writer_leaves_whole_folders_only(tmp_path: Path) -> None:
    """SIGKILL at random moments: a folder under its final name always holds everything."""
    rng = random.Random(0)
    for attempt in range(5):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        command = [sys.executable, "-c", WRITER, str(Path(__file__).parent), str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "writing\n"
            time.sleep(0.05 + 0.1 * rng.random())
            os.kill(process.pid, signal.SIGKILL)
        finished = [p for p in folder.iterdir() if not p.name.startswith(".")]
        assert finished
        for out in finished:
            assert json.loads((out / "results.json").read_text())["queries measured"] == 1
            assert json.loads((out / "settings.json").read_text())["split"] == "dev"
            assert (out / "table.md").read_text().endswith("\n")
            assert {p.name for p in (out / "runs").iterdir()} == {"bm25.trec", "bm25-doc.trec"}


@pytest.mark.parametrize("encoder", ["lsa", "tfidf"])
def test_every_ranker_that_learns_nothing(toy: Collection, encoder: str) -> None:
    names = tuple(name for name in RANKERS if not learns(name))
    assert {"knn-firstp", "knn-doc", "parm-vmin", "bm25-parm-combsum", "bm25-parm-rrf"} <= set(names)
    outcome = compare(toy, Settings(rankers=names, width=4, encoder=encoder))
    assert list(outcome.runs) == list(names)
    for name, run in outcome.runs.items():
        assert run.query_ids == outcome.runs["bm25"].query_ids
        assert all("soup" not in dict(run[query]) for query in run.query_ids if query.endswith("roads")), name
        assert any(len(run[query]) for query in run.query_ids), name
    assert outcome.runs["vrrf"] == outcome.runs["parm-vrrf"]


def test_paragraphs_of_a_comparison(toy: Collection) -> None:
    settings = Settings(rankers=("bm25", "parm-rrf"), width=4, paragraphs="sentences")
    outcome = compare(toy, settings)
    assert outcome.facts["query paragraphs"] == 4  # two short lines make one paragraph of at most 200 words
    assert outcome.facts["vectors"][0] == 5
    with pytest.raises(UnknownNameError, match=r"known: lines, .*sections"):
        Settings(paragraphs="pages")
    with pytest.raises(InputError, match="no sections"):
        compare(toy, Settings(paragraphs="sections"))
