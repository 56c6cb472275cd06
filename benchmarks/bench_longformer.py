"""LongformerEncoder against transformers' LongformerModel, a RoBERTa, and sentence-transformers; random weights.

    python benchmarks/bench_longformer.py pydocs FOLDER --out benchmarks/results/longformer.md
    python benchmarks/bench_longformer.py pydocs --device cuda --dtype bfloat16 --out longformer_gpu.md

Base size: 12 layers, 768 wide, 12 heads, windows of 512. First texts of equal lengths, the models alternating in every
round; then a random sample of the passages of each collection (``pydocs`` or a folder), with a byte-level BPE of
50,265 tokens trained on the collection: ours, sentence-transformers as it is (Transformer, Pooling, Normalize, 32
texts a batch), and every text padded to 1,024 tokens, as the paper's code does. Speed does not depend on the weights.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from provenance import provenance, shown
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from tokenizers import ByteLevelBPETokenizer
from tokenizers.processors import RobertaProcessing
from transformers import LongformerConfig, LongformerModel, PreTrainedTokenizerFast, RobertaConfig, RobertaModel

from haybale.collections import open_collection
from haybale.embeddings import EncodeCounts, LongformerEncoder
from haybale.embeddings.longformer_model import PackedLinear

LENGTHS = (64, 128, 200, 256, 600, 1500)
WIDTH, INNER, REACH, VOCABULARY, PAD = 768, 3072, 256, 50_265, 1
ROBERTA_LIMIT = 256
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collections", nargs="*", help="pydocs, or the folder of a collection")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"))
    parser.add_argument("--lengths", type=int, nargs="*", default=LENGTHS)
    parser.add_argument("--batches", type=int, nargs="*", default=[4, 16], help="texts; above 4 for <= 256 tokens only")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sample", type=int, default=96, help="passages of a collection that the peers encode")
    parser.add_argument("--padded", type=int, default=32, help="of them, those that are padded to 1,024 as well")
    parser.add_argument("--more", type=int, default=0, help="passages that ours encodes alone, for its speed on many")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--out", type=Path, required=True)
    a = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        torch.manual_seed(0)
        LongformerModel(
            _config(LongformerConfig, 4098, a.layers, attention_window=[2 * REACH] * a.layers)
        ).save_pretrained(folder)
        _tokenizer(["a few words to begin with"]).save_pretrained(folder)
        peak = _peak(a.device, a.dtype)
        lines = [
            f"# Longformer without padding, {a.device}, {a.dtype}, {torch.get_num_threads()} threads",
            "",
            f"Base size with random weights ({a.layers} layers). Matrix products reach {peak / 1e12:.3g} TFLOP/s here "
            "(one large product in this dtype, the best of torch.matmul and oneDNN): the peak of the shares.",
            "",
            *_equal_lengths(folder, a, peak),
        ]
        for collection in a.collections:
            lines += ["", *_collection(folder, collection, a, peak)]
    command = shown("bench_longformer.py", sys.argv[1:])
    gpu = [f"- {torch.cuda.get_device_name()}"] if a.device.startswith("cuda") else []
    lines += ["", provenance(command, more=("torch", "transformers", "sentence-transformers")), *gpu]
    a.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(a.out.read_text(encoding="utf-8"))


def _config(kind: Any, positions: int, layers: int, **more: Any) -> Any:
    return kind(
        vocab_size=VOCABULARY,
        type_vocab_size=1,
        pad_token_id=PAD,
        max_position_embeddings=positions,
        layer_norm_eps=1e-5,
        num_hidden_layers=layers,
        **more,
    )


def _tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """RoBERTa's kind, trained on the texts."""
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(texts, VOCABULARY, special_tokens=SPECIAL, show_progress=False)
    trained._tokenizer.post_processor = RobertaProcessing(("</s>", 2), ("<s>", 0))
    names = dict(zip(("cls", "pad", "sep", "unk", "mask"), SPECIAL, strict=True))
    return PreTrainedTokenizerFast(
        tokenizer_object=trained._tokenizer,
        model_max_length=4096,
        model_input_names=["input_ids", "attention_mask"],
        **{f"{kind}_token": token for kind, token in names.items()},
    )


