"""Comparisons measure seen and unseen queries apart, and what frequencies of judgements alone would rank."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from support.topics import EVIDENCE

from haybale import Engine, Popularity, compare, evaluate, load, parse
from haybale.collections import Collection
from haybale.errors import InputError, UnknownNameError
from haybale.evaluation.latex_table import escaped
from haybale.evaluation.seen_queries import SeenQueries
from haybale.rankers import Training
from haybale.reports import write_report

RANKERS = f"bm25,svr({EVIDENCE}),popularity"


def relevant_of(topics: Collection, split: str) -> dict[str, set[str]]:
    ids = topics.queries.take(topics.split(split).queries).ids.to_pylist()
    return dict(zip(ids, map(set, topics.relevant_ids(split)), strict=True))


def test_groups_are_those_of_the_definition() -> None:
    pairs = [("a", "x", 1), ("a", "y", 2), ("b", "x", 1), ("b", "z", 1), ("c", "z", 1), ("d", "x", 1), ("d", "z", 0)]
    qrels = pd.DataFrame(pairs, columns=["query_id", "doc_id", "relevance"])
    values = pd.DataFrame({"MAP": [0.25, 0.5, 1.0, 0.75]}, index=pd.Index(["d", "c", "b", "a"], name="query_id"))
    seen = SeenQueries.of({"bm25": values, "none": values * 0}, {}, qrels, ["x", "y", "other"])
    assert seen.groups == {"seen": ["d", "a"], "partly seen": ["b"], "unseen": ["c"]}
    assert seen.averages["bm25"] == {"seen": {"MAP": 0.5}, "partly seen": {"MAP": 1.0}, "unseen": {"MAP": 0.5}}
    assert [seen.to_dict()["groups"][name]["share"] for name in seen.groups] == [0.5, 0.25, 0.25]
    header, rows = seen.table("MAP")
    assert header == ["ranker", "MAP, seen (2)", "MAP, partly seen (1)", "MAP, unseen (1)"]
    assert rows[0] == ["bm25", "0.5000", "1.0000", "0.5000"]


@pytest.mark.parametrize("n_train", [None, 12])
def test_a_comparison_splits_every_measure(topics: Collection, n_train: int | None) -> None:
    outcome = compare(Engine(topics), RANKERS, split="test", n_train=n_train)
    assert outcome.seen is not None
    popularity = outcome.rankers["popularity"]
    assert isinstance(popularity, Popularity)
    trained, relevant = set(popularity.doc_ids_.to_pylist()), relevant_of(topics, "test")
    if n_train is None:
        assert trained == set().union(*relevant_of(topics, "train").values())
    groups, measured = outcome.seen.groups, outcome.results.values["bm25"].index
    assert groups["seen"] == [query for query in measured if relevant[query] <= trained]
    assert groups["unseen"] == [query for query in measured if not relevant[query] & trained]
    assert outcome.seen.n_queries == outcome.results.n_queries == sum(map(len, groups.values()))
    for name, table in outcome.results.values.items():
        for measure in table.columns:
            averages = outcome.seen.averages[name]
            total = sum(averages[group][measure] * len(queries) for group, queries in groups.items() if queries)
            assert total / len(table) == pytest.approx(table[measure].mean())
    assert outcome.seen.averages["no text"] == outcome.seen.averages["popularity"]
    assert all(value == 0 for value in outcome.seen.averages["no text"].get("unseen", {}).values())


def test_micro_averages_of_a_group_are_those_of_its_queries(topics: Collection) -> None:
    """The values of single queries belong to the ratio of all queries, so their mean over a group is another number."""
    outcome = compare(Engine(topics), f"bm25,cut(svr({EVIDENCE}))", split="test", measures=["MicroF1", "SetF", "P@5"])
    assert outcome.seen is not None
    qrels = topics.qrels_frame("test")
    differs = False
    for ranker, run in outcome.runs.items():
        for group, means in outcome.seen.averages[ranker].items():
            queries = outcome.seen.groups[group]
            alone = evaluate(run, qrels[qrels["query_id"].isin(queries)], list(means))
            assert means == pytest.approx(alone.mean().to_dict())
            differs |= abs(outcome.results.values[ranker].loc[queries, "MicroF1"].mean() - means["MicroF1"]) > 1e-3
    assert differs


def test_frames_html_and_latex_have_the_groups(topics: Collection) -> None:
    outcome = compare(Engine(topics), RANKERS, split="test", measures=["MRR@10", "MicroF1@1"])
    seen = outcome.seen
    assert seen is not None
    frame, table = outcome.to_frame(groups=True), outcome.to_frame()
    whole, parts = frame[frame["group"] == "all"], frame[frame["group"] != "all"]
    pd.testing.assert_frame_equal(whole.drop(columns=["group", "n_queries"]), table)
    assert whole["n_queries"].tolist() == [outcome.results.n_queries] * len(table)
    for row in parts.to_dict("records"):
        assert row["n_queries"] == len(seen.groups[row["group"]]) > 0
        assert {name: row[name] for name in seen.measures} == seen.averages[row["ranker"]][row["group"]]
    assert set(parts["ranker"]) == {*outcome.runs, "no text"}
    values = outcome.to_frame(per_query=True, groups=True)
    for group, queries in seen.groups.items():
        assert set(values.loc[values["group"] == group, "query_id"]) == set(queries)
    pd.testing.assert_frame_equal(values.drop(columns="group"), outcome.to_frame(per_query=True))
    header, rows = seen.table("MRR@10")
    page = outcome._repr_html_()
    assert seen._repr_html_() in page
    assert all(f"<th>{text}</th>" in page for text in header)
    assert all("".join(f"<td>{text}</td>" for text in cells) in page for _, *cells in rows)
    latex = outcome.to_latex(["MicroF1@1"], label="tab:x", groups=True)
    assert latex.startswith(outcome.to_latex(["MicroF1@1"], label="tab:x"))
    second = latex.partition("\\end{table}\n\n")[2]
    assert second == seen.to_latex(["MicroF1@1"], title=outcome.title, label="tab:x-groups")
    lines = [line.removesuffix(r" \\").split(" & ") for line in second.splitlines() if line.endswith(r" \\")]
    header, rows = seen.table("MicroF1@1")
    assert lines[0] == ["Ranker", *header[1:]]
    for line, row in zip(lines[1:], rows, strict=True):
        assert [cell.removeprefix(r"\textbf{").removesuffix("}") for cell in line] == [escaped(row[0]), *row[1:]]
    for column in range(1, len(header)):
        best = max(row[column] for row in rows)
        assert all(line[column] == rf"\textbf{{{best}}}" for line in lines[1:] if best in line[column])
        assert any(line[column].startswith(r"\textbf") for line in lines[1:])
    with pytest.raises(UnknownNameError, match="'P@5'"):
        seen.to_latex(["P@5"])
    with pytest.raises(InputError, match="'groups'"):
        outcome.to_frame(groups="seen")  # type: ignore[arg-type]


def test_files_and_the_page_have_the_groups(topics: Collection, tmp_path: Path) -> None:
    engine = Engine(topics)
    outcome = compare(engine, RANKERS, split="test")
    outcome.write(tmp_path / "out")
    assert outcome.seen is not None
    record = json.loads((tmp_path / "out" / "results.json").read_text())["seen"]
    assert record == json.loads(json.dumps(outcome.seen.to_dict()))
    assert set(record["rankers"]) == {*outcome.runs, "no text"}
    table = (tmp_path / "out" / "table.md").read_text()
    assert table.count("\n| no text |") == len(outcome.results.measures)
    write_report([tmp_path / "out"], tmp_path / "page.html", collection=engine, picture="none")
    page = (tmp_path / "page.html").read_text()
    assert f"{record['rankers']['no text']['seen']['nDCG@10']:.4f}" in page
    assert f"seen ({len(outcome.seen.groups['seen'])})" in page


def test_a_comparison_without_learning_has_no_groups(topics: Collection, tmp_path: Path) -> None:
    engine = Engine(topics)
    outcome = compare(engine, "bm25,knn")
    assert outcome.seen is None
    assert outcome.to_latex(groups=True) == outcome.to_latex()
    for per_query in (False, True):
        assert set(outcome.to_frame(per_query=per_query, groups=True)["group"]) == {"all"}
    outcome.write(tmp_path / "out")
    write_report([tmp_path / "out"], tmp_path / "page.html", collection=engine, picture="none")
    assert "no text" not in (tmp_path / "page.html").read_text()


def test_popularity_counts_training_queries(topics: Collection, tmp_path: Path) -> None:
    """Ties are ordered by id, a query's own document is left out, and depth cuts the ranking."""
    engine = Engine.build(topics, tmp_path / "engine")
    ranker = parse("popularity").fit(engine)
    training = Training.of(engine)
    counts = pd.Series([doc_id for ids in training.relevant for doc_id in set(ids)]).value_counts().to_dict()
    order = sorted(counts, key=lambda doc_id: (-counts[doc_id], doc_id))
    queries, ids = topics.queries.take(topics.split("test").queries), topics.doc_ids.to_pylist()
    run = ranker.rank("test")
    for query, number in zip(run.query_ids, queries.own.tolist(), strict=True):
        expected = [(doc_id, counts[doc_id]) for doc_id in order if number < 0 or doc_id != ids[number]]
        assert run[query] == expected
        assert ranker.rank("test", depth=3)[query] == expected[:3]
    explanation = ranker.explain({"q": "anything"}, order[0])
    assert explanation.score == sum(share.share for share in explanation.shares) == counts[order[0]]
    ranker.save(tmp_path / "ranker")
    loaded = load(tmp_path / "ranker", Engine.open(tmp_path / "engine"))
    assert loaded.out_of_fold("train") == ranker.out_of_fold("train")


def test_popularity_out_of_fold_counts_other_groups_only(topics: Collection) -> None:
    engine = Engine(topics)
    ranker, training = parse("popularity").fit(engine), Training.of(engine)
    batch, ids = training.batch, topics.doc_ids.to_pylist()
    run = ranker.out_of_fold("train")
    for row, query in enumerate(batch.ids):
        others = rows_of_other_groups(training, row)
        counts: dict[str, int] = {}
        for other in others:
            for doc_id in set(training.relevant[other]):
                counts[doc_id] = counts.get(doc_id, 0) + 1
        number = int(batch.own[row])
        counts.pop(ids[number] if number >= 0 else "", None)
        expected = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
        assert run[query] == expected
        assert ranker.out_of_fold("train", depth=2)[query] == expected[:2]
    qrels = topics.qrels_frame("train")
    out_of_fold, fitted = (evaluate(one, qrels, ["MAP"])["MAP"].mean() for one in (run, ranker.rank("train")))
    assert 0 < out_of_fold < fitted


def rows_of_other_groups(training: Training, row: int) -> list[int]:
    """Return the rows of the training queries of other groups."""
    groups = training.batch.groups.tolist()
    return [other for other, group in enumerate(groups) if group != groups[row]]
