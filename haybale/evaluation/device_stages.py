"""Run each stage of haybale on a device and on the CPU, on small random data, and compare results and seconds.

``haybale doctor --device`` prints what :func:`check_stages` yields. A stage that raises an error does not keep the
others from running.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from haybale.device import CPU, Device, device_of, to_device, to_numpy
from haybale.ensemble import ProductKernelSVR, SVREnsemble
from haybale.errors import HaybaleError, MissingExtraError
from haybale.extras import import_optional, quiet_transformers
from haybale.retrieval import Hits, PassageIndex, Vectors, aggregate
from haybale.retrieval.hits import NO_PASSAGE

ROUNDS = 3  # timed calls of a stage after the first one
SLOWER = 1.5  # a stage is slow if it takes more than so many times as long as on the CPU
TOL = 1e-3  # of the solver; predictions may differ by twice as much
PER_DOCUMENT = 20  # passages of a document

RIGHT, SLOW, SKIPPED, WRONG, FAILED = "right", "slow", "skipped", "wrong", "failed"
BAD = (WRONG, FAILED)
REPORT = "use device='cpu' until this is mended, and report it with the output of haybale doctor"
COLOURS = {RIGHT: "green", SLOW: "yellow", SKIPPED: "yellow", WRONG: "red", FAILED: "red"}


class _SkippedStage(Exception):
    """A stage that cannot run on this machine, although all packages that it needs are installed."""


class StageRun(NamedTuple):
    """A stage that is ready to run on one device, which has its data."""

    run: Callable[[], Any]  # returns NumPy arrays
    where: Callable[[], str]  # returns the device on which it ran


class Stage(NamedTuple):
    """A stage of haybale, how its data are placed on a device, and how far apart two of its results may be."""

    name: str
    prepare: Callable[[Device, float], StageRun]  # the second argument scales the sizes
    difference: Callable[[Any, Any], float]
    tolerance: float


@dataclass(frozen=True)
class Checked:
    """The outcome of a stage on a device, beside the CPU. Seconds and the difference are None if it failed before."""

    name: str
    verdict: str
    where: str = ""
    first: float | None = None  # seconds of the first call, with the transfer of the data and compiling
    again: float | None = None  # seconds of the fastest of the next calls
    cpu: float | None = None  # the same on the CPU
    difference: float | None = None
    remark: str = ""


def check_stages(device: Device, scale: float = 1.0) -> Iterator[Checked]:
    """Yield the outcome of each stage on a device.

    Parameters
    ----------
    device : Device
    scale : float, default 1.0
        Factor of all sizes. With 1, the CPU takes a few seconds for all stages.
    """
    for stage in STAGES:
        try:
            yield _checked(stage, device, scale)
        except (_SkippedStage, MissingExtraError) as error:
            yield Checked(stage.name, SKIPPED, remark=str(error))
        except HaybaleError as error:
            yield Checked(stage.name, FAILED, remark=str(error))
        except Exception as error:  # CuPy, cuBLAS, cuML and torch raise errors of their own
            yield Checked(stage.name, FAILED, remark=f"{type(error).__name__}: {error}; {REPORT}")


def _checked(stage: Stage, device: Device, scale: float) -> Checked:
    start = time.perf_counter()
    work = stage.prepare(device, scale)
    on_device = work.run()
    first = time.perf_counter() - start
    again, where = _fastest(work), work.where()
    cpu_work = stage.prepare(CPU, scale)
    expected = cpu_work.run()
    cpu, difference = _fastest(cpu_work), stage.difference(on_device, expected)
    verdict, remark = RIGHT, ""
    if not difference <= stage.tolerance:  # also if it is not a number
        verdict = WRONG
        remark = f"results differ by {difference:.1e}, expected at most {stage.tolerance:.0e}; {REPORT}"
    elif where != str(CPU) and again > SLOWER * cpu:
        verdict, remark = SLOW, f"{again / cpu:.1f} times as long as on the CPU; device='cpu' is faster at this size"
    return Checked(stage.name, verdict, where, first, again, cpu, difference, remark)


def _fastest(work: StageRun) -> float:
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work.run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


# Stages ------------------------------------------------------------------------------------------------------------


def _count(full: int, scale: float, least: int) -> int:
    return max(least, round(full * scale))


def _unit_rows(seed: int, n: int, d: int) -> Any:
    rows = np.random.default_rng(seed).standard_normal((n, d), dtype=np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def _offsets(n: int) -> Any:
    """Return the passages of documents, :data:`PER_DOCUMENT` each."""
    return np.append(np.arange(0, n, PER_DOCUMENT), n)


def _searched(index: PassageIndex, queries: Any, k: int) -> StageRun:
    def run() -> Hits:
        return index.search(queries, k).to_numpy()

    return StageRun(run, lambda: str(device_of(index.vectors)))


def _dense_search(device: Device, scale: float) -> StageRun:
    n = _count(40_000, scale, 200)
    index = PassageIndex(_unit_rows(0, n, 384), _offsets(n), device=device)
    return _searched(index, _unit_rows(1, _count(256, scale, 4), 384), 50)


def _sparse_search(device: Device, scale: float) -> StageRun:
    n, rng = _count(20_000, scale, 200), np.random.default_rng(2)
    how: dict[str, Any] = {"density": 0.01, "format": "csr", "dtype": np.float32, "random_state": rng}
    index = PassageIndex(sparse.random(n, 4_000, **how), _offsets(n), device=device)
    return _searched(index, sparse.random(_count(64, scale, 4), 4_000, **how), 50)


def hits_difference(hits: Hits, expected: Hits) -> float:
    """Return the largest difference of two results of a search.

    The scores of passages in both results are compared. A passage may be in only one of them because of rounding: its
    score is compared with the lowest score of the other result.
    """
    largest = 0.0
    for row in range(len(expected)):
        one, two = (
            {p: s for p, s in zip(*pair, strict=True) if p != NO_PASSAGE} for pair in _rows(row, hits, expected)
        )
        if len(one) != len(two):
            return np.inf
        last = max((min(scores.values()) for scores in (one, two) if scores), default=0.0)
        differences = [abs(one.get(passage, last) - two.get(passage, last)) for passage in one | two]
        largest = max([largest, *differences])
    return largest


def _rows(row: int, *hits: Hits) -> list[tuple[list[int], list[float]]]:
    return [(one.passages[row].tolist(), one.scores[row].tolist()) for one in hits]


def largest_difference(values: Any, expected: Any) -> float:
    """Return the largest difference of two arrays; infinite if their shapes differ."""
    if values.shape != expected.shape:
        return np.inf
    return float(np.abs(values.astype(np.float64) - expected).max(initial=0.0))


def _pairs(scale: float) -> tuple[Any, Any, Any, Any, Any]:
    """Return vectors of queries and passages, and rows of pairs of them with labels: near pairs are relevant."""
    n, candidates = _count(64, scale, 10), 32
    queries, passages = _unit_rows(3, n, 64), _unit_rows(4, 20 * n, 64)
    near = np.argsort(-(queries @ passages.T), axis=1, kind="stable")[:, :candidates]
    label = np.tile(np.arange(candidates) < 2, n).astype(np.float64)
    return queries, passages, np.repeat(np.arange(n), candidates), near.ravel(), label


def _bag(device: Device, scale: float) -> StageRun:
    queries, passages, query, passage, label = _pairs(scale)
    queries, passages = to_device(queries, device), to_device(passages, device)
    model = ProductKernelSVR(gamma=(1.0, 1.0), tol=TOL, device=str(device))

    def run() -> Any:
        model.fit_pairs(queries, passages, query, passage, label)
        return to_numpy(model.predict_pairs(queries, passages, query, passage))

    return StageRun(run, lambda: str(model.expansion_.passages.device))


def _scoring(device: Device, scale: float) -> StageRun:
    """Score by an ensemble that was trained on the CPU."""
    queries, passages, _, passage, _ = _pairs(scale)
    relevant = [[str(document)] for document in passage.reshape(len(queries), -1)[:, 0] // PER_DOCUMENT]
    how: dict[str, Any] = {"doc_ids": [str(number) for number in range(len(_offsets(len(passages))) - 1)]}
    trained = SVREnsemble(8, k=32, n_jobs=1).fit(
        PassageIndex(passages, _offsets(len(passages)), **how), queries, relevant
    )
    index = PassageIndex(passages, _offsets(len(passages)), device=device, **how)
    with tempfile.TemporaryDirectory() as folder:
        trained.save(Path(folder) / "model")
        model = SVREnsemble.load(Path(folder) / "model", index)
    candidates = np.random.default_rng(5).integers(len(passages), size=(_count(512, scale, 4), 50))
    new = _unit_rows(6, len(candidates), 64)
    return StageRun(
        lambda: to_numpy(model.score_candidates(new, candidates)), lambda: str(model.support_.passages.device)
    )


def _aggregation(device: Device, scale: float) -> StageRun:
    """Aggregate the hits of 32 query documents of 20 paragraphs by PARM's vector sums with reciprocal ranks."""
    n, m, per_query = _count(20_000, scale, 200), _count(32, scale, 2), 20
    rng, doc_of = np.random.default_rng(7), np.arange(n) // PER_DOCUMENT
    n_hits = min(500, n // 2)
    passages = np.argpartition(rng.random((m * per_query, n), dtype=np.float32), n_hits, axis=1)[:, :n_hits]
    scores = -np.sort(-rng.random((m * per_query, n_hits), dtype=np.float32), axis=1)
    hits = Hits(*(to_device(column, device) for column in (passages.astype(np.int64), scores)))
    vectors = Vectors(*(to_device(_unit_rows(seed, rows, 128), device) for seed, rows in ((8, n), (9, m * per_query))))
    where: list[str] = []

    def run() -> Any:
        queries, documents, values = aggregate(hits, "vrrf", doc_of, np.arange(m + 1) * per_query, vectors=vectors)
        where[:] = [str(device_of(values))]
        table = np.full((m, doc_of[-1] + 1), -np.inf)
        table[to_numpy(queries), to_numpy(documents)] = to_numpy(values)
        return np.nan_to_num(table, neginf=0.0)

    return StageRun(run, lambda: where[0])


def _encoder(device: Device, scale: float) -> StageRun:
    """Encode texts of random words by a Longformer of two layers with random weights."""
    torch = import_optional("torch", "neural")
    if not device.is_cpu and not torch.cuda.is_available():
        raise _SkippedStage("torch finds no CUDA device; install a build of torch for CUDA to encode on this device")
    from haybale.embeddings import LongformerEncoder

    with tempfile.TemporaryDirectory() as folder:
        _save_longformer(Path(folder))
        model = LongformerEncoder(folder, device=str(device))
    rng = np.random.default_rng(10)
    texts = [" ".join(rng.choice(list(_TEST_WORDS), size=200)) for _ in range(_count(32, scale, 2))]
    return StageRun(lambda: model.encode(texts), lambda: str(device))


_TEST_WORDS = "abcdefghijklmnopqrstuvwxyz"


def _save_longformer(folder: Path) -> None:
    torch, transformers = import_optional("torch", "neural"), import_optional("transformers", "neural")
    tokenizers = import_optional("tokenizers", "neural")
    special = {
        "cls_token": "<s>",
        "pad_token": "<pad>",
        "sep_token": "</s>",
        "unk_token": "<unk>",
        "mask_token": "<mask>",
    }
    vocabulary = {token: number for number, token in enumerate((*special.values(), *_TEST_WORDS))}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    pair = ("</s>", vocabulary["</s>"]), ("<s>", vocabulary["<s>"])
    tokenizer.post_processor = tokenizers.processors.RobertaProcessing(*pair)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=512, **special)
    fast.save_pretrained(folder)
    config = transformers.LongformerConfig(
        vocab_size=len(vocabulary),
        hidden_size=256,
        intermediate_size=1024,
        num_hidden_layers=2,
        num_attention_heads=4,
        attention_window=[64, 64],
        max_position_embeddings=514,
        type_vocab_size=1,
        pad_token_id=vocabulary["<pad>"],
        initializer_range=0.2,
    )
    with torch.random.fork_rng(devices=[]), quiet_transformers():
        torch.manual_seed(0)
        transformers.LongformerModel(config).save_pretrained(folder)


STAGES = (
    Stage("dense search", _dense_search, hits_difference, 1e-6),
    Stage("sparse search", _sparse_search, hits_difference, 1e-5),
    Stage("a bag of support vectors", _bag, largest_difference, 2 * TOL),
    Stage("scoring by an ensemble", _scoring, largest_difference, 1e-4),
    Stage("PARM aggregation", _aggregation, largest_difference, 1e-5),
    Stage("encoder (Longformer)", _encoder, largest_difference, 1e-3),
)
