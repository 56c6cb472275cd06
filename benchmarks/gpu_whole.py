"""Parts of bench_gpu.py that run haybale as its users do: a new process, doctor, tests, comparisons, encoders."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import synthetic
from gpu_bench import WIDTH, Bench, Cells, Line
from provenance import timed

import haybale
from haybale import Engine, open_collection
from haybale.collections import Collection, CollectionBuilder
from haybale.device import CPU
from haybale.evaluation.device_stages import check_stages
from haybale.extras import import_optional

ROOT = Path(__file__).resolve().parent.parent
DENSE_PASSAGES, DENSE_TRAINING, DENSE_RANKED, DENSE_PER_DOCUMENT = 150_000, 1_000, 300, 12
DEPTH = 10  # documents of a query that are compared

_FIRST_SEARCH = """
import sys, time
start = time.perf_counter()
import numpy as np
from haybale import PassageIndex
from haybale.device import find_device, to_numpy
device, rng = find_device(sys.argv[1]), np.random.default_rng(0)
vectors = rng.standard_normal((20_000, 384), dtype=np.float32)
index = PassageIndex(vectors, device=device)
made = time.perf_counter()
to_numpy(index.search(vectors[:10], 50).passages)
first = time.perf_counter()
to_numpy(index.search(vectors[10:20], 50).passages)
print(made - start, first - made, time.perf_counter() - first)
"""


def start(bench: Bench) -> Iterator[Line]:
    """Search for the first time in a new process: with an empty folder of compiled kernels, and with a full one."""
    columns = "kernels compiled before | import and transfer, s | first search, s | second search, s | kernels on disk"
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"CUPY_CACHE_DIR": folder}
        for before in ("no", "yes"):
            command = [sys.executable, "-c", _FIRST_SEARCH, str(bench.device)]
            done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
            seconds = [float(text) for text in done.stdout.split()]
            yield Cells(columns, (before, *seconds, sum(1 for _ in Path(folder).glob("*.cubin"))))


def doctor(bench: Bench) -> Iterator[Line]:
    """Run what ``haybale doctor --device`` runs."""
    columns = "stage | where | verdict | first, s | later, s | CPU, s | largest difference"
    for stage in check_stages(bench.device, min(1.0, 10 * bench.scale)):
        numbers = ("" if value is None else value for value in (stage.first, stage.again, stage.cpu, stage.difference))
        yield Cells(columns, (stage.name, stage.where, stage.verdict, *numbers))
        if stage.remark:
            yield f"{stage.name}: {stage.remark}."


def tests(bench: Bench) -> Iterator[Line]:
    """Run the device tests; on the CPU only those of one folder, which skip."""
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-W", "default", "-p", "no:cacheprovider"]
    command += ["-vv", "--tb=line", "--continue-on-collection-errors"]
    command += ["-n", str(min(8, os.cpu_count() or 1))] if find_spec("xdist") and not bench.device.is_cpu else []
    command += ["tests/retrieval" if bench.device.is_cpu else "tests"]
    outcomes: dict[str, str] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT) as running:
        assert running.stdout is not None
        for printed in running.stdout:
            print(printed, end="", flush=True)
            if outcome := outcome_of(printed):
                outcomes[outcome[0]] = outcome[1]
                if outcome[1] in ("FAILED", "ERROR"):
                    yield f"- {outcome[1].lower()}: `{outcome[0]}`"
    counts = {
        kind: sum(outcome == kind for outcome in outcomes.values()) for kind in ("PASSED", "FAILED", "ERROR", "SKIPPED")
    }
    yield (
        ", ".join(f"{count} {kind.lower()}" for kind, count in counts.items()) + f"; exit status {running.returncode}."
    )


def outcome_of(printed: str) -> tuple[str, str] | None:
    """Return the name and the outcome of a test from a line that pytest printed, of one process or of several.

    >>> outcome_of("[gw1] [ 12%] PASSED tests/a.py::test_b[double] ")
    ('tests/a.py::test_b[double]', 'PASSED')
    >>> outcome_of("tests/a.py::test_b[x y] SKIPPED (no device)   [ 3%]")
    ('tests/a.py::test_b[x y]', 'SKIPPED')
    """
    kinds = "PASSED|FAILED|ERROR|SKIPPED"
    if line := re.match(rf"\[gw\d+\] \[ *\d+%\] ({kinds}) (\S+::.*)", printed):
        return line[2].strip(), line[1]
    if line := re.match(rf"(\S+::.*?) ({kinds})\b", printed):
        return line[1], line[2]
    if line := re.match(r"ERROR (\S+\.py)\b", printed):  # a file that cannot be imported, in the summary
        return line[1], "ERROR"
    return None


# comparisons ---------------------------------------------------------------------------------------------------------


def compare_dense(bench: Bench) -> Iterator[Line]:
    """Compare rankers that use vectors only: BM25 and what it needs run on the CPU anyway."""
    collection, encoder = dense_collection(bench)
    svr = "svr(evidence=[knn-doc,parm-vrrf],candidates=[knn])"
    yield (
        f"{collection.n_passages:,} passages of width {WIDTH}, {len(collection.split('train').queries):,} training "
        f"queries; `knn`, `parm-vrrf` and `{svr}`."
    )
    engines = {str(device): Engine(collection, encoder=encoder, device=str(device)) for device in (bench.device, CPU)}
    yield from compared(engines, ["knn", "parm-vrrf", svr], "knn")


def compare_pydocs(bench: Bench) -> Iterator[Line]:
    collection = open_collection("pydocs")
    rankers = ["bm25", "knn", "parm-vrrf", *(["svr"] if bench.scale == 1 else [])]
    yield f"The built-in collection, TF-IDF: {', '.join(rankers)}."
    yield from compared(
        {str(device): Engine(collection, device=str(device)) for device in (bench.device, CPU)}, rankers
    )


def compared(engines: dict[str, Engine], rankers: Sequence[str], baseline: str = "bm25") -> Iterator[Line]:
    """Yield the seconds of comparisons on several devices, the last of which is the CPU, and how far they agree."""
    outcomes, totals = {}, {}
    for device, engine in engines.items():
        totals[device], outcomes[device] = timed(
            lambda engine=engine: haybale.compare(engine, rankers, baseline=baseline)
        )
        yield Cells("device | seconds", (device, totals[device]))
    one, cpu = next(iter(engines)), str(CPU)
    if one != cpu:
        yield f"{totals[cpu] / totals[one]:.2f} times as fast as the CPU with {len(os.sched_getaffinity(0))} cores."
    seconds = [outcomes[device].seconds for device in (one, cpu)]
    for stage in sorted(seconds[1], key=lambda name: -seconds[1][name])[:16]:
        yield Cells(f"stage | {one}, s | cpu, s", (stage, seconds[0].get(stage, 0.0), seconds[1][stage]))
    for name, expected in outcomes[cpu].runs.items():
        run = outcomes[one].runs[name]
        equal = [
            [doc_id for doc_id, _ in run[query][:DEPTH]] == [doc_id for doc_id, _ in expected[query][:DEPTH]]
            for query in expected.query_ids
        ]
        yield Cells(f"ranker | queries | first {DEPTH} equal", (name, len(equal), f"{np.mean(equal):.2%}"))


class NumberedVectors:
    """An encoder of texts whose first word is the number of a row: ``p7`` of the passages, ``q7`` of the queries."""

    def __init__(self, passages: Any, queries: Any) -> None:
        self.rows = {"p": passages, "q": queries}
        self.dim = int(passages.shape[1])

    def encode(self, texts: Sequence[str]) -> Any:
        words = [text.split(None, 1)[0] for text in texts]
        return np.stack([self.rows[word[0]][int(word[1:])] for word in words])

    def describe(self) -> dict[str, Any]:
        return {"class": "NumberedVectors", "rows": {name: len(rows) for name, rows in self.rows.items()}}


def dense_collection(bench: Bench) -> tuple[Collection, NumberedVectors]:
    """Return a collection with synthetic vectors, and the encoder that gives them; queries have three paragraphs."""
    made = synthetic.collection(bench.count(DENSE_PASSAGES, 600), WIDTH, DENSE_PER_DOCUMENT, CPU)
    builder = CollectionBuilder("dense", language="english")
    for document, (first, end) in enumerate(zip(made.doc_offsets[:-1], made.doc_offsets[1:], strict=True)):
        builder.add_document(f"d{document}", [f"p{number} passage" for number in range(first, end)])
    n_train, n_dev = bench.count(DENSE_TRAINING, 60), bench.count(DENSE_RANKED, 20)
    whole, about = made.queries(n_train + n_dev, 1)
    noisy = whole[:, None] + 0.02 * np.random.default_rng(1).standard_normal((len(whole), 3, WIDTH), dtype=np.float32)
    # The vector of a whole query, which its text begins with, comes before those of its paragraphs.
    paragraphs = np.concatenate([whole, noisy.reshape(-1, WIDTH)])
    paragraphs /= np.linalg.norm(paragraphs, axis=1, keepdims=True)
    for number, document in enumerate(about.tolist()):
        split = "train" if number < n_train else "dev"
        texts = [f"q{len(whole) + 3 * number + position} paragraph" for position in range(3)]
        builder.add_query(f"{split}{number}", texts, split=split)
        builder.add_judgement(split, f"{split}{number}", f"d{document}")
    return builder.build(), NumberedVectors(made.vectors, paragraphs)


# encoders ------------------------------------------------------------------------------------------------------------


def longformer(bench: Bench) -> Iterator[Line]:
    """Encode in bfloat16 beside transformers' models, as bench_longformer.py does; on the CPU in float32."""
    for package in ("torch", "transformers"):
        import_optional(package, "neural")
    import bench_longformer
    import torch
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    layers, is_cpu = (1 if bench.scale < 1 else 12), bench.device.is_cpu
    chosen = argparse.Namespace(
        device=str(bench.device),
        dtype="float32" if is_cpu else "bfloat16",
        lengths=(64,) if is_cpu else (256, 1500),
        rounds=bench.rounds,
        layers=layers,
    )
    with tempfile.TemporaryDirectory() as name, torch.inference_mode():
        sizes = {"attention_window": [2 * bench_longformer.REACH] * layers}
        config = bench_longformer.configured(transformers.LongformerConfig, 4098, layers, **sizes)
        transformers.LongformerModel(config).save_pretrained(name)
        bench_longformer.tokenizer().save_pretrained(name)
        peak = bench_longformer.measured_peak(chosen.device, getattr(torch, chosen.dtype))
        yield f"{layers} layers, {chosen.dtype}, random weights; products reach {peak / 1e12:.3g} TFLOP/s."
        yield "\n".join(bench_longformer.equal_lengths(Path(name), chosen, peak))


