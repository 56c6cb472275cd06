"""Experiments: rankers by name, compared on a collection, written to a folder."""

from haybale.experiments.comparison import Outcome, compare, write
from haybale.experiments.injected import CAVEAT, InjectedOutcome, classify_injected, write_injected
from haybale.experiments.rankers import RANKERS, split_names
from haybale.experiments.settings import DEFAULT_RANKERS, Settings
from haybale.experiments.tuning import Tuned, tune_bm25
from haybale.folders import check_output

__all__ = [
    "CAVEAT",
    "DEFAULT_RANKERS",
    "RANKERS",
    "InjectedOutcome",
    "Outcome",
    "Settings",
    "Tuned",
    "check_output",
    "classify_injected",
    "compare",
    "split_names",
    "tune_bm25",
    "write",
    "write_injected",
]
