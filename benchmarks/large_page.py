"""The page of bench_large.py: what was measured, size by size, and what is extrapolated from it, which says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import resampled
from bench_serving import cost, mb
from provenance import cell, table

Record = dict[str, Any]
DASK = "train svr, two Dask workers "
LARGE, TIGHT, SUPPORT = "two large bags", "two bags in 2 GB", "support documents a bag (mean)"
ROWS, CANDIDATES = "rows a bag is trained on (mean)", "candidate rows"
ROWS_A_BAG = 30_000  # what SVR gives a bag where 24 of all queries would have more than twice as many


def page(records: dict[str, Record]) -> str:
    """What holds for all sizes, a section each, largest first, and how costs grow with the size."""
    other, first = f"{resampled.OTHER:.0%}", f"{resampled.FIRST:.0%}"
    lines = [
        "# A collection of GerDaLIR's size, from end to end on text",
        "",
        "Text is **resampled**: documents are copies of gesetze's with about 24 passages each; a passage is as"
        " long as one of the document it is a copy of, and its words are drawn from that with replacement,"
        f" {other} of them from all words of gesetze. A query is drawn likewise from the words of a real one, and"
        f" relevant to it is a copy of each relevant document, the first copy {first} of the time. Words, document"
        " frequencies and lengths are real, sentences are not: **no figure of effectiveness means anything"
        " elsewhere**. Recall@100 only shows that a stage finds what there is to be found; queries of training"
        " and of test are drawn from different real ones.",
        "",
        "Vectors are TF-IDF, everything else as the defaults are. Every stage is a process of its own that starts"
        " from the files of the one before it, does what `haybale index`, `train` or `rank` does, on all queries"
        " of a split or a part of them, and can be taken alone. Seconds and memory are those of the whole"
        " process, from its start to its files, by the clock and, in parentheses, of all cores that computed; `ms"
        " a query` leaves out importing and opening the engine. One core computed, where the stage does not say *two"
        " cores*; other work used the second, or both, at times: the seconds of the cores are those to go by. The"
        " number behind a stage is its share of the training or the test queries; behind *of* stands that of the"
        " model.",
    ]
    for record in sorted(records.values(), key=lambda record: -size_of(record)):
        # The last call is in the provenance too.
        calls = [f"- before it: `{call}`" for call in record["calls"][:-1]]
        notes = [line for note in record.get("notes", ()) for line in ("", note)]  # written by hand
        lines += ["", *section(record["stages"]), *notes, "", record["provenance"], *calls]
    by_size = sorted(records.values(), key=size_of)
    return "\n".join([*lines, *growth(by_size), *two_workers(by_size), ""])


def size_of(record: Record) -> int:
    return int(record["stages"]["make"]["counts"]["passages"])


def section(found: dict[str, Record]) -> list[str]:
    """One size."""
    counts = found["make"]["counts"]
    queries = ", ".join(f"{split} {counts[split]:,}" for split in ("train", "dev", "test"))
    lines = [
        f"## {counts['passages']:,} passages",
        "",
        f"{counts['documents']:,} documents, {counts['words']:,} words; queries: {queries}.",
        *table("stage|queries|s|ms a query|memory, MB|disk, MB|Recall@100", (row(*each) for each in found.items())),
    ]
    trained = sorted((of for name, of in found.items() if name.startswith("train svr ")), key=lambda of: of["n"])
    if trained:
        n, parts = trained[-1]["n"], of_training(trained[-1])
        named = ", ".join(f"{name} {1e3 * taken / n:.1f}" for name, taken in parts.items() if 1e3 * taken / n >= 0.05)
        lines += ["", f"Searches for training `svr` on {n:,} queries, ms a query by the clock: {named}."]
    if len([of for of in trained if of["n"] < counts["train"]]) > 1:
        lines += whole_training(found, trained, counts["train"])
    rankings = sorted((of for of in found.items() if of[0].startswith("rank ")), key=lambda of: of[1]["n"])
    ranked = {name.split()[1]: of for name, of in rankings}
    parts = {name: of for name, of in ranked.items() if of["n"] < counts["test"]}
    if parts:
        n = counts["test"]
        named = ", ".join(f"`{name}` {of['work']['cpu'] / of['n'] * n / 60:.0f}" for name, of in parts.items())
        lines += ["", f"In proportion, **not measured**, ranking all {n:,} test queries takes CPU-minutes: {named}."]
    return lines


def row(name: str, found: Record) -> list[str]:
    n, recall = found.get("n"), found.get("Recall@100")
    taken = cost(everywhere(found))
    queries = ["", taken, ""] if n is None else [cell(n), taken, f"{1e3 * found['work']['wall'] / n:.1f}"]
    return [
        name + (", two cores" if found.get("cores", 1) > 1 else "") + (", resumed" if found.get("resumed") else ""),
        *queries,
        mb(found["peak"]),
        mb(found["disk"]),
        "" if recall is None else f"{recall:.3f}",
    ]


def of_training(found: Record) -> Record:
    """Seconds of training before the bags, by what they were for."""
    named = {name.removesuffix(" (train)"): taken for name, taken in found["stages"].items() if "(train)" in name}
    return {name: taken for name, taken in named.items() if not name.startswith("fit ")}


def bags_of(found: Record) -> float:
    """Seconds of the bags."""
    return float(sum(taken for name, taken in found["stages"].items() if name.startswith("fit svr")))


def alone(found: Record) -> float:
    """The share of its seconds in which a process on one core computed, and others did not."""
    return float(found["work"]["cpu"] / found["work"]["wall"])


def growing(points: list[tuple[float, float]]) -> float:
    """The exponent of a curve: the slope of least squares through the logarithms."""
    return float(np.polyfit(*np.log(np.array(points)).T, 1)[0])


def extrapolated(points: list[tuple[float, float]], n: float) -> float:
    """Along the curve, from its last point."""
    return points[-1][1] * (n / points[-1][0]) ** growing(points)


def whole_training(found: dict[str, Record], trained: list[Record], n: int) -> list[str]:
    """What all training queries would take: searches along their curve, bags along theirs; and what they took."""
    large, tight = ([of for name, of in found.items() if name.startswith(f"train {what}")] for what in (LARGE, TIGHT))
    parts, every = ([of for of in trained if (of["n"] == n) == whole] for whole in (False, True))
    points, last = [(of["n"], alone(of) * sum(of_training(of).values())) for of in parts], parts[-1]
    rows, few = last["facts"][CANDIDATES] / last["n"] * n, last["facts"]["bags"]
    n_bags = -(-int(rows) // ROWS_A_BAG) if rows > 2 * ROWS_A_BAG * few else few
    seconds, of_bags = extrapolated(points, n), n_bags * a_bag(last)
    kinds = ("`svr`", trained), (LARGE, large), (TIGHT, tight)
    lines = [
        "",
        "Bags: of `svr` as it is, up to about 30,000 rows each; *two large bags*, of half of the rows each and with"
        " BM25 and kNN over documents alone as candidates and evidence, which searches for less; and the same where"
        " kernel values may take 2 GB (`memory_budget`) and not half of the machine's memory: what does not fit is"
        " computed again. A bag's support documents need kernel values with each other: 4 bytes times the square of"
        " their number, at least. CPU seconds: those by the clock times the share in which the process had its core.",
        *table(
            "trained|queries|bags|rows a bag|CPU s a bag|support documents a bag|their values, GB|memory, MB",
            (bag_row(name, of) for name, some in kinds for of in some),
        ),
        "",
        f"**Extrapolated** from shares of the queries: `svr` on all {n:,} has {rows:,.0f} candidate rows, since one"
        f" query has {rows / n:.1f}, in {n_bags} bags. Searches grow as queries^{growing(points):.2f} and take"
        f" {seconds / 3600:.1f} CPU-hours, and bags of {last['facts'][ROWS]:,.0f} rows, as measured,"
        f" {of_bags / 60:.0f} minutes: together {(seconds + of_bags) / 3600:.1f} hours.",
    ]
    for of in every:
        facts, clock = of["facts"], (sum(of_training(of).values()), bags_of(of))
        lines[-1] += (
            f" **Measured**, on {of['cores']} cores: {facts[CANDIDATES]:,} rows, {facts['bags']} bags of"
            f" {facts[ROWS]:,.0f}; {of['cpu'] / 3600:.1f} CPU-hours, {of['wall'] / 3600:.1f} by the clock, of which"
            f" searches {clock[0] / 60:.0f} minutes and bags {clock[1] / 60:.0f}; {of['peak'] / 1e9:.1f} GB."
        )
    if len(large) > 1:
        curve, documents = (sorted((of["facts"][ROWS], value(of)) for of in large) for value in (a_bag, support_of))
        each, values = few * extrapolated(curve, rows / few), 4 * extrapolated(documents, rows / few) ** 2
        lines += [
            "",
            f"There were {few} bags once however many the queries, of {rows / few:,.0f} rows each for all of them:"
            f" {each / 3600:.1f} hours (a bag grows as rows^{growing(curve):.2f}), and, as support documents grow as"
            f" rows^{growing(documents):.2f}, {values / 1e9:.0f} GB of kernel values, where half of 24 GiB is 13 GB."
            " That is why there are more bags where they would be so large.",
        ]
    return lines


def a_bag(found: Record) -> float:
    """CPU seconds."""
    return alone(found) * bags_of(found) / float(found["facts"]["bags"])


def support_of(found: Record) -> float:
    return float(found["facts"][SUPPORT])


def bag_row(name: str, found: Record) -> list[Any]:
    facts = found["facts"]
    # Of two cores nobody knows how long either computed for bags, and how long for searches.
    seconds = f"{a_bag(found):,.3g}" if found.get("cores", 1) == 1 else ""
    counts = f"{facts[ROWS]:,.0f}", seconds, f"{support_of(found):,.0f}"
    return [name, found["n"], facts["bags"], *counts, f"{4e-9 * support_of(found) ** 2:.2f}", mb(found["peak"])]


def two_workers(records: list[Record]) -> list[str]:
    """One process with one thread beside two workers of a Dask cluster on the same machine."""
    rows: list[list[Any]] = []
    for record in records:
        for name, two in record["stages"].items():
            if name.startswith(DASK):
                one = record["stages"][f"train svr {name.removeprefix(DASK)}"]
                for how, of in (("one thread", one), ("two Dask workers", two)):
                    memory = " + ".join(mb(each["peak"]) for each in (of, *of.get("workers", ())))
                    parts = sum(of_training(of).values()), bags_of(of)
                    rows.append([how, size_of(record), of["n"], cost(everywhere(of)), *parts, memory])
    return [
        "",
        "## Dask",
        "",
        "Training `svr` in one process with one thread, and with its bags on two Dask workers of one thread each, on"
        " both cores, which other work used too; memory is that of the process, then of each worker. A worker makes"
        " the Gram matrices of its bags itself, where threads of one process share them.",
        *table("`svr`|passages|queries|s|searches, s|bags, s|memory, MB", rows),
        "",
        "Dask helps where bags are trained, and where passages are encoded into a store (`haybale embed`), which TF-IDF"
        " does not need. It does not help today where a collection is read and indexed, where an engine is searched,"
        " for training or for ranking (the threads of one machine do it), nor where weights of `learned` are learned.",
    ]


def everywhere(found: Record) -> Record:
    """With the seconds of workers."""
    return found | {"cpu": found["cpu"] + sum(each["cpu"] for each in found.get("workers", ()))}


def growth(records: list[Record]) -> list[str]:
    """The stages that all sizes have, side by side; those of rankings by their largest share of the queries."""
    if len(records) < 2:
        return []
    of_sizes: list[dict[str, Record]] = []
    for record in records:
        rankings = sorted(
            (of for of in record["stages"].items() if of[0].startswith("rank ")), key=lambda of: of[1]["n"]
        )
        of_sizes.append({name: record["stages"][name] for name in ("make", "index")})
        of_sizes[-1] |= {" ".join(name.split()[:2]): of for name, of in rankings}
    rows = []
    for name in (name for name in of_sizes[-1] if all(name in of for of in of_sizes)):
        taken = [of[name]["cpu"] for of in of_sizes]
        if name.startswith("rank "):
            taken = [1e3 * of[name]["work"]["cpu"] / of[name]["n"] for of in of_sizes]
        p = growing(list(zip(map(size_of, records), taken, strict=True)))
        unit = "ms a query" if name.startswith("rank ") else "s"
        rows.append([f"{name}, {unit}", *(f"{each:,.3g}" for each in taken), f"{p:.2f}"])
    columns = "|".join(f"{size_of(record):,} passages" for record in records)
    return ["", "## How it grows with the passages, CPU", *table(f"stage|{columns}|exponent", rows)]