def _peak(device: str, dtype: str) -> float:
    """FLOP/s of a large product, by torch.matmul or the prepacked layer, whichever is faster."""
    n = 8192 if device.startswith("cuda") else 3072
    x = torch.randn(n, n, device=device, dtype=getattr(torch, dtype))
    layer = PackedLinear(x, x[0])
    with torch.inference_mode():
        best = min(_seconds(work, device) for _ in range(6) for work in (lambda: x @ x, lambda: layer(x)))
    return 2 * n**3 / best


def _seconds(work: Callable[[], Any], device: str) -> float:
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - start


def _flops(lengths: list[int], layers: int) -> float:
    """Of the products that a Longformer needs: linear layers, and attention to the keys within the window."""
    total = 0.0
    for length in lengths:
        i = np.arange(length)
        keys = (np.minimum(length, i + REACH + 1) - np.maximum(0, i - REACH)).sum()
        total += length * 2 * (4 * WIDTH**2 + 2 * WIDTH * INNER) + 4 * WIDTH * float(keys)
    return layers * total


@torch.inference_mode()
def _equal_lengths(folder: Path, a: argparse.Namespace, peak: float) -> Iterator[str]:
    dtype = getattr(torch, a.dtype)
    encoder = LongformerEncoder(folder, device=a.device, dtype=a.dtype)
    standard = LongformerModel.from_pretrained(folder, dtype=dtype).to(a.device).eval()
    roberta = RobertaModel(_config(RobertaConfig, 514, a.layers, attn_implementation="sdpa"))
    roberta = roberta.to(a.device, dtype).eval()
    yield (
        f"Texts of equal lengths: milliseconds a text, medians of {a.rounds} rounds (LongformerModel at more than 4 "
        "texts: 1 round). Difference: the largest of hidden states; cosine: the smallest of mean-pooled vectors."
    )
    yield ""
    columns = "tokens|texts|ours|LongformerModel|×|RoBERTa (sdpa)|ours / RoBERTa|tokens/s|of peak|difference|1 - cosine"
    yield f"| {columns.replace('|', ' | ')} |"
    yield "|" + " ---: |" * 11
    for length in a.lengths:
        for texts in a.batches:
            if texts > 4 and length > ROBERTA_LIMIT:
                continue
            ids = torch.randint(5, VOCABULARY, (texts, length), device=a.device)
            positions = torch.arange(PAD + 1, length + PAD + 1, device=a.device).repeat(texts)
            ours = lambda: encoder.model(ids.flatten(), positions, [length] * texts)  # noqa: B023, E731
            theirs = lambda: standard(ids, attention_mask=torch.ones_like(ids)).last_hidden_state  # noqa: B023, E731
            plain = lambda: roberta(ids, attention_mask=torch.ones_like(ids)).last_hidden_state  # noqa: B023, E731
            found, expected = ours().view(texts, length, -1).float(), theirs().float()  # and all is warm
            peers = {"ours": ours, "theirs": theirs} | ({"plain": plain} if length <= ROBERTA_LIMIT else {})
            seconds: dict[str, list[float]] = {name: [] for name in peers}
            for number in range(a.rounds):
                for peer, work in peers.items():
                    if peer != "theirs" or number == 0 or texts <= 4:
                        seconds[peer].append(_seconds(work, a.device))
            median = {peer: statistics.median(values) for peer, values in seconds.items()}
            own = median["ours"]
            cosine = torch.cosine_similarity(found.mean(1).double(), expected.mean(1).double()).min()
            roberta_cells = (
                f"{median['plain'] / texts * 1e3:.1f} | {own / median['plain']:.2f}" if "plain" in median else " | "
            )
            yield _show(
                f"| {length:,} | {texts} | {own / texts * 1e3:.1f} | {median['theirs'] / texts * 1e3:.1f} | "
                f"{median['theirs'] / own:.1f} | {roberta_cells} | {texts * length / own:,.0f} | "
                f"{_flops([length] * texts, a.layers) / own / peak:.0%} | {(found - expected).abs().max():.1e} | "
                f"{1 - cosine:.1e} |"
            )


