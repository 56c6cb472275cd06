"""``haybale interactions``."""

from __future__ import annotations

from typing import Annotated, Any

import haybale
from haybale.cli import options
from haybale.cli.application import ENGINES, command
from haybale.cli.options import MACHINE, RANKING, RESULTS, given, option
from haybale.cli.resuming import explain_interrupt
from haybale.cli.terminal import note, reporter, show
from haybale.cli.values import parse_part, parse_ranker
from haybale.errors import InputError


@command(ENGINES)
def interactions(
    engine: options.EngineFolder,
    ranker: Annotated[
        str, option("A pli ranker, such as pli(bm25-doc,model='bert'), or a YAML or JSON file.", RANKING)
    ],
    out: Annotated[str, option("The store: a folder or an fsspec address; an unfinished one is continued.", RESULTS)],
    split: Annotated[str, option("The split whose queries are read. Default: train.", RANKING)] = "train",
    set_values: options.SetValues = None,
    dtype: Annotated[
        str | None, option("The type of stored values: float16 or float32. Default: float16.", RESULTS)
    ] = None,
    pairs_per_chunk: Annotated[
        int | None, option("The number of pairs in a chunk, the most that is lost. Default: 4096.", RESULTS, min=1)
    ] = None,
    shard: Annotated[
        str | None, option("Read part i of n (i/n, such as 2/8) on this machine. Default: everything.", MACHINE)
    ] = None,
    device: options.Device = None,
) -> None:
    """Encode pairs of query and candidate paragraphs into a store, for pli(…,store=FOLDER).

    After an interruption, the same command continues the work.
    """
    from haybale.rankers import QueryBatch, Training
    from haybale.timing import record_timings

    part = parse_part("shard", shard, "2/8")
    chosen = parse_ranker(ranker, set_values)
    if not isinstance(chosen, haybale.PLI):
        raise InputError(f"--ranker must be a pli ranker, such as pli(bm25-doc), found {chosen}")
    opened = haybale.Engine.open(engine, device=device)
    queries = opened.collection.queries.take(opened.collection.split(split).queries)
    with explain_interrupt(), record_timings(reporter()):
        pairs = chosen.pairs(opened)  # raises for a missing model before the first stage is fitted
        inner = chosen.ranker._fitted_copy(Training.of(opened))
        seen = inner.encoder_queries | chosen._own_encoder_queries(opened)  # no ranker learns from these queries
        rows = [row for row, query in enumerate(queries.ids.to_pylist()) if query not in seen]
        if len(rows) < len(queries):
            note(f"{len(queries) - len(rows):,} queries are left out, because an encoder was trained on them")
            queries = queries.take(rows)
        run = inner.run(QueryBatch(opened, queries, split), chosen.n_documents, out_of_fold=True)
        how: dict[str, Any] = {"k": chosen.n_documents, "n": chosen.n, "m": chosen.m, "select": chosen.select}
        how |= given(dtype=dtype, pairs_per_chunk=pairs_per_chunk)
        done = haybale.interact(opened, queries, run, pairs, out, shard=part, **how)
    kept = f", {done.kept:,} were in the store already" if done.kept else ""
    rates = f": {done.rates}" if done.pairs else ""
    note(f"{done.pairs:,} pairs read in {done.seconds:.1f} s{kept}{rates}")
    show(repr(haybale.InteractionStore(out)) if part is None else f"Saved shard {shard} of {out}.")
