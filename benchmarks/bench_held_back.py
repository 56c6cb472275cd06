"""Measure whether some judgements of a topic improve the ranking of documents that nobody has judged.

    python benchmarks/bench_held_back.py COLLECTION [--judgements 30] [--topics 40]

Each query with at least 10 relevant documents is a topic. Half of the documents, drawn at random for each topic, can be
judged; the others are held back. The learner of reviews proposes documents of the first half, one at a time, and learns
their labels. Then the held-back half is ranked: by a fusion of two searches for the text; by the learner; by the fusion
with the learner as a third ranking; and by what the service trains on the judgements of all topics.
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
from provenance import options, provenance, shown, table, write_page

from haybale import Engine, Run, evaluate, open_collection, parse
from haybale.evaluation import paired_tests
from haybale.review import TopicFeatures, TopicLearner
from haybale.service.training_readiness import RECIPES

SEARCH = "rrf(bm25-doc,parm-vrrf)"
TRAINED = ("similar topics", "svr")
MEASURES = ("nDCG@10", "Recall@100")
LEAST = 10  # relevant documents of a topic
DEPTH = 1000

Rankings = dict[str, dict[str, list[tuple[str, float]]]]  # by ranker and topic


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collection", help="pydocs, or a folder")
    parser.add_argument("--judgements", type=int, default=30, help="of each topic")
    parser.add_argument("--topics", type=int, default=40, help="at most")
    a = parser.parse_args()
    engine = Engine(open_collection(a.collection))
    qrels, texts = topics_of(engine, a.topics)
    rankings, judged, held_back = reviewed(engine, qrels, texts, a.judgements)
    for recipe in TRAINED:
        trained = parse(RECIPES[recipe]).fit(engine, texts, judged)
        rankings[f"trained, {recipe}: `{RECIPES[recipe]}`"] = without(trained.rank(texts, depth=DEPTH), held_back)
    values = {name: np.array([measures(found[each], qrels, each, held_back[each]) for each in texts])
              for name, found in rankings.items()}  # fmt: skip
    before, *_ = values.values()
    rows = []
    for name, after in values.items():
        row = [name]
        for place in range(len(MEASURES)):
            one, two = before[:, place], after[:, place]
            p = "" if after is before else f"{paired_tests(two, one).p:.2g}"
            row += [f"{two.mean():.3f}", p, f"{int((two > one).sum())} / {int((two < one).sum())}"]
        rows.append(row)
    n_relevant = judged.groupby("query_id")["relevance"].sum().mean()
    lines = [
        "# Judgements of a topic, and documents that nobody has judged",
        "",
        f"{engine.collection.name}: {engine.collection.n_documents:,} documents, {len(texts)} topics with at least",
        f"{LEAST} relevant documents. For each topic, half of the documents are held back. {a.judgements} documents of",
        f"the other half are judged, as a review proposes them; {n_relevant:.1f} of them are relevant on average. The",
        "measures are of the held-back half. p is the larger one of a paired t-test and a randomisation test against",
        "the first row, not corrected; the last column of each measure counts topics that are better / worse.",
        *table("ranking|nDCG@10|p|better / worse|Recall@100|p|better / worse", rows),
        "",
        "It does not show that judgements of one topic help other topics.",
        "",
        provenance(shown("bench_held_back.py", sys.argv[1:])),
    ]
    write_page(a.results / "held-back.md", lines)


def topics_of(engine: Engine, most: int) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return the relevant documents of topics, and their texts by id."""
    collection = engine.collection
    qrels = pd.concat([collection.qrels_frame(name) for name in collection.splits])
    counts = qrels.loc[qrels["relevance"] > 0, "query_id"].value_counts().sort_index()
    topics = counts.index[counts >= LEAST][:most].tolist()
    numbers = collection.query_numbers(topics).tolist()
    texts = {name: "\n".join(collection.queries.paragraphs_of(n)) for name, n in zip(topics, numbers, strict=True)}
    return qrels[(qrels["relevance"] > 0) & qrels["query_id"].isin(topics)], texts


def reviewed(
    engine: Engine, qrels: pd.DataFrame, texts: dict[str, str], n: int
) -> tuple[Rankings, pd.DataFrame, dict[str, set[str]]]:
    """Review each topic; return rankings of what is held back, the judgements, and what is held back."""
    ids = engine.collection.doc_ids.to_pylist()
    features, searched = TopicFeatures.of(engine), parse(SEARCH).fit(engine)
    rankings: Rankings = {f"search for the text: `{SEARCH}`": {}, "the review's learner": {}, "both, by RRF": {}}
    judged, held_back = [], {}
    for number, (topic, text) in enumerate(texts.items()):
        relevant = np.isin(ids, qrels.loc[qrels["query_id"] == topic, "doc_id"].to_list())
        is_held_back = np.random.default_rng(number).random(len(ids)) < 0.5
        held_back[topic] = {doc_id for doc_id, held in zip(ids, is_held_back, strict=True) if held}
        learner, left = TopicLearner(features, text), ~is_held_back
        for _ in range(n):
            proposed = int(np.argmax(np.where(left, learner.scores(), -np.inf)))
            learner.judge(proposed, int(relevant[proposed]))
            left[proposed] = False
            judged.append((topic, ids[proposed], int(relevant[proposed])))
        found = without(searched.rank({topic: text}, depth=len(ids)), held_back)[topic]
        scores = learner.scores()
        learned = [(ids[place], float(scores[place])) for place in np.argsort(-scores) if is_held_back[place]]
        sums: dict[str, float] = {}
        for ranking in (found, learned):
            for rank, (doc_id, _) in enumerate(ranking[:DEPTH], 1):
                sums[doc_id] = sums.get(doc_id, 0.0) + 1 / (60 + rank)
        both = sorted(sums.items(), key=lambda each: (-each[1], each[0]))
        for name, ranking in zip(rankings, (found, learned, both), strict=True):
            rankings[name][topic] = ranking
        print(number, topic, flush=True)
    return rankings, pd.DataFrame(judged, columns=["query_id", "doc_id", "relevance"]), held_back


def without(run: Run, held_back: dict[str, set[str]]) -> dict[str, list[tuple[str, float]]]:
    """Return rankings with the documents that are held back only."""
    return {topic: [each for each in run[topic] if each[0] in held_back[topic]] for topic in run.query_ids}


def measures(ranking: list[tuple[str, float]], qrels: pd.DataFrame, topic: str, kept: set[str]) -> list[float]:
    """Return the measures of one topic among the documents that are held back."""
    top = ranking[:100]
    frame = pd.DataFrame({"query_id": topic, "doc_id": [doc_id for doc_id, _ in top], "score": range(len(top), 0, -1)})
    judged = qrels[(qrels["query_id"] == topic) & qrels["doc_id"].isin(kept)]
    return evaluate(frame, judged, list(MEASURES)).to_numpy()[0].tolist()


if __name__ == "__main__":
    main()
