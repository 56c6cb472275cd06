"""Mix a fusion learned on known queries with one learned on unseen ones, and choose rankers by their predicted nDCG@10.

    python benchmarks/bench_mixture.py FOLDER … [--results benchmarks/results]

All over TF-IDF, BM25 with its defaults. The rankers of `learned` rank training queries out of fold, and dev.
*Mixture*: P(document) = (1 − u) · softmax(fusion of known queries) + u · softmax(fusion of unseen queries), where u is
the probability of `NewQueries` that the query is unseen, at a presumed share of unseen queries. *Chosen*: the share by
folds, as `learned` chooses its own. *Selected*: the ranker whose nDCG@10 a ridge regression predicts to be the highest,
from the features of a query that `NewQueries` has. *svr, nearness*: its evidence twice, multiplied by how near the
nearest training queries are, and by 1 minus that; *svr, γ*: another γ of queries, so that far training queries count
less. Every collection writes `mixture-NAME.json`, of which the page is made; without collections only the page is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from effectiveness import BEST, SHARES, Space, by_relevant
from provenance import made, measures, options, origin, printed_stages, read_all, table, write_json, write_page
from scipy import stats

from haybale import SVR, LearnedFusion, Run, open_collection, parse
from haybale.rankers.models.judged_pools import JudgedPools, ndcg, pool_run
from haybale.rankers.models.new_queries import NewQueries, query_features, unseen_queries

DEPTH = 100
NEAR = 0.2  # the score of the best document of similar queries at which nearness is a half


def variants() -> dict[str, SVR]:
    """Return variants of `svr` by title."""

    class NearSVR(SVR):
        """The SVR ensemble with weights of the evidence that depend on how near the training queries are."""

        name = "svr-near"
        variants = {"svr-near": {}}  # noqa: RUF012

        def _features(self, candidates: Any, evidence: Any) -> Any:
            features, similar = super()._features(candidates, evidence), evidence[-1]
            best = np.where(similar.passages >= 0, similar.scores, 0).max(axis=1, initial=0)[:, None, None]
            nearness = best / (NEAR + best)
            return np.concatenate([features * (1 - nearness), features * nearness], axis=2).astype(np.float32)

    return {"svr, nearness": NearSVR(), "svr, γ 4": SVR(gamma=(4.0, 1.0))}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collections", nargs="*", help="folders with training and dev queries; none: only the page")
    a = parser.parse_args()
    for name in a.collections:
        record = {"collection": Path(name).name, **measured(name), "made": made("bench_mixture.py", [name])}
        write_json(a.results / f"mixture-{record['collection']}.json", record)
    records = read_all(a.results, "mixture")
    lines = [
        "# Known and unseen queries: a mixture of two fusions, and rankers selected for each query",
        "",
        "nDCG@10 on dev, TF-IDF only, BM25 with its defaults; *known*: a relevant document was relevant to a training "
        "query. p: a paired t-test with `learned`, over all queries and over unseen ones, not corrected. "
        "`bench_mixture.py` says what each line is.",
    ]
    rows = [
        [record["collection"] if number == 0 else "", *row]
        for record in records
        for number, row in enumerate(record["rows"])
    ]
    columns = "collection | ranker | all | known | unseen | p | p, unseen"
    origins = [
        f"- {record['collection']}: `{record['made']['command']}`; {origin(record['made'])}" for record in records
    ]
    write_page(
        a.results / "mixture.md", [*lines, *table(columns, rows, words=2), "", measures("bench_mixture.py"), *origins]
    )


def measured(name: str) -> dict[str, Any]:
    """Return the rows of a collection."""
    with printed_stages():
        space = Space(open_collection(name, missing_judgements="skip"), "tfidf")
        training, batch = space.training, space.batches["dev"]
        fitted: Any = parse(BEST)._fitted_copy(training)
        place = {query: row for row, query in enumerate(training.batch.ids)}
        own = training.batch.take(np.array([place[query] for query in fitted.query_ids_]))
        runs = {
            "train": {str(each): each.run(own, DEPTH, out_of_fold=True) for each in fitted.rankers_},
            "dev": {str(each): each.run(batch, DEPTH) for each in fitted.rankers_},
        }
        others = {title: each._fitted_copy(training).run(batch, DEPTH) for title, each in variants().items()}
    collection = batch.engine.collection
    is_unseen = unseen_queries(training.relevant, training.batch.queries.groups)
    unseen = [
        query for query, flag in zip(training.batch.ids, is_unseen, strict=True) if flag and query in set(own.ids)
    ]
    trained = [str(each) for each in fitted.rankers_ if each.learns_documents]
    pools = {
        split: JudgedPools.of(
            of, collection.qrels_frame(split), DEPTH, trained=trained, unseen=unseen if split == "train" else []
        )
        for split, of in runs.items()
    }
    ids = pools["dev"].pool.query_ids
    order = {query: row for row, query in enumerate(batch.ids)}
    is_new = by_relevant(collection, "dev")["none seen"][[order[query] for query in ids]]
    values = mixtures(pools, runs, fitted, {split: collection.qrels_frame(split) for split in runs})
    judged = collection.qrels_frame("dev")
    values |= {title: ndcg(run, ids, judged[judged["relevance"] > 0]) for title, run in others.items()}
    mean, base = np.mean, values["learned"]
    rows = []
    for title, found in values.items():
        tests = [stats.ttest_rel(found[part], base[part]).pvalue for part in (slice(None), is_new)]
        means = [float(mean(found)), float(mean(found[~is_new])), float(mean(found[is_new]))]
        rows.append([f"`{title}`" if title in runs["dev"] else title, *(f"{each:.4f}" for each in means)])
        rows[-1] += ["" if title == "learned" or np.isnan(p) else f"{p:.4f}" for p in tests]
        print(*rows[-1], flush=True)
    return {"rows": rows}


def mixtures(
    pools: Mapping[str, JudgedPools], runs: Mapping[str, Mapping[str, Run]], fitted: Any, qrels: Mapping[str, Any]
) -> dict[str, Any]:
    """Return nDCG@10 (m,) of the queries of dev, by what ranks them."""
    train, dev = pools["train"], pools["dev"]
    trained, plain = train.trained, sorted(set(train.runs) - set(train.trained))
    best = max(plain, key=lambda each: train.ndcg[each][train.unseen].mean())
    svr = next(each for each in train.runs if each.startswith("svr"))
    values = {best: dev.ndcg[best], svr: dev.ndcg[svr]}

    def value(split: str, scores: Any) -> Any:
        judged = qrels[split][qrels[split]["relevance"] > 0]
        return ndcg(pool_run(pools[split].pool, scores), pools[split].pool.query_ids, judged)

    values["learned"] = value("dev", fitted.fusion_.scores(dev.features))
    values["learned, share 0"] = value("dev", LearnedFusion(unseen_share=0.0).learn(train).scores(dev.features))
    experts = learned_apart(train)
    values["fusion of known queries"], values["fusion of unseen queries"] = (
        value("dev", each.scores(dev.features)) for each in experts
    )
    # Experts and probabilities for training queries are those of the other folds.
    query_ids = np.array(train.pool.query_ids)
    fold_of, scores, new = fitted.folds_of(query_ids), np.zeros((2, len(train.pool))), np.zeros(len(query_ids))
    for fold in range(fold_of.max() + 1):
        outside, rows = train.take(fold_of != fold), fold_of[train.pool.query] == fold
        scores[:, rows] = [each.scores(train.features[:, rows]) for each in learned_apart(outside)]
        inside = query_ids[fold_of == fold].tolist()
        model = NewQueries.fit(runs["train"], outside.pool.query_ids, outside.unseen, trained)
        new[fold_of == fold] = model.probabilities({each: run.take(inside) for each, run in runs["train"].items()})
    share = float(train.unseen.mean())
    by_share = {each: value("train", mixed(train, scores, new, share, each)) for each in SHARES}
    highest, aim = max(each.mean() for each in by_share.values()), train.ndcg[best][train.unseen].mean()
    chosen = min(SHARES, key=lambda s: max(highest - by_share[s].mean(), aim - by_share[s][train.unseen].mean()))
    model = NewQueries.fit(runs["train"], query_ids.tolist(), train.unseen, trained)
    of_dev = {each: run.take(dev.pool.query_ids) for each, run in runs["dev"].items()}
    new, scores = model.probabilities(of_dev), np.array([each.scores(dev.features) for each in experts])
    values[f"mixture, share of training ({share:.2f})"] = value("dev", mixed(dev, scores, new, share, share))
    values[f"mixture, share chosen ({chosen:g})"] = value("dev", mixed(dev, scores, new, share, chosen))
    values["selected ranker"] = selected(train, dev, runs["train"], of_dev)
    return values


def learned_apart(judged: JudgedPools) -> tuple[LearnedFusion, LearnedFusion]:
    """Learn one fusion on the queries that are known, and one with the whole loss on those that are not."""
    known = LearnedFusion(unseen_share=0.0).learn(judged.take(~judged.unseen))
    return known, LearnedFusion(unseen_share=1.0).learn(judged)


def mixed(judged: JudgedPools, scores: Any, new: Any, share: float, presumed: float) -> Any:
    """Return the logarithm (n,) of the mixed probabilities of documents.

    ``new`` (m,) has the probabilities that queries are unseen at a share of ``share``; they are for ``presumed`` here.
    """
    odds = new * presumed / share, (1 - new) * (1 - presumed) / (1 - share)
    weight = (odds[0] / (odds[0] + odds[1]))[judged.pool.query]
    starts = np.flatnonzero(np.diff(judged.pool.query, prepend=-1))
    row = judged.pool.query
    parts = []
    for each in scores:
        power = np.exp(each - np.maximum.reduceat(each, starts)[row])
        parts.append(power / np.add.reduceat(power, starts)[row])
    return np.log((1 - weight) * parts[0] + weight * parts[1] + np.finfo(float).tiny)


def selected(train: JudgedPools, dev: JudgedPools, of_train: Mapping[str, Run], of_dev: Mapping[str, Run]) -> Any:
    """Return nDCG@10 (m,) of dev where each query is ranked by the ranker that is predicted to do it best."""
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    plain = sorted(set(train.runs) - set(train.trained))
    known = query_features(of_train, train.pool.query_ids, train.trained, plain)
    asked = query_features(of_dev, dev.pool.query_ids, train.trained, plain)
    predicted = []
    for name in train.runs:
        model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(0, 5, 11)))
        predicted.append(model.fit(known, train.ndcg[name]).predict(asked))
    values = np.array([dev.ndcg[name] for name in train.runs])
    return values[np.argmax(predicted, axis=0), np.arange(values.shape[1])]


if __name__ == "__main__":
    main()