def pairs(bench: Bench) -> Iterator[Line]:
    """Read pairs of paragraphs as BERT-PLI does, beside sentence-transformers' CrossEncoder, both in one precision."""
    torch, transformers = import_optional("torch", "neural"), import_optional("transformers", "neural")
    cross_encoder = import_optional("sentence_transformers", "neural").CrossEncoder
    is_cpu, n_pairs = bench.device.is_cpu, bench.count(8192, 32)
    precision = "float32" if is_cpu else "bfloat16"
    rng, vocabulary = np.random.default_rng(0), [f"w{number}" for number in range(2000)]
    texts = [" ".join(rng.choice(vocabulary, size=int(size))) for size in rng.integers(20, 110, size=400)]
    which = rng.integers(len(texts), size=(n_pairs, 2))
    layers = 1 if bench.scale < 1 else 12
    with tempfile.TemporaryDirectory() as name:
        torch.manual_seed(0)
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *vocabulary]
        Path(name, "vocab.txt").write_text("\n".join(words), encoding="utf-8")
        config = transformers.BertConfig(vocab_size=len(words), num_hidden_layers=layers, num_labels=1)
        transformers.BertForSequenceClassification(config).save_pretrained(name)
        transformers.BertTokenizer(str(Path(name, "vocab.txt")), model_max_length=512).save_pretrained(name)
        how: dict[str, Any] = {"max_length": 256, "device": str(bench.device)}
        ours = haybale.CrossPairs(name, read="score", precision=precision, **how)
        theirs = cross_encoder(name, model_kwargs={"dtype": getattr(torch, precision)}, **how)
    strings = [(texts[i], texts[j]) for i, j in which.tolist()]

    def read() -> Any:
        ours._tokens._made.clear()  # tokens of the call before are not kept
        return ours.encode(texts, texts, which)[:, 0]

    works = {
        "CrossPairs": read,
        "CrossEncoder.predict": lambda: theirs.predict(strings, batch_size=64, show_progress_bar=False),
    }
    done = bench.times(works)
    apart = float(np.abs(np.subtract(*(np.asarray(taken.result, dtype=np.float64) for taken in done.values()))).max())
    yield f"{n_pairs:,} pairs, BERT with {layers} layers and random weights, {precision}; scores differ by {apart:.0e}."
    for name, taken in done.items():
        yield Cells("by | first, s | later, s | pairs/s", (name, taken.first, taken.later, n_pairs / taken.later))
