"""The cross-domain experiment: which half of BERT-PLI transfers to another domain, and whether fine-tuning it helps.

    python benchmarks/papers/cross_domain.py FIRST SECOND --model bert-base-uncased --tuned A B --out FOLDER

Althammer, Hofstätter & Hanbury, "Cross-domain Retrieval in the Legal and Patent Domains: a Reproducibility Study", ECIR
2021, figure 2 and table 3. FIRST and SECOND are engines of two domains. The pair encoder is used as it is or
fine-tuned on the paragraphs of one domain. The network is trained on one domain. All are tested on both:

    R1 untuned, network of A     R3 tuned on A, network of A     R5 tuned on B, network of A
    R2 untuned, network of B     R4 tuned on A, network of B     R6 tuned on B, network of B

After an interruption, the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from haybale import (
    BERTPLI,
    CrossPairs,
    Engine,
    Interactions,
    InteractionStore,
    PairEncoder,
    Ranker,
    Run,
    interact,
    parse,
)
from haybale.collections import Queries
from haybale.embeddings.lineage import queries_of_model
from haybale.errors import HaybaleError, InputError
from haybale.evaluation import paired_tests
from haybale.folders import check_file, replace_json, whole_file
from haybale.pairs.bert_pli import PAPER
from haybale.rankers import Training
from haybale.timing import timed

# The encoder (0: untuned; 1, 2: tuned on that domain) and the network's domain of each result.
CELLS = {"R1": (0, 1), "R2": (0, 2), "R3": (1, 1), "R4": (1, 2), "R5": (2, 1), "R6": (2, 2)}


@dataclass(frozen=True)
class Micro:
    """Micro-averaged precision, recall and F1 over all pairs of query and document; 0 where undefined."""

    precision: float
    recall: float
    f1: float


def micro(yes: int, hits: int, relevant: int) -> Micro:
    """Return the figures for ``yes`` positive decisions, ``hits`` of them right, and ``relevant`` documents in all.

    Relevant documents that were never retrieved count in ``relevant``.

    >>> micro(yes=4, hits=2, relevant=10)
    Micro(precision=0.5, recall=0.2, f1=0.2857142857142857)
    """
    ratio = [hits / below if below else 0.0 for below in (yes, relevant, (yes + relevant) / 2)]
    return Micro(*ratio)


@dataclass(frozen=True)
class Domain:
    """The queries of one collection, their candidates in training and test, and the relevant documents."""

    name: str
    engine: Engine
    queries: Queries
    train: Run
    test: Run
    relevant: Mapping[str, Sequence[str]]

    @classmethod
    def of(
        cls,
        engine: Engine,
        ranker: Ranker,
        *,
        split: str = "test",
        k: int = 50,
        k_train: int = 50,
        add_relevant: bool = False,
        n_train: int | None = None,
        n_test: int | None = None,
        random_state: int | None = 0,
    ) -> Domain:
        """Find candidates with a ranker, which is fitted on the split ``train``."""
        if split == "train":
            raise InputError("networks are trained on the split 'train', and tested on another")
        collection, rng = engine.collection, np.random.default_rng(random_state)
        training = Training.of(engine, "train")
        fitted = ranker._fitted_copy(training)
        relevant: dict[str, Sequence[str]] = {}
        chosen = {}
        for name, limit in (("train", n_train), (split, n_test)):
            numbers, found = collection.split(name).queries, collection.relevant_ids(name)
            rows = np.flatnonzero([len(each) > 0 for each in found])
            if limit is not None and limit < len(rows):
                rows = np.sort(rng.choice(rows, size=limit, replace=False))
            queries = collection.queries.take(numbers[rows])
            ids = queries.ids.to_pylist()
            own = [collection.doc_ids[number].as_py() if number >= 0 else None for number in queries.own.tolist()]
            # A query's own document is never retrieved, so it is neither found nor missed.
            others = [[doc_id for doc_id in found[row] if doc_id != mine] for row, mine in zip(rows, own, strict=True)]
            relevant |= dict(zip(ids, others, strict=True))
            chosen[name] = [query for query in ids if relevant[query]]
        run = fitted.run(training.all_queries, max(k_train, 1), out_of_fold=True).top(k_train).take(chosen["train"])
        if add_relevant:
            run = with_relevant(run, relevant, k_train, rng)
        asked = collection.queries.take(collection.query_numbers(chosen[split]))
        return cls(collection.name, engine, collection.queries, run, fitted.rank(asked, depth=k), relevant)


def with_relevant(run: Run, relevant: Mapping[str, Sequence[str]], k: int, rng: np.random.Generator) -> Run:
    """Add all relevant documents to a run, and draw others of it at random, up to ``k`` documents a query.

    This is for training where retrieval finds few relevant documents, as for the paper's patents.
    """
    rows = []
    for query in run.query_ids:
        scores = dict(run[query])
        least, wanted = min(scores.values(), default=0.0), list(relevant[query])[:k]
        others = [document for document in scores if document not in set(wanted)]
        drawn = rng.permutation(len(others))[: k - len(wanted)]
        named = [*wanted, *(others[place] for place in sorted(drawn.tolist()))]
        rows += [(query, document, scores.get(document, least)) for document in named]
    return Run.from_frame(pd.DataFrame(rows, columns=["query_id", "doc_id", "score"]))


def without_seen(domains: Sequence[Domain], encoders: Sequence[PairEncoder]) -> list[Domain]:
    """Return the domains without the training queries that an encoder was trained on, as its ``training.json`` says.

    The second encoder was trained on the first domain, the third on the second, and the first perhaps on both. Raise
    :class:`InputError` if an encoder was trained on test queries, or on all training queries.
    """
    found = []
    for number, domain in enumerate(domains):
        models = [getattr(encoders[place], "name", "") for place in (0, number + 1)]
        seen = frozenset[str]().union(*(queries_of_model(model) for model in models if model))
        tested = [query for query in domain.test.query_ids if query in seen]
        if tested:
            raise InputError(
                f"{domain.name}: a pair encoder must not be trained on test queries, but was on {tested[0]!r} "
                f"({len(tested)} queries); train it on others, or test on another split"
            )
        kept = [query for query in domain.train.query_ids if query not in seen]
        if not kept:
            raise InputError(
                f"{domain.name}: networks need training queries that no pair encoder was trained on, found none; train "
                "the encoder on some of them only"
            )
        found.append(replace(domain, train=domain.train.take(kept)))
    return found


def cross_domain(
    domains: Sequence[Domain],
    encoders: Sequence[PairEncoder],
    out: str | Path,
    *,
    n: int | None = None,
    m: int | None = None,
    select: str = "first",
    cutoff: int = 5,
    n_seeds: int = 5,
    cells: Sequence[str] = ("lstm", "gru"),
    random_state: int | None = 0,
    **network: Any,
) -> pd.DataFrame:
    """Compute R1 to R6. Interactions are stored, so that after an interruption the same call goes on.

    The networks learn from the queries that no pair encoder was trained on.

    Parameters
    ----------
    domains : two Domain
    encoders : three PairEncoder
        Untuned, tuned on the first domain, tuned on the second. Equal encoders share their interactions.
    out : str or Path
        A folder for the interactions.
    n, m, select : optional
        As of :class:`~haybale.Reading`.
    cutoff : int, default 5
        The first stage decides for its first documents, so many.
    n_seeds : int, default 5
    cells : sequence of str, default ("lstm", "gru")
    random_state : int, default 0
    **network
        Parameters of :class:`~haybale.BERTPLI` in place of the paper's.

    Returns
    -------
    frame
        A row for each test domain, of the first stage and of each result and cell: ``precision``, ``recall`` and ``f1``
        (means over the seeds), ``f1_sd``, ``f1_min`` and ``f1_max``, and ``p_t`` and ``difference`` of a paired t-test
        of the queries' F1, means over the seeds, against the first stage's.
    """
    if len(domains) != 2 or len(encoders) != 3:
        raise InputError(f"expected 2 domains and 3 encoders, found {len(domains)} and {len(encoders)}")
    domains = without_seen(domains, encoders)
    described = [encoder.describe() for encoder in encoders]
    read: dict[tuple[int, int, str], Interactions] = {}
    for number, encoder in enumerate(encoders):
        first = described.index(described[number])
        for place, domain in enumerate(domains):
            for split, run in (("train", domain.train), ("test", domain.test)):
                if first == number:
                    where = Path(out) / f"encoder-{number}-domain-{place + 1}-{split}"
                    how: dict[str, Any] = {"n": n, "m": m, "select": select, "k": max(1, _deepest(run))}
                    with timed(f"read pairs ({where.name})"):
                        interact(domain.engine, domain.queries, run, encoder, where, **how)
                    read[number, place, split] = InteractionStore(where).read()
                else:
                    read[number, place, split] = read[first, place, split]
    rows = []
    baselines = []
    for domain in domains:
        yes = _by_rank(domain.test, cutoff)
        rows.append(_row("first stage", None, domain, [yes], None))
        baselines.append(_f1_of_queries(yes, domain))
    for cell in cells:
        for name, (which, of) in CELLS.items():
            settings = PAPER | network | {"cell": cell, "n_seeds": n_seeds, "random_state": random_state}
            domain = domains[of - 1]
            with timed(f"train {name}, {cell}"):
                model = BERTPLI(**settings).fit(read[which, of - 1, "train"], domain.relevant)
            for place, tested in enumerate(domains):
                found = read[which, place, "test"]
                decided = [scores > model.threshold_ for scores in model.scores_by_seed(found)]
                answers = [found.blocks.loc[yes, ["query_id", "doc_id"]] for yes in decided]
                rows.append(_row(name, cell, tested, answers, baselines[place]))
    return pd.DataFrame(rows)


def _deepest(run: Run) -> int:
    return int(run.coded()[1].max(initial=0))


def _by_rank(run: Run, cutoff: int) -> pd.DataFrame:
    frame: pd.DataFrame = run.top(cutoff).to_frame()
    return frame[["query_id", "doc_id"]]


def _row(
    name: str, cell: str | None, domain: Domain, answers: list[pd.DataFrame], baseline: NDArray[np.float64] | None
) -> dict[str, Any]:
    """Return a row of the table from the positive decisions for a domain's test queries, one frame for each seed."""
    queries = domain.test.query_ids
    total = sum(len(set(domain.relevant[query])) for query in queries)
    found = [micro(len(yes), int(_is_relevant(yes, domain).sum()), total) for yes in answers]
    f1 = np.array([each.f1 for each in found])
    row: dict[str, Any] = {"test": domain.name, "result": name, "cell": cell or "", "queries": len(queries)}
    row |= {"precision": float(np.mean([each.precision for each in found]))}
    row |= {"recall": float(np.mean([each.recall for each in found])), "f1": float(f1.mean())}
    row |= {
        "f1_sd": float(f1.std(ddof=1)) if len(f1) > 1 else 0.0,
        "f1_min": float(f1.min()),
        "f1_max": float(f1.max()),
    }
    if baseline is None:
        return row | {"difference": 0.0, "p_t": 1.0}
    test = paired_tests(np.mean([_f1_of_queries(yes, domain) for yes in answers], axis=0), baseline)
    return row | {"difference": test.difference, "p_t": test.p_t}


