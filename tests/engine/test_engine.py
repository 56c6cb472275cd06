"""The engine: built, opened, damaged, grown, limited; equal to one made from scratch, whatever way it went."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support.engines import CountingEncoder, assert_same, assert_same_runs, runs_of, tree
from support.topics import NEW, SVR, TWINS, topic_collection, word

from haybale import Engine
from haybale.analysis import Analyzer
from haybale.collections import Collection, CollectionBuilder
from haybale.embeddings import Chunking, LSAEncoder, TfidfEncoder, embed
from haybale.errors import (
    FileFormatError,
    HaybaleError,
    InputError,
    OutputExistsError,
    StoreError,
)
from haybale.manifest import with_checksum
from haybale.rankers import parse
from haybale.timing import record_timings

INDEXES = ["bm25-document", "bm25-passage", "documents", "passages"]
VARIANTS: dict[str, dict[str, Any]] = {
    "tfidf": {},
    "lsa": {"encoder": "lsa(n_components=8)"},
    "pieces": {"chunking": Chunking(6, 4)},
    "dense pieces": {"encoder": "lsa(n_components=8)", "chunking": Chunking(6)},
    "sentences": {"paragraphs": "sentences"},
    "german": {"language": "german"},
    "n-grams": {"encoder": TfidfEncoder(char_ngrams=(3, 4))},
    "own": {"encoder": CountingEncoder()},
}


@pytest.fixture(scope="module")
def built(topics: Collection, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of an engine with all its indexes, each variant built once; not to be written to."""
    made: dict[str, Path] = {}

    def folder(variant: str) -> Path:
        if variant not in made:
            made[variant] = tmp_path_factory.mktemp("engine") / "engine"
            Engine.build(topics, made[variant], **VARIANTS[variant]).prepare()
        return made[variant]

    return folder


@pytest.fixture
def copied(built: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    """The same, to be changed."""

    def folder(variant: str = "tfidf", name: str = "copy") -> Path:
        shutil.copytree(built(variant), tmp_path / name)
        return tmp_path / name

    return folder


def opened(folder: Path, variant: str = "tfidf") -> Engine:
    encoder = VARIANTS[variant].get("encoder")
    return Engine.open(folder, encoder=encoder if isinstance(encoder, CountingEncoder) else None)


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_engine_is_the_same_in_memory_built_and_opened(
    topics: Collection, built: Callable[[str], Path], variant: str
) -> None:
    memory, again = Engine(topics, **VARIANTS[variant]), opened(built(variant), variant)
    assert again.id == memory.id
    assert again.language == memory.language
    assert again.settings == json.loads(json.dumps(memory.settings))
    assert again.collection.digest() == memory.collection.digest()
    assert again.whole.digest() == memory.whole.digest()
    with record_timings() as stages:
        assert_same_runs(again, memory, ["bm25"])
        again.prepare()
    assert not [stage for stage in stages.seconds if stage.startswith(("encode p", "encode d", "fit", "write", "cut"))]
    assert_same_runs(again, memory)
    expected: Any = memory.passages.vectors
    found: Any = again.passages.vectors
    if again.passages.is_sparse:
        assert (found != expected).nnz == 0
        assert not found.data.flags.writeable  # where it lies in the file
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("variant", ["tfidf", "lsa", "pieces"])
def test_each_index_is_made_when_it_is_asked_for_and_kept(topics: Collection, tmp_path: Path, variant: str) -> None:
    engine = Engine.build(topics, tmp_path / "engine", **VARIANTS[variant])
    for name in INDEXES:
        assert name not in engine.made
        assert not (tmp_path / "engine" / "0" / name).exists()
        index = engine._index(name)
        assert engine._index(name) is index
        with record_timings() as stages:
            again = Engine.open(tmp_path / "engine")
            again._index(name)
        assert not [stage for stage in stages.seconds if stage.startswith(("index BM25", "encode", "count"))]
        assert again.made == {name}
    with pytest.raises(InputError, match="unit must be 'passage' or 'document', found 'page'"):
        engine.bm25("page")


@pytest.mark.parametrize("variant", ["tfidf", "lsa", "pieces"])
def test_a_folder_has_the_same_bytes_in_any_order_and_none_that_could_be_executed(
    topics: Collection, built: Callable[[str], Path], tmp_path: Path, variant: str
) -> None:
    for name in reversed(INDEXES):
        Engine.build(topics, tmp_path / "engine", **VARIANTS[variant])._index(name)
    assert tree(tmp_path / "engine") == tree(built(variant))
    for name, content in tree(built(variant)).items():
        plain = {".json", ".parquet", ".safetensors", "vectors.zarr", "digests"}
        assert plain & {Path(name).suffix, *Path(name).parts}, name
        assert not content.startswith((*(b"\x80" + bytes([n]) for n in range(2, 6)), b"\x93NUMPY", b"PK", b"#!")), name


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"encoder": "lsa"}, "begun with encoder 'tfidf', now it is 'lsa'"),
        ({"encoder": TfidfEncoder(min_df=1)}, r"begun with encoder 'tfidf', now it is \{'class': 'TfidfEncoder'"),
        ({"chunking": Chunking(5)}, "begun with chunking None, now it is"),
        ({"paragraphs": "sentences"}, "begun with another collection"),
        ({"collection": topic_collection(seed=1)}, "begun with another collection"),
    ],
)
def test_other_settings_and_another_collection_are_refused(
    topics: Collection, copied: Callable[..., Path], given: dict[str, Any], message: str
) -> None:
    folder = copied()
    before = tree(folder)
    with pytest.raises(StoreError, match=message):
        Engine.build(folder=folder, **({"collection": topics} | given))
    assert tree(folder) == before


