"""``haybale embed``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commands import haybale, interrupted

from haybale.embeddings import EmbeddingStore
from haybale.errors import StoreError


def test_embed_writes_a_store_and_continues_it(tmp_path: Path, here: Callable[..., tuple[int, str, str]]) -> None:
    lines = [f"d{i // 4}\tDie Berufung Nummer {i} ist nicht zulässig und das Gericht {i % 7}" for i in range(40)]
    (tmp_path / "collection.tsv").write_text("\n".join(lines))
    command = ["embed", str(tmp_path), "--out", str(tmp_path / "s"), "--set", "rows_per_chunk=16"]
    command += ["--encoder", "lsa(n_components=4,max_fit_texts=30)"]
    done = haybale(*command, "--dtype", "float16")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("40 passages")
    assert "40 × 4 float16" in done.stderr
    assert "\x1b[" not in done.stderr
    manifest = json.loads((tmp_path / "s" / "manifest.json").read_text())
    assert manifest["encoder"]["parameters"]["language"] == "german"
    assert manifest["encoder"]["parameters"]["max_fit_texts"] == 30
    assert len(list((tmp_path / "s" / "vectors.zarr").glob("c.*"))) == 3
    _, _, said = here(*command, "--dtype", "float16")
    assert re.match(r"0 passages .*\b40\b.*\n", said)
    status, _, said = here(*command)
    assert status == 2
    assert re.search("dtype.*float16.*float32", said)


@pytest.mark.filterwarnings("default")
def test_pieces_are_measured_in_tokens_of_the_encoder(
    tmp_path: Path, here: Callable[..., tuple[int, str, str]]
) -> None:
    pytest.importorskip("sentence_transformers")
    from support.longformers import save_longformer

    folder = save_longformer(tmp_path / "model", attention_window=8)
    (tmp_path / "collection.tsv").write_text("a\tw1 w2 w3 w4 w5\n")
    command = ["embed", str(tmp_path), "--out", str(tmp_path / "p"), "--device", "cpu"]
    command += ["--encoder", f"longformer('{folder}',pooling=cls,dtype=bfloat16,max_length=9)"]
    _, _, said = here(*command, "--pieces", "2", "--set", "unit=tokens")
    assert re.search(r"\b3 passages", said)
    store = EmbeddingStore(tmp_path / "p")
    assert store.texts().to_pylist() == ["w1 w2", "w3 w4", "w5"]
    assert [store.manifest["encoder"][name] for name in ("pooling", "dtype", "max_length")] == ["cls", "bfloat16", 9]


@pytest.mark.thorough
def test_an_interrupted_command_is_continued(tmp_path: Path) -> None:
    lines = [f"d{i}\tword{i % 50} word{i % 7} word{i % 11}" for i in range(60_000)]
    (tmp_path / "collection.tsv").write_text("\n".join(lines))
    command = ["embed", str(tmp_path), "--out", str(tmp_path / "s"), "--encoder", "lsa(4)"]
    done = interrupted(command, tmp_path / "s" / "vectors.zarr" / "c.1.0")
    assert (done.returncode, done.stderr.count("\n")) == (130, 1)
    assert not (tmp_path / "s" / ".lock").exists()
    with pytest.raises(StoreError):
        EmbeddingStore(tmp_path / "s")
    again = haybale(*command)
    assert 0 < int(re.match(r"([\d,]+) passages", again.stderr)[1].replace(",", "")) < 60_000
    assert len(EmbeddingStore(tmp_path / "s")) == 60_000


def test_a_refused_shard_leaves_nothing(data: Path, tmp_path: Path, here: Callable[..., tuple[int, str, str]]) -> None:
    status, _, said = here("embed", str(data), "--encoder", "lsa", "--shard", "1/2", "--out", str(tmp_path / "store"))
    assert (status, said.count("\n")) == (2, 1)
    assert not (tmp_path / "store").exists()
