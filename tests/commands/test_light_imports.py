"""The core works without the other packages of the base install, and names a missing package when it needs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Packages that the core does not need. It needs numpy, scipy, scikit-learn, pandas, pyarrow, joblib, numba,
# safetensors, narwhals, rich, fsspec and threadpoolctl.
ABSENT = (
    "bm25s cudf cuml cuvs cupy dask distributed faiss ir_datasets ir_measures jinja2 matplotlib numcodecs polars "
    "pyterrier sentence_transformers Stemmer torch transformers typer zarr"
)
PREAMBLE = f"""
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {ABSENT.split()!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
sys.path[:0] = [{str(ROOT / "tests")!r}, {str(ROOT)!r}]
"""


def run_without(code: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONWARNINGS": "error", "PYTHONPATH": ""}
    return subprocess.run([sys.executable, "-c", PREAMBLE + code], capture_output=True, text=True, env=environment)


def check(code: str) -> None:
    done = run_without(code)
    assert done.returncode == 0, done.stderr


def test_search_training_scoring_and_aggregation_need_only_the_core() -> None:
    check("""
import numpy as np
import pandas as pd
from haybale import ParagraphSearch, PassageIndex, ProductKernelSVR, Run, SVREnsemble
from haybale import rank_documents, reciprocal_rank_fusion
from support.worlds import world

index, queries, relevant = world()
index = PassageIndex(index.vectors, index.doc_offsets, doc_ids=index.doc_ids, backend="numpy")
hits = index.search(queries, 10)
ids = [str(i) for i in range(len(queries))]
ensemble = SVREnsemble(n_bags=3, n_jobs=1).fit(index, queries, relevant)
assert np.isfinite(ensemble.score_candidates(queries, hits.passages)).all()
run = rank_documents(index, hits, ids)
assert len(reciprocal_rank_fusion([run, Run.from_frame(run.to_frame())])) == len(ids)
for aggregation in ("maxp", "rrf", "vrrf", "vmax"):
    assert len(ParagraphSearch(index, aggregation, n_hits=10).rank(["a", "b"], [queries[:3], queries[3:5]])) == 2
rows = np.arange(20) % 5
ProductKernelSVR().fit_pairs(queries, index.vectors, rows, rows, rows / 5)
""")


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    check("""
import haybale
import pandas as pd
run = haybale.Run.from_frame(pd.DataFrame({"query_id": ["q"], "doc_id": "a", "score": 1.0}))
qrels = pd.DataFrame({"query_id": ["q"], "doc_id": ["a"], "relevance": [1]})
for package, call in {
    "PyStemmer": lambda: haybale.BM25Index(["a text"], language="english"),
    "ir_measures": lambda: haybale.evaluate(run, qrels),
}.items():
    try:
        call()
    except haybale.MissingExtraError as error:
        assert str(error) == f"{package} is not installed; pip install {package}", error
    else:
        raise AssertionError("nothing was missing")
""")


def test_a_search_imports_neither_pandas_nor_numba(built: Path) -> None:
    """Importing them, and loading a compiled loop, would take as long as the rest of the command."""
    code = f"""
import sys
from haybale.cli import main
sys.argv[1:] = ["search", {str(built)!r}, "rare3x common1"]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
assert not {{"numba", "pandas", "sklearn"}} & sys.modules.keys()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "rare3x" in done.stdout


@pytest.mark.parametrize("module", ["haybale.service.api", "haybale.review.topic_folder"])
def test_a_service_and_a_review_import_neither_reports_nor_statistics(module: str) -> None:
    """Each process of a service, and each command about a review, would take a second longer to start."""
    heavy = ["scipy.stats", "scipy.optimize", "sklearn", "pandas", "haybale.evaluation", "haybale.reports.write"]
    code = f"import sys, {module}; sys.exit(', '.join({set(heavy)!r} & sys.modules.keys()) or None)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_command_without_typer_ends_with_one_line() -> None:
    done = run_without("from haybale.cli import main; main()")
    assert (done.returncode, done.stderr) == (2, "haybale: typer is not installed; pip install typer\n")
