"""The command ``haybale fine-tune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import haybale
from haybale.cli import options
from haybale.cli.application import ENGINES, command
from haybale.cli.options import MACHINE, RESULTS, TEXTS, VECTORS, given, option
from haybale.cli.terminal import reporter, resumable, show
from haybale.cli.values import parse_part, parse_values


@command(ENGINES)
def fine_tune(
    engine: options.EngineFolder,
    encoder: Annotated[str, option("Hub id or folder of a sentence-transformers, BERT or Longformer model.", VECTORS)],
    out: Annotated[Path, option("New folder for the trained encoder.", RESULTS)],
    recipe: Annotated[str | None, option("small (default: an hour on two cores), gpu or parm.", VECTORS)] = None,
    set_values: Annotated[
        list[str] | None,
        option("name=value: set a value of the recipe, such as epochs=2. Repeatable.", VECTORS, "--set"),
    ] = None,
    split: options.Split = None,
    held_out: Annotated[
        float | None, option("Share of the query documents held out to select the checkpoint; default: 0.1.", TEXTS)
    ] = None,
    fold: Annotated[
        str | None, option("i/n: leave out the i-th of n folds of the query documents, counted from 0.", TEXTS)
    ] = None,
    device: Annotated[str | None, option("cpu, cuda, …; default: a GPU if there is one.", MACHINE)] = None,
    random_state: options.RandomState = None,
) -> None:
    """Fine-tune an encoder on an engine's judged queries. Build an engine with it by index --encoder.

    The same command continues after an interruption.
    """
    from haybale.timing import record_timings

    part = parse_part("fold", fold, "0/2")
    settings = given(recipe=recipe, queries=split, held_out=held_out, device=device, random_state=random_state)
    settings |= parse_values(set_values, rankers=False)
    with resumable(), record_timings(reporter()):
        opened = haybale.Engine.open(engine)
        done = haybale.train_encoder(opened, encoder, out, fold=part, **settings)
    rate = f"{done.pairs_per_second:.1f} pairs a second"
    show(f"{out}: {done.n_pairs:,} pairs, {rate}; the weights are those after step {done.step:,}")
    for line in done.history.round(4).to_string(index=False).splitlines():
        show(line)
