"""Damage every file of stores and checkpoints: what is read or resumed is as before, or refused."""

from __future__ import annotations

import os
import random
import shutil
import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from hostile.target import CORRECT, Cases, Target
from support import rerank_cases
from support.damage import damaged

import haybale
from haybale.collections.saved import load_collection, save_collection

Use = Callable[[Path], list[Any]]  # returns what is read from a folder, or made by resuming it


def _replaced(path: Path, rng: random.Random) -> None:
    path.unlink()
    if rng.random() < 0.5:
        path.mkdir()
    else:
        path.symlink_to(rng.choice((path, path.parent, "/nowhere", "/dev/null")))


def _swapped(path: Path, rng: random.Random) -> None:
    other = rng.choice([each for each in path.parent.iterdir() if each.is_file()])
    held, _ = path.read_bytes(), path.write_bytes(other.read_bytes())
    other.write_bytes(held)


def _flipped(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes() or b"x")
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


WAYS: tuple[Callable[[Path, random.Random], Any], ...] = (
    *(_replaced, _swapped, _flipped, lambda path, rng: path.unlink()),
    lambda path, rng: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    lambda path, rng: path.write_bytes(rng.choice((b"", rng.randbytes(300), path.read_bytes() + b"\0x"))),
    lambda path, rng: path.write_bytes(damaged(path.read_bytes(), rng)),
    lambda path, rng: path.write_bytes(rng.choice((b"[]", b"{}", b"null", b'"x"', b"1e999"))),
    lambda path, rng: path.rename(path.with_name(rng.choice(("x", f"{path.name}~", ".hidden")))),
    lambda path, rng: path.parent.rename(path.parent.with_name(rng.choice(("checkpoint-abc", "checkpoint-9999")))),
)


def stores(target: Target, rng: random.Random) -> Cases:
    folder, (engine, run), pairs = target.new(), rerank_cases.case(), rerank_cases.HashPairs()

    def write_pairs(out: Path, shard: tuple[int, int] | None = None) -> Any:
        queries = engine.collection.queries
        return haybale.interact(engine, queries, run, pairs, out, pairs_per_chunk=30, shard=shard)

    def write_vectors(out: Path, shard: tuple[int, int] | None = None) -> Any:
        return haybale.embed(target.collection, target.encoder, out, rows_per_chunk=16, shard=shard)

    def pairs_of(path: Path) -> list[Any]:
        read = haybale.InteractionStore(path).read()
        arrays = (read.values, read.paragraphs, read.passages, read.padding)
        return [*(array.tolist() for array in arrays), read.blocks[["query_id", "doc_id", "score"]].to_numpy().tolist()]

    def vectors_of(path: Path) -> list[Any]:
        store = haybale.EmbeddingStore(path)
        return [store.vectors().tolist(), list(store.passage_ids), list(store.doc_ids)]

    uses: list[tuple[Path, Use]] = []
    for name, write, read in (("pairs", write_pairs, pairs_of), ("vectors", write_vectors, vectors_of)):
        write(folder / name)
        write(folder / f"{name}-half", (1, 2))
        uses += [(folder / name, read), (folder / name, lambda path, w=write, r=read: w(path) and r(path))]  # type: ignore[misc]
        uses += [(folder / f"{name}-half", lambda path, w=write, r=read: w(path, (2, 2)) and r(path))]  # type: ignore[misc]
    save_collection(target.collection, folder / "collection")
    return _cases(target, [*uses, (folder / "collection", lambda path: [load_collection(path).digest()])], rng)


def _cases(target: Target, uses: list[tuple[Path, Use]], rng: random.Random) -> Cases:
    whole = {
        (folder, use): use(Path(shutil.copytree(folder, target.new() / folder.name)))
        for folder, use in dict.fromkeys(uses)  # what is used twice is damaged twice as often
    }
    for number in count():
        row = rng.randrange(len(uses))
        folder, use = uses[row]
        name = rng.choice(sorted(path for path in folder.rglob("*") if path.is_file())).relative_to(folder)
        case = partial(_damaged, target, folder, name, use, whole[folder, use], rng.choice(WAYS), rng.randrange(2**32))
        yield f"{folder.name}/{name} {number}", case


def _damaged(target: Target, folder: Path, name: Path, use: Use, whole: list[Any], way: Any, seed: int) -> str:
    copied = Path(shutil.copytree(folder, target.new() / folder.name))
    way(copied / name, random.Random(seed))
    if copied.exists():  # and was not renamed as a whole
        assert use(copied) == whole, "read as something else"
    return CORRECT


def checkpoints(target: Target, rng: random.Random) -> Cases:
    """Damage the checkpoints of a training that was interrupted, and the model of a saved ranker."""
    if not all(map(find_spec, ("sentence_transformers", "datasets", "accelerate"))):
        return iter(())  # the extra train is not installed
    import torch
    from safetensors.numpy import load_file
    from support.tiny_models import save_bi_encoder, save_cross_encoder

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(1)
    (folder := target.new()).mkdir()
    base = save_bi_encoder(folder / "bi")
    settings: dict[str, Any] = {"frozen_layers": 0, "batch_size": 8, "evaluations": 3, "epochs": 1, "device": "cpu"}

    def train(work: Path) -> list[Any]:
        """Resume the training of a folder of checkpoints; return the weights."""
        out = work.with_name("tiny")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            haybale.train_encoder(target.engine, base, out, **settings)
        tensors = [load_file(path) for path in sorted(out.rglob("*.safetensors"))]
        return [np.concatenate([each[name].ravel() for name in sorted(each)]).tolist() for each in tensors]

    def rank(changed: Path) -> list[Any]:
        """Rank with the saved ranker, whose model is the changed folder."""
        os.chdir(changed.parent)
        changed.rename("cross")
        return [haybale.load(folder / "ranker", target.engine).rank("dev", depth=5).to_frame().to_numpy().tolist()]

    os.chdir(folder)
    save_cross_encoder(Path("cross"))
    haybale.parse("cross-encoder(bm25,model='cross',n_documents=3)").fit(target.engine).save(folder / "ranker")
    os.chdir(target.folder)
    child, work = os.fork(), folder / "tiny.training"
    if not child:
        from haybale.finetune import training_loop

        finish, n_finished = training_loop.finish_checkpoint, count(1)

        def finish_two(*given: Any) -> None:
            finish(*given)
            if next(n_finished) == 2:
                os._exit(0)

        training_loop.finish_checkpoint = finish_two
        train(work)
    os.waitpid(child, 0)
    return _cases(target, [(work, train), (work, train), (folder / "cross", rank)], rng)
