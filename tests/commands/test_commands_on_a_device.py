"""Commands with --device cuda give what they give on the CPU; without a device they are refused before any work."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cupy_double import HAS_CUDA

from haybale import Engine
from haybale.retrieval import Run

Call = Callable[..., tuple[int, str, str]]
RANKERS = "bm25,knn-doc,parm-vrrf,svr,learned(bm25-doc,knn,svr)"
SETTINGS = [part for value in ("n_bags=2", "n_jobs=1", "tol=1e-5") for part in ("--set", value)]

pytestmark = [
    pytest.mark.filterwarnings("ignore:.* training queries for"),
    pytest.mark.filterwarnings("ignore:.* bags have no relevant row"),
]


def scores(run: Run) -> dict[str, dict[str, float]]:
    return {query: dict(run[query]) for query in run.query_ids}


@pytest.mark.parametrize("encoder", ["tfidf", "lsa(n_components=8)"], ids=["sparse", "dense"])
def test_commands_on_a_device(encoder: str, data: Path, tmp_path: Path, cupy: Any, here: Call) -> None:
    """An engine is built, trained on, ranked with, searched and compared on a device, and on the CPU beside it."""
    runs: dict[str, dict[str, dict[str, float]]] = {}
    for device in ("cpu", "cuda"):
        folder = tmp_path / device
        on = ("--device", device)
        built, model = str(folder / "engine"), str(folder / "model")
        status, _, said = here("index", str(data), "--out", built, "--encoder", encoder, "--language", "english", *on)
        assert status == 0, said
        status, _, said = here("train", built, "--ranker", "svr", "--out", model, *SETTINGS, *on)
        assert status == 0, said
        status, shown, said = here("rank", built, "rare3x", "--model", model, "--explain", *on)
        assert status == 0, said
        assert "d03" in shown
        status, _, said = here("rank", built, "dev", "--model", model, "--out", str(folder / "run.trec"), *on)
        assert status == 0, said
        status, shown, said = here("search", built, "rare3x", "--ranker", "knn-doc", "--format", "json", *on)
        assert status == 0, said
        assert json.loads(shown)["hits"][0]["doc_id"] == "d03"
        out = str(folder / "out")
        status, _, said = here("compare", built, "--rankers", RANKERS, *SETTINGS, "--out", out, *on)
        assert status == 0, said
        paths = sorted((folder / "out" / "runs").glob("*.trec"))
        assert len(paths) == 5
        runs[device] = {
            f"{path.name} {query}": found for path in paths for query, found in scores(Run.from_trec(path)).items()
        }
        runs[device] |= {f"model {query}": found for query, found in scores(Run.from_trec(folder / "run.trec")).items()}
    assert runs["cuda"].keys() == runs["cpu"].keys()
    for name, expected in runs["cpu"].items():
        found = runs["cuda"][name]
        assert found.keys() == expected.keys(), name
        np.testing.assert_allclose(
            [found[doc_id] for doc_id in expected], [*expected.values()], atol=2e-4, err_msg=name
        )
    engine = Engine.open(tmp_path / "cuda" / "engine")
    assert engine.passages.device.is_cpu  # an engine that was built on a device opens anywhere


@pytest.mark.skipif(HAS_CUDA, reason="a CUDA device is here")
def test_a_missing_device_is_refused_before_any_work(built: Path, data: Path, tmp_path: Path, here: Call) -> None:
    model = str(tmp_path / "m")
    for command in (
        ("index", str(data), "--out", str(tmp_path / "e")),
        ("train", str(built), "--ranker", "svr", "--out", model),
        ("rank", str(built), "rare3x"),
        ("search", str(built), "rare3x"),
        ("compare", str(built), "--rankers", "bm25"),
        ("doctor",),
    ):
        status, shown, said = here(*command, "--device", "cuda")
        assert (status, shown, said.count("\n")) == (2, "", 1), command
        assert "cuda" in said or "cupy" in said
    assert not list(tmp_path.iterdir())
