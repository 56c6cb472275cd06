"""Evaluate and compare runs: measures, significance tests, tables and tuning."""

from haybale.evaluation.comparison import Outcome, compare, default_rankers
from haybale.evaluation.intervals import intervals
from haybale.evaluation.measures import MEASURES, averages, evaluate
from haybale.evaluation.passage_evaluation import evaluate_passages, rank_passages, section_qrels
from haybale.evaluation.recall_curves import recall_curves
from haybale.evaluation.significance import Comparison, Results, paired_tests, results
from haybale.evaluation.table import markdown, print_table
from haybale.evaluation.tuning import Tuned, tune_bm25

__all__ = [
    "MEASURES", "Comparison", "Outcome", "Results", "Tuned", "averages", "compare",
    "default_rankers", "evaluate", "evaluate_passages", "intervals", "markdown", "paired_tests", "print_table",
    "rank_passages", "recall_curves", "results", "section_qrels", "tune_bm25",
]  # fmt: skip
