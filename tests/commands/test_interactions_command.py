"""``haybale interactions``, and ``haybale train`` with a re-ranker."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from support.tiny_models import save_cross_encoder

from haybale import Engine, InteractionStore, load

Call = Callable[..., tuple[int, str, str]]

pytest.importorskip("sentence_transformers")
pytestmark = pytest.mark.filterwarnings("default")  # transformers and torch give warnings
NETWORK = ("epochs=2", "hidden=4", "n_seeds=1")


def settings(*values: str) -> list[str]:
    return [part for value in values for part in ("--set", value)]


def test_stored_interactions_train_a_ranker(built: Path, tmp_path: Path, here: Call) -> None:
    """Two shards are written, the same command finds its shard finished, and train reads the store."""
    model, store = save_cross_encoder(tmp_path / "model"), str(tmp_path / "store")
    name = f"pli(bm25-doc,model='{model}',n_documents=4,n=2,m=1,max_length=16,device=cpu)"
    small = ("--pairs-per-chunk", "20")
    for part in ("1/2", "2/2"):
        status, out, said = here("interactions", str(built), "--ranker", name, "--out", store, "--shard", part, *small)
        assert status == 0, said
        assert re.search(r"^\d+ pairs .*pairs/s", said, re.M)
        assert part in out
    status, _, said = here("interactions", str(built), "--ranker", name, "--out", store, "--shard", "1/2", *small)
    assert status == 0
    assert re.search("^0 pairs ", said, re.M)
    split = Engine.open(built).collection.qrels_frame("train")
    assert set(InteractionStore(store).blocks["query_id"]) == set(split["query_id"])
    trained = ("train", str(built), "--ranker", name, "--out", str(tmp_path / "ranker"))
    status, out, said = here(*trained, *settings(f"store={store}", *NETWORK))
    assert status == 0, said
    assert "pli(bm25-doc," in out
    status, out, said = here("rank", str(built), "dev", "--model", str(tmp_path / "ranker"), "--k", "3", "--explain")
    assert status == 0, said
    assert "paragraph 0 → passage" in out
    assert load(tmp_path / "ranker", Engine.open(built)).name == "pli"
    queries = sorted(set(split["query_id"]))
    (tmp_path / "model" / "training.json").write_text(json.dumps({"trained_on": queries[1:], "selected_on": []}))
    status, _, said = here("interactions", str(built), "--ranker", name, "--out", str(tmp_path / "fewer"))
    assert status == 0, said
    assert set(InteractionStore(tmp_path / "fewer").blocks["query_id"]) == set(queries[:1])
    assert "queries are left out" in said


def test_a_reranker_without_a_model_is_trained(built: Path, tmp_path: Path, here: Call) -> None:
    trained = ("train", str(built), "--ranker", "pli(bm25-doc)", "--out", str(tmp_path / "ranker"))
    status, out, said = here(*trained, *settings(*NETWORK))
    assert status == 0, said
    assert "read pairs (pli)" in said
    assert "pli(bm25-doc," in out


def test_a_missing_model_is_refused(built: Path, tmp_path: Path, here: Call) -> None:
    ranker, store = f"pli(bm25,model='{tmp_path / 'nothing'}')", tmp_path / "store"
    status, _, said = here("interactions", str(built), "--ranker", ranker, "--out", str(store))
    assert (status, "nothing" in said, store.exists()) == (2, True, False), said
