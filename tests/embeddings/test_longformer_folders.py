"""Longformers of all kinds of folders, as a module of sentence-transformers, and what is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sentence_transformers")

from longformers import pooled, reference, save_longformer, texts

from haybale.embeddings import LongformerEncoder
from haybale.errors import InputError, MissingExtraError, UnknownNameError

pytestmark = pytest.mark.filterwarnings("default")  # transformers and torch warn about themselves

OF = texts([3, 9, 100, 40, 9])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # One window for all layers: transformers itself, which loads what is saved here, fails on texts where a window
    # does not divide the longest.
    return save_longformer(tmp_path_factory.mktemp("tiny"), attention_window=[8, 8, 8])


@pytest.mark.parametrize("head", ["LongformerForMaskedLM", "LongformerForSequenceClassification"])
def test_a_checkpoint_with_a_head(tmp_path: Path, head: str) -> None:
    path = save_longformer(tmp_path / "head", head=head, attention_window=[8, 8, 8])
    expected = reference(path, OF)
    assert np.abs(LongformerEncoder(path).encode(OF) - pooled(expected)).max() < 1e-5
    LongformerEncoder(path).save(tmp_path / "saved")  # there is no pooler to save
    np.testing.assert_allclose(LongformerEncoder.load(tmp_path / "saved").encode(OF), pooled(expected), atol=1e-5)


def test_a_module_of_sentence_transformers(folder: Path) -> None:
    from sentence_transformers import SentenceTransformer

    encoder = LongformerEncoder(folder, query_prompt="w1 ", passage_prompt="w2 w3 ")
    model = SentenceTransformer(modules=[encoder], device="cpu")
    assert model.get_embedding_dimension() == 32
    assert model.max_seq_length == 128
    np.testing.assert_allclose(model.encode(OF, batch_size=2), encoder.encode(OF), atol=1e-6)
    np.testing.assert_allclose(model.encode_query(OF[:2]), encoder.encode_queries(OF[:2]), atol=1e-6)
    np.testing.assert_allclose(model.encode_document(OF[:2]), encoder.encode(OF[:2]), atol=1e-6)
    states = model.encode(OF, output_value="token_embeddings")
    for ours, theirs in zip(encoder.encode_tokens(OF), states, strict=True):
        np.testing.assert_allclose(theirs.numpy(), ours, atol=1e-5)


@pytest.mark.parametrize("way", ["encoder", "model"])
@pytest.mark.parametrize(("pooling", "normalize"), [("mean", True), ("cls", False)])
def test_saved_as_standard_modules(folder: Path, tmp_path: Path, way: str, pooling: str, normalize: bool) -> None:
    from sentence_transformers import SentenceTransformer

    encoder = LongformerEncoder(
        folder, pooling=pooling, normalize=normalize, max_length=60, query_prompt="w1 ", passage_prompt="w2 "
    )
    saved = encoder if way == "encoder" else SentenceTransformer(modules=[encoder], device="cpu")
    saved.save(str(tmp_path / "saved"), create_model_card=False)
    kinds = [module["type"].split(".")[-1] for module in json.loads((tmp_path / "saved" / "modules.json").read_text())]
    assert kinds == ["Transformer", "Pooling"] + ["Normalize"] * normalize
    with pytest.warns(UserWarning, match="1 of 5 texts is longer than 60 tokens"):
        expected = encoder.encode(OF)
    model = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_allclose(model.encode(OF), expected, atol=1e-5)
    np.testing.assert_allclose(model.encode_query(OF[:2]), encoder.encode_queries(OF[:2]), atol=1e-5)
    with pytest.warns(UserWarning, match="1 of 5"):
        np.testing.assert_allclose(LongformerEncoder.load(tmp_path / "saved").encode(OF), expected, atol=1e-5)


def test_what_is_saved_loads_without_haybale(folder: Path, tmp_path: Path) -> None:
    encoder = LongformerEncoder(folder)
    encoder.save(tmp_path / "saved")
    code = (
        "import sys; sys.modules['haybale'] = None\n"
        "import json, numpy; from sentence_transformers import SentenceTransformer\n"
        "model = SentenceTransformer(sys.argv[1], device='cpu')\n"
        "numpy.save(sys.argv[2], model.encode(json.loads(sys.argv[3])))\n"
    )
    arguments = [str(tmp_path / "saved"), str(tmp_path / "vectors.npy"), json.dumps(OF)]
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True)
    np.testing.assert_allclose(np.load(tmp_path / "vectors.npy"), encoder.encode(OF), atol=1e-5)


def test_all_weights_come_back(folder: Path) -> None:
    from transformers import LongformerModel

    from haybale.embeddings.longformer.standard_stack import standard_model

    expected = LongformerModel.from_pretrained(folder).state_dict()
    for global_attention in ("none", "cls"):
        found = standard_model(LongformerEncoder(folder, global_attention=global_attention).model).state_dict()
        assert found.keys() == expected.keys()
        for name, tensor in expected.items():
            np.testing.assert_array_equal(found[name].numpy(), tensor.numpy(), err_msg=name)


def test_global_attention_has_no_standard_modules(folder: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    encoder = LongformerEncoder(folder, global_attention="cls")
    with pytest.raises(InputError, match="global_attention='cls' has no counterpart"):
        encoder.save(tmp_path / "saved")
    with pytest.raises(InputError, match="global_attention='cls' has no counterpart"):
        SentenceTransformer(modules=[encoder]).save(str(tmp_path / "saved"))


def test_description(folder: Path, tmp_path: Path) -> None:
    encoder = LongformerEncoder(folder, query_prompt="q: ")
    described = json.loads(json.dumps(encoder.describe()))
    weights = described.pop("weights")
    assert len(weights) == 64
    assert described == {
        "class": "LongformerEncoder",
        "model": str(folder),
        "pooling": "mean",
        "normalize": True,
        "dtype": "float32",
        "global_attention": "none",
        "max_length": 128,
        "query_prompt": "q: ",
        "passage_prompt": "",
        "width": 32,
    }
    encoder.save(tmp_path / "saved")
    assert LongformerEncoder(tmp_path / "saved").describe()["weights"] == weights


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"pooling": "max"}, "unknown pooling 'max'; known: mean, cls"),
        ({"dtype": "int8"}, "unknown dtype 'int8'; known: float32"),
        ({"global_attention": "all"}, "unknown global attention 'all'; known: none, cls"),
    ],
)
def test_unknown_names(folder: Path, parameters: dict[str, str], message: str) -> None:
    with pytest.raises(UnknownNameError, match=message):
        LongformerEncoder(folder, **parameters)


def test_bad_numbers_and_texts(folder: Path) -> None:
    for length in (2, 129):
        with pytest.raises(InputError, match="max_length must be above the 2 special tokens and at most the 128"):
            LongformerEncoder(folder, max_length=length)
    with pytest.raises(InputError, match="tokens_per_batch must be at least 1, found 0"):
        LongformerEncoder(folder, tokens_per_batch=0)
    with pytest.raises(InputError, match="text 1 of 2 is empty"):
        LongformerEncoder(folder, passage_prompt="w1 ").encode(["w1", " "])


def changed(folder: Path, to: Path, **settings: object) -> Path:
    """A copy of a checkpoint with other settings in its config."""
    shutil.copytree(folder, to)
    config = json.loads((to / "config.json").read_text())
    (to / "config.json").write_text(json.dumps(config | settings))
    return to


def test_checkpoints_that_are_refused(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.numpy import load_file, save_file

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # the environment was read long ago
    with pytest.raises(InputError, match="cannot load the Longformer 'no/such-model'"):
        LongformerEncoder("no/such-model")
    with pytest.raises(InputError, match=r"cannot load the Longformer .*nothing"):
        LongformerEncoder(tmp_path / "nothing" / "at" / "all")
    with pytest.raises(InputError, match=r"expected a Longformer checkpoint .*found 'roberta'"):
        LongformerEncoder(changed(folder, tmp_path / "other", model_type="roberta"))
    with pytest.raises(InputError, match=r"even attention_window for each of 3 layers, found \[4, 5, 6\]"):
        LongformerEncoder(changed(folder, tmp_path / "odd", attention_window=[4, 5, 6]))
    with pytest.raises(InputError, match="weights"):
        LongformerEncoder(changed(folder, tmp_path / "shape", intermediate_size=65))
    for layers, message in ((4, "22 missing"), (2, "22 unexpected")):
        path = changed(folder, tmp_path / f"{layers}", num_hidden_layers=layers, attention_window=[8] * layers)
        with pytest.raises(InputError, match=message):
            LongformerEncoder(path)
    part = changed(folder, tmp_path / "part")
    weights = load_file(part / "model.safetensors")
    del weights["embeddings.word_embeddings.weight"]
    save_file(weights, part / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"1 missing \['embeddings.word_embeddings.weight'\]"):
        LongformerEncoder(part)
    (part / "model.safetensors").unlink()
    with pytest.raises(InputError, match="cannot load the weights"):
        LongformerEncoder(part)
    wordless = changed(folder, tmp_path / "wordless")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (wordless / name).unlink()
    with pytest.raises(InputError, match="cannot load the tokenizer of the Longformer"):
        LongformerEncoder(wordless)


def test_a_missing_extra_names_its_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import haybale.embeddings

    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r'torch is not installed; pip install "haybale\[neural\]"'):
        _ = haybale.embeddings.LongformerEncoder
    with pytest.raises(AttributeError, match="has no attribute 'ShortformerEncoder'"):
        _ = haybale.embeddings.ShortformerEncoder


def test_importing_haybale_imports_no_torch() -> None:
    code = "import sys, haybale, haybale.embeddings; assert not {'torch', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
