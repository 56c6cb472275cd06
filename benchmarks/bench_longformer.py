"""LongformerEncoder against transformers' LongformerModel, a RoBERTa, and sentence-transformers; random weights.

    python benchmarks/bench_longformer.py pydocs FOLDER …
    python benchmarks/bench_longformer.py pydocs --device cuda --dtype bfloat16 --more 4096

Base size: 12 layers, 768 wide, 12 heads, windows of 512. First texts of equal lengths, the models alternating in every
round; then a random sample of the passages of each collection (``pydocs`` or a folder), with a byte-level BPE of
50,265 tokens trained on the collection: ours, sentence-transformers as it is (Transformer, Pooling, Normalize, 32
texts a batch), and every text padded to 1,024 tokens, as the paper's code does. Speed does not depend on the weights.
Writes longformer.md, on another device longformer-DEVICE.md.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from provenance import alternating, options, provenance, shown, table, timed, write_page
from tokenizers import ByteLevelBPETokenizer
from tokenizers.processors import RobertaProcessing
from transformers import LongformerConfig, LongformerModel, PreTrainedTokenizerFast, RobertaConfig, RobertaModel

from haybale import LongformerEncoder, open_collection
from haybale.embeddings import EncodeCounts
from haybale.embeddings.longformer.linear import PackedLinear

LENGTHS, TEXTS = (64, 128, 200, 256, 600, 1500), (4, 16)  # texts at once: above 4 for <= 256 tokens only
WIDTH, INNER, REACH, VOCABULARY, PAD, ROBERTA_LIMIT = 768, 3072, 256, 50_265, 1, 256
SPECIAL = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("collections", nargs="*", help="pydocs, or the folder of a collection")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"))
    parser.add_argument("--lengths", type=int, nargs="*", default=LENGTHS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sample", type=int, default=96, help="passages of a collection that the peers encode")
    parser.add_argument("--padded", type=int, default=32, help="of them, those that are padded to 1,024 as well")
    parser.add_argument("--more", type=int, default=0, help="passages that ours encodes alone, for its speed on many")
    parser.add_argument("--layers", type=int, default=12)
    a = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name, torch.inference_mode():
        folder = Path(name)
        config = configured(LongformerConfig, 4098, a.layers, attention_window=[2 * REACH] * a.layers)
        LongformerModel(config).save_pretrained(folder)
        tokenizer(["a few words to begin with"]).save_pretrained(folder)
        peak = measured_peak(a.device, getattr(torch, a.dtype))
        lines = [
            f"# Longformer without padding, {a.device}, {a.dtype}, {torch.get_num_threads()} threads",
            "",
            f"Base size with random weights ({a.layers} layers). Matrix products reach {peak / 1e12:.3g} TFLOP/s here "
            "(one large product in this dtype, the best of torch.matmul and oneDNN): the peak of the shares.",
            "",
            *equal_lengths(folder, a, peak),
        ]
        for collection in a.collections:
            lines += ["", *of_collection(folder, collection, a, peak)]
    command = shown("bench_longformer.py", sys.argv[1:])
    lines += ["", provenance(command, more=("torch", "transformers", "sentence-transformers"))]
    lines += [] if a.device == "cpu" else [f"- {torch.cuda.get_device_name(a.device)}"]
    write_page(a.results / ("longformer.md" if a.device == "cpu" else f"longformer-{a.device}.md"), lines)


def configured(kind: Any, positions: int, layers: int, **more: Any) -> Any:
    sizes = {"vocab_size": VOCABULARY, "max_position_embeddings": positions, "num_hidden_layers": layers}
    return kind(type_vocab_size=1, pad_token_id=PAD, layer_norm_eps=1e-5, **sizes, **more)


def tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """RoBERTa's kind, trained on the texts."""
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(texts, VOCABULARY, special_tokens=list(SPECIAL.values()), show_progress=False)
    trained._tokenizer.post_processor = RobertaProcessing(("</s>", 2), ("<s>", 0))
    names = {f"{kind}_token": token for kind, token in SPECIAL.items()}
    inputs = ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=trained._tokenizer, model_max_length=4096, model_input_names=inputs, **names
    )


