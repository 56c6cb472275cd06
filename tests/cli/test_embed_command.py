"""``haybale embed``, and comparing on what it wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commands import haybale, interrupted

from haybale.embeddings import EmbeddingStore
from haybale.errors import StoreError


def test_the_command(tmp_path: Path) -> None:
    lines = [f"d{i // 4}\tDie Berufung Nummer {i} ist nicht zulässig und das Gericht {i % 7}" for i in range(40)]
    (tmp_path / "collection.tsv").write_text("\n".join(lines))
    command = ["embed", str(tmp_path), "--out", str(tmp_path / "s"), "--set", "rows_per_chunk=16"]
    command += ["--encoder", "lsa(n_components=4,max_fit_texts=30)"]
    done = haybale(*command, "--dtype", "float16")
    assert done.returncode == 0, done.stderr
    for part in ("40 passages embedded in ", "passages/s", "40 × 4 float16"):
        assert part in done.stderr
    assert "\x1b[" not in done.stderr
    manifest = json.loads((tmp_path / "s" / "manifest.json").read_text())
    assert manifest["encoder"]["parameters"]["language"] == "german"
    assert manifest["encoder"]["parameters"]["max_fit_texts"] == 30
    assert len(list((tmp_path / "s" / "vectors.zarr").glob("c.*"))) == 3  # of 16 rows
    again = haybale(*command, "--dtype", "float16")
    assert re.match(r"0 passages embedded in \d\.\d s, 40 were there\n", again.stderr)
    other = haybale(*command)
    assert other.returncode == 2
    assert "begun with dtype 'float16', now it is 'float32'" in other.stderr


@pytest.mark.filterwarnings("default")
def test_pieces_in_the_tokens_of_the_encoder(tmp_path: Path, here: Callable[..., tuple[int, str, str]]) -> None:
    pytest.importorskip("sentence_transformers")
    from support.longformers import save_longformer

    folder = save_longformer(tmp_path / "model", attention_window=8)
    (tmp_path / "collection.tsv").write_text("a\tw1 w2 w3 w4 w5\n")
    command = ["embed", str(tmp_path), "--out", str(tmp_path / "p"), "--device", "cpu"]
    command += ["--encoder", f"longformer('{folder}',pooling=cls,dtype=bfloat16,max_length=9)"]
    _, _, said = here(*command, "--pieces", "2", "--set", "unit=tokens")
    assert "3 passages embedded" in said
    store = EmbeddingStore(tmp_path / "p")
    assert store.texts().to_pylist() == ["w1 w2", "w3 w4", "w5"]
    assert [store.manifest["encoder"][name] for name in ("pooling", "dtype", "max_length")] == ["cls", "bfloat16", 9]


def test_what_cannot_be_embedded(tmp_path: Path, here: Callable[..., tuple[int, str, str]]) -> None:
    (tmp_path / "collection.tsv").write_text("a\tone two\n")
    for arguments, message in [
        (("--stride", "3"), "stride is of pieces: say how long with --pieces"),
        (("--set", "rows=3"), "unknown parameter 'rows'; known: unit, tokenizer, rows_per_chunk"),
        (("--set", "rows_per_chunk=0"), "rows_per_chunk"),
        (("--encoder", "lsa(max_fit_texts=all)"), "The 'max_fit_texts' parameter of LSAEncoder must be an int "),
        (("--encoder", "lsa(pooling=cls)"), "unknown parameter of lsa 'pooling'"),
        (("--dtype", "int8"), "int8"),
        (("--shard", "1of2"), "shard must be i/n, such as 2/8, found '1of2'"),
        (("--shards", "2"), "--shards asks for --dask"),
        (("--shard", "1/2", "--dask", "a"), "--shard is for one machine "),
    ]:
        status, shown, said = here("embed", str(tmp_path), "--out", str(tmp_path / "s"), *arguments)
        assert (status, shown) == (2, ""), arguments
        assert said.startswith("haybale: ")
        assert message in said, said
        assert said.count("\n") == 1
        assert not (tmp_path / "s").exists()


def test_an_interrupted_command_says_how_to_go_on(tmp_path: Path) -> None:
    lines = [f"d{i}\tword{i % 50} word{i % 7} word{i % 11}" for i in range(60_000)]
    (tmp_path / "collection.tsv").write_text("\n".join(lines))
    command = ["embed", str(tmp_path), "--out", str(tmp_path / "s"), "--encoder", "lsa(4)"]
    done = interrupted(command, tmp_path / "s" / "vectors.zarr" / "c.1.0")
    assert done.stderr == "interrupted; what is written is kept, the same command goes on from there\n"
    assert done.returncode == 130
    assert not (tmp_path / "s" / ".lock").exists()
    with pytest.raises(StoreError, match="not finished"):
        EmbeddingStore(tmp_path / "s")
    again = haybale(*command)
    assert " were there" in again.stderr
    assert len(EmbeddingStore(tmp_path / "s")) == 60_000
