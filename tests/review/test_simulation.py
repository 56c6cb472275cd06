"""Simulated reviews: measures against slow oracles, stops against the rules, and orders against real reviews."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.learners import CountingLearner

from haybale import Collection, Engine, InputError, Review
from haybale.review import LabelledTopic, parse_rule, screening_measures, simulate
from haybale.review.workload import documents_until, recall_after, recall_curve, time_to_discovery, work_saved

RULES = ["consecutive(5)", "cmh", "quant(every=3,at_least=3)", "qbcb(target=0.5)", "budget(15)"]


def records(n: int = 40, seed: int = 0) -> tuple[dict[str, str], list[str]]:
    """Return texts of which every fifth is about tea, and the ids of these."""
    rng = np.random.default_rng(seed)
    words = [f"word{i}x" for i in range(30)]
    relevant = [f"r{i:02d}" for i in range(0, n, 5)]
    texts = {}
    for i in range(n):
        doc_id = f"r{i:02d}"
        own = ["tea", "leaves", "kettle"] if doc_id in relevant else ["coffee"]
        texts[doc_id] = " ".join([*rng.choice(words, 6), *rng.choice(own, 1 + i % 2)])
    return texts, relevant


class UntiedLearner(CountingLearner):
    """A counting learner whose documents never have equal scores."""

    def scores(self) -> np.ndarray:
        return super().scores() - 1e-6 * np.arange(len(self.terms))


TEXTS, RELEVANT = records()
TOPIC = LabelledTopic("tea", RELEVANT, "tea kettle")


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(TEXTS, language="english", encoder="tfidf(min_df=1)")


labels_of_readings = st.lists(st.booleans(), min_size=1, max_size=40)


@given(labels_of_readings)
def test_measures_are_those_of_the_definitions(labels: list[bool]) -> None:
    """Recall, average time to discovery: as ASReview Insights defines them; work saved: as Cohen et al. do."""
    n, n_relevant = len(labels), sum(labels)
    if not n_relevant:
        assert all(math.isnan(value) for value in screening_measures(labels).values())
        return
    for percent in (50, 95, 100):
        read = next(i for i in range(n + 1) if 100 * sum(labels[:i]) >= percent * n_relevant)
        assert documents_until(labels, percent / 100) == read
        true_negatives, false_negatives = labels[read:].count(False), labels[read:].count(True)
        expected = (true_negatives + false_negatives) / n - (1 - percent / 100)
        assert work_saved(labels, percent / 100) == pytest.approx(expected)
    for percent in (1, 5, 10, 50, 100):
        shares = [(i / n, sum(labels[:i]) / n_relevant) for i in range(1, n + 1)]
        before = [recall for share, recall in shares if share <= percent / 100 + 1e-12]
        assert recall_after(labels, percent / 100) == pytest.approx(before[-1] if before else 0.0)
    positions = [i + 1 for i, label in enumerate(labels) if label]
    assert time_to_discovery(labels) == pytest.approx(sum(positions) / len(positions))
    assert recall_curve(labels) == pytest.approx([sum(labels[:i]) / n_relevant for i in range(n + 1)])
    assert set(screening_measures(labels)) == {
        "WSS@95", "read@95", "WSS@100", "RRF@10", "ATD", "recall@1%", "recall@5%", "recall@10%"
    }  # fmt: skip


def test_measures_of_nothing_are_refused() -> None:
    with pytest.raises(InputError, match="labels"):
        screening_measures([])


def test_a_simulation_reads_as_a_review_does(engine: Engine) -> None:
    """The order is that of a Review whose judge knows the labels; the sample and exploration included."""
    for text, explore, n_drawn in ((TOPIC.text, None, 0), (TOPIC.text, 3, 0), (TOPIC.text, None, 9)):
        topic = LabelledTopic("tea", RELEVANT, text)
        found = simulate(engine, topics=[topic], start="text", seeds=1, explore_every=explore, learner=UntiedLearner)
        review = Review(engine, text, explore_every=explore, learner=UntiedLearner)
        if n_drawn:
            for doc_id in review.draw_sample(n_drawn):
                review.judge(doc_id, int(doc_id in RELEVANT))
        while following := review.next():
            review.judge(following[0].doc_id, int(following[0].doc_id in RELEVANT))
        positions = (np.flatnonzero(review.screening().labels) + 1).tolist()
        assert found.runs[0].found_at == tuple(positions)


def test_a_review_is_simulated_with_its_judgements(engine: Engine) -> None:
    review = Review(engine, TOPIC.text, learner=CountingLearner)
    with pytest.raises(InputError, match="relevant"):
        review.simulate(seeds=1)
    for doc_id in [*RELEVANT, "r01"]:
        review.judge(doc_id, int(doc_id != "r01"))
    expected = simulate(engine, topics=[TOPIC], seeds=2, rules=["cmh"], learner=CountingLearner)
    for run, other in zip(review.simulate(seeds=2, rules=["cmh"]).runs, expected.runs, strict=True):
        assert (run.found_at, run.stops) == (other.found_at, other.stops)


def test_starts_seeds_and_measures(engine: Engine) -> None:
    for start in ("random", "text", "both"):
        found = simulate(engine, topics=[TOPIC], start=start, seeds=3, rules=RULES, learner=CountingLearner)
        again = simulate(engine, topics=[TOPIC], start=start, seeds=3, rules=RULES, learner=CountingLearner)
        n_known = 0 if start == "text" else 2
        for run, same in zip(found.runs, again.runs, strict=True):
            assert (run.found_at, run.known, run.stops) == (same.found_at, same.known, same.stops)
            assert len(run.known) == n_known
            assert [doc_id in RELEVANT for doc_id in run.known] == [True, False][:n_known]
            assert run.n_documents == 40 - n_known
            assert run.n_relevant == len(run.found_at) == 8 - n_known // 2
            labels = np.isin(np.arange(1, run.n_documents + 1), run.found_at)
            assert run.measures == screening_measures(labels, 0.95)
            assert run.oracle == run.measures["read@95"]
            for rule in ("consecutive(5)", "cmh", "budget(15)"):
                expected = parse_rule(rule).first_stop(labels, run.n_documents)
                assert run.stops[str(parse_rule(rule))].read == expected
            x, y = run.recall_curve()
            assert (x[-1], y[-1]) == (run.n_documents, 1.0)
        assert len({run.known for run in found.runs}) == (3 if n_known else 1)
    assert simulate(engine, topics=[TOPIC], seeds=1, learner=CountingLearner).runs[0].start == "text"
    without = LabelledTopic("tea", RELEVANT)
    assert simulate(engine, topics=[without], seeds=1, learner=CountingLearner).runs[0].start == "random"


def test_after_the_last_lesson_documents_are_read_by_their_scores(engine: Engine) -> None:
    found = simulate(engine, topics=[TOPIC], seeds=1, learn_from=6, rules=RULES, learner=UntiedLearner).runs[0]
    review = Review(engine, TOPIC.text, learner=UntiedLearner)
    order = []
    for _ in range(6):
        order.append(review.next()[0].doc_id)
        review.judge(order[-1], int(order[-1] in RELEVANT))
    order += [each.doc_id for each in review.next(40)]
    assert found.found_at == tuple(place for place, doc_id in enumerate(order, 1) if doc_id in RELEVANT)
    assert all(stop.read is not None for stop in found.stops.values())
    whole = simulate(engine, topics=[TOPIC], seeds=1, rules=RULES, learner=CountingLearner).runs[0]
    late = simulate(engine, topics=[TOPIC], seeds=1, learn_from=40, rules=RULES, learner=CountingLearner).runs[0]
    assert (whole.found_at, whole.stops) == (late.found_at, late.stops)


def test_a_sample_costs_what_is_judged(engine: Engine) -> None:
    found = simulate(engine, topics=[TOPIC], seeds=4, sample=20, rules=["qbcb(target=0.2)", "budget(15)"],
                     learner=CountingLearner)  # fmt: skip
    for run in found.runs:
        certified, budget = run.stops["qbcb(target=0.2)"], run.stops["budget(documents=15)"]
        assert certified.read in run.found_at
        assert certified.read is not None
        assert certified.cost is not None
        assert certified.read < certified.cost <= certified.read + 20
        assert budget.read == 15
        assert 20 <= (budget.cost or 0) <= 35
        assert budget.reached == (run.oracle <= 15)
    table = found.stops_table()
    assert table.loc["budget(documents=15)", "stopped"] == 1.0
    assert table.loc["budget(documents=15)", "recall"] == pytest.approx(
        np.mean([run.stops["budget(documents=15)"].recall for run in found.runs])
    )


def test_rules_that_need_probabilities_are_asked_while_reading(engine: Engine) -> None:
    found = simulate(engine, topics=[TOPIC], seeds=1, rules=RULES, learner=CountingLearner).runs[0]
    rule = parse_rule("quant(every=3,at_least=3)")
    review = Review(engine, TOPIC.text, learner=CountingLearner)
    while following := review.next():
        review.judge(following[0].doc_id, int(following[0].doc_id in RELEVANT))
        screening = review.screening()
        if screening.n_read in rule.checkpoints(40) and rule.check(screening).stop:
            break
    assert found.stops[str(rule)].read == screening.n_read


def test_judged_queries_of_a_collection_are_topics(topics: Collection) -> None:
    found = simulate(topics, seeds=1, split="dev", start="text", learner=CountingLearner)
    split = topics.split("dev")
    names = [topics.queries.ids[query].as_py() for query in sorted(set(split.relevant()[0].tolist()))]
    assert [run.topic for run in found.runs] == names
    assert list(found.table().index) == [*names, "mean"]
    assert found.table().loc["mean", "WSS@95"] == pytest.approx(np.mean([r.measures["WSS@95"] for r in found.runs]))
    has_passage = int((np.diff(topics.passages.doc_offsets) > 0).sum())
    own = {topics.queries.ids[q].as_py(): int(topics.queries.own[q]) for q in split.queries}
    for run in found.runs:
        assert run.n_documents == has_passage - (own[run.topic] >= 0)
    assert set(simulate(topics, seeds=1, start="text", learner=CountingLearner).table().index) > set(names)


def test_results_as_tables_json_and_files(engine: Engine, tmp_path: Path) -> None:
    other = LabelledTopic("coffee | tea", [each for each in TEXTS if each not in RELEVANT], "coffee")
    found = simulate(engine, topics=[TOPIC, other], seeds=2, rules=RULES, learner=CountingLearner)
    values = json.loads(found.to_json())
    assert len(values["runs"]) == 4
    assert set(values["means"]) == {"tea", "coffee | tea", "mean"}
    assert values["runs"][0]["found_at"] == list(found.runs[0].found_at)
    assert values["runs"][0]["stops"]["cmh"]["read"] == found.runs[0].stops["cmh"].read
    found.write(tmp_path / "out")
    assert json.loads((tmp_path / "out" / "results.json").read_text()) == values
    lines = (tmp_path / "out" / "table.md").read_text().splitlines()
    assert len({line.replace("\\|", "").count("|") for line in lines[:5]}) == 1
    assert "<svg" in (tmp_path / "out" / "recall.svg").read_text()
    with pytest.raises(FileExistsError):
        found.write(tmp_path / "out")
    many = [LabelledTopic(f"t{i}", RELEVANT[i : i + 3], "tea") for i in range(5)] + [
        other,
        TOPIC,
        LabelledTopic("u", ["r01"], "x"),
    ]
    figure = simulate(engine, topics=many, seeds=1, learner=CountingLearner).draw()
    assert len(figure.axes[0].get_lines()) == 4  # the mean, the best, the worst, and the target


@pytest.mark.parametrize(
    ("topic", "options"),
    [
        (LabelledTopic("none", [], "tea"), {}),
        (LabelledTopic("all", list(TEXTS), "tea"), {}),
        (LabelledTopic("one", ["r00"], "tea"), {"start": "random"}),
        (LabelledTopic("unknown", ["r00", "nowhere"], "tea"), {}),
        (LabelledTopic("no text", RELEVANT), {"start": "text"}),
        (TOPIC, {"start": "cold"}),
        (TOPIC, {"seeds": 0}),
        (TOPIC, {"target": 1.5}),
        (TOPIC, {"sample": 41}),
        (TOPIC, {"rules": ["quaint"]}),
        (TOPIC, {"text": "tea"}),
    ],
)
def test_topics_and_options_that_cannot_be_simulated(engine: Engine, topic: LabelledTopic, options: dict) -> None:
    with pytest.raises(InputError):
        simulate(engine, topics=[topic], learner=CountingLearner, **options)


def test_a_collection_without_judgements_cannot_be_simulated(engine: Engine) -> None:
    with pytest.raises(InputError, match="queries"):
        simulate(engine, learner=CountingLearner)


@pytest.mark.parametrize("learn_from", [None, 2])
def test_documents_of_equal_scores_are_read_in_an_order_of_the_seed(learn_from: int | None) -> None:
    """The relevant documents are the first or the last; neither is found earlier, since no word is in two documents."""
    texts = {f"r{number:02d}": f"word{number}x other{number}x" for number in range(60)}
    engine = Engine(texts, language="english", encoder="tfidf(min_df=1)")
    mean_ranks = []
    for relevant in (list(texts)[:6], list(texts)[-6:]):
        topic = LabelledTopic("none alike", relevant)
        options: dict = {"topics": [topic], "start": "random", "seeds": 8, "learn_from": learn_from}
        runs = simulate(engine, **options).runs
        assert runs == tuple(
            replace(run, seconds=other.seconds)
            for run, other in zip(simulate(engine, **options).runs, runs, strict=True)
        )
        assert len({run.found_at for run in runs}) > 1
        mean_ranks.append(np.mean([run.found_at for run in runs]))
    # 5 of 58 documents in random order, 8 times: the mean is 29.5, and its standard deviation below 3.
    assert all(20 < mean < 39 for mean in mean_ranks)


def test_a_group_of_duplicates_is_read_and_counted_once() -> None:
    """Of 30 records, a second source has the first ten, too; a copy of a relevant record may have no label."""
    records_of_sources = {
        f"{source}:{number}": {
            "title": f"The {number}th study of {text}",
            "text": text,
            "doi": f"10.1000/{number}",
        }
        for number, text in enumerate(TEXTS.values())
        for source in ("first", "second")[: 1 + (number < 10)]
        if number < 30
    }
    topic = LabelledTopic("copies", ["first:1", "second:2", "first:3", "second:3", "first:12", "first:13"], "study")
    engine = Engine(records_of_sources, language="english", encoder="tfidf(min_df=1)")
    [all_read, once] = (
        simulate(engine, topics=[topic], seeds=1, start="text", duplicates=duplicates).runs[0]
        for duplicates in (False, True)
    )
    assert (all_read.n_documents, all_read.n_relevant) == (40, 6)
    assert (once.n_documents, once.n_relevant) == (30, 5)
    assert once.measures["WSS@95"] == pytest.approx(0.95 - once.found_at[-1] / 30)