def waited(work: Callable[[], Any], device: str) -> Callable[[], Any]:
    """The work, ended only when the device has done it."""

    def done() -> Any:
        result = work()
        if device != "cpu":
            torch.cuda.synchronize(device)
        return result

    return done


def measured_peak(device: str, dtype: torch.dtype) -> float:
    """FLOP/s of a large product, by torch.matmul or the prepacked layer, whichever is faster."""
    n = 3072 if device == "cpu" else 8192
    x = torch.randn(n, n, device=device, dtype=dtype)
    layer = PackedLinear(x, x[0])
    works = {"matmul": waited(lambda: x @ x, device), "prepacked": waited(lambda: layer(x), device)}
    return 2 * n**3 / min(min(seconds) for seconds, _ in alternating(works, 6).values())


def flops(lengths: list[int], layers: int) -> float:
    """Of the products that a Longformer needs: linear layers, and attention to the keys within the window."""
    total = 0.0
    for length in lengths:
        i = np.arange(length)
        keys = (np.minimum(length, i + REACH + 1) - np.maximum(0, i - REACH)).sum()
        total += length * 2 * (4 * WIDTH**2 + 2 * WIDTH * INNER) + 4 * WIDTH * float(keys)
    return layers * total


def equal_lengths(folder: Path, a: argparse.Namespace, peak: float) -> Iterator[str]:
    dtype = getattr(torch, a.dtype)
    encoder = LongformerEncoder(folder, device=a.device, dtype=a.dtype)
    standard = LongformerModel.from_pretrained(folder, dtype=dtype).to(a.device).eval()
    roberta = RobertaModel(configured(RobertaConfig, 514, a.layers, attn_implementation="sdpa"))
    roberta = roberta.to(a.device, dtype).eval()
    yield (
        f"Texts of equal lengths: milliseconds a text, medians of {a.rounds} rounds. Difference: the largest of hidden "
        "states; cosine: the smallest of mean-pooled vectors."
    )
    columns = "tokens|texts|ours|LongformerModel|×|RoBERTa (sdpa)|ours / RoBERTa|tokens/s|of peak|difference|1 - cosine"
    rows = []
    for length, texts in ((length, texts) for length in a.lengths for texts in TEXTS):
        if texts > 4 and length > ROBERTA_LIMIT:
            continue
        ids = torch.randint(5, VOCABULARY, (texts, length), device=a.device)
        positions, mask = torch.arange(PAD + 1, length + PAD + 1, device=a.device).repeat(texts), torch.ones_like(ids)
        works = {
            "ours": lambda: encoder.model(ids.flatten(), positions, [length] * texts),  # noqa: B023
            "theirs": lambda: standard(ids, attention_mask=mask).last_hidden_state,  # noqa: B023
        }
        if length <= ROBERTA_LIMIT:
            works["roberta"] = lambda: roberta(ids, attention_mask=mask).last_hidden_state  # noqa: B023
        works = {name: waited(work, a.device) for name, work in works.items()}
        alternating(works, 1)  # all is warm
        done = alternating(works, a.rounds)
        median = {name: statistics.median(seconds) for name, (seconds, _) in done.items()}
        ours, theirs = median["ours"], median["theirs"]
        found, expected = (done[name][1].view(texts, length, -1).float() for name in ("ours", "theirs"))
        cosine = torch.cosine_similarity(found.mean(1).double(), expected.mean(1).double()).min()
        plain = ["", ""]
        if "roberta" in median:
            plain = [f"{median['roberta'] / texts * 1e3:.1f}", f"{ours / median['roberta']:.2f}"]
        speed = [f"{texts * length / ours:,.0f}", f"{flops([length] * texts, a.layers) / ours / peak:.0%}"]
        apart = [f"{(found - expected).abs().max():.1e}", f"{1 - cosine:.1e}"]
        times = [f"{ours / texts * 1e3:.1f}", f"{theirs / texts * 1e3:.1f}", f"{theirs / ours:.1f}"]
        rows.append([length, texts, *times, *plain, *speed, *apart])
    yield from table(columns, rows, words=0)


