"""The cross-domain experiment: which half of BERT-PLI carries over to another domain, and whether tuning it helps.

Althammer, Hofstätter & Hanbury, "Cross-domain Retrieval in the Legal and Patent Domains: a Reproducibility Study", ECIR
2021, figure 2 and table 3. A pair encoder is untuned, or tuned on the paragraphs of one domain; a network is trained on
the documents of one; both are tested on both:

    R1 untuned, network of A     R3 tuned on A, network of A     R5 tuned on B, network of A
    R2 untuned, network of B     R4 tuned on A, network of B     R6 tuned on B, network of B
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from haybale.collections import Queries
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.evaluation.significance import paired_tests
from haybale.pairs import BERTPLI, PAPER, Interactions, InteractionStore, PairEncoder, interact
from haybale.parameters import BOOLEAN, COUNT, COUNT_OR_NONE, RANDOM_STATE, Constraints, check_parameters
from haybale.rankers import Ranker, Training
from haybale.retrieval import Run
from haybale.timing import timed

# Encoder and domain of the network of each result: 0 is untuned, 1 and 2 are the first domain and the second.
CELLS = {"R1": (0, 1), "R2": (0, 2), "R3": (1, 1), "R4": (1, 2), "R5": (2, 1), "R6": (2, 2)}
_RANGES: dict[str, Constraints] = {
    "k": COUNT,
    "k_train": COUNT,
    "cutoff": COUNT,
    "n_seeds": COUNT,
    "n_train": COUNT_OR_NONE,
    "n_test": COUNT_OR_NONE,
    "add_relevant": BOOLEAN,
    "random_state": RANDOM_STATE,
}


@dataclass(frozen=True)
class Micro:
    """Precision, recall and F1 over all pairs of a query and a document; 0 where nothing is below the line."""

    precision: float
    recall: float
    f1: float


def micro(yes: int, hits: int, relevant: int) -> Micro:
    """Of how many documents were said to be relevant, how many of these are, and how many there are.

    Relevant documents that were never retrieved are among the latter.

    >>> micro(yes=4, hits=2, relevant=10)
    Micro(precision=0.5, recall=0.2, f1=0.2857142857142857)
    """
    ratio = [hits / below if below else 0.0 for below in (yes, relevant, (yes + relevant) / 2)]
    return Micro(*ratio)


@dataclass(frozen=True)
class Domain:
    """What of a collection the experiment needs: candidates of training and test queries, and what is relevant."""

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
        """Candidates by a ranker, which is fitted on the split ``train``; see :func:`cross_domain`."""
        if split == "train":
            raise InputError("networks are trained on the split 'train', and tested on another")
        collection, rng = engine.collection, np.random.default_rng(random_state)
        training = Training.of(engine, "train")
        fitted = ranker.fitted(training)
        relevant: dict[str, Sequence[str]] = {}
        chosen = {}
        for name, limit in (("train", n_train), (split, n_test)):
            numbers, found = collection.split(name).queries, collection.relevant_ids(name)
            rows = np.flatnonzero([len(each) > 0 for each in found])
            if limit is not None and limit < len(rows):
                rows = np.sort(rng.choice(rows, size=limit, replace=False))
            ids = collection.queries.take(numbers[rows]).ids.to_pylist()
            relevant |= dict(zip(ids, (found[row] for row in rows), strict=True))
            chosen[name] = ids
        run = fitted.run_out_of_fold(training.batch, max(k_train, 1)).top(k_train).take(chosen["train"])
        if add_relevant:
            run = with_relevant(run, relevant, k_train, rng)
        asked = collection.queries.take(collection.query_numbers(chosen[split]))
        return cls(collection.name, engine, collection.queries, run, fitted.rank(asked, depth=k), relevant)


def with_relevant(run: Run, relevant: Mapping[str, Sequence[str]], k: int, rng: np.random.Generator) -> Run:
    """A run in which every relevant document is, with others of the run drawn at random up to ``k`` in all.

    For training alone, where retrieval finds few of them: the paper's patents have 20 candidates so.
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
    """R1 to R6 with two collections as the two domains; what was read is kept, so that the same call goes on.

    Parameters
    ----------
    domains : two Domain
    encoders : three PairEncoder
        Untuned, tuned on the first domain, tuned on the second; of two equal ones the interactions are made once.
    out : str or Path
        A folder for the interactions.
    n, m, select : optional
        As of :class:`~haybale.Reading`.
    cutoff : int, default 5
        The first stage says yes to its first so many.
    n_seeds : int, default 5
    cells : sequence of str, default ("lstm", "gru")
    random_state : int, default 0
    **network
        Of :class:`~haybale.BERTPLI`, over the paper's settings.

    Returns
    -------
    frame
        A row for each test domain, of the first stage and of each result and cell: ``precision``, ``recall`` and ``f1``
        (means over the seeds), ``f1_sd``, ``f1_min`` and ``f1_max``, and ``p_t`` and ``difference`` of a paired t-test
        of the queries' F1, means over the seeds, against the first stage's.
    """
    check_parameters("cross_domain", {"cutoff": cutoff, "n_seeds": n_seeds}, _RANGES)
    if len(domains) != 2 or len(encoders) != 3:
        raise InputError(f"expected 2 domains and 3 encoders, found {len(domains)} and {len(encoders)}")
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
    """What was said of a domain's test queries, a frame a seed."""
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
    """(n_queries,)"""
    right = yes.assign(right=_is_relevant(yes, domain)).groupby("query_id")["right"].agg(["sum", "count"])
    right = right.reindex(domain.test.query_ids).fillna(0)
    relevant = np.array([len(set(domain.relevant[query])) for query in domain.test.query_ids])
    found = 2 * right["sum"].to_numpy(dtype=np.float64) / (right["count"].to_numpy(dtype=np.float64) + relevant)
    return np.asarray(found)


def cross_domain_table(table: pd.DataFrame, domains: Sequence[str]) -> str:
    """As Markdown: a row a result and cell, the test domains side by side; † where p of the paired t-test is < .05."""
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