def _is_relevant(yes: pd.DataFrame, domain: Domain) -> NDArray[np.bool_]:
    pairs = zip(yes["query_id"], yes["doc_id"], strict=True)
    return np.array([document in set(domain.relevant[query]) for query, document in pairs], dtype=bool)


def _f1_of_queries(yes: pd.DataFrame, domain: Domain) -> NDArray[np.float64]:
    """Return the F1 of each test query, (n_queries,)."""
    right = yes.assign(right=_is_relevant(yes, domain)).groupby("query_id")["right"].agg(["sum", "count"])
    right = right.reindex(domain.test.query_ids).fillna(0)
    relevant = np.array([len(set(domain.relevant[query])) for query in domain.test.query_ids])
    found = 2 * right["sum"].to_numpy(dtype=np.float64) / (right["count"].to_numpy(dtype=np.float64) + relevant)
    return np.asarray(found)


def cross_domain_table(table: pd.DataFrame, domains: Sequence[str]) -> str:
    """Format as Markdown, test domains side by side; † marks p < .05 in the paired t-test against the first stage."""
    lines = ["| | cell |" + "".join(f" {name}: precision | recall | F1 | ± | from–to |" for name in domains)]
    lines.append("| --- | --- |" + " --: | --: | --: | --: | --: |" * len(domains))
    for (name, cell), part in table.groupby(["result", "cell"], sort=False):
        line = f"| {name} | {cell} |"
        for domain in domains:
            row = part[part["test"] == domain].iloc[0]
            sign = "†" if row["p_t"] < 0.05 else ""
            line += f" {row['precision']:.3f} | {row['recall']:.3f} | {row['f1']:.3f}{sign} | {row['f1_sd']:.3f} |"
            line += f" {row['f1_min']:.3f}–{row['f1_max']:.3f} |"
        lines.append(line)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=Path, help="folder of an engine, the first domain")
    parser.add_argument("second", type=Path, help="folder of an engine, the second domain")
    parser.add_argument("--out", type=Path, required=True, help="folder for interactions and results")
    parser.add_argument("--model", required=True, help="pair encoder before fine-tuning: a hub id or folder")
    parser.add_argument("--tuned", nargs=2, help="folders of the same, tuned on the first domain and on the second")
    parser.add_argument("--ranker", default="bm25-doc(k1=0.9,b=0.4)", help="finds the candidates; default: %(default)s")
    parser.add_argument("--split", default="test", help="split whose queries are tested; default: test")
    parser.add_argument("--k", type=int, default=50, help="candidates of a query; default: 50")
    parser.add_argument("--n", type=int, help="paragraphs of a query; default: 54")
    parser.add_argument("--m", type=int, help="passages of a candidate; default: 40")
    parser.add_argument("--select", default="first", help="first, as in the paper (the default), or best")
    parser.add_argument("--max-length", type=int, help="tokens of a pair; default: 256")
    parser.add_argument("--precision", default="auto", help="auto (the default), float32 or bfloat16")
    parser.add_argument("--add-relevant", action="store_true", help="add relevant documents to training candidates")
    parser.add_argument("--n-train", type=int, help="training queries of each domain, drawn at random; default: all")
    parser.add_argument("--n-test", type=int, help="test queries of each domain, drawn at random; default: all")
    parser.add_argument("--cutoff", type=int, default=5, help="documents the first stage decides for; default: 5")
    parser.add_argument("--seeds", type=int, default=5, help="networks of each result; default: 5")
    parser.add_argument("--epochs", type=int, help="of each network; default: 60")
    parser.add_argument("--device", help="of the pair encoder: auto (the default), cpu, cuda, …")
    parser.add_argument("--random-state", type=int, default=0)
    a = parser.parse_args()
    try:
        experiment(a)
    except HaybaleError as error:
        sys.exit(f"cross_domain.py: {error}")


