"""``haybale interactions``, and ``haybale train`` with a re-ranker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.tiny_models import save_cross_encoder

from haybale import Engine, InteractionStore, load

Call = Callable[..., tuple[int, str, str]]

pytest.importorskip("sentence_transformers")
pytestmark = pytest.mark.filterwarnings("default")  # transformers and torch warn about themselves
NETWORK = ("epochs=2", "hidden=4", "n_seeds=1")


def settings(*values: str) -> list[str]:
    return [part for value in values for part in ("--set", value)]


def test_interactions_are_kept_and_trained_on(built: Path, tmp_path: Path, here: Call) -> None:
    """With a model; in shards; and again, which goes on."""
    model, store = save_cross_encoder(tmp_path / "model"), str(tmp_path / "store")
    name = f"pli(bm25-doc,model='{model}',n_documents=4,n=2,m=1,max_length=16,device=cpu)"
    small = ("--pairs-per-chunk", "20")
    for part in ("1/2", "2/2"):
        status, out, said = here("interactions", str(built), "--ranker", name, "--out", store, "--shard", part, *small)
        assert status == 0, said
        assert "pairs read in" in said
        assert "pairs/s" in said
        assert out == f"shard {part} of {store}\n"
    status, _, said = here("interactions", str(built), "--ranker", name, "--out", store, "--shard", "1/2", *small)
    assert status == 0
    assert "0 pairs read" in said
    assert "were there" in said
    split = Engine.open(built).collection.qrels_frame("train")
    assert set(InteractionStore(store).blocks["query_id"]) == set(split["query_id"])
    trained = ("train", str(built), "--ranker", name, "--out", str(tmp_path / "ranker"))
    status, out, said = here(*trained, *settings(f"store={store}", *NETWORK))
    assert status == 0, said
    assert out.startswith("pli(bm25-doc,")
    assert "training queries" in out
    status, out, said = here("rank", str(built), "dev", "--model", str(tmp_path / "ranker"), "--k", "3", "--explain")
    assert status == 0, said
    assert "paragraph 0 → passage" in out
    assert load(tmp_path / "ranker", Engine.open(built)).name == "pli"


def test_a_reranker_without_a_model_is_trained(built: Path, tmp_path: Path, here: Call) -> None:
    trained = ("train", str(built), "--ranker", "pli(bm25-doc)", "--out", str(tmp_path / "ranker"))
    status, out, said = here(*trained, *settings(*NETWORK))
    assert status == 0, said
    assert "read pairs (pli)" in said
    assert out.startswith("pli(bm25-doc,")


def test_what_is_refused(built: Path, tmp_path: Path, here: Call) -> None:
    for arguments, message in (
        (("--ranker", "bm25"), "--ranker must be a pli ranker"),
        (("--ranker", "pli(bm25)", "--shard", "2"), "shard must be i/n, such as 2/8"),
        (("--ranker", "pli(bm25)", "--split", "tset"), "unknown split"),
        (("--ranker", f"pli(bm25,model='{tmp_path / 'nothing'}')"), "cannot load the model"),
    ):
        status, _, said = here("interactions", str(built), "--out", str(tmp_path / "store"), *arguments)
        assert (status, message in said) == (2, True), said
        assert not (tmp_path / "store").exists()
