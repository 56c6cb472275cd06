"""Runs and judgements to measures, significance and tables."""

from haybale.evaluation.classification import Classification, classify
from haybale.evaluation.measures import MEASURES, averages, evaluate
from haybale.evaluation.results import Results, results
from haybale.evaluation.significance import Comparison, paired_tests
from haybale.evaluation.table import markdown, print_table

__all__ = [
    "MEASURES",
    "Classification",
    "Comparison",
    "Results",
    "averages",
    "classify",
    "evaluate",
    "markdown",
    "paired_tests",
    "print_table",
    "results",
]
