"""Measure how often each stopping rule reaches its target, what it costs, and how often a certificate holds.

    python benchmarks/bench_stopping.py FOLDER [--seeds 5] [--corpus-seeds 1] [--orders FOLDER] [--draws 1000]

FOLDER has topics whose documents all have a label: a folder with ``records.csv.gz`` for each (ASReview's columns), or
a BEIR collection whose queries are topics. The reading orders are simulated reviews; ``--orders`` keeps them.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from provenance import options, provenance, row, shown, table, write_json, write_page
from reading_orders import FIRST, FURTHER, LARGE, ReadingOrder, learner_commits, orders_of
from scipy.stats import binomtest

from haybale.review import QBCB, Quant, StoppingRule, parse_rule

TARGETS = (0.8, 0.9, 0.95)
HEURISTICS = ("consecutive(50)", "consecutive(100)", "consecutive(200)", "budget(500)")
ESTIMATES = (
    "cmh",
    "cmh(confidence=0.8)",
    "iph",
    "iph(released=true)",
    "iph(rate='power')",
    "quant",
    "quant(n_std=2)",
)
SAMPLES = (0.1, 0.25, 0.5)  # shares of the collection
HEAD = "{} reached | [95 %] | read, % | × oracle"
TEXT = """
Each review is simulated with `TopicLearner`, one document at a time, from one relevant and one irrelevant document,
which do not count. Of a collection of more than {large:,} documents, {first:.0%} are read so; of a smaller one, all
until the last relevant document, and {further:.0%} of the collection more. The others follow in the order of the
scores then. The learner is that of revision {learner}.

*reached* is the share of reviews in which at least the target share of the relevant documents had been read when the
rule said stop; a rule that never says so reads everything. Its Wilson interval counts topics, not reviews, since the
seeds of one topic are not independent. *read* is the mean share of the collection that was read, and *× oracle* the
median of documents read, divided by the fewest that reach the target in the same order. Rules are applied after every
document (`quant`: whenever the judged documents grew by 5 %), with their defaults where nothing is written.""".strip()


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--corpus-seeds", type=int, default=1, help="seeds of each topic of a BEIR collection")
    parser.add_argument("--orders", type=Path, help="folder that keeps the reading orders; default: they are not kept")
    parser.add_argument("--draws", type=int, default=1000)
    a = parser.parse_args()
    groups = orders_of(a.folder, a.seeds, a.corpus_seeds, a.orders)
    record = {
        "learner": learner_commits(a.orders),
        "groups": {group: summary(orders) for group, orders in groups.items()},
        "rules": {str(t): {g: rule_rows(orders, t) for g, orders in groups.items()} for t in TARGETS},
        "certificates": {g: certificate_rows(orders, a.draws) for g, orders in groups.items()},
        "peer": peer_rows([order for orders in groups.values() for order in orders]),
        "provenance": provenance(shown("bench_stopping.py", sys.argv[1:]), more=("scipy",)),
    }
    write_json(a.results / "stopping.json", record)
    write_page(a.results / "stopping.md", page(record))


def rule_rows(orders: list[ReadingOrder], target: float) -> dict[str, dict[str, float]]:
    """Return reliability and cost of each rule over reviews."""
    found = {}
    for text in (*HEURISTICS, *ESTIMATES):
        rule = with_target(text, target)
        found[text] = reliability(orders, [stop_of(rule, order) for order in orders], target)
    found["oracle"] = reliability(orders, [order.oracle(target) for order in orders], target)
    return found


def with_target(text: str, target: float) -> StoppingRule:
    rule = parse_rule(text)
    values = rule.get_params()
    return type(rule)(**{**values, "target": target}) if "target" in values else rule


def stop_of(rule: StoppingRule, order: ReadingOrder) -> int:
    """Return the first stop; Quant's from the probabilities that the learner had at the time."""
    if not isinstance(rule, Quant):
        return rule.first_stop(order.labels, len(order.labels))
    enough = order.recall - rule.n_std * order.deviation >= rule.target
    enough &= order.kept_at >= rule.at_least
    return int(order.kept_at[np.argmax(enough)]) if enough.any() else len(order.labels)


def reliability(orders: list[ReadingOrder], stops: list[int], target: float) -> dict[str, float]:
    reached = np.array([order.recall_at(stop) >= target for order, stop in zip(orders, stops, strict=True)])
    oracles = np.array([order.oracle(target) for order in orders])
    n_topics, share = len({order.topic for order in orders}), float(reached.mean())
    low, high = wilson(share, n_topics)
    read = np.array([stop / len(order.labels) for order, stop in zip(orders, stops, strict=True)])
    return {
        "reviews": len(orders),
        "topics": n_topics,
        "reached": share,
        "low": low,
        "high": high,
        "read": float(read.mean()),
        "times_oracle": float(np.median(np.array(stops) / oracles)),
    }


