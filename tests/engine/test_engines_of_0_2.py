"""Engines and models written by haybale 0.2 open, give the same rankings, and can be extended."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from data.make_engines_0_2 import ADDED, REMOVED, ranked

import haybale
from haybale import Engine
from haybale.errors import StoreError
from haybale.manifest import with_checksum

ENGINES = {
    "tfidf": "tfidf",
    "lsa": "lsa(n_components=6,random_state=3)",
    "pieces": "tfidf",
    "object": "LSAEncoder",
    "n-grams": "TfidfEncoder",
    "changed": "tfidf",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with tarfile.open(Path(__file__).parents[1] / "data" / "engines-0.2.tar.xz") as file:
        file.extractall(tmp_path, filter="data")
    return tmp_path


@pytest.mark.parametrize("name", ENGINES)
def test_rankings_are_the_same(folder: Path, name: str) -> None:
    expected = json.loads((folder / "expected.json").read_text())[name]
    engine = Engine.open(folder / name)
    encoder = engine.settings["encoder"]
    assert ENGINES[name] == (encoder if isinstance(encoder, str) else encoder["class"])
    assert engine.id == expected["id"]
    for text, run in expected["untrained"].items():
        assert ranked(haybale.parse(text).fit(engine)) == run, text
    for model, run in expected["models"].items():
        found = ranked(haybale.load(folder / model, engine))
        assert found.keys() == run.keys()
        for query, hits in run.items():
            documents, scores = zip(*hits, strict=True)
            of_query, its_scores = zip(*found[query], strict=True)
            assert of_query == documents, model
            # Another processor sums products in another order, which changes the last bits of float32.
            assert its_scores == pytest.approx(scores, abs=1e-6), model
    if expected["after"]:
        engine.add(ADDED)
        engine.remove(REMOVED)
        for each in (engine, Engine.open(folder / name)):
            for text, run in expected["after"].items():
                assert ranked(haybale.parse(text).fit(each)) == run, text


def test_documents_can_be_replaced(folder: Path) -> None:
    engine = Engine.open(folder / "tfidf")
    engine.add(ADDED)
    engine.remove(REMOVED)
    n_documents = engine.collection.n_documents
    assert engine.replace({REMOVED[0]: "a text of its own", **ADDED}) == len(ADDED)
    for each in (engine, Engine.open(folder / "tfidf")):
        assert each.collection.n_documents == n_documents + 1
        assert each.whole.document_texts()[each.whole.document_numbers([REMOVED[0]])[0]] == "a text of its own"


def test_building_again_requires_the_same_settings(folder: Path) -> None:
    collection = Engine.open(folder / "lsa").whole
    again = Engine.build(collection, folder / "lsa", encoder="lsa(6,random_state=3)")
    assert again.passages.dim == 6
    with pytest.raises(StoreError, match=r"encoder 'lsa\(n_components=6,random_state=3\)'.*'lsa'"):
        Engine.build(collection, folder / "lsa", encoder="lsa")


@pytest.mark.parametrize("text", ["{model}", "sentence-transformers:{model}"])
def test_prompts_become_part_of_the_encoder_text(folder: Path, text: str) -> None:
    pytest.importorskip("sentence_transformers")
    from support.tiny_models import save_bi_encoder

    model = save_bi_encoder(folder / "model")
    path = folder / "tfidf" / "engine.json"
    manifest = json.loads(path.read_text()) | {"encoder": False}
    manifest["settings"] |= {"encoder": text.format(model=model), "query_prompt": "query: "}
    path.write_text(json.dumps(with_checksum(manifest)))
    (folder / "tfidf" / "encoder").rename(folder / "unused")
    engine = Engine.open(folder / "tfidf")
    assert engine.settings["encoder"] == f"sentence-transformers(model='{model}',query_prompt='query: ')"
    assert (engine.encoder.query_prompt, engine.encoder.passage_prompt) == ("query: ", "")
