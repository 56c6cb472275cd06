"""Evaluate and compare runs: measures, significance tests, tables and tuning."""

from haybale.evaluation.comparison import Outcome, compare, default_rankers
from haybale.evaluation.intervals import intervals
from haybale.evaluation.measures import MEASURES, averages, evaluate
from haybale.evaluation.passage_evaluation import evaluate_passages, rank_passages, section_qrels
from haybale.evaluation.recall_curves import recall_curves
from haybale.evaluation.significance import Comparison, paired_tests
from haybale.evaluation.table import Results, markdown, print_table, results
from haybale.evaluation.tuning import Tuned, tune_bm25

__all__ = [
    "MEASURES", "Comparison", "Outcome", "Results", "Tuned", "averages", "compare",
    "default_rankers", "evaluate", "evaluate_passages", "intervals", "markdown", "paired_tests", "print_table",
    "rank_passages", "recall_curves", "results", "section_qrels", "tune_bm25",
]  # fmt: skip
__dir__ = __all__.copy  # dir() lists the public names only