def wilson(share: float, n: int, z: float = 1.959964) -> tuple[float, float]:
    """Return the Wilson interval of a share of n."""
    middle, half = share + z**2 / (2 * n), z * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return float((middle - half) / (1 + z**2 / n)), float((middle + half) / (1 + z**2 / n))


# Certificates


def certificate_rows(orders: list[ReadingOrder], draws: int) -> list[dict[str, float]]:
    """Return coverage and cost of QBCB over draws of the sample, for each size of it and each target.

    A review is repeated over draws, since the certificate's probability is over the draw; the coverage of the worst
    review is what could falsify it.
    """
    found = []
    for size in SAMPLES:
        for target in TARGETS:
            each = [coverage(order, QBCB(target), size, draws, seed) for seed, order in enumerate(orders)]
            held, stopped, read = (np.array(values) for values in zip(*each, strict=True))
            worst = int(np.argmin(held))
            test = binomtest(round(held[worst] * draws), draws).proportion_ci(method="wilson")
            found.append(
                {
                    "sample": size,
                    "target": target,
                    "held": float(held.mean()),
                    "worst": float(held[worst]),
                    "worst_low": float(test.low),
                    "worst_high": float(test.high),
                    "stopped": float(stopped.mean()),
                    "read": float(read.mean()),
                }
            )
    return found


def coverage(order: ReadingOrder, rule: QBCB, share: float, draws: int, seed: int) -> tuple[float, float, float]:
    """Return how often the recall was reached, how often the rule stopped early, and the mean share that was judged.

    Only the relevant documents of a sample decide: their number is hypergeometric, and each set of that size is as
    likely as any other.
    """
    rng, labels = np.random.default_rng(seed), order.labels
    n, positions = len(labels), np.flatnonzero(labels) + 1
    size, total = round(share * n), len(positions)
    drawn = rng.hypergeometric(total, n - total, size, draws)
    chosen = np.argsort(rng.random((draws, total)), axis=1).argsort(axis=1) < drawn[:, None]
    needed = np.array([rule.required(r) or total + 1 for r in range(total + 1)])[drawn]
    reached_at = np.cumsum(chosen, axis=1) == needed[:, None]
    stops = np.where(reached_at.any(axis=1), positions[reached_at.argmax(axis=1)], n)
    enough = np.ceil(rule.target * total - 1e-9)
    held = np.searchsorted(positions, stops, side="right") >= enough
    judged = stops + (n - stops) * size / n  # those of the sample that were not reached are judged too, on average
    return float(held.mean()), float((stops < n).mean()), float(np.where(stops < n, judged, n).mean() / n)


# The peer


