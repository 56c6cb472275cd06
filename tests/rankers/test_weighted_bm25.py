"""BM25 with learned weights: features and loss against slow oracles, what is learned, and what is saved."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from support.ranker_cases import Fitted
from support.topics import SVR, word

import haybale
from haybale import Engine, evaluate, parse
from haybale.analysis import Analyzer
from haybale.collections import Collection, CollectionBuilder
from haybale.compounds import Compounds
from haybale.errors import FileFormatError
from haybale.manifest import read_tensors, write_tensors
from haybale.rankers import WeightedBM25
from haybale.rankers import svr as svr_module
from haybale.rankers.models.term_features import KINDS, TermFeatures
from haybale.rankers.models.term_weights import TermPools, term_weights

STEPS = (1, 2, 3, 5, 8, 13, 21, 40)
GERMAN = Analyzer("german", compounds=Compounds.learn("german", ["miete", "vertrag", "mietevertrag"] * 5))


def reach(distance: int) -> int:
    return next((number for number, step in enumerate(STEPS) if distance <= step), len(STEPS))


def features_of(
    text: str, analyzer: Analyzer, frequent: list[str], df: dict[str, int], n_texts: int
) -> dict[str, dict[tuple[str, str, int], float]]:
    """Return the features of each term of a text, read token by token."""
    tokens, places = analyzer.tokens(text), []
    for place, token in enumerate(tokens):
        terms = analyzer.terms(token) if analyzer.is_word(token) else []
        places += [(place, term, number > 0) for number, term in enumerate(terms)]
    counts = Counter(term for _, term, _ in places)
    found: dict[str, dict[tuple[str, str, int], float]] = {term: {} for term in counts}
    for place, term, is_part in places:
        each: list[tuple[str, str, int]] = []
        for kind, offset in zip(KINDS[1:5], (-2, -1, 1, 2), strict=True):
            if 0 <= place + offset < len(tokens):
                each.append((kind, tokens[place + offset], 0))
        for token in frequent:
            others = [other - place for other, there in enumerate(tokens) if there == token and other != place]
            if others:
                nearest = min(others, key=lambda distance: (abs(distance), distance))
                each.append(("distance from", token, reach(abs(nearest)) + (0 if nearest < 0 else len(STEPS) + 1)))
        each.append(("distance from the start", "", reach(place + 1)))
        each.append(("distance from the end", "", reach(len(tokens) - place)))
        each.append(("tenth of the query", "", place * 10 // len(tokens)))
        each.append(("part of a compound", "", int(is_part)))
        for feature in each:
            found[term][feature] = found[term].get(feature, 0) + 1 / counts[term]
    for term, count in counts.items():
        rarity = int(1.5 * math.log(n_texts / min(max(df.get(term, 0), 1), n_texts)))
        once = [("term", term, 0), ("rarity", "", rarity), ("occurrences in the query", "", min(count, 6))]
        found[term] |= dict.fromkeys([*once, ("length of the query", "", int(math.log2(len(counts))))], 1.0)
    return found


TEXTS = st.lists(
    st.sampled_from(["miete", "mietevertrag", "der", "[ref]", ".", "3", "haus", "vertrag", "x-y"]), max_size=60
)


@settings(deadline=None, max_examples=60)
@given(st.lists(TEXTS.map(" ".join), min_size=1, max_size=5), st.integers(1, 4))
def test_features_are_those_of_the_oracle(texts: list[str], min_count: int) -> None:
    df = {"miet": 3, "haus": 40}

    def frequencies(terms: Any) -> Any:
        return np.array([df.get(term, 0) for term in terms], dtype=np.int64)

    tokens = [GERMAN.tokens(text) for text in texts]
    features = TermFeatures.learn(tokens, GERMAN, frequencies, 50, min_count)
    frequent = list({token for text in texts for token in GERMAN.tokens(text)})
    oracle = [features_of(text, GERMAN, frequent, df, 50) for text in texts]
    occurrences: Counter[tuple[str, str, int]] = Counter()
    for text, found in zip(texts, oracle, strict=True):
        times = Counter(term for token in GERMAN.tokens(text) if GERMAN.is_word(token) for term in GERMAN.terms(token))
        for term, values in found.items():
            for feature, value in values.items():
                once = feature[0] in ("term", "rarity", "occurrences in the query", "length of the query")
                occurrences[feature] += 1 if once else round(value * times[term])
    names = [
        (KINDS[kind], about, int(value))
        for kind, about, value in zip(features.kinds, features.words, features.values, strict=True)
    ]
    assert len(set(names)) == len(names)
    rare = {name for name in occurrences if name[1] and name[0] != "term" and occurrences[name] < 2}
    expected = {name for name, times in occurrences.items() if times >= min_count}
    assert set(names) - rare == expected - rare
    terms = features.of(tokens, GERMAN, frequencies)
    assert terms.terms == [list(found) for found in oracle]
    rows = terms.features.toarray()
    for row, values in zip(rows, (found[term] for found in oracle for term in found), strict=True):
        given = {name: value for name, value in zip(names, row.tolist(), strict=True) if value}
        assert given == pytest.approx({name: value for name, value in values.items() if name in set(names)})


def pools_of(seed: int) -> TermPools:
    rng = np.random.default_rng(seed)
    n_terms, n_documents = rng.integers(0, 5, 7), rng.integers(1, 6, 7)
    tables = [rng.random((n, m)).astype(np.float32) for n, m in zip(n_terms, n_documents, strict=True)]
    offsets = np.append(0, np.cumsum(n_terms))
    features = sparse.random(offsets[-1], 6, 0.5, "csr", np.float32, rng)
    relevant = [np.flatnonzero(rng.random(n) < 0.5) for n in n_documents]
    numbers = [rng.choice(8, len(each), replace=False) for each in relevant]
    counts = rng.integers(1, 4, offsets[-1]).astype(np.float32)
    return TermPools.of(features, counts, offsets, tables, relevant, numbers)


@pytest.mark.parametrize("seed", range(5))
def test_loss_is_that_of_the_formula(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("haybale.rankers.models.term_weights._TERMS_PER_BLOCK", 4)
    pools, rng = pools_of(seed), np.random.default_rng(seed)
    theta, chosen = rng.normal(size=7), rng.random(7) < 0.7
    weights = term_weights(pools.features, pools.counts, theta)

    def loss(weights: Any) -> float:
        total = 0.0
        for query in np.flatnonzero(chosen):
            own = weights[pools.terms[query] : pools.terms[query + 1]].astype(float)
            n = pools.documents[query + 1] - pools.documents[query]
            table = pools.shares[pools.cells[query] : pools.cells[query + 1]].reshape(len(own), n)
            scores = own @ table.astype(float)
            mine = [place for place, of in enumerate(pools.query) if of == query]
            for place in mine:
                document = pools.document[place]
                times = sum(
                    chosen[of] for of, other in zip(pools.query, pools.document, strict=True) if other == document
                )
                likelihood = scores[pools.relevant[place] - pools.documents[query]] - np.log(np.exp(scores).sum())
                total -= likelihood / len(mine) / math.sqrt(times)
        return total

    found, gradient = pools.loss(theta, chosen)
    assert found == pytest.approx(loss(weights), rel=1e-5)
    for place in range(7):
        step = np.zeros(7)
        step[place] = 1e-2
        numeric = (pools.loss(theta + step, chosen)[0] - pools.loss(theta - step, chosen)[0]) / 2e-2
        assert gradient[place] == pytest.approx(numeric, rel=2e-2, abs=2e-3)
    best = pools.fit(0.1, chosen, np.zeros(7))
    value = pools.loss(best, chosen)[0] + 0.1 * float(best[1:] @ best[1:])
    for _ in range(20):
        other = best + rng.normal(size=7) * 0.1
        assert pools.loss(other, chosen)[0] + 0.1 * float(other[1:] @ other[1:]) >= value - 1e-4


@pytest.mark.parametrize("settings", ["", "(k1=2,b=0.3,k3=1)", "(k3=0)"])
def test_without_weights_the_ranking_is_that_of_bm25(fitted: Fitted, settings: str) -> None:
    strong = fitted("bm25-weighted" + (settings[:-1] + "," if settings else "(") + "l2=1e12)")
    scale = np.exp(strong.theta_[0])
    run, expected = strong.rank("dev"), fitted("bm25-doc" + settings).rank("dev")
    for query in run.query_ids:
        scores = {doc_id: score / scale for doc_id, score in run[query]}
        assert scores == pytest.approx(dict(expected[query]), rel=1e-5)


def marked_collection() -> Collection:
    """Return documents of three words, and queries with the words of several documents; "about" marks the right one."""
    rng, builder = np.random.default_rng(0), CollectionBuilder("marked", language="english")
    for number in range(120):
        builder.add_document(f"d{number:03d}", [" ".join(word(10 * number + place) for place in range(3))])
    for split, first, last in (("train", 0, 80), ("test", 80, 120)):
        for number in range(first, last):
            others = rng.choice([each for each in range(120) if each != number], 4, replace=False)
            texts = [word(10 * int(each)) + " " + word(10 * int(each) + 1) for each in others]
            texts.insert(int(rng.integers(5)), f"about {word(10 * number)}")
            builder.add_query(f"{split}{number}", " and ".join(texts), split=split)
            builder.add_judgement(split, f"{split}{number}", f"d{number:03d}", 1)
    return builder.build()


def test_what_is_learned_holds_for_documents_without_judgements() -> None:
    collection = marked_collection()
    engine = Engine(collection)
    values = {
        name: evaluate(parse(name).fit(engine).rank("test"), collection.qrels_frame("test"), ["MRR@10"])[
            "MRR@10"
        ].mean()
        for name in ("bm25-doc", "bm25-weighted(l2=1)")
    }
    assert values["bm25-doc"] < 0.4
    assert values["bm25-weighted(l2=1)"] > 0.9
    ranker = WeightedBM25(l2=1).fit(engine)
    table = ranker.feature_weights_
    after = table[(table["kind"] == "word before") & (table["word"] == "about")]["weight"]
    assert after.iloc[0] > 0.2
    assert ranker.losses_["loss out of fold"] < ranker.losses_["loss without weights"]


def test_a_training_query_has_weights_of_the_other_folds(topics: Collection) -> None:
    """Other judgements of the queries of a fold change nothing in how they are ranked out of fold."""
    engine, qrels = Engine(topics), topics.qrels_frame("train")
    ranker: Any = WeightedBM25(min_count=2).fit(engine, "train", qrels)
    run = ranker.out_of_fold("train")
    assert run != ranker.rank("train")
    for fold in range(2):
        inside = [query for query, of in zip(ranker.query_ids_, ranker.fold_of_, strict=True) if of == fold]
        changed = qrels.copy()
        changed.loc[changed["query_id"].isin(inside), "doc_id"] = "d01"
        other: Any = WeightedBM25(min_count=2).fit(engine, "train", changed.drop_duplicates(["query_id", "doc_id"]))
        assert not np.array_equal(other.theta_, ranker.theta_)
        part, expected = other.out_of_fold("train").take(inside), run.take(inside)
        for query in inside:
            assert dict(part[query]) == pytest.approx(dict(expected[query]), rel=1e-5)


def test_saved_features_that_do_not_fit_the_weights(fitted: Fitted, tmp_path: Path) -> None:
    fitted("bm25-weighted(min_count=2)").save_state(tmp_path)
    path = tmp_path / "term_weights.safetensors"
    tensors = {name: array[..., :-1].copy() for name, array in read_tensors(path).items()}
    write_tensors(path, tensors)
    state = {"n_texts": 40, "losses": {}}
    with pytest.raises(FileFormatError, match="features"):
        WeightedBM25().load_state(tmp_path, state, fitted("bm25").engine_)


@pytest.mark.filterwarnings("ignore:.* training queries for")
@pytest.mark.filterwarnings("ignore:.* bags have no relevant row")
def test_saved_rankers_keep_the_default_evidence_of_their_time(
    topics: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, names = Engine(topics), (f"svr({SVR})", f"learned(bm25,knn,svr({SVR}),depth=20)")
    with monkeypatch.context() as patch:
        patch.setattr(svr_module, "default_evidence", svr_module.searches)
        earlier = [parse(name).fit(engine) for name in names]
        runs = [ranker.rank("dev") for ranker in earlier]
        for number, ranker in enumerate(earlier):
            ranker.save(tmp_path / str(number))
    for number, (ranker, run) in enumerate(zip(earlier, runs, strict=True)):
        loaded = haybale.load(tmp_path / str(number), engine)
        assert str(loaded) == str(ranker)
        assert loaded.rank("dev") == run
        new = parse(names[number]).fit(engine)
        assert new.rank("dev") != run
    assert haybale.load(tmp_path / "0", engine)._cache_key() != parse(names[0]).fit(engine)._cache_key(), (
        "they share no cached run"
    )
