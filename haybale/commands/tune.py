"""``haybale tune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import haybale
from haybale.cli import options
from haybale.cli.application import TRIALS, command
from haybale.cli.options import RANKING, RESULTS, TEXTS, given, option
from haybale.cli.terminal import note, reporter, show


@command(TRIALS)
def tune(
    collection: options.Source,
    measure: Annotated[str | None, option("The measure to maximise. Default: nDCG@10.", RANKING)] = None,
    split: options.Split = None,
    queries: Annotated[
        int | None, option("Use this number of queries, drawn at random. Default: all.", TEXTS, min=1)
    ] = None,
    language: options.Language = None,
    compounds: options.Compounds = None,
    layout: options.Layout = None,
    missing_judgements: options.MissingJudgements = None,
    out: Annotated[Path | None, option("Write all values to this new JSON file. Default: print only.", RESULTS)] = None,
    random_state: options.RandomState = None,
) -> None:
    """Tune the parameters k1, b and k3 of BM25 on judged queries, and print them as options for other commands."""
    import pandas as pd

    from haybale.folders import check_file, check_new_file, new_json, write_or_rescue
    from haybale.ranking.value_texts import shown
    from haybale.timing import record_timings, timed

    if out is not None:
        check_new_file(out)
        check_file(out)
    how = given(
        measure=measure,
        split=split,
        n_queries=queries,
        language=language,
        random_state=random_state,
        compounds=compounds,
    )
    with record_timings(reporter()):
        with timed("read collection"):
            read = haybale.open_collection(collection, layout, **given(missing_judgements=missing_judgements))
        all_tuned = [haybale.tune_bm25(read, unit, **how) for unit in ("passage", "document")]
    if out is not None:
        values = {"collection": read.name, "tuned": [tuned.to_dict() for tuned in all_tuned]}
        write_or_rescue(lambda path: new_json(path, values), out)
    for tuned in all_tuned:
        k3 = shown(tuned.k3)
        measured = f"{tuned.measure} of {tuned.n_queries:,} queries"
        show(f"BM25 over {tuned.unit}s ({read.name}, {tuned.split}): {measured}, with k3 = {k3}")
        rows = [(k1, b, value) for k1, b, k3, value in tuned.grid if k3 == tuned.k3]
        grid = pd.DataFrame(rows, columns=["k1", "b", "value"]).pivot(index="k1", columns="b", values="value")
        print(grid.to_string(float_format="{:.4f}".format, na_rep="–"))
        others = [
            f"{shown(other_k3)} {value:.4f}"
            for k1, b, other_k3, value in tuned.grid
            if (k1, b) == (tuned.k1, tuned.b) and other_k3 != tuned.k3
        ]
        print(f"Best: k1 = {tuned.k1:g}, b = {tuned.b:g}, k3 = {k3} with {tuned.value:.4f}")
        print(f"The same k1 and b with other values of k3: {', '.join(others)}")
        print(f"Default parameters: {tuned.default:.4f}")
        if tuned.gain is not None and tuned.interval is not None:
            low, high = tuned.interval
            print(f"Gain by cross-validation: {tuned.gain:+.4f} (95 % confidence interval {low:+.4f} to {high:+.4f})")
        print()
    show("Options for the other commands: " + " ".join(tuned.options for tuned in all_tuned))
    if out is not None:
        note(f"Saved all values to {out}.")