def peer_rows(orders: list[ReadingOrder]) -> dict[str, dict[str, int]]:
    """Return, by rule text, on how many topics pyterrier-tar stops at the same document; empty if it is not there.

    One review of each topic is compared, and CMH at eight positions of a large one: the peer takes seconds for each.
    """
    try:
        import pyterrier_tar as tar
    except ImportError:
        return {}
    found: dict[str, dict[str, int]] = {}
    for order in {order.topic: order for order in reversed(orders)}.values():
        n = len(order.labels)
        ranked = pd.DataFrame({"qid": "q", "docno": np.arange(n).astype(str), "rank": np.arange(n)})
        ranked = ranked.assign(label=order.labels.astype(int), score=order.probabilities)
        rng = np.random.default_rng(0)
        sampled = np.isin(np.arange(n), rng.choice(n, n // 2, replace=False))
        for name, (text, peer) in peers(tar, order.labels, sampled):
            given = {"sampled": sampled, "scores": order.probabilities}
            ours = parse_rule(text).first_stop(order.labels, n, **given)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # scipy's, on fits that fail
                [(stop, fired)] = peer.stop_report(ranked)[["stop", "fired"]].itertuples(index=False)
            theirs = int(stop) if fired else n
            counts = found.setdefault(name, {"topics": 0, "equal": 0, "earlier": 0, "later": 0})
            counts["topics"] += 1
            counts["equal" if ours == theirs else "earlier" if ours < theirs else "later"] += 1
    return found


def peers(tar: Any, labels: np.ndarray, sampled: np.ndarray) -> Iterator[tuple[str, tuple[str, Any]]]:
    """Yield a name, the text of our rule, and the peer's rule with the same settings."""
    n = len(labels)
    drawn = np.flatnonzero(sampled)
    control = pd.DataFrame({"qid": "q", "docno": drawn.astype(str), "label": labels[drawn].astype(int)})
    every = max(200, n // 8)

    def pair(text: str, peer: Any, name: str = "") -> tuple[str, tuple[str, Any]]:
        return name or f"`{text}`", (text, peer)

    yield pair("consecutive(100)", tar.ConsecutiveIrrelevant(100))
    yield pair("budget(500)", tar.FixedRound(49, batch_size=10, initial_documents=10))
    for t in TARGETS:
        cmh = tar.CMHHeuristic(t, n, batch_size=every)
        yield pair(f"cmh(target={t},every={every})", cmh, f"`cmh(target={t},every=…)`")
        yield pair(f"iph(target={t},released=true)", tar.IPHyperbolic(t, n))
        for tail in ("released", "model"):
            peer, name = tar.IPHyperbolic(t, n, tail=tail), f"`iph(target={t})`, the peer's `tail='{tail}'`"
            yield pair(f"iph(target={t})", peer, name)
        yield pair(f"iph(target={t},rate='power',released=true)", tar.PoissonPoint(t, n))
        yield pair(f"iph(target={t},rate='power')", tar.PoissonPoint(t, n))
        yield pair(f"quant(target={t},every=50)", tar.Quant(t))
        yield pair(f"quant(target={t},every=50,n_std=2)", tar.QuantCI(t))
        yield pair(f"qbcb(target={t})", tar.QBCB(control, t))


# The page


def summary(orders: list[ReadingOrder]) -> str:
    sizes, relevant = [len(order.labels) for order in orders], [int(order.labels.sum()) for order in orders]
    return (
        f"{len({order.topic for order in orders})} topics, {len(orders)} reviews of {min(sizes):,} to {max(sizes):,} "
        f"documents, {min(relevant)} to {max(relevant)} of them relevant"
    )


def page(record: dict[str, Any]) -> list[str]:
    names = list(record["groups"])
    text = TEXT.format(large=LARGE, first=FIRST, further=FURTHER, learner=", ".join(record["learner"]))
    lines = ["# When stopping rules stop", "", text, ""]
    lines += [f"- {group}: {about}" for group, about in record["groups"].items()]
    for target in TARGETS:
        of_target = record["rules"][str(target)]
        lines += ["", f"## Target {target:.0%}", *table(" | ".join(["rule", *map(HEAD.format, names)]))]
        lines += [
            row(text if text == "oracle" else f"`{text}`", *cells([of_target[group][text] for group in names]))
            for text in of_target[names[0]]
        ]
    lines += certificates(record) + peer_table(record)
    return [*lines, "", record["provenance"]]


def cells(found: list[dict[str, float]]) -> Iterator[str]:
    for each in found:
        yield f"{each['reached']:.2f}"
        yield f"{each['low']:.2f}–{each['high']:.2f}"
        yield f"{100 * each['read']:.1f}"
        yield f"{each['times_oracle']:.2f}"


def certificates(record: dict[str, Any]) -> list[str]:
    head = "topics | sample, % | target | held | worst review | [95 %] | stopped early | judged, %"
    fewest = ", ".join(f"{QBCB(t).fewest_relevant()} at {t:.0%}" for t in TARGETS)
    lines = ["", "## The certificate", "", CERTIFICATE.format(fewest=fewest), *table(head)]
    for group, rows in record["certificates"].items():
        for each in rows:
            interval = f"{each['worst_low']:.3f}–{each['worst_high']:.3f}"
            lines.append(
                row(
                    group,
                    f"{100 * each['sample']:.0f}",
                    f"{each['target']:.0%}",
                    f"{each['held']:.3f}",
                    f"{each['worst']:.3f}",
                    interval,
                    f"{each['stopped']:.2f}",
                    f"{100 * each['read']:.1f}",
                )
            )
    return lines


def peer_table(record: dict[str, Any]) -> list[str]:
    if not record["peer"]:
        return []
    lines = ["", "## Beside pyterrier-tar", "", PEER, *table("rule | topics | equal | ours earlier | ours later")]
    return lines + [row(name, *counts.values()) for name, counts in record["peer"].items()]


CERTIFICATE = """
`qbcb` with a confidence of 95 %, over repeated draws of the random sample of each review. *held* is the share of draws
in which the target was reached when the rule stopped (or at the end), and *worst review* the smallest such share of a
review, with the Wilson interval of its draws. *judged* counts the sample and what was read. The sample needs relevant
documents to certify anything: {fewest}.""".strip()
PEER = """
Positions of pyterrier-tar 0.1.2 in the same orders. Its `IPHyperbolic` and `PoissonPoint` repeat two slips of the code
that was released with the paper: the last document of each window is not counted, and the expected number of documents
left is too small by the factor (1 - b)² (`tail='released'`); and `PoissonPoint` fits the rate at the first position of
each window. haybale follows the paper, with the middle of each window, and repeats the released code with
`released=true`.""".strip()


if __name__ == "__main__":
    main()
