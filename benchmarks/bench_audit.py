"""Measure how often the certificate ``audit`` holds at every look, and what it costs beside other rules.

    python benchmarks/bench_audit.py FOLDER [--seeds 2] [--orders FOLDER] [--draws 1000]

FOLDER and ``--orders`` are those of bench_stopping.py. The order in which the ranking proposes documents is fixed
beforehand; the draws are made on top of it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from bench_stopping import coverage
from numba import njit
from provenance import options, provenance, shown, table, write_json, write_page
from reading_orders import RECORDS, ReadingOrder, learner_commits, orders_of
from scipy.stats import binomtest

from haybale.review import CMH, QBCB
from haybale.review.betting import BettingTest, bet
from haybale.review.draws import CUT_BY_RELEVANT_DRAW, PATIENCE

TARGETS = (0.8, 0.9, 0.95)
CONFIDENCE = 0.95
QBCB_SHARE = 0.5  # of the collection, in the sample of qbcb
SYNTHETIC = "made reading orders"
PLANS = [(patience, cut) for patience in (0.4, PATIENCE, 1.0, 1.4) for cut in (0.0, 0.1, 0.2, 0.4)]
PLAN_DRAWS = 20  # for each plan
TEXT = """
`audit` with a confidence of 95 %. The reading orders are those of [stopping.md](stopping.md): one simulated review for
each seed, in whose order the ranking proposes documents here, so that the learner does not learn from what is drawn.
The learner is that of revision {learner}. The made orders have relevant documents at exponentially rarer places:
`20,000 with 300` and `100,000 with 50` at a mean place of 2 % and 1 % of the collection; in `hidden at the end`, 100 of
300 are among the last tenth of 20,000. Each review is repeated with {draws:,} seeds of the draws.

