"""LongformerEncoder against transformers' LongformerModel and a RoBERTa, on texts of equal lengths; random weights.

    python benchmarks/bench_longformer.py
    python benchmarks/bench_longformer.py --device cuda --dtype bfloat16

Base size: 12 layers, 768 wide, 12 heads, windows of 512; the models alternate in every round. Speed does not depend on
the weights. Writes longformer.md, on another device longformer-DEVICE.md.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from provenance import alternating, options, provenance, shown, table, write_page
from tokenizers import ByteLevelBPETokenizer
from transformers import LongformerConfig, LongformerModel, PreTrainedTokenizerFast, RobertaConfig, RobertaModel

from haybale import LongformerEncoder
from haybale.embeddings.networks.longformer_model import PackedLinear

LENGTHS, TEXTS = (64, 128, 200, 256, 600, 1500), (4, 16)  # texts at once: above 4 for <= 256 tokens only
WIDTH, INNER, REACH, VOCABULARY, PAD, ROBERTA_LIMIT = 768, 3072, 256, 50_265, 1, 256


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"))
    parser.add_argument("--lengths", type=int, nargs="*", default=LENGTHS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=12)
    a = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name, torch.inference_mode():
        folder = Path(name)
        config = configured(LongformerConfig, 4098, a.layers, attention_window=[2 * REACH] * a.layers)
        LongformerModel(config).save_pretrained(folder)
        tokenizer().save_pretrained(folder)
        peak = measured_peak(a.device, getattr(torch, a.dtype))
        lines = [
            f"# Longformer without padding, {a.device}, {a.dtype}, {torch.get_num_threads()} threads",
            "",
            f"Base size with random weights ({a.layers} layers). Matrix products reach {peak / 1e12:.3g} TFLOP/s here "
            "(one large product in this dtype, the best of torch.matmul and oneDNN): the peak of the shares.",
            "",
            *equal_lengths(folder, a, peak),
        ]
    command = shown("bench_longformer.py", sys.argv[1:])
    lines += ["", provenance(command, more=("torch", "transformers", "sentence-transformers"))]
    lines += [] if a.device == "cpu" else [f"- {torch.cuda.get_device_name(a.device)}"]
    write_page(a.results / ("longformer.md" if a.device == "cpu" else f"longformer-{a.device}.md"), lines)


def configured(kind: Any, positions: int, layers: int, **more: Any) -> Any:
    sizes = {"vocab_size": VOCABULARY, "max_position_embeddings": positions, "num_hidden_layers": layers}
    return kind(type_vocab_size=1, pad_token_id=PAD, layer_norm_eps=1e-5, **sizes, **more)


def tokenizer() -> PreTrainedTokenizerFast:
    """RoBERTa's kind, of a few words: texts are random tokens, but an encoder has one."""
    trained, tokens = ByteLevelBPETokenizer(), ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trained.train_from_iterator(["a few words"], VOCABULARY, special_tokens=tokens, show_progress=False)
    names = dict(zip(("cls_token", "pad_token", "sep_token", "unk_token", "mask_token"), tokens, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer, model_max_length=4096, **names)


def wait() -> None:
    """Until the device has done what it was given."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def measured_peak(device: str, dtype: torch.dtype) -> float:
    """FLOP/s of a large product, by torch.matmul or the prepacked layer, whichever is faster."""
    n = 3072 if device == "cpu" else 8192
    x = torch.randn(n, n, device=device, dtype=dtype)
    layer = PackedLinear(x, x[0])
    done = alternating({"matmul": lambda: x @ x, "prepacked": lambda: layer(x)}, 6, wait)
    return 2 * n**3 / min(min(seconds) for seconds, _ in done.values())


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
        alternating(works, 1)  # all is warm
        done = alternating(works, a.rounds, wait)
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


if __name__ == "__main__":
    main()
