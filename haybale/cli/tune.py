"""``haybale tune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import haybale
from haybale.cli import options
from haybale.cli.application import TRIALS, command
from haybale.cli.options import RANKING, RESULTS, TEXTS, given, option
from haybale.cli.terminal import reporter, say, show


@command(TRIALS)
def tune(
    collection: options.Source,
    measure: Annotated[str | None, option("The measure to maximise; default: nDCG@10.", RANKING)] = None,
    split: options.Split = None,
    queries: Annotated[int | None, option("Number of queries, drawn at random; default: all.", TEXTS, min=1)] = None,
    language: options.Language = None,
    layout: options.Layout = None,
    missing_judgements: options.MissingJudgements = None,
    out: Annotated[Path | None, option("Write all values to a new JSON file.", RESULTS)] = None,
    random_state: options.RandomState = None,
) -> None:
    """Tune BM25's k1, b and k3 on judged queries; print the grid, and the options for the other commands."""
    import pandas as pd

    from haybale.folders import check_file, check_new_file, new_json, write_or_rescue
    from haybale.rankers.ranker import shown
    from haybale.timing import record_timings, timed

    if out is not None:
        check_new_file(out)
        check_file(out)
    how = given(measure=measure, split=split, n_queries=queries, language=language, random_state=random_state)
    with record_timings(reporter()):
        with timed("read collection"):
            read = haybale.open_collection(collection, layout, **given(missing_judgements=missing_judgements))
        found = [haybale.tune_bm25(read, unit, **how) for unit in ("passage", "document")]
    if out is not None:
        values = {"collection": read.name, "tuned": [tuned.to_dict() for tuned in found]}
        write_or_rescue(lambda path: new_json(path, values), out)
    for tuned in found:
        show(f"BM25 over {tuned.unit}s, {read.name}, {tuned.split}: {tuned.measure} of {tuned.n_queries:,} queries")
        of_k3 = [(k1, b, value) for k1, b, k3, value in tuned.grid if k3 == tuned.k3]
        grid = pd.DataFrame(of_k3, columns=["k1", "b", "value"]).pivot(index="k1", columns="b", values="value")
        pair, others = [tuned.k1, tuned.b], [row for row in tuned.grid if row[2] != tuned.k3]
        of_others = ", ".join(f"{shown(k3)} {value:.4f}" for *each, k3, value in others if each == pair)
        print(grid.to_string(float_format="{:.4f}".format, na_rep="–"))
        print(f"with k3 {shown(tuned.k3)}; the best of these with others: {of_others}")
        best = f"k1 {tuned.k1:g}, b {tuned.b:g}, k3 {shown(tuned.k3)}, {tuned.value:.4f}"
        folds = ""
        if tuned.gain is not None and tuned.interval is not None:
            folds = f"; gain by folds {tuned.gain:+.4f} (95 %: {tuned.interval[0]:+.4f} to {tuned.interval[1]:+.4f})"
        print(f"best: {best}; by default: {tuned.default:.4f}{folds}\n")
    show("for the other commands: " + " ".join(tuned.options for tuned in found))
    if out is not None:
        say(f"all values are in {out}")
