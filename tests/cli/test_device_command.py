"""The best ranker over TF-IDF on a device, from end to end: indexed, trained, kept, opened and asked, as on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from haybale import Engine, load
from haybale.retrieval import Run

RANKER = "learned(bm25-doc,knn,knn-doc,knn-queries,svr(n_bags=4,n_candidates=12,n_jobs=1,tol=1e-5))"


@pytest.mark.filterwarnings("ignore:.* bags have no relevant row", "ignore:.* training queries for")
def test_learned_over_tfidf_on_a_device(
    data: Path, tmp_path: Path, here: Callable[..., tuple[Any, str, str]], cupy: Any
) -> None:
    runs = {}
    for device in ("cpu", "cuda"):
        engine, model, out = (str(tmp_path / f"{what}-{device}") for what in ("engine", "model", "run"))
        out += ".trec"
        for command in (
            ("index", str(data), "--out", engine, "--language", "english", "--device", device),
            ("train", engine, "--ranker", RANKER, "--out", model, "--device", device),
            ("rank", engine, str(data / "queries.jsonl"), "--model", model, "--out", out, "--device", device),
        ):
            status, _, said = here(*command)
            assert status == 0, said
        runs[device] = Run.from_trec(Path(out))
    on_device = Engine.open(tmp_path / "engine-cuda", device="cuda")
    assert type(on_device.passages.vectors).__module__.startswith("cupyx.")
    ranker = load(tmp_path / "model-cuda", on_device)
    ensemble = next(inner for inner in ranker.rankers_ if str(inner).startswith("svr")).ensemble_
    assert not ensemble.support_.device.is_cpu
    for query in runs["cpu"].query_ids:
        assert runs["cuda"][query][0][0] == runs["cpu"][query][0][0]
    on_cpu = load(tmp_path / "model-cuda", Engine.open(tmp_path / "engine-cpu"))  # a model remembers no device
    assert on_cpu.rank("dev").query_ids == [f"dev{i}" for i in range(8)]