def experiment(a: Any) -> None:
    check_file(a.out / "results.json")
    models = (a.model, *(a.tuned or (a.model, a.model)))
    read_by = {"max_length": a.max_length, "precision": a.precision, "device": a.device}
    encoders = {name: CrossPairs(name, **read_by) for name in models}
    names = ("split", "k", "add_relevant", "n_train", "n_test")
    how = {name: getattr(a, name) for name in names} | {"k_train": a.k}
    domains = [
        Domain.of(Engine.open(folder), parse(a.ranker), **how, random_state=a.random_state)
        for folder in (a.first, a.second)
    ]
    read = {"n": a.n, "m": a.m, "select": a.select}
    more = {} if a.epochs is None else {"epochs": a.epochs}
    chosen = [encoders[name] for name in models]
    more |= {"cutoff": a.cutoff, "n_seeds": a.seeds, "random_state": a.random_state}
    table = cross_domain(domains, chosen, a.out, **read, **more)
    text = cross_domain_table(table, [domain.name for domain in domains])
    settings = how | read | {"ranker": str(parse(a.ranker)), "models": models, "cutoff": a.cutoff, "seeds": a.seeds}
    replace_json(a.out / "results.json", {"settings": settings, "rows": json.loads(table.to_json(orient="records"))})
    with whole_file(a.out / "results.md") as file:
        file.write(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
