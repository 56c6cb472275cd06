"""``haybale demo``."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import Annotated

import haybale
from haybale.cli.application import MORE, command
from haybale.cli.options import RESULTS, option
from haybale.cli.terminal import console_for_tables, print_outcome, reporter, show
from haybale.errors import MissingExtraError

FOLDER = Path("haybale-demo")
_N_TRAIN = 700  # training queries, a third of those of pydocs: the rankers that learn take most of the time


@command(MORE)
def demo(
    out: Annotated[Path, option(f"The folder for an engine and a report. Default: {FOLDER}.", RESULTS)] = FOLDER,
) -> None:
    """Compare the default rankers on a built-in collection, and write a report.

    It needs no data and no download, and takes about a minute on two CPU cores.
    """
    from haybale.folders import check_file
    from haybale.reports import write_report
    from haybale.timing import record_timings

    page = out / "report.html"
    check_file(page)
    with record_timings(reporter()):
        engine = haybale.Engine.build("pydocs", out / "engine").prepare()
    outcome = haybale.compare(engine, split="test", n_train=_N_TRAIN, report=reporter())
    try:
        with tempfile.TemporaryDirectory() as folder:
            outcome.write(Path(folder, "results"))
            write_report([Path(folder, "results")], page, collection=engine, report=reporter())
        report = f"open {page} in a browser"
    except MissingExtraError as error:
        report = f"{error}, and run the demo again"
    print_outcome(outcome, "pydocs, test: which functions does a docstring's See Also section name?")
    learned, bm25 = (outcome.results.values[name]["nDCG@10"].mean() for name in ("learned", "bm25"))
    p = outcome.results.comparisons["learned"]["nDCG@10"].p_t
    n_training = outcome.facts["learned"]["training queries"]
    n_judged = len(outcome.collection.split("train").queries)
    n_documents, n_queries = outcome.collection.n_documents, outcome.results.n_queries
    console_for_tables().print(
        f"\nEach row ranks all {n_documents:,} documents for {n_queries} test queries, which no ranker was trained on. "
        f"The ranker learned combines the others by weights from {n_training:,} of the {n_judged:,} training queries, "
        f"for a first look. Its nDCG@10 is {learned:.3f}, that of bm25 {bm25:.3f} (p = {p:.2g} by a paired t-test).\n\n"
        "Next steps:",
        soft_wrap=True,
        markup=False,
    )
    for step, how in (
        ("Look at the report", report),
        (
            "Search this collection",
            f'haybale search {shlex.quote(str(out / "engine"))} "interpolate missing values"',
        ),
        ("Learn from all queries", f"haybale compare {shlex.quote(str(out / 'engine'))} --split test"),
        ("Search and judge on a page", f"haybale serve {shlex.quote(str(out / 'engine'))}"),
        ("Index your own folder", "haybale index FOLDER --out engine"),
        ("Search it", 'haybale search engine "YOUR QUERY"'),
        ("Files it may have", "text, Markdown, CSV, JSON Lines; PDF, Word and more: pip install 'haybale[documents]'"),
        ("Which ranker to take", "docs/which-ranker.md"),
    ):
        show(f"  {step + ':':<28}{how}")
