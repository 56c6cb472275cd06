"""``haybale interactions`` and ``cross-domain``: what BERT-PLI reads, kept; and the experiment of its paper."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import haybale
from haybale.cli import options
from haybale.cli.application import ENGINES, TRIALS, command
from haybale.cli.options import MACHINE, RANKING, RESULTS, argument, given, option
from haybale.cli.terminal import reporter, resumable, say, show
from haybale.cli.values import parse_part, parse_ranker
from haybale.errors import InputError


@command(ENGINES)
def interactions(
    engine: options.EngineFolder,
    ranker: Annotated[
        str, option("BERT-PLI and what it re-orders, such as pli(bm25-doc,model='bert'), or a YAML file.", RANKING)
    ],
    out: Annotated[str, option("The store: a folder or fsspec address. The same again goes on with it.", RESULTS)],
    split: Annotated[str, option("Whose queries are read; default: train.", RANKING)] = "train",
    set_values: options.SetValues = None,
    dtype: Annotated[str | None, option("float16 (the default) or float32: of what is stored.", RESULTS)] = None,
    pairs_per_chunk: Annotated[
        int | None, option("Pairs that an interruption costs at most, about; default: 4096.", RESULTS, min=1)
    ] = None,
    shard: Annotated[str | None, option("i/n: every n-th chunk, for one of n machines.", MACHINE)] = None,
    device: options.Device = None,
) -> None:
    """Read queries' paragraphs with those of their candidates into a store, for pli(…,store=FOLDER) in train.

    Interrupted, the same command goes on where it was.
    """
    from haybale.rankers import QueryBatch, Training
    from haybale.timing import record_timings

    part = parse_part("shard", shard, "2/8")
    chosen = parse_ranker(ranker, set_values)
    if not isinstance(chosen, haybale.PLI):
        raise InputError(f"interactions are of pli, such as pli(bm25-doc); found {chosen}")
    opened = haybale.Engine.open(engine, device=device)
    asked = opened.collection.queries.take(opened.collection.split(split).queries)
    with resumable(), record_timings(reporter()):
        pairs = chosen.pairs(opened)  # a model that is not there is refused before the first stage is fitted
        inner = chosen.ranker.fitted(Training.of(opened))
        run = inner.run_out_of_fold(QueryBatch(opened, asked, split), chosen.n_documents)
        how: dict[str, Any] = {"k": chosen.n_documents, "n": chosen.n, "m": chosen.m, "select": chosen.select}
        how |= given(dtype=dtype, pairs_per_chunk=pairs_per_chunk)
        done = haybale.interact(opened, asked, run, pairs, out, shard=part, **how)
    kept = f", {done.kept:,} were there" if done.kept else ""
    rates = f": {done.rates}" if done.pairs else ""
    say(f"{done.pairs:,} pairs read in {done.seconds:.1f} s{kept}{rates}")
    show(repr(haybale.InteractionStore(out)) if part is None else f"shard {shard} of {out}")


@command(TRIALS)
def cross_domain(
    first: Annotated[Path, argument("The folder of an engine, the first domain.")],
    second: Annotated[Path, argument("That of another, the second domain.")],
    out: Annotated[Path, option("A folder for interactions and results. The same again goes on with it.", RESULTS)],
    model: Annotated[str, option("The pair encoder before it is tuned: a hub id or folder.", RANKING)],
    tuned: Annotated[
        tuple[str, str] | None, option("Folders of the same tuned on the first domain, and on the second.", RANKING)
    ] = None,
    ranker: Annotated[str, option("What gives the candidates; default: bm25-doc(k1=0.9,b=0.4).", RANKING)] = "",
    split: Annotated[str, option("Whose queries are tested; default: test.", RANKING)] = "test",
    k: Annotated[int, option("Candidates of a query; default: 50.", RANKING, "--k", min=1)] = 50,
    n: Annotated[int | None, option("Paragraphs of a query; default: 54.", RANKING, "--n", min=1)] = None,
    m: Annotated[int | None, option("Passages of a candidate; default: 40.", RANKING, "--m", min=1)] = None,
    select: Annotated[str, option("first, as in the paper (the default), or best.", RANKING)] = "first",
    max_length: Annotated[int | None, option("Tokens of a pair; default: 256.", RANKING, min=8)] = None,
    precision: Annotated[str, option("auto (the default), float32 or bfloat16.", MACHINE)] = "auto",
    add_relevant: Annotated[
        bool, option("Put what was not retrieved among the candidates of training queries.", RANKING, "--add-relevant")
    ] = False,
    n_train: Annotated[int | None, option("Training queries of each, drawn at random; default: all.", RANKING)] = None,
    n_test: Annotated[int | None, option("Test queries of each, likewise.", RANKING)] = None,
    cutoff: Annotated[int, option("The first stage says yes to its first so many; default: 5.", RANKING, min=1)] = 5,
    seeds: Annotated[int, option("Networks of each result; default: 5.", RANKING, min=1)] = 5,
    epochs: Annotated[int | None, option("Of each network; default: 60.", RANKING, min=1)] = None,
    device: Annotated[str | None, option("Of the pair encoder: auto (the default), cpu, cuda, …", MACHINE)] = None,
    random_state: options.RandomState = None,
) -> None:
    """The cross-domain experiment of BERT-PLI: R1 to R6 with two collections as the two domains.

    Interrupted, the same command goes on where it was.
    """
    from haybale.evaluation import Domain
    from haybale.evaluation import cross_domain as experiment
    from haybale.evaluation.cross_domain import cross_domain_table
    from haybale.folders import check_file, replace_json, whole_file
    from haybale.timing import record_timings

    check_file(out / "results.json")
    names = (model, *(tuned or (model, model)))
    encoders = {
        name: haybale.CrossPairs(name, max_length=max_length, precision=precision, device=device) for name in names
    }
    chosen = haybale.parse(ranker or "bm25-doc(k1=0.9,b=0.4)")
    seed = given(random_state=random_state)
    with resumable(), record_timings(reporter()):
        how: dict[str, Any] = {"split": split, "k": k, "k_train": k, "add_relevant": add_relevant}
        how |= {"n_train": n_train, "n_test": n_test}
        domains = [Domain.of(haybale.Engine.open(folder), chosen.clone(), **how, **seed) for folder in (first, second)]
        read: dict[str, Any] = {"n": n, "m": m, "select": select}
        more = given(epochs=epochs) | seed
        table = experiment(
            domains, [encoders[name] for name in names], out, cutoff=cutoff, n_seeds=seeds, **read, **more
        )
    text = cross_domain_table(table, [domain.name for domain in domains])
    settings = how | read | {"ranker": str(chosen), "models": names, "cutoff": cutoff, "seeds": seeds}
    replace_json(out / "results.json", {"settings": settings, "rows": json.loads(table.to_json(orient="records"))})
    with whole_file(out / "results.md") as file:
        file.write(text + "\n")
    for line in text.splitlines():
        show(line)
