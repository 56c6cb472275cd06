"""Engines that are built, opened, damaged, extended and viewed, compared with engines made from scratch."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.engines import (
    UNTRAINED,
    CountingEncoder,
    assert_filtered,
    assert_same,
    assert_same_runs,
    runs_of,
    tree,
    tree_of_build,
)
from support.topics import NEW, SVR, TWINS, topic_collection, word

from haybale import KNN, Engine
from haybale.analysis import Analyzer
from haybale.collections import Collection
from haybale.embeddings import Chunking, LSAEncoder, TfidfEncoder, embed
from haybale.errors import FileFormatError, HaybaleError, InputError, OutputExistsError, StoreError, VectorError
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
    """Return the folder of a prepared engine. Each variant is built once; tests must not change it."""
    made: dict[str, Path] = {}

    def folder(variant: str) -> Path:
        if variant not in made:
            made[variant] = tmp_path_factory.mktemp("engine") / "engine"
            Engine.build(topics, made[variant], **VARIANTS[variant]).prepare()
        return made[variant]

    return folder


@pytest.fixture
def copied(built: Callable[[str], Path], tmp_path: Path) -> Callable[..., Path]:
    """Return a copy of the folder of a prepared engine, which tests may change."""

    def folder(variant: str = "tfidf", name: str = "copy") -> Path:
        shutil.copytree(built(variant), tmp_path / name)
        return tmp_path / name

    return folder


def opened(folder: Path, variant: str = "tfidf") -> Engine:
    encoder = VARIANTS[variant].get("encoder")
    return Engine.open(folder, encoder=encoder if isinstance(encoder, CountingEncoder) else None)


@pytest.mark.parametrize("variant", VARIANTS)
def test_opened_engine_equals_one_in_memory(topics: Collection, built: Callable[[str], Path], variant: str) -> None:
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
        assert not found.data.flags.writeable  # memory-mapped
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("variant", ["tfidf", "lsa", "pieces"])
def test_each_index_is_made_when_needed_and_saved(topics: Collection, tmp_path: Path, variant: str) -> None:
    engine = Engine.build(topics, tmp_path / "engine", **VARIANTS[variant])
    for name in INDEXES:
        assert name not in engine.made
        assert not (tmp_path / "engine" / "0" / name).exists()
        index = engine._documents.index(name)
        assert engine._documents.index(name) is index
        with record_timings() as stages:
            again = Engine.open(tmp_path / "engine")
            again._documents.index(name)
        assert not [stage for stage in stages.seconds if stage.startswith(("index BM25", "encode", "count"))]
        assert again.made == {name}
    with pytest.raises(InputError, match=r"unit must.*'page'"):
        engine.bm25("page")


@pytest.mark.parametrize("variant", ["tfidf", "lsa", "pieces"])
def test_files_do_not_depend_on_the_order_and_hold_no_code(
    topics: Collection, built: Callable[[str], Path], tmp_path: Path, variant: str
) -> None:
    for name in reversed(INDEXES):
        Engine.build(topics, tmp_path / "engine", **VARIANTS[variant])._documents.index(name)
    assert tree_of_build(tmp_path / "engine") == tree_of_build(built(variant))
    for name, content in tree(built(variant)).items():
        plain = {".json", ".parquet", ".safetensors", "vectors.zarr", "digests"}
        assert plain & {Path(name).suffix, *Path(name).parts}, name
        assert not content.startswith((*(b"\x80" + bytes([n]) for n in range(2, 6)), b"\x93NUMPY", b"PK", b"#!")), name


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"encoder": "lsa"}, "encoder 'tfidf'.*'lsa'"),
        ({"encoder": TfidfEncoder(min_df=1)}, "encoder 'tfidf'.*TfidfEncoder"),
        ({"chunking": Chunking(5)}, "chunking None"),
        ({"paragraphs": "sentences"}, "collection"),
        ({"collection": topic_collection(seed=1)}, "collection"),
    ],
)
def test_other_settings_and_collections_are_rejected(
    topics: Collection, copied: Callable[..., Path], given: dict[str, Any], named: str
) -> None:
    folder = copied()
    before = tree(folder)
    with pytest.raises(StoreError, match=named):
        Engine.build(folder=folder, **({"collection": topics} | given))
    assert tree(folder) == before


def test_of_an_encoder_only_the_setting_that_differs_is_named(topics: Collection, tmp_path: Path) -> None:
    Engine.build(topics, tmp_path / "engine", encoder=TfidfEncoder(min_df=1))
    with pytest.raises(StoreError, match=r"with encoder parameters min_df 1, now it is 2;"):
        Engine.build(topics, tmp_path / "engine", encoder=TfidfEncoder(min_df=2))


def test_an_encoder_of_another_name_is_rejected(topics: Collection, tmp_path: Path) -> None:
    class Named(CountingEncoder):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.called = name

        def describe(self) -> dict[str, object]:
            return {"name": self.called, "width": self.dim}

    Engine.build(topics, tmp_path / "engine", encoder=Named("one"))
    with pytest.raises(StoreError, match=r"with encoder name 'one', now it is 'other'"):
        Engine.build(topics, tmp_path / "engine", encoder=Named("other"))
    embed(topics, Named("one"), tmp_path / "store")
    with pytest.raises(StoreError, match=r"with encoder name 'one', now it is 'other'"):
        embed(topics, Named("other"), tmp_path / "store")


def test_folder_with_other_files_is_rejected(topics: Collection, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(OutputExistsError, match="notes"):
        Engine.build(topics, tmp_path)
    assert tree(tmp_path) == {"notes.txt": b"mine"}
    with pytest.raises(FileFormatError):
        Engine.open(tmp_path)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"device": "cuda:77"}, "cuda|cupy"),
        ({"device": "tpu"}, "tpu"),
        ({"paragraphs": "pages"}, "known"),
        ({"store": "store", "chunking": Chunking(3)}, "'chunking'"),
        ({"analyzer": str.split, "language": "german"}, "'language' or 'analyzer'"),
        ({"analyzer": str.split}, "function"),
        ({"encoder": {}}, "dict"),
        ({"collection": "nothing/there"}, "nothing/there"),
        ({"encoder": "lsa(n_components=0)"}, "'n_components' parameter of LSAEncoder"),
        ({"encoder": "lsb(3)"}, "'lsb'"),
        ({"encoder": ""}, "encoder.*''"),
    ],
)
def test_invalid_settings_are_rejected_before_any_work(
    topics: Collection, tmp_path: Path, given: dict[str, Any], named: str
) -> None:
    def fail(stage: str, seconds: float) -> None:
        raise AssertionError(f"{stage} was done first")

    with pytest.raises(HaybaleError, match=named), record_timings(fail):
        Engine.build(folder=tmp_path / "engine", **({"collection": topics} | given))
    assert list(tmp_path.iterdir()) == []


def test_the_given_encoder_is_not_changed(topics: Collection, tmp_path: Path) -> None:
    given = LSAEncoder(4)
    engine = Engine(topics, encoder=given)
    assert engine.encoder.components_.shape[0] == 4
    assert not hasattr(given, "components_")
    fitted = engine.encoder
    assert_same_runs(Engine.build(topics, tmp_path / "engine", encoder=fitted), engine, ["knn"])


def test_unregistered_encoder_must_be_given_again(built: Callable[[str], Path]) -> None:
    folder = built("own")
    assert_same_runs(opened(folder, "own"), Engine(topic_collection(), encoder=CountingEncoder()))
    with pytest.raises(StoreError, match="CountingEncoder"):
        Engine.open(folder, encoder=CountingEncoder("other"))
    with pytest.raises(InputError, match="'CountingEncoder'"):
        _ = Engine.open(folder).encoder
    assert_same_runs(Engine.open(folder), Engine(topic_collection()), ["bm25", "bm25-doc"])  # need no encoder


HOLD = """
import sys
from haybale.embeddings.store_files import StoreFiles, writer_lock
with writer_lock(StoreFiles(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held(folder: Path) -> Iterator[int]:
    """Hold the writer lock of the engine in another process, and yield the number of that process."""
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process.pid
        process.communicate("")


def test_second_writer_is_rejected_while_readers_continue(topics: Collection, copied: Callable[..., Path]) -> None:
    folder, dense = copied(), copied("lsa", "dense")
    shutil.rmtree(folder / "0" / "documents")
    before, engine = tree(folder), Engine.open(folder)
    with held(folder) as process:
        rejected = pytest.raises(StoreError, match=f"process {process} ")
        with rejected:
            engine.add(NEW)
        with rejected:
            engine.remove(["d01"])
        with rejected:
            Engine.build(topics, folder)
        assert engine.collection.n_documents == topics.n_documents
        assert_same_runs(Engine.open(folder), Engine(topics))  # the missing index is made in memory
        assert {name: content for name, content in tree(folder).items() if not name.endswith(".lock")} == before
    with held(dense):
        assert_same_runs(Engine.open(dense), Engine(topics, **VARIANTS["lsa"]))
    engine.add(NEW)
    assert ".lock" not in tree(folder)


def test_concurrent_changes_are_not_lost(copied: Callable[..., Path]) -> None:
    folder = copied()
    first, second = Engine.open(folder), Engine.open(folder)
    first.add(NEW)
    for change in (lambda: second.add({"n3": "other"}), lambda: second.remove(["d01"])):
        with pytest.raises(StoreError, match=folder.name):
            change()
    assert second.collection.n_documents == 42
    assert Engine.open(folder).collection.n_documents == 44


def test_missing_indexes_of_a_read_only_folder(copied: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """They are made in memory."""
    folder = copied()
    shutil.rmtree(folder / "0" / "documents")

    @contextmanager
    def forbidden(files: Any, work: str) -> Iterator[None]:
        raise PermissionError(13, "Permission denied", str(files))
        yield

    monkeypatch.setattr("haybale.engine.storage.writer_lock", forbidden)
    assert_same_runs(Engine.open(folder), Engine(topic_collection()))
    assert not (folder / "0" / "documents").exists()


def test_invalid_manifests_are_rejected(topics: Collection, copied: Callable[..., Path]) -> None:
    folder = copied()
    values = json.loads((folder / "engine.json").read_text())
    for content, named in [
        (json.dumps(with_checksum(values | {"version": 4})), "version 3"),
        (json.dumps(with_checksum(values | {"format": "another"})), "'haybale engine'.*'another'"),
        ("[]", "format"),
        ("{", "line 1"),
    ]:
        (folder / "engine.json").write_text(content)
        for use in (Engine.open, lambda folder: Engine.build(topics, folder)):
            with pytest.raises(FileFormatError, match=f"engine.json.*{named}"):
                use(folder)


@pytest.mark.parametrize("variant", ["tfidf", "lsa", "pieces"])
@pytest.mark.parametrize("damage", ["removed", "truncated", "flipped", "emptied"])
def test_every_damaged_file_is_detected(
    built: Callable[[str], Path], tmp_path: Path, variant: str, damage: str
) -> None:
    whole = tree(built(variant))
    folder = tmp_path / "engine"
    shutil.copytree(built(variant), folder)
    for name, content in whole.items():
        in_store = variant == "lsa" and name.startswith(("0/passages", "0/documents"))
        if not content or (in_store and "/encoder/" in name):  # the engine has its own copy
            continue
        path = folder / name
        if damage == "removed":
            path.unlink()
        else:
            middle = len(content) // 2
            flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
            path.write_bytes({"truncated": content[:middle], "flipped": flipped, "emptied": b""}[damage])
        # The flipped byte may be one of the name of a store's format, which then is another file's.
        expected = (FileFormatError, StoreError, InputError) if in_store else FileFormatError
        try:
            engine = Engine.open(folder).prepare()
            _ = engine.encoder, engine.collection
        except HaybaleError as error:
            assert isinstance(error, expected), (name, error)  # noqa: PT017
            assert str(folder) in str(error), name  # noqa: PT017
        else:  # an embedding store also has texts, which no search reads, and repairs some of its files
            assert in_store, f"{name} {damage}: not detected"
            assert_same_runs(engine, Engine.open(built(variant)))
        finally:
            path.write_bytes(content)
    assert tree(folder) == whole
    Engine.open(folder).prepare()


@pytest.mark.parametrize("variant", ["tfidf", "lsa", "pieces", "dense pieces", "sentences", "own"])
@pytest.mark.parametrize("prepared", [True, False])
def test_added_documents_rank_as_in_a_new_engine(
    topics: Collection, built: Callable[[str], Path], tmp_path: Path, variant: str, prepared: bool
) -> None:
    shutil.copytree(built(variant), tmp_path / "engine")
    memory, folder = Engine(topics, **VARIANTS[variant]), opened(tmp_path / "engine", variant)
    more = topic_collection(seed=3).take(np.arange(0, 40, 3))
    pairs = zip(more.doc_ids.to_pylist(), more.document_texts(), strict=True)
    texts = {f"m{doc_id}": text.split("\n") for doc_id, text in pairs}
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
        assert_same_runs(engine, scratch, [*UNTRAINED, "bm25(k1=0.3,b=1)", "bm25-doc(k1=6,b=0.1)"])


def test_changes_encode_only_new_documents(topics: Collection, tmp_path: Path) -> None:
    encoder = CountingEncoder()
    memory, folder = Engine(topics, encoder=encoder), Engine.build(topics, tmp_path / "engine", encoder=encoder)
    for engine in (memory, folder):
        engine.prepare()
        encoder.texts.clear()
        engine.add(NEW)
        engine.prepare()
        assert sorted(encoder.texts) == sorted([*NEW["n1"], NEW["n2"], "\n".join(NEW["n1"])])
        encoder.texts.clear()
        runs_of(engine.within(["n1", "d02"]))
        engine.remove(["d01"])
        runs_of(engine)
        known = {text for query in range(topics.n_queries) for text in topics.queries.paragraphs_of(query)}
        assert set(encoder.texts) <= known | set(topics.queries.texts(range(topics.n_queries)))
    encoder.texts.clear()
    Engine.open(tmp_path / "engine", encoder=encoder).prepare()
    assert encoder.texts == []


@pytest.mark.parametrize("where", ["memory", "folder", "segments"])
def test_a_document_of_one_passage_is_encoded_once(tmp_path: Path, where: str) -> None:
    documents: dict[str, str | list[str]] = {"a": "one tax", "b": ["two taxes", "a road"], "c": "one tax", "d": "a dog"}
    encoder = CountingEncoder()
    if where == "memory":
        engine = Engine(documents, encoder=encoder)
    else:
        segments = 2 if where == "segments" else 1
        engine = Engine.build(documents, tmp_path / "engine", encoder=encoder, segments=segments)
    engine.prepare()
    assert sorted(encoder.texts) == ["a dog", "a road", "one tax", "one tax", "two taxes", "two taxes\na road"]
    vectors = encoder.encode(engine.collection.document_texts())
    found = KNN("document").fit(engine).rank({"q": "one tax"}, depth=4).to_frame().set_index("doc_id")["score"]
    np.testing.assert_allclose(found[list(documents)], vectors @ encoder.encode(["one tax"])[0], rtol=1e-5)


@pytest.mark.parametrize("in_folder", [False, True])
def test_wrong_vectors_of_documents_name_the_encoder(tmp_path: Path, in_folder: bool) -> None:
    class Wrong(CountingEncoder):
        def encode(self, texts: Sequence[str]) -> np.ndarray:
            return super().encode(texts)[:, 1 if "two taxes\na road" in texts else 0 :]

    documents: dict[str, str | list[str]] = {"a": "one tax", "b": ["two taxes", "a road"]}
    how = {"encoder": Wrong()}
    engine = Engine.build(documents, tmp_path / "engine", **how) if in_folder else Engine(documents, **how)
    with pytest.raises(VectorError, match=r"^Wrong\.encode"):
        engine.prepare()


def test_adding_trains_no_ranker_again(topics: Collection) -> None:
    """A copy of a relevant document gets the score of the original."""
    engine = Engine(topics)
    ranker = parse(f"rrf(svr-memory({SVR}),knn-queries)").fit(engine)
    relevant = topics.relevant_ids("dev")[0][0]
    text = topics.document_texts()[topics.document_numbers([relevant])[0]]
    with record_timings() as stages:
        engine.add({"same": text, **NEW})
        run = ranker.rank("dev")
    assert not [stage for stage in stages.seconds if "fit" in stage or "train" in stage]
    assert dict(run["dev0"])["same"] > 0
    svr = dict(ranker.rankers_[0].rank("dev")["dev0"])
    assert svr["same"] == pytest.approx(svr[relevant])


@pytest.mark.parametrize("where", ["memory", "folder"])
@pytest.mark.parametrize("variant", ["tfidf", "pieces"])
def test_failed_changes_have_no_effect(
    topics: Collection, copied: Callable[..., Path], variant: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied(variant)
    engine = Engine.open(folder) if where == "folder" else Engine(topics, **VARIANTS[variant])
    engine.prepare()
    engine.remove(["d03"])
    before, files = runs_of(engine), tree(folder)
    remaining = [doc for doc in topics.doc_ids.to_pylist() if doc != "d03"]
    for change, given, named in [
        (engine.add, {"n1": "text", "d02": "exists"}, "'d02'"),
        (engine.add, {"d03": "removed, but still in the folder"}, "'d03'"),
        (engine.add, {}, "no passage|no document"),
        (engine.add, pd.DataFrame({"doc_id": ["n1"]}), "text"),
        (engine.remove, ["d01", "d03"], "'d03'"),
        (engine.remove, remaining, "42 removals"),
    ]:
        with pytest.raises(InputError, match=named):
            change(given)
    # The disk becomes full at each place where something is written or made.
    places = ["engine.storage.replace_json", "engine.changes.save_collection"] if where == "folder" else []
    for place in [*places, "retrieval.BM25Index.extended"]:
        with monkeypatch.context() as patch:
            patch.setattr(f"haybale.{place}", full_disk)
            with pytest.raises(OSError, match="No space left"):
                engine.add({"n7": "text of seven words, which are cut into pieces"})
    for name, run in runs_of(engine).items():
        assert_same(run, before[name])
    assert {name: content for name, content in tree(folder).items() if not name.startswith("1/")} == files
    engine.add({"n7": "another text, because the first one was not added"})
    assert "another text" in engine.collection.passages.texts.to_pylist()[-2 if variant == "pieces" else -1]
    if where == "folder":
        assert_same_runs(Engine.open(folder), engine)


def full_disk(*args: Any, **kwargs: Any) -> Any:
    raise OSError(28, "No space left on device")


def test_removed_documents_are_never_found(copied: Callable[..., Path]) -> None:
    engine = Engine.open(copied())
    engine.remove(["d05", TWINS[0]])
    engine.add(NEW)
    engine.remove(np.array(["n2"]))
    removed = {"d05", TWINS[0], "n2"}
    again = Engine.open(engine.folder)
    for each in (engine, again):
        for found in (each.collection.doc_ids, each.whole.doc_ids, each.collection.qrels_frame("train")["doc_id"]):
            assert removed.isdisjoint(list(map(str, found)))
        for name, run in runs_of(each).items():
            assert removed.isdisjoint(run.flat()[2].to_pylist()), name
    assert_same_runs(again, engine)
    with pytest.raises(InputError, match="'d05'"):
        again.add({"d05": "back again"})


@pytest.mark.parametrize("variant", ["tfidf", "lsa", "pieces"])
def test_view_ranks_like_the_filtered_engine(topics: Collection, variant: str) -> None:
    engine = Engine(topics, **VARIANTS[variant])
    ids = topics.doc_ids.to_pylist()
    some = ids[::2]
    names = ["bm25", "bm25-doc", "knn", "knn-doc", "knn-firstp", "parm-rrf"]
    runs = runs_of(engine, names=names, depth=42)
    mask = np.isin(ids, some)
    views = [(engine.within(mask), some), (engine.within(some[::-1]), some)]
    for view, chosen in [*views, (engine.within(some).within(some[:5]), some[:5])]:
        assert view.collection.doc_ids.to_pylist() == chosen
        assert view.id == engine.id
        for name, run in runs_of(view, names=names[:-1], depth=42).items():
            assert_filtered(run, runs[name], lambda doc, chosen=chosen: doc in chosen, exactly=variant != "lsa")


def test_invalid_views_are_rejected(topics: Collection) -> None:
    engine = Engine(topics)
    for documents, named in [
        ([], "none of the 0"),
        (np.zeros(42, dtype=bool), "none of the 0"),
        (["blank"], "none of the 1"),
        (np.ones(41, dtype=bool), r"mask.* 42, .*\(41,\)"),
        (["d01", "nobody"], "'nobody'"),
        ("d01", "'d01'"),
    ]:
        with pytest.raises(InputError, match=named):
            engine.within(documents)
    view = engine.within(["d01", "d02"])
    for call, argument in ((view.add, NEW), (view.remove, ["d01"])):
        with pytest.raises(InputError, match=r"within\(\)"):
            call(argument)
    _ = view.bm25()
    assert "_encoder" not in vars(engine._live.first.source), "a view loads no encoder"


def test_views_and_snapshots_keep_their_documents(topics: Collection) -> None:
    engine, unchanged = Engine(topics), Engine(topics)
    some = ["d01", "d02", "d03"]
    snapshot, view = engine.snapshot(), engine.within(some)
    nested = view.within(some[1:])
    engine.remove(["d02"])
    engine.add(NEW)
    engine.replace({"d03": "another text"})
    assert_same_runs(snapshot, unchanged)
    assert_same_runs(view, unchanged.within(some))
    assert_same_runs(nested, unchanged.within(some[1:]))
    assert snapshot.snapshot() is snapshot
    assert engine.snapshot() is engine.snapshot() is not snapshot
    assert engine.within(["d01", "d03"]).collection.n_documents == 2
    for fixed, named in ((snapshot, "snapshot"), (view, r"within\(\)")):
        for change in (lambda each: each.add(NEW), lambda each: each.replace(NEW), lambda each: each.remove(["d01"])):
            with pytest.raises(InputError, match=named):
                change(fixed)


@pytest.mark.parametrize("chunking", [None, Chunking(5, 3)])
def test_engine_of_an_embedding_store(topics: Collection, tmp_path: Path, chunking: Chunking | None) -> None:
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


def test_custom_analyzer_is_saved(topics: Collection, tmp_path: Path) -> None:
    word = str(topics.passages.texts[0].as_py()).split()[0].lower()
    own = Analyzer("none", [word])
    engine = Engine.build(topics, tmp_path / "engine", analyzer=own)
    assert engine.bm25().analyzer == own == Engine.open(tmp_path / "engine").analyzer
    assert engine.encoder.analyzer_ == own
    assert word not in engine.encoder.vocabulary_
    assert Engine(topics, analyzer=str.split).bm25().analyzer.function is str.split