def test_a_folder_with_something_else_is_refused(topics: Collection, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(OutputExistsError, match=r"holds other files \(notes.txt\)"):
        Engine.build(topics, tmp_path)
    assert tree(tmp_path) == {"notes.txt": b"mine"}
    with pytest.raises(FileFormatError, match="is no saved engine"):
        Engine.open(tmp_path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"device": "cuda:77"}, "cuda|cupy"),
        ({"device": "tpu"}, "tpu"),
        ({"paragraphs": "pages"}, "known"),
        ({"store": "store", "chunking": Chunking(3)}, "leave chunking out"),
        ({"analyzer": str.split, "language": "german"}, "a language or an analyzer"),
        ({"analyzer": str.split}, "a function cannot be saved"),
        ({"encoder": {}}, "method encode, which dict lacks"),
        ({"collection": "nothing/there"}, "no such folder"),
        ({"encoder": "lsa(n_components=0)"}, "'n_components' parameter of LSAEncoder"),
        ({"encoder": "lsb(3)"}, "unknown encoder 'lsb'; known: "),
        ({"encoder": ""}, "found an empty text"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_any_work(
    topics: Collection, tmp_path: Path, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(HaybaleError, match=message), record_timings(refuse):
        Engine.build(folder=tmp_path / "engine", **({"collection": topics} | given))
    assert list(tmp_path.iterdir()) == []


def refuse(stage: str, seconds: float) -> None:
    raise AssertionError(f"{stage} was done first")


def test_the_encoder_that_is_given_stays_as_it_was(topics: Collection, tmp_path: Path) -> None:
    given = LSAEncoder(4)
    engine = Engine(topics, encoder=given)
    assert engine.encoder.components_.shape[0] == 4
    assert not hasattr(given, "components_")
    fitted = engine.encoder
    assert_same_runs(Engine.build(topics, tmp_path / "engine", encoder=fitted), engine, ["knn"])


def test_an_encoder_of_ones_own_is_given_again(built: Callable[[str], Path]) -> None:
    folder = built("own")
    assert_same_runs(opened(folder, "own"), Engine(topic_collection(), encoder=CountingEncoder()))
    with pytest.raises(StoreError, match=r"built with the encoder .*CountingEncoder"):
        Engine.open(folder, encoder=CountingEncoder("other"))
    with pytest.raises(InputError, match="class 'CountingEncoder' by its description; give the encoder itself"):
        _ = Engine.open(folder).encoder
    assert_same_runs(Engine.open(folder), Engine(topic_collection()), ["bm25", "bm25-doc"])  # ask no encoder


HOLD = """
import sys
from haybale.embeddings.store_files import StoreFiles, writer_lock
with writer_lock(StoreFiles(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held(folder: Path) -> Iterator[int]:
    """Another process writes the engine."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process.pid
        process.communicate("")


def test_a_second_writer_is_refused_and_readers_read(topics: Collection, copied: Callable[..., Path]) -> None:
    folder, dense = copied(), copied("lsa", "dense")
    shutil.rmtree(folder / "0" / "documents")
    before, engine = tree(folder), Engine.open(folder)
    with held(folder) as process:
        refused = pytest.raises(StoreError, match=f"process {process} on .* is writing")
        with refused:
            engine.add(NEW)
        with refused:
            engine.remove(["d01"])
        with refused:
            Engine.build(topics, folder)
        assert engine.collection.n_documents == topics.n_documents
        assert_same_runs(Engine.open(folder), Engine(topics))  # the index that is missing is made in memory
        assert {name: content for name, content in tree(folder).items() if not name.endswith(".lock")} == before
    with held(dense):
        assert_same_runs(Engine.open(dense), Engine(topics, **VARIANTS["lsa"]))
    engine.add(NEW)
    assert ".lock" not in tree(folder)


def test_two_that_have_it_open_do_not_lose_each_others_documents(copied: Callable[..., Path]) -> None:
    folder = copied()
    first, second = Engine.open(folder), Engine.open(folder)
    first.add(NEW)
    for change in (lambda: second.add({"n3": "other"}), lambda: second.remove(["d01"])):
        with pytest.raises(StoreError, match="another process has added or removed documents; open it again"):
            change()
    assert second.collection.n_documents == 42
    assert Engine.open(folder).collection.n_documents == 44


def test_nobody_may_write(copied: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a folder of somebody else's: what is missing is made in memory."""
    folder = copied()
    shutil.rmtree(folder / "0" / "documents")

    @contextmanager
    def forbidden(files: Any) -> Iterator[None]:
        raise PermissionError(13, "Permission denied", str(files))
        yield

    monkeypatch.setattr("haybale.engine.storage.writer_lock", forbidden)
    assert_same_runs(Engine.open(folder), Engine(topic_collection()))
    assert not (folder / "0" / "documents").exists()


def test_other_versions_and_what_is_not_json_are_refused(topics: Collection, copied: Callable[..., Path]) -> None:
    folder = copied()
    values = json.loads((folder / "engine.json").read_text())
    for content, message in [
        (json.dumps(with_checksum(values | {"version": 4})), "engine.json: expected version 3"),
        (
            json.dumps(with_checksum(values | {"format": "another"})),
            "expected format 'haybale engine', found 'another'",
        ),
        ("[]", "engine.json: expected format"),
        ("{", "engine.json, line 1: expected JSON"),
    ]:
        (folder / "engine.json").write_text(content)
        for use in (Engine.open, lambda folder: Engine.build(topics, folder)):
            with pytest.raises(FileFormatError, match=message):
                use(folder)


@pytest.mark.parametrize("variant", ["tfidf", "lsa", "pieces"])
@pytest.mark.parametrize("damage", ["removed", "truncated", "flipped", "emptied"])
def test_every_damaged_file_is_one_error(
    built: Callable[[str], Path], tmp_path: Path, variant: str, damage: str
) -> None:
    whole = tree(built(variant))
    folder = tmp_path / "engine"
    shutil.copytree(built(variant), folder)
    for name, content in whole.items():
        in_store = variant == "lsa" and name.startswith(("0/passages", "0/documents"))
        if not content or (in_store and "/encoder/" in name):  # the engine has its own
            continue
        path = folder / name
        if damage == "removed":
            path.unlink()
        else:
            middle = len(content) // 2
            flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
            path.write_bytes({"truncated": content[:middle], "flipped": flipped, "emptied": b""}[damage])
        expected = (FileFormatError, StoreError) if in_store else FileFormatError
        try:
            engine = Engine.open(folder).prepare()
            _ = engine.encoder, engine.collection
        except HaybaleError as error:
            assert isinstance(error, expected), (name, error)  # noqa: PT017
            assert str(folder) in str(error), name  # noqa: PT017
        else:  # a store of embeddings has texts too, which no search reads; and it is mended where it can be
            assert in_store, f"{name} {damage}: nobody noticed"
            assert_same_runs(engine, Engine.open(built(variant)))
        finally:
            path.write_bytes(content)
    assert tree(folder) == whole
    Engine.open(folder).prepare()


@pytest.mark.parametrize("variant", ["tfidf", "lsa", "pieces", "dense pieces", "sentences", "own"])
@pytest.mark.parametrize("prepared", [True, False])
def test_what_is_added_is_found_at_once_and_as_from_scratch(
    topics: Collection, built: Callable[[str], Path], tmp_path: Path, variant: str, prepared: bool
) -> None:
    shutil.copytree(built(variant), tmp_path / "engine")
    memory, folder = Engine(topics, **VARIANTS[variant]), opened(tmp_path / "engine", variant)
    more = topic_collection(seed=3).take(np.arange(0, 40, 3))
    texts = {
        f"m{doc_id}": more.document_texts()[row].split("\n") for row, doc_id in enumerate(more.doc_ids.to_pylist())
    }
    for engine in (memory, folder):
        if prepared:
            engine.prepare()
            _ = engine.first_passages
        engine.add(NEW)
        engine.add(texts)
        run = parse("bm25").fit(engine).rank({"q": f"newword {word(3)}"})
        assert run["q"][0][0] == "n1"
    whole, *parts = (segment.texts.whole for segment in memory._documents.segments)
    for part in parts:
        whole = whole.extended(part)
    scratch = Engine(whole, **(VARIANTS[variant] | {"encoder": memory.encoder, "paragraphs": None}))
    for engine in (memory, folder, opened(tmp_path / "engine", variant)):
        assert engine.id == Engine(topics, **VARIANTS[variant]).id
        assert engine.collection.digest() == scratch.collection.digest()
        assert_same_runs(engine, scratch)


def test_no_other_document_is_encoded_anew(topics: Collection, tmp_path: Path) -> None:
    encoder = CountingEncoder()
    memory, folder = Engine(topics, encoder=encoder), Engine.build(topics, tmp_path / "engine", encoder=encoder)
    for engine in (memory, folder):
        engine.prepare()
        encoder.texts.clear()
        engine.add(NEW)
        engine.prepare()
        assert sorted(encoder.texts) == sorted([*NEW["n1"], NEW["n2"], "\n".join(NEW["n1"]), NEW["n2"]])
        encoder.texts.clear()
        runs_of(engine.within(["n1", "d02"]))
        engine.remove(["d01"])
        runs_of(engine)
        known = {text for query in range(topics.n_queries) for text in topics.queries.paragraphs_of(query)}
        assert set(encoder.texts) <= known | set(topics.queries.texts(range(topics.n_queries)))
    encoder.texts.clear()
    Engine.open(tmp_path / "engine", encoder=encoder).prepare()
    assert encoder.texts == []


def test_nothing_is_trained_anew(topics: Collection) -> None:
    engine = Engine(topics)
    ranker = parse(f"rrf(svr-memory({SVR}),knn-queries)").fit(engine)
    before = ranker.rank("dev")
    relevant = topics.relevant_ids("dev")[0][0]
    text = topics.document_texts()[topics.document_numbers([relevant])[0]]
    with record_timings() as stages:
        engine.add({"same": text, **NEW})
        after = ranker.rank("dev")
    assert not [stage for stage in stages.seconds if "fit" in stage or "train" in stage]
    found = dict(after["dev0"])
    assert found["same"] > 0
    assert [doc for doc, _ in after["dev0"] if doc in dict(before["dev0"])]
    svr = ranker.rankers_[0].rank("dev")
    assert dict(svr["dev0"])["same"] == pytest.approx(dict(svr["dev0"])[relevant])


def test_bm25_is_exact_after_documents_were_added(topics: Collection) -> None:
    """For any k1 and b: idf, average lengths and the order of terms are those of an index over all at once."""
    first, second = topics.take(np.arange(25)), topics.take(np.arange(25, 42))
    engine = Engine(first)
    names = ["bm25", "bm25-doc", "bm25(k1=0.3,b=1)", "bm25-doc(k1=6,b=0.1)", "bm25-parm-rrf(k1=3)"]
    runs_of(engine, names=names)
    engine.add(second)
    queries = dict(zip(topics.queries.ids.to_pylist(), topics.queries.texts(range(topics.n_queries)), strict=True))
    whole = Engine(topics)
    for name in names:
        assert_same(parse(name).fit(engine).rank(queries), parse(name).fit(whole).rank(queries))


@pytest.mark.parametrize("where", ["memory", "folder"])
@pytest.mark.parametrize("variant", ["tfidf", "pieces"])
def test_what_cannot_be_added_changes_nothing(
    topics: Collection, copied: Callable[..., Path], variant: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied(variant)
    engine = Engine.open(folder) if where == "folder" else Engine(topics, **VARIANTS[variant])
    engine.prepare()
    engine.remove(["d03"])
    before, files = runs_of(engine), tree(folder)
    for given, message in [
        ({"n1": "text", "d02": "there already"}, "'d02'"),
        ({"d03": "removed, and still in the folder"}, "'d03'"),
        ({}, "no passage|no document"),
        (pd.DataFrame({"doc_id": ["n1"]}), "text"),
    ]:
        with pytest.raises(InputError, match=message):
            engine.add(given)
    left = [doc for doc in topics.doc_ids.to_pylist() if doc != "d03"]
    for doc_ids, message in [(["d01", "d03"], "'d03'"), (left, "without a document")]:
        with pytest.raises(InputError, match=message):
            engine.remove(doc_ids)
    # A disk that is full, at each place where something is written or made.
    places = ["engine.storage.replace_json", "engine.engine.save_collection"] if where == "folder" else []
    for place in [*places, "retrieval.BM25Index.extended"]:
        with monkeypatch.context() as patch:
            patch.setattr(f"haybale.{place}", full_disk)
            with pytest.raises(OSError, match="No space left"):
                engine.add({"n7": "text of seven words, which are cut into pieces"})
    for name, run in runs_of(engine).items():
        assert_same(run, before[name])
    assert {name: content for name, content in tree(folder).items() if not name.startswith("1/")} == files
    engine.add({"n7": "another text, for that was not added"})
    assert "another text" in engine.collection.passages.texts.to_pylist()[-2 if variant == "pieces" else -1]
    if where == "folder":
        assert_same_runs(Engine.open(folder), engine)


def full_disk(*args: Any, **kwargs: Any) -> Any:
    raise OSError(28, "No space left on device")


def test_removed_documents_are_not_found_and_stay_removed(copied: Callable[..., Path]) -> None:
    engine = Engine.open(copied())
    engine.remove(["d05", TWINS[0]])
    engine.add(NEW)
    engine.remove(np.array(["n2"]))
    gone = {"d05", TWINS[0], "n2"}
    again = Engine.open(engine.folder)
    for each in (engine, again):
        for found in (each.collection.doc_ids, each.whole.doc_ids, each.collection.qrels_frame("train")["doc_id"]):
            assert gone.isdisjoint(list(map(str, found)))
        for name, run in runs_of(each).items():
            assert gone.isdisjoint(run.flat()[2].to_pylist()), name
    assert_same_runs(again, engine)
    with pytest.raises(InputError, match="'d05'"):
        again.add({"d05": "back again"})


def assert_filtered(found: Any, whole: Any, keep: Callable[[str], bool], exactly: bool = True) -> None:
    for query in whole.query_ids:
        expected = [(doc, score) for doc, score in whole[query] if keep(doc)]
        if exactly:
            assert found[query] == expected
        else:
            assert [doc for doc, _ in found[query]] == [doc for doc, _ in expected]
            assert dict(found[query]) == pytest.approx(dict(expected), abs=1e-6)


@pytest.mark.parametrize("variant", ["tfidf", "lsa", "pieces"])
def test_within_some_documents_is_the_ranking_filtered(topics: Collection, variant: str) -> None:
    engine = Engine(topics, **VARIANTS[variant])
    ids = topics.doc_ids.to_pylist()
    some = ids[::2]
    names = ["bm25", "bm25-doc", "knn", "knn-doc", "knn-firstp", "parm-rrf"]
    runs = runs_of(engine, names=names, depth=42)
    mask = np.isin(ids, some)
    for limited in (engine.within(mask), engine.within(some[::-1])):
        assert limited.collection.doc_ids.to_pylist() == some
        assert limited.id == engine.id
        for name, run in runs_of(limited, names=names[:-1], depth=42).items():
            assert_filtered(run, runs[name], lambda doc: doc in some, exactly=variant != "lsa")
    fewer = engine.within(some).within(some[:5])  # and again
    assert fewer.collection.doc_ids.to_pylist() == some[:5]
    for name, run in runs_of(fewer, names=names[:-1], depth=42).items():
        assert_filtered(run, runs[name], lambda doc: doc in some[:5], exactly=variant != "lsa")


def test_what_cannot_be_searched_within(topics: Collection) -> None:
    engine = Engine(topics)
    for given, message in [
        ([], "no document with a passage to search within"),
        (np.zeros(42, dtype=bool), "no document with a passage to search within"),
        (np.ones(41, dtype=bool), r"one entry a document, 42, found \(41,\)"),
        (["d01", "nobody"], "unknown document id 'nobody'"),
        ("d01", "one string"),
        (["blank"], "no document with a passage"),
    ]:
        with pytest.raises(InputError, match=message):
            _ = engine.within(given).collection
    view = engine.within(["d01", "d02"])
    for change in (lambda: view.add(NEW), lambda: view.remove(["d01"])):
        with pytest.raises(InputError, match="limited to some documents"):
            change()
    _ = view.bm25()
    assert "_encoder" not in vars(engine._source), "limiting a search loads no encoder"


def test_what_was_limited_before_a_change_says_so(topics: Collection) -> None:
    engine = Engine(topics)
    view = engine.within(["d01", "d02", "d03"])
    deeper = view.within(["d01"])
    engine.remove(["d02"])
    for ask in (view.bm25, deeper.bm25, lambda: view.passages, lambda: deeper.collection, lambda: view.whole):
        with pytest.raises(InputError, match="limit it anew"):
            ask()
    assert engine.within(["d01", "d03"]).collection.n_documents == 2


@pytest.mark.parametrize("chunking", [None, Chunking(5, 3)])
def test_an_engine_on_a_store_of_embeddings(topics: Collection, tmp_path: Path, chunking: Chunking | None) -> None:
    embed(topics, LSAEncoder(8), tmp_path / "store", chunking=chunking)
    engine = Engine.build(topics, tmp_path / "engine", store=tmp_path / "store").prepare()
    memory = Engine(topics, store=tmp_path / "store")
    direct = Engine(topics, encoder=engine.encoder, chunking=chunking)
    assert_same_runs(engine, memory)
    assert_same_runs(engine, direct)
    engine.add(NEW)
    direct.add(NEW)
    assert_same_runs(engine, direct)
    with record_timings() as stages:
        again = Engine.open(tmp_path / "engine")
        assert_same_runs(again, direct)
        again.prepare()
    assert not [stage for stage in stages.seconds if stage.startswith(("encode passages", "encode documents"))]


POOL = {
    f"p{number:02d}": [f"{word(100 * (number % 5) + i)} {word(5000 + (number * i) % 7)}" for i in range(number % 3 + 1)]
    for number in range(24)
}


class Changes(RuleBasedStateMachine):
    """Adding, removing, limiting and opening again, against engines made from scratch of the documents there are."""

    @initialize(n=st.integers(1, 8), dense=st.booleans())
    def build(self, n: int, dense: bool) -> None:
        import tempfile

        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name) / "engine"
        self.encoder = CountingEncoder() if dense else TfidfEncoder(min_df=1).fit(["\n".join(t) for t in POOL.values()])
        self.ever = list(POOL)[:n]
        self.there = set(self.ever)
        self.memory = Engine(self.collection(self.ever), encoder=self.encoder)
        self.kept = Engine.build(self.collection(self.ever), self.folder, encoder=self.encoder)

    def teardown(self) -> None:
        if hasattr(self, "temporary"):
            self.temporary.cleanup()

    def collection(self, ids: list[str]) -> Collection:
        builder = CollectionBuilder("pool", language="english")
        for doc_id in ids:
            builder.add_document(doc_id, POOL[doc_id])
        for number in range(3):
            builder.add_query(f"q{number}", [f"{word(100 * number)} {word(5001)}", word(100 * number + 1)], split="dev")
            builder.add_judgement("dev", f"q{number}", ids[0])
        return builder.build()

    @rule(data=st.data(), n=st.integers(1, 4))
    def add(self, data: st.DataObject, n: int) -> None:
        left = [doc for doc in POOL if doc not in self.ever]
        if not left:
            return
        chosen = data.draw(st.lists(st.sampled_from(left), min_size=1, max_size=n, unique=True))
        for engine in (self.memory, self.kept):
            engine.add({doc: POOL[doc] for doc in chosen})
        self.ever += chosen
        self.there |= set(chosen)

    @precondition(lambda self: len(self.there) > 1)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        most = len(self.there) - 1
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.there)), max_size=min(3, most), unique=True))
        for engine in (self.memory, self.kept):
            engine.remove(chosen)
        self.there -= set(chosen)

    @rule()
    def open_again(self) -> None:
        given = self.encoder if isinstance(self.encoder, CountingEncoder) else None
        self.kept = Engine.open(self.folder, encoder=given)

    @rule()
    def prepare(self) -> None:
        self.memory.prepare()

    @rule(data=st.data())
    def within(self, data: st.DataObject) -> None:
        some = data.draw(st.lists(st.sampled_from(sorted(self.there)), min_size=1, unique=True))
        self.check(some, self.memory.within(some), self.kept.within(some))

    @invariant()
    def all_that_is_there(self) -> None:
        if hasattr(self, "ever"):
            self.check(sorted(self.there), self.memory, self.kept)

    def check(self, some: list[str], *engines: Engine) -> None:
        ordered = [doc for doc in self.ever if doc in some]
        everything = Engine(self.collection(self.ever), encoder=self.encoder).within(ordered)
        alone = Engine(self.collection(ordered), encoder=self.encoder)
        lexical = ("bm25", "bm25-doc", "bm25-parm-rrf")  # whose statistics are of all documents that ever were
        names = (*lexical, "knn", "knn-doc", "knn-firstp", "parm-vrrf")
        with_all, without = runs_of(everything, names=lexical), runs_of(alone, names=names)
        for engine in engines:
            assert engine.collection.doc_ids.to_pylist() == ordered
            for name, run in runs_of(engine, names=names).items():
                if name in lexical:
                    assert_same(run, with_all[name])
                if len(ordered) == len(self.ever):
                    assert_same(run, without[name])
                elif name not in lexical:
                    assert_filtered(run, without[name], lambda doc: True, exactly=False)


TestChanges = Changes.TestCase
TestChanges.settings = settings(
    max_examples=10, stateful_step_count=6, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_terms_are_those_of_an_analyzer_of_ones_own(topics: Collection, tmp_path: Path) -> None:
    word = str(topics.passages.texts[0].as_py()).split()[0].lower()
    own = Analyzer("none", [word])
    engine = Engine.build(topics, tmp_path / "engine", analyzer=own)
    assert engine.bm25().analyzer == own == Engine.open(tmp_path / "engine").analyzer
    assert engine.encoder.analyzer_ == own
    assert word not in engine.encoder.vocabulary_
    assert Engine(topics, analyzer=str.split).bm25().analyzer.function is str.split
