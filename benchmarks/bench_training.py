"""What fine-tuning an encoder on judgements buys: kNN and PARM in its space, before and after, alone and fused.

    python benchmarks/bench_training.py FOLDER --encoder FOLDER --work FOLDER [--test] [--apart | --alone]

The encoder is trained on the split train: once on all of it (a tenth of the query documents chooses the checkpoint),
and once for each of two folds without it, so that fusions learn from rankings of queries that the encoder has not seen.
With --alone there are no fusions, and no folds. All is chosen on train and dev; --test ranks the test split, once. What
is in the folder --work is not done again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from effectiveness import BEST, by_relevant, parameters, tuned_bm25
from provenance import (
    RESULTS,
    cell4,
    options,
    peak_memory,
    printed_stages,
    provenance,
    read_json,
    shown,
    split_batch,
    table,
    write_json,
    write_page,
)

from haybale import (
    SVR,
    Collection,
    Engine,
    InSpace,
    Learned,
    Ranker,
    Run,
    SentenceTransformerEncoder,
    evaluate,
    open_collection,
    parse,
    train_encoder,
)
from haybale.cli.values import parse_values
from haybale.evaluation import paired_tests
from haybale.rankers import Training, set_all

FOLDS = 2
IN_SPACE = ("knn", "parm-rrf", "parm-vrrf")
LEARNED = "learned"  # of effectiveness.py's best rankers, all over TF-IDF
MEASURES = ("MRR@10", "nDCG@10", "Recall@100")
DEPTH = 1000


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collection", help="pydocs, or a folder")
    parser.add_argument("--encoder", required=True, help="a folder of sentence-transformers")
    parser.add_argument("--work", type=Path, required=True, help="for encoders and engines, which are large")
    parser.add_argument("--test", action="store_true", help="rank the test split too")
    parser.add_argument("--dtype", default="float32", help="of all products: bfloat16 where the processor has AMX")
    parser.add_argument("--length", type=int, default=128, help="tokens at which texts are cut, before and after")
    parser.add_argument("--before-length", type=int, help="the same of the encoder as it was; default: the same")
    parser.add_argument("--apart", action="store_true", help="one encoder, of one fold; fusions learn from the other")
    parser.add_argument("--alone", action="store_true", help="only its own space, no fusions; training-NAME-alone")
    parser.add_argument("--set", action="append", default=[], help="name=value of the recipe; or selection_passages")
    a = parser.parse_args()
    collection = open_collection(a.collection)
    recipe = parse_values(a.set, rankers=False)
    how = {"apart": a.apart, "alone": a.alone, "before_length": a.before_length}
    found = measured(collection, a.encoder, a.work, a.test, a.dtype, a.length, recipe, **how)
    command, packages = shown("bench_training.py", sys.argv[1:]), ("torch", "sentence-transformers", "transformers")
    found["provenance"] = provenance(command, more=packages)
    path = a.results / f"training-{collection.name}{'-alone' * a.alone}.json"
    write_json(path, found)
    write_page(path.with_suffix(".md"), page(found))


def measured(
    collection: Collection,
    encoder: str,
    work: Path,
    test: bool,
    dtype: str,
    length: int,
    recipe: dict[str, Any],
    apart: bool = False,
    svr: Mapping[str, Any] | None = None,
    alone: bool = False,
    before_length: int | None = None,
) -> dict[str, Any]:
    """Everything of one collection, for JSON; ``svr``: values of all rankers, for a trial."""
    with printed_stages() as stages:
        engine = Engine(collection)
        how = {"dtype": dtype, "max_length": length, **recipe}
        n_folds = 0 if apart or alone else FOLDS
        parts = {"encoder": (1, FOLDS) if apart else None, **{f"encoder-{i}": (i, FOLDS) for i in range(n_folds)}}
        trained = {name: training_of(engine, encoder, work / name, how, fold) for name, fold in parts.items()}
        sources = {"before": encoder, "after": work / "encoder"}
        sources |= {f"fold-{fold}": work / f"encoder-{fold}" for fold in range(n_folds)}
        for name, each in sources.items():
            cut = before_length or length if name == "before" else length
            space(collection, str(each), work / f"engine-{name}", dtype, cut)
        splits = ("dev", "test") if test else ("dev",)
        training, runs = Training.of(engine), {split: dict[str, Run]() for split in splits}
        batches = {split: split_batch(engine, split) for split in splits}
        rankers: dict[str, Ranker] = {
            f"{name} {when}": InSpace(parse(name), str(work / f"engine-{when}"))
            for when in ("before", "after")
            for name in IN_SPACE
        }
        rankers |= {} if alone else fused(collection, work, n_folds, svr or {})
        for name, ranker in rankers.items():
            fitted = ranker._fitted_copy(training)
            for split in splits:
                runs[split][name] = fitted.run(batches[split], DEPTH)
    tables = {
        split: {name: evaluate(run, collection.qrels_frame(split), MEASURES) for name, run in of.items()}
        for split, of in runs.items()
    }
    return {
        "collection": {"name": collection.name, "documents": collection.n_documents, "passages": collection.n_passages},
        "queries": {split: len(part.queries) for split, part in collection.splits.items()},
        "trained": trained,
        "apart": apart,
        "alone": alone,
        "lengths": {"before": before_length or length, "after": length},
        "values": {split: {name: means(found) for name, found in of.items()} for split, of in tables.items()},
        "groups": {split: by_group(collection, split, of) for split, of in tables.items()},
        "tests": {split: tests(of) for split, of in tables.items()},
        "seconds": {stage.replace(f"{work}/", ""): taken for stage, taken in stages.seconds.items()},
        "peak memory": peak_memory(),
    }


def training_of(engine: Engine, encoder: str, out: Path, how: dict[str, Any], fold: tuple[int, int] | None) -> Any:
    """What training.json says of an encoder that is trained now, or was."""
    if not out.exists():
        train_encoder(engine, encoder, out, fold=fold, **how)
    found = json.loads((out / "training.json").read_text(encoding="utf-8"))
    counts = {name: len(found.pop(name)) for name in ("trained_on", "selected_on")}
    return found | counts | {"base": Path(found["base"]).name}


def space(collection: Collection, encoder: str, folder: Path, dtype: str, length: int) -> None:
    """The collection under an encoder, in a folder: its passages are encoded, if they are not yet."""
    made = SentenceTransformerEncoder(encoder, dtype=dtype, max_length=length)
    _ = Engine.build(collection, folder, encoder=made).passages


def fused(collection: Collection, work: Path, n_folds: int, values: Mapping[str, Any]) -> dict[str, Ranker]:
    """`learned` and `svr` over TF-IDF, and with the space before and after beside it."""
    known = read_json(RESULTS / f"best-{collection.name}.json")
    tuned = known["bm25"] if known else parameters(tuned_bm25(collection))

    def more(when: str, folds: tuple[str, ...] = ()) -> list[Ranker]:
        return [InSpace(parse(name), str(work / f"engine-{when}"), folds=folds) for name in IN_SPACE]

    folds = tuple(str(work / f"engine-fold-{fold}") for fold in range(n_folds))
    best, searches = parse(BEST).nested(), list(parse("svr")._implied()["evidence"])
    rankers = {
        LEARNED: Learned(*best),
        f"{LEARNED} + before": Learned(*best, *more("before")),
        f"{LEARNED} + after": Learned(*best, *more("after", folds)),
        "svr": SVR(),
        "svr + after": SVR([*searches, *more("after", folds)]),
    }
    return dict(zip(rankers, set_all(list(rankers.values()), tuned | values), strict=True))


def means(found: pd.DataFrame) -> dict[str, float]:
    return {measure: float(found[measure].mean()) for measure in MEASURES}


def by_group(collection: Collection, split: str, tables: Mapping[str, pd.DataFrame]) -> dict[str, Any]:
    """nDCG@10 of queries all, some and none of whose relevant documents were relevant to a training query."""
    ids = collection.queries.ids.take(collection.split(split).queries).to_pylist()
    found = {}
    for group, members in by_relevant(collection, split).items():
        chosen = [query for query, there in zip(ids, members, strict=True) if there]
        if chosen:
            values = {name: float(table.loc[chosen, "nDCG@10"].mean()) for name, table in tables.items()}
            found[group] = {"queries": len(chosen), "nDCG@10": values}
    return found


def tests(tables: Mapping[str, pd.DataFrame]) -> list[dict[str, Any]]:
    """After against before, and fused with the trained space against without; p corrected for these comparisons."""
    family = [(f"{name} after", f"{name} before") for name in IN_SPACE]
    if LEARNED in tables:
        family += [(f"{LEARNED} + after", LEARNED), (f"{LEARNED} + after", f"{LEARNED} + before")]
        family += [("svr + after", "svr")]
    rows = []
    for ours, theirs in family:
        row: dict[str, Any] = {"compared": [ours, theirs]}
        for measure in MEASURES:
            pair = (tables[name][measure].to_numpy() for name in (ours, theirs))
            row[measure] = vars(paired_tests(*pair, n_comparisons=len(family)))
        rows.append(row)
    return rows


def page(found: dict[str, Any]) -> list[str]:
    counts, whole = found["collection"], found["trained"]["encoder"]
    lines = [
        f"# {counts['name']}: an encoder fine-tuned on its judgements",
        "",
        f"{counts['documents']:,} documents, {counts['passages']:,} passages; queries: "
        + ", ".join(f"{split} {n:,}" for split, n in found["queries"].items())
        + f". The encoder is {whole['base']}, trained on {whole['pairs']:,} pairs of {whole['trained_on']} training "
        f"queries ({whole['selected_on']} others chose the checkpoint). `before` and `after` are its space; texts are "
        "cut at {before} and {after} tokens.".format(**found["lengths"]),
    ]
    if not found["alone"]:
        lines += [
            "",
            "`+` is that space's "
            + ", ".join(f"`{name}`" for name in IN_SPACE)
            + f" fused with `{LEARNED}` (`{BEST}` over TF-IDF, BM25 tuned), or among the evidence of `svr`; fusions "
            + (
                "learn from the training queries that the encoder has not seen, others from all."
                if found["apart"]
                else f"learn from rankings by encoders of {FOLDS} folds that had not seen the query."
            ),
        ]
    for split in found["values"]:
        lines += [
            "",
            f"## {split}",
            *table(f"ranker | {' | '.join(MEASURES)}", rows_of(found["values"][split]), show=cell4),
        ]
        rows = [
            [" / ".join(row["compared"]), *(x for m in MEASURES for x in (row[m]["difference"], worse(row[m])))]
            for row in found["tests"][split]
        ]
        columns = " | ".join(f"{measure} | p" for measure in MEASURES)
        said = "Differences; p is the larger of the paired t-test's and the randomisation test's, times"
        lines += ["", f"{said} {len(rows)} comparisons.", *table(f"compared | {columns}", rows, show=cell4)]
        groups = found["groups"][split]
        heads = " | ".join(f"{group} ({of['queries']})" for group, of in groups.items())
        rows = [[name, *(of["nDCG@10"][name] for of in groups.values())] for name in found["values"][split]]
        lines += ["", "nDCG@10 of queries by what training has seen of their relevant documents:"]
        lines += table(f"ranker | {heads}", rows, show=cell4)
    lines += ["", "## Training", "", "On queries that were set aside, among part of the documents:"]
    rows = [
        [name, *(row.get(each) for each in ("step", "pairs", "loss", "Recall@100", "nDCG@10"))]
        for name, of in found["trained"].items()
        for row in of["history"]
    ]
    rows = [["" if value is None else value for value in row] for row in rows]
    lines += table("encoder | step | pairs | loss | Recall@100 | nDCG@10", rows, show=cell4)
    speeds = ", ".join(f"{name} {of['pairs_per_second']:.1f}" for name, of in found["trained"].items())
    lines += ["", f"- pairs a second: {speeds}; peak memory of this process {found['peak memory'] / 2**30:.1f} GiB"]
    recipe = ", ".join(f"{name} {value}" for name, value in whole["recipe"].items() if value is not None)
    spent = ", ".join(f"{name} {value:.0f}" for name, value in found["seconds"].items() if value >= 5)
    return [*lines, f"- recipe: {recipe}", f"- seconds: {spent}", found["provenance"]]


def rows_of(values: dict[str, dict[str, float]]) -> list[list[Any]]:
    return [[f"`{name}`", *(of[measure] for measure in MEASURES)] for name, of in values.items()]


def worse(test: dict[str, float]) -> float:
    return max(test["p_t"], test["p_randomization"])


if __name__ == "__main__":
    main()