*held at every look* is the share of repetitions in which no look until the stop excluded the true number of relevant
documents; *reached* the share in which the target was reached at the stop; each with the worst review and its Wilson
interval. *read* is the mean share of the collection that was judged when the rule said stop. *trial* is the first trial
of the rule: three draws in four after 50 irrelevant documents in a row, with the same bets. *knowing* bets on the true
number, which the best forecast of a learner cannot beat by much. `qbcb` has a sample of half the collection, and a
repetition in which it does not stop counts as read whole.""".strip()

HEAD = (
    "reviews | held at every look | worst [95 %] | reached | worst [95 %] | read, % | trial | knowing | `cmh` "
    "| `cmh` reached | `qbcb` | oracle"
)
PLANS_TEXT = """
Two constants of the plan were chosen on these topics: its *patience*, 0.7 (`PATIENCE`), and its *cut*, 0.2, which a
relevant draw takes off (`CUT_BY_RELEVANT_DRAW`). *chosen on the others* is the mean over topics, each with the
constants that read least on all other topics of the group; *best* are the constants that read least on all topics
({draws:,} seeds of the draws).""".strip()


@njit(nogil=True)
def bet_knowing(
    totals: np.ndarray, capital: np.ndarray, n_totals: int, is_relevant: bool, n_found: int, n_unread: int, total: int
) -> int:
    """Bet as :func:`haybale.review.betting.bet` does, but against each number on the true one, and on it alone."""
    n_left, truth = 0, total - n_found
    for i in range(n_totals):
        missing = totals[i] - n_found
        if missing <= truth:  # the truth is no evidence against a smaller number
            totals[n_left], capital[0, n_left] = totals[i], capital[0, i]
            n_left += 1
            continue
        if missing > n_unread or missing == (0 if is_relevant else n_unread):
            continue
        after = capital[0, i] * (truth / missing if is_relevant else (n_unread - truth) / (n_unread - missing))
        if after < 1 / (1 - CONFIDENCE):
            totals[n_left], capital[0, n_left] = totals[i], after
            n_left += 1
    return n_left


@njit(nogil=True)
def audited(
    labels: np.ndarray,
    totals: np.ndarray,
    capital: np.ndarray,
    target: float,
    threshold: float,
    patience: float,
    cut: float,
    after: int,
    share: float,
    knows: bool,
    seed: int,
) -> tuple[int, int, bool, int]:
    """Return documents read and relevant ones found at the stop, whether the bound always held, and the draws by then.

    Draws are due as :class:`haybale.review.DrawPlan` says for its patience and cut; with ``after`` from 0, a share of
    all documents is drawn from the first ``after`` irrelevant ones in a row on.
    """
    np.random.seed(seed)  # noqa: NPY002 - compiled code has no generators
    n, total, n_left = len(labels), labels.sum(), len(totals)
    unread, where = np.arange(n), np.arange(n)
    n_unread, n_found, n_draws, proposed = n, 0, 0, 0
    wait, credit, has_begun, holds = 0.0, 0.0, False, True
    while n_unread:
        if after >= 0:
            has_begun |= wait >= after
            credit += share * has_begun
            is_drawn = credit >= 1
            credit -= is_drawn
        else:
            missing = int((n_found + 1e-9) / target) + 1 - n_found
            is_drawn = n_found > 0 and wait * missing >= patience * n_unread
        if is_drawn:
            document = unread[np.random.randint(n_unread)]  # noqa: NPY002
        else:
            while where[proposed] < 0:
                proposed += 1
            document = proposed
        is_relevant = labels[document]
        if is_drawn:
            n_draws += 1
            if knows:
                n_left = bet_knowing(totals, capital, n_left, is_relevant, n_found, n_unread, total)
            else:
                n_left = bet(totals, capital, n_left, is_relevant, n_found, n_unread, threshold)
            i = np.searchsorted(totals[:n_left], total)
            holds &= i < n_left and totals[i] == total
            wait *= 1 - cut * is_relevant
        else:
            wait = 0.0 if is_relevant else wait + 1
        n_unread -= 1
        n_found += is_relevant
        last = unread[n_unread]
        unread[where[document]] = last
        where[last] = where[document]
        where[document] = -1
        if n_draws and n_found:
            end = np.searchsorted(totals[:n_left], n_found + n_unread, side="right")
            largest = max(n_found, totals[end - 1] if end else 0)
            if largest <= int((n_found + 1e-9) / target):
                return n - n_unread, n_found, holds, n_draws
    return n, n_found, holds, n_draws


def repeated(order: ReadingOrder, target: float, draws: int, plan: dict[str, float]) -> dict[str, float]:
    """Return what one review has over seeds of the draws."""
    n, results = len(order.labels), []
    for seed in range(draws):
        test = BettingTest(n, CONFIDENCE)
        test._capital[0] = 1.0 if plan["knows"] else test._capital[0]
        results.append(
            audited(order.labels, test._totals, test._capital, target, 1 / (1 - CONFIDENCE), seed=seed, **plan)
        )
    stop, n_found, holds, n_drawn = (np.array(values) for values in zip(*results, strict=True))
    return {
        "held": float(holds.mean()),
        "reached": float((n_found >= target * order.labels.sum() - 1e-9).mean()),
        "read": float(stop.mean() / n),
        "drawn": float(n_drawn.mean() / n),
    }


def plan_of(
    patience: float = PATIENCE,
    cut: float = CUT_BY_RELEVANT_DRAW,
    after: int = -1,
    share: float = 1.0,
    knows: bool = False,
) -> dict[str, Any]:
    """Return when documents are drawn, as :func:`audited` takes it, and whether bets know the true number."""
    return {"patience": patience, "cut": cut, "after": after, "share": share, "knows": knows}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--orders", type=Path, help="folder that keeps the reading orders; default: they are not kept")
    parser.add_argument("--draws", type=int, default=1000)
    a = parser.parse_args()
    groups = orders_of(a.folder, a.seeds, 1, a.orders) | {SYNTHETIC: made_orders()}
    record = {
        "learner": learner_commits(a.orders),
        "draws": a.draws,
        "groups": {name: len({order.topic for order in orders}) for name, orders in groups.items()},
        "rows": [
            topic_row(name, order, t, a.draws) for t in TARGETS for name, orders in groups.items() for order in orders
        ],
        "plans": plan_rows(groups),
        "provenance": provenance(shown("bench_audit.py", sys.argv[1:]), more=("scipy",)),
    }
    write_json(a.results / "audit.json", record)
    write_page(a.results / "audit.md", page(record))


def made_orders() -> list[ReadingOrder]:
    """Return reading orders in which relevant documents become rarer, and one that hides a third of them at the end."""
    rng, empty = np.random.default_rng(0), np.zeros(0)
    shapes = {"20,000 with 300": (20_000, 300, 0.02), "100,000 with 50": (100_000, 50, 0.01)}
    shapes["hidden at the end"] = (20_000, 200, 0.02)
    orders = []
    for name, (n, n_relevant, mean) in shapes.items():
        chance = np.exp(-np.arange(n) / (mean * n))
        labels = np.zeros(n, dtype=bool)
        labels[rng.choice(n, n_relevant, replace=False, p=chance / chance.sum())] = True
        if name == "hidden at the end":
            labels[n - n // 10 + rng.choice(n // 10, 100, replace=False)] = True
        orders.append(ReadingOrder(name, 1, labels, empty, empty, empty, empty))
    return orders


def topic_row(group: str, order: ReadingOrder, target: float, draws: int) -> dict[str, Any]:
    """Return what each rule does on one review."""
    n = len(order.labels)
    print(f"  {target} {order.topic} {order.seed}", flush=True)
    cmh = CMH(target).first_stop(order.labels, n)
    held, _, read = coverage(order, QBCB(target), QBCB_SHARE, draws, order.seed)
    return {
        "group": group,
        "topic": order.topic,
        "seed": order.seed,
        "target": target,
        "documents": n,
        "relevant": int(order.labels.sum()),
        "audit": repeated(order, target, draws, plan_of()),
        "trial": repeated(order, target, min(draws, 100), plan_of(after=50, share=0.75)),
        "knowing": repeated(order, target, min(draws, 100), plan_of(knows=True)),
        "cmh": {"reached": float(order.recall_at(cmh) >= target), "read": cmh / n},
        "qbcb": {"reached": held, "read": read},
        "oracle": {"reached": 1.0, "read": order.oracle(target) / n},
    }


def plan_rows(groups: dict[str, list[ReadingOrder]]) -> list[dict[str, float]]:
    """Return the mean share read with the plan, with the best one on all other topics, and with the best one on all."""
    rows = []
    for target in TARGETS:
        for group in groups:
            if group == SYNTHETIC:
                continue
            firsts = list({order.topic: order for order in reversed(groups[group])}.values())
            read = np.array(
                [[repeated(order, target, PLAN_DRAWS, plan_of(*plan))["read"] for plan in PLANS] for order in firsts]
            )
            others = [read[np.arange(len(read)) != i].mean(axis=0).argmin() for i in range(len(read))]
            best = int(read.mean(axis=0).argmin())
            rows.append(
                {
                    "group": group,
                    "target": target,
                    "shipped": float(read[:, PLANS.index((PATIENCE, CUT_BY_RELEVANT_DRAW))].mean()),
                    "left_out": float(read[np.arange(len(read)), others].mean()),
                    "best": float(read[:, best].mean()),
                    "patience": PLANS[best][0],
                    "cut": PLANS[best][1],
                }
            )
            print(f"  plans {target} {group}: {rows[-1]}", flush=True)
    return rows


def page(record: dict[str, Any]) -> list[str]:
    learner = ", ".join(revision[:7] for revision in record["learner"])
    lines = ["# A certificate at every look", "", TEXT.format(learner=learner, draws=record["draws"])]
    for target in TARGETS:
        rows = []
        for group in record["groups"]:
            of_group = [r for r in record["rows"] if (r["group"], r["target"]) == (group, target)]
            parts = [[r] for r in of_group] if group == SYNTHETIC else [of_group]
            rows += [group_cells(group, part, record["draws"]) for part in parts]
        lines += ["", f"## Target {target:.0%}", *table(HEAD, rows)]
    head = " | ".join(f"{t:.0%}: read, % | `cmh` | `qbcb` | oracle" for t in TARGETS)
    lines += ["", "## Each small review", *table(f"topic | documents | relevant | {head}", topic_cells(record["rows"]))]
    head = "topics | target | read, % | chosen on the others | best | its patience | its cut"
    plans = [
        [
            *(r["group"], f"{r['target']:.0%}"),
            *(f"{100 * r[name]:.1f}" for name in ("shipped", "left_out", "best")),
            *(str(r["patience"]), str(r["cut"])),
        ]
        for r in record["plans"]
    ]
    lines += ["", "## When to draw", "", PLANS_TEXT.format(draws=PLAN_DRAWS), *table(head, plans)]
    return [*lines, "", record["provenance"]]


def group_cells(group: str, rows: list[dict[str, Any]], draws: int) -> list[str]:
    """Return a line about the reviews of a group, or about one made order."""
    name = f"{len({r['topic'] for r in rows})} topics, {group}" if len(rows) > 1 else rows[0]["topic"]
    cells = [name]
    for measure in ("held", "reached"):
        values = [r["audit"][measure] for r in rows]
        interval = binomtest(round(min(values) * draws), draws).proportion_ci(method="wilson")
        cells += [f"{np.mean(values):.3f}", f"{min(values):.3f} ({interval.low:.3f}–{interval.high:.3f})"]
    means = [
        np.mean([r[rule]["read"] for r in rows]) for rule in ("audit", "trial", "knowing", "cmh", "qbcb", "oracle")
    ]
    cmh = np.mean([r["cmh"]["reached"] for r in rows])
    shown_means = [f"{100 * mean:.1f}" for mean in means]
    return [*cells, *shown_means[:4], f"{cmh:.2f}", *shown_means[4:]]


def topic_cells(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Return a line for each topic with a collection of its own, the mean over its reviews."""
    lines = []
    for topic in dict.fromkeys(r["topic"] for r in rows if r["group"] == RECORDS):
        of_topic = [r for r in rows if r["topic"] == topic]
        cells = [topic, f"{of_topic[0]['documents']:,}", f"{of_topic[0]['relevant']:,}"]
        for target in TARGETS:
            of_target = [r for r in of_topic if r["target"] == target]
            for rule in ("audit", "cmh", "qbcb", "oracle"):
                cells.append(f"{100 * np.mean([r[rule]['read'] for r in of_target]):.1f}")
        lines.append(cells)
    return lines


if __name__ == "__main__":
    main()