def _collection(folder: Path, name: str, a: argparse.Namespace, peak: float) -> Iterator[str]:
    texts = open_collection(name).passages.texts
    drawn = np.random.default_rng(0).permutation(len(texts))
    _tokenizer(texts.take(drawn[:20_000]).to_pylist()).save_pretrained(folder)
    encoder = LongformerEncoder(folder, device=a.device, dtype=a.dtype, max_length=1024)
    transformer = Transformer(str(folder), max_seq_length=1024, model_kwargs={"dtype": getattr(torch, a.dtype)})
    library = SentenceTransformer(modules=[transformer, Pooling(WIDTH, "mean"), Normalize()], device=a.device)
    sample = texts.take(drawn[: a.sample]).to_pylist()
    encoder.encode(sample[:4])
    library.encode(sample[:4])
    encoder.counts = EncodeCounts()
    vectors: dict[str, np.ndarray] = {}

    def keep(peer: str, work: Callable[[], np.ndarray]) -> float:
        return _seconds(lambda: vectors.update({peer: work()}), a.device)

    own = [keep("ours", lambda: encoder.encode(sample))]
    theirs = keep("library", lambda: library.encode(sample))
    own.append(keep("ours", lambda: encoder.encode(sample)))
    # A padded text costs the same whatever it says, so a part of them tells the time of all.
    padded = keep("padded", lambda: _padded(library, sample[: a.padded])) * len(sample) / a.padded
    own.append(keep("ours", lambda: encoder.encode(sample)))
    ours, counts = statistics.median(own), encoder.counts
    lengths = [len(ids) for ids in encoder.tokenizer(sample, truncation=True, max_length=1024)["input_ids"]]
    _show(f"{name}: {own} {theirs} {padded}")
    yield (
        f"`{Path(name).name}`: {len(sample)} random passages of {len(texts):,}, {np.mean(lengths):.0f} tokens on "
        f"average (median {np.median(lengths):.0f}, longest {max(lengths):,}); ours is the median of 3 runs between "
        f"the others, padding waste {counts.padding_waste:.0%}; padded to 1,024 are {a.padded} of them, whose time "
        "stands for that of all. Difference and cosine: of the vectors, against ours."
    )
    yield ""
    yield "| | s | × | passages/s | tokens/s | of peak | difference | 1 - cosine |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for peer, label, seconds in (
        ("ours", "LongformerEncoder", ours),
        ("library", "sentence-transformers", theirs),
        ("padded", "padded to 1,024", padded),
    ):
        n = len(vectors[peer])
        cosine = torch.cosine_similarity(*(torch.from_numpy(vectors[of][:n]).double() for of in (peer, "ours"))).min()
        yield (
            f"| {label} | {seconds:.2f} | {seconds / ours:.1f} | {len(sample) / seconds:,.1f} | "
            f"{sum(lengths) / seconds:,.0f} | {_flops(lengths, a.layers) / seconds / peak:.0%} | "
            f"{np.abs(vectors[peer] - vectors['ours'][:n]).max():.1e} | {abs(1 - cosine):.1e} |"
        )
    if a.more:
        many = texts.take(drawn[: a.more]).to_pylist()
        encoder.counts = EncodeCounts()
        seconds = _seconds(lambda: encoder.encode(many), a.device)
        lengths = [len(ids) for ids in encoder.tokenizer(many, truncation=True, max_length=1024)["input_ids"]]
        yield ""
        yield _show(
            f"{len(many):,} passages by ours alone, tokenising included: {seconds:.1f} s, {len(many) / seconds:,.0f} "
            f"passages/s, {encoder.counts.tokens / seconds:,.0f} tokens/s, "
            f"{_flops(lengths, a.layers) / seconds / peak:.0%} of peak."
        )


@torch.inference_mode()
def _padded(library: Any, texts: list[str]) -> np.ndarray:
    """Every text on 1,024 token slots, 8 texts at once, in the order given; pooled and normalised as the others."""
    result = []
    for start in range(0, len(texts), 8):
        features = library.tokenizer(
            texts[start : start + 8], padding="max_length", truncation=True, max_length=1024, return_tensors="pt"
        ).to(library.device)
        result.append(library(dict(features))["sentence_embedding"].float().cpu().numpy())
    return np.vstack(result)


def _show(line: str) -> str:
    print(line, flush=True)
    return line


if __name__ == "__main__":
    main()
