"""``haybale fine-tune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import haybale
from haybale.cli import options
from haybale.cli.application import ENGINES, command
from haybale.cli.options import MACHINE, RESULTS, TEXTS, VECTORS, given, option
from haybale.cli.resuming import explain_interrupt
from haybale.cli.terminal import reporter, show
from haybale.cli.values import parse_part, parse_values


@command(ENGINES)
def fine_tune(
    engine: options.EngineFolder,
    encoder: Annotated[
        str, option("A sentence-transformers, BERT or Longformer model: a folder or Hugging Face id.", VECTORS)
    ],
    out: Annotated[Path, option("A new folder for the fine-tuned encoder.", RESULTS)],
    recipe: Annotated[
        str | None, option("The settings: small (an hour on two CPU cores), gpu or parm. Default: small.", VECTORS)
    ] = None,
    set_values: Annotated[
        list[str] | None, option("NAME=VALUE changes a setting, such as epochs=2. Repeatable.", VECTORS, "--set")
    ] = None,
    split: options.TrainingSplit = None,
    held_out: Annotated[
        float | None, option("The share of query documents held out to choose the best weights. Default: 0.1.", TEXTS)
    ] = None,
    fold: Annotated[
        str | None, option("Leave out part i of n of the query documents (i/n, from 0/n). Default: none.", TEXTS)
    ] = None,
    device: Annotated[str | None, option("The device: cpu or cuda. Default: a GPU if there is one.", MACHINE)] = None,
    random_state: options.RandomState = None,
) -> None:
    """Fine-tune an encoder on the judged queries of an engine, for index --encoder.

    After an interruption, the same command continues the work.
    """
    from haybale.timing import record_timings

    part = parse_part("fold", fold, "0/2")
    how = given(recipe=recipe, queries=split, held_out=held_out, device=device, random_state=random_state)
    how |= parse_values(set_values, rankers=False)
    with explain_interrupt(), record_timings(reporter()):
        opened = haybale.Engine.open(engine)
        done = haybale.train_encoder(opened, encoder, out, fold=part, **how)
    rate = f"{done.pairs_per_second:.1f} pairs per second"
    show(f"Trained on {done.n_pairs:,} pairs ({rate}). Saved the weights after step {done.step:,} to {out}.")
    for line in done.history.round(4).to_string(index=False).splitlines():
        show(line)