def of_collection(folder: Path, name: str, a: argparse.Namespace, peak: float) -> Iterator[str]:
    texts = open_collection(name).passages.texts
    drawn = np.random.default_rng(0).permutation(len(texts))
    tokenizer(texts.take(drawn[:20_000]).to_pylist()).save_pretrained(folder)
    encoder = LongformerEncoder(folder, device=a.device, dtype=a.dtype, max_length=1024)
    library = encoder.to_sentence_transformer()
    sample = texts.take(drawn[: a.sample]).to_pylist()
    encoder.encode(sample[:4])
    library.encode(sample[:4])
    encoder.counts = EncodeCounts()
    works = {
        "LongformerEncoder": waited(lambda: encoder.encode(sample), a.device),
        "sentence-transformers": waited(lambda: library.encode(sample), a.device),
        # A padded text costs the same whatever it says, so a part of them tells the time of all.
        "padded to 1,024": waited(lambda: padded(library, sample[: a.padded]), a.device),
    }
    done = alternating(works, a.rounds)
    counts, lengths = encoder.counts, lengths_of(encoder, sample)
    yield (
        f"`{Path(name).name}`: {len(sample)} random passages of {len(texts):,}, {np.mean(lengths):.0f} tokens on "
        f"average (median {np.median(lengths):.0f}, longest {max(lengths):,}); medians of {a.rounds} rounds, padding "
        f"waste {counts.padding_waste:.0%}; padded to 1,024 are {a.padded} of them, whose time stands for that of all. "
        "Difference and cosine: of the vectors, against ours."
    )
    rows, (seconds, own) = [], done["LongformerEncoder"]
    ours = statistics.median(seconds)
    for peer, (seconds, vectors) in done.items():
        n = len(vectors)
        taken = statistics.median(seconds) * len(sample) / n
        cosine = torch.cosine_similarity(torch.from_numpy(vectors).double(), torch.from_numpy(own[:n]).double()).min()
        speed = [f"{len(sample) / taken:,.1f}", f"{sum(lengths) / taken:,.0f}"]
        speed.append(f"{flops(lengths, a.layers) / taken / peak:.0%}")
        apart = [f"{np.abs(vectors - own[:n]).max():.1e}", f"{abs(1 - cosine):.1e}"]
        rows.append([peer, f"{taken:.2f}", f"{taken / ours:.1f}", *speed, *apart])
    yield from table("|s|×|passages/s|tokens/s|of peak|difference|1 - cosine", rows)
    if a.more:
        many = texts.take(drawn[: a.more]).to_pylist()
        taken, _ = timed(waited(lambda: encoder.encode(many), a.device))
        lengths = lengths_of(encoder, many)
        yield (
            f"\n{len(many):,} passages by ours alone, tokenising included: {taken:.1f} s, {len(many) / taken:,.0f} "
            f"passages/s, {sum(lengths) / taken:,.0f} tokens/s, {flops(lengths, a.layers) / taken / peak:.0%} of peak."
        )


def lengths_of(encoder: LongformerEncoder, texts: list[str]) -> list[int]:
    return [len(ids) for ids in encoder.tokenizer(texts, truncation=True, max_length=1024)["input_ids"]]


def padded(library: Any, texts: list[str]) -> np.ndarray:
    """Every text on 1,024 token slots, 8 texts at once, in the order given; pooled and normalised as the others."""
    result = []
    for start in range(0, len(texts), 8):
        features = library.tokenizer(
            texts[start : start + 8], padding="max_length", truncation=True, max_length=1024, return_tensors="pt"
        ).to(library.device)
        result.append(library(dict(features))["sentence_embedding"].float().cpu().numpy())
    return np.vstack(result)


if __name__ == "__main__":
    main()
