"""Test saving, taking, extending and hashing collections."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.engines import change_manifest, tree

from haybale.collections import Collection, CollectionBuilder
from haybale.collections.saved import load_collection, save_collection
from haybale.errors import FileFormatError, InputError, OutputExistsError
from haybale.manifest import write_manifest

texts = st.text(st.sampled_from("a\u00e4\n\U0001f42b\x00"), max_size=3).map(lambda text: f"x{text}")
KINDS = ("internal", "passage_to_document", "section_to_document")


@st.composite
def collections(draw: st.DrawFn, prefix: str = "", least_queries: int = 0) -> Collection:
    """Draw documents with and without passages, titles, sections and links, and queries in several splits or none."""
    builder = CollectionBuilder(draw(texts), draw(st.sampled_from([None, "german"])))
    with_sections = draw(st.booleans())
    docs = [f"{prefix}d{number}" for number in range(draw(st.integers(1, 5)))]
    passages: list[tuple[int, str]] = []
    sections: dict[int, list[tuple[str, int]]] = {}
    for number, doc_id in enumerate(docs):
        builder.add_document(doc_id, title=draw(texts | st.just("")))
        for position in range(draw(st.integers(0, 3)) if with_sections else 0):
            parent = draw(st.sampled_from([None, *(name for name, _ in sections.get(number, []))]))
            name = f"{doc_id}/{position}"
            sections.setdefault(number, []).append((name, builder.add_section(number, name, draw(texts), parent)))
    for _ in range(draw(st.integers(1, 8))):
        number = draw(st.integers(0, len(docs) - 1))
        section = draw(st.sampled_from([-1, *(number for _, number in sections.get(number, []))]))
        passages.append((number, f"{prefix}p{len(passages)}"))
        builder.add_passage(number, draw(texts), passages[-1][1], section)
    for number, passage in passages:
        for name, _ in sections.get(number, []):
            if draw(st.booleans()):
                builder.add_internal_link(passage, name)
    sources = [name for _, name in passages] + [name for names in sections.values() for name, _ in names]
    for source in sources:
        if draw(st.booleans()):
            builder.add_external_link(source, draw(st.sampled_from(docs)))
    for number in range(draw(st.integers(least_queries, 4))):
        own = draw(st.sampled_from([None, *docs]))
        split = draw(st.sampled_from([None, "b", "a"]))
        builder.add_query(f"q{number}", draw(st.lists(texts, min_size=1, max_size=3)), own, split)
        for doc_id in docs:
            if draw(st.booleans()):
                builder.add_judgement(draw(st.sampled_from("cba")), f"q{number}", doc_id, draw(st.integers(-1, 3)))
    return builder.build()


def plain(collection: Collection) -> dict[str, Any]:
    """Return everything in a collection except its name as nested lists with ids instead of numbers."""
    passages, queries, sections, links = collection.passages, collection.queries, collection.sections, collection.links
    doc_ids, passage_ids, query_ids = (ids.to_pylist() for ids in (collection.doc_ids, passages.ids, queries.ids))
    section_ids = [] if sections is None else sections.ids.to_pylist()
    passage_texts = passages.texts.to_pylist()
    passage_sections = [-1] * len(passages) if passages.sections is None else passages.sections.tolist()

    def section_id(number: int) -> str | None:
        return None if number < 0 else section_ids[number]

    documents = []
    for number, (doc_id, title) in enumerate(zip(doc_ids, collection.doc_titles.to_pylist(), strict=True)):
        rows = range(*passages.doc_offsets[number : number + 2])
        tree = () if sections is None else range(*sections.doc_offsets[number : number + 2])
        documents.append(
            {
                "id": doc_id,
                "title": title,
                "passages": [(passage_ids[i], passage_texts[i], section_id(passage_sections[i])) for i in rows],
                "sections": [
                    (section_ids[i], sections.titles[i].as_py(), section_id(sections.parents[i])) for i in tree
                ],
            }
        )
    ends = dict(zip(KINDS, [(passage_ids, section_ids), (passage_ids, doc_ids), (section_ids, doc_ids)], strict=True))
    splits = {}
    for name, split in collection.splits.items():
        judged = zip(split.judged_queries, split.judged_documents, split.grades, strict=True)
        judgements = [(query_ids[query], doc_ids[document], int(grade)) for query, document, grade in judged]
        splits[name] = ([query_ids[i] for i in split.queries], judgements)
    return {
        "documents": documents,
        "links": {
            kind: [] if links is None else [(ends[kind][0][a], ends[kind][1][b]) for a, b in getattr(links, kind)]
            for kind in KINDS
        },
        "queries": [
            (name, queries.paragraphs_of(i), None if queries.own[i] < 0 else doc_ids[queries.own[i]])
            for i, name in enumerate(query_ids)
        ],
        "splits": splits,
        "has": (sections is not None, passages.sections is not None, links is not None),
    }


def in_other_chunks(part: Any, rng: np.random.Generator) -> Any:
    """Return an equal collection, or part of one, whose strings are in other chunks: slices of longer arrays."""
    if is_dataclass(part):
        return replace(part, **{each.name: in_other_chunks(getattr(part, each.name), rng) for each in fields(part)})
    if not isinstance(part, pa.ChunkedArray):
        return part
    cuts = np.sort(rng.integers(0, len(part) + 1, size=rng.integers(0, 4))).tolist()
    chunks = [part.to_pylist()[a:b] for a, b in pairwise([0, *cuts, len(part)])]
    arrays = [pa.array(["before", *chunk, "behind"], pa.large_string()).slice(1, len(chunk)) for chunk in chunks]
    return pa.chunked_array(arrays, type=pa.large_string())


@given(st.lists(st.lists(texts, max_size=5), min_size=1, max_size=6), st.integers(1, 4), st.integers(1, 8))
@settings(max_examples=20, deadline=None)
def test_sizes_of_chunks_change_nothing(documents: list[list[str]], n_strings: int, n_characters: int) -> None:
    """A collection that is built from small chunks is the one that is built from one chunk, in memory and on disk."""
    assume(any(documents))

    def built() -> Collection:
        builder = CollectionBuilder("texts")
        for number, passages in enumerate(documents):
            builder.add_document(f"d{number}", passages)
        return builder.build()

    whole = built()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("haybale.collections.builder._STRINGS_PER_CHUNK", n_strings)
        patch.setattr("haybale.collections.builder._CHARACTERS_PER_CHUNK", n_characters)
        in_chunks = built()
    assert in_chunks.passages.texts.num_chunks >= sum(map(len, documents)) / n_strings
    assert in_chunks.digest() == whole.digest()
    with TemporaryDirectory() as folder:
        saved = Path(folder)
        save_collection(whole, saved / "whole")
        save_collection(in_chunks, saved / "chunks")
        assert tree(saved / "whole") == tree(saved / "chunks")


@settings(deadline=None)
@given(collection=collections(), seed=st.integers(0, 1000))
def test_loading_returns_the_saved_collection(collection: Collection, seed: int) -> None:
    rng = np.random.default_rng(seed)
    with TemporaryDirectory() as folder:
        first, second = Path(folder) / "first", Path(folder) / "second"
        save_collection(collection, first)
        loaded = load_collection(first)
        assert plain(loaded) == plain(collection)
        assert (loaded.name, loaded.language) == (collection.name, collection.language)
        assert list(loaded.splits) == list(collection.splits)
        assert loaded.digest() == collection.digest() == in_other_chunks(collection, rng).digest()
        assert loaded.passages.doc_offsets.dtype == loaded.queries.own.dtype == np.int64
        save_collection(in_other_chunks(loaded, rng), second)
        assert tree(second) == tree(first)


@settings(deadline=None)
@given(collection=collections(), data=st.data())
def test_take_selects_documents(collection: Collection, data: st.DataObject) -> None:
    whole = plain(collection)
    n = collection.n_documents
    numbers = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=n, unique=True).map(sorted))
    assume(any(whole["documents"][number]["passages"] for number in numbers))
    kept = {whole["documents"][number]["id"] for number in numbers}
    documents = [document for document in whole["documents"] if document["id"] in kept]
    present = kept | {
        name for document in documents for part in ("passages", "sections") for name, *_ in document[part]
    }
    expected = whole | {
        "documents": documents,
        "links": {kind: [link for link in links if present.issuperset(link)] for kind, links in whole["links"].items()},
        "queries": [(name, texts, own if own in kept else None) for name, texts, own in whole["queries"]],
        "splits": {
            name: (queries, [judged for judged in judgements if judged[1] in kept])
            for name, (queries, judgements) in whole["splits"].items()
        },
    }
    taken = collection.take(np.array(numbers))
    assert plain(taken) == expected
    assert taken.take(range(len(numbers))).digest() == taken.digest()


@settings(deadline=None)
@given(collection=collections(), other=collections("o", 1))
def test_extended_adds_documents(collection: Collection, other: Collection) -> None:
    first, second = plain(collection), plain(other)
    extended = collection.extended(other)
    expected = first | {
        "documents": first["documents"] + second["documents"],
        "links": {kind: first["links"][kind] + second["links"][kind] for kind in KINDS},
        "has": tuple(a or b for a, b in zip(first["has"], second["has"], strict=True)),
    }
    assert plain(extended) == expected
    assert (extended.name, extended.language) == (collection.name, collection.language)
    if first["has"] == plain(extended)["has"]:
        assert extended.take(range(collection.n_documents)).digest() == collection.digest()


def test_extended_rejects_ids_of_both_collections() -> None:
    def one(document: str, passage: str, section: str) -> Collection:
        builder = CollectionBuilder("c")
        number = builder.add_document(document)
        builder.add_passage(number, "text", passage, builder.add_section(number, section, "", None))
        return builder.build()

    for ids, message in [("dqt", "document id 'd'"), ("ept", "passage id 'p'"), ("eqs", "section id 's'")]:
        with pytest.raises(InputError, match=message):
            one(*"dps").extended(one(*ids))


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ([1, 1], "document numbers .*1 after 1"),
        ([0, 5], "document numbers .*0 and 4, found 5"),
        ([0.5], "document numbers .*float64"),
        ([True], "document numbers .*bool"),
        ([], "documents with passages"),
    ],
)
def test_take_rejects_invalid_document_numbers(toy: Collection, numbers: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        toy.take(numbers)


def test_take_selects_queries(toy: Collection) -> None:
    taken = toy.queries.take([3, 0])
    assert taken.ids.to_pylist() == ["train-roads", "train-dogs"]
    assert taken.paragraphs_of(0) == ["winter roads", "winter roads again"]
    assert (taken.own.tolist(), taken.offsets.tolist()) == ([4, -1], [0, 2, 4])
    assert len(toy.queries.take([])) == 0
    for numbers in ([8], [1, 1]):
        with pytest.raises(InputError, match=f"query numbers .*found {numbers[0]}"):
            toy.queries.take(numbers)


def filled(**changes: Any) -> Collection:
    """Return a collection with all optional parts, with some values changed."""
    use = {"title": "T", "text": "one", "paragraph": "p", "grade": 1, "own": "a", "section": "S", "target": "b"}
    use |= changes
    builder = CollectionBuilder(use.get("name", "c"), use.get("language"))
    for name in "ab":
        document = builder.add_document(name, title=use["title"])
        section = builder.add_section(document, f"s{name}", use["section"], None)
        builder.add_passage(document, use["text"], f"p{name}", section)
    builder.add_external_link("pa", use["target"])
    builder.add_query("q", [use["paragraph"], "last"], use["own"], "train")
    builder.add_judgement("test", "q", "b", use["grade"])
    return builder.build()


def test_the_digest_depends_on_all_content() -> None:
    whole = filled()
    for same in ({"name": "other"}, {"language": "german"}):
        assert filled(**same).digest() == whole.digest()
    assert replace(whole, splits=dict(reversed(whole.splits.items()))).digest() == whole.digest()
    changes: list[dict[str, Any]] = [
        {"title": "U"}, {"text": "two"}, {"paragraph": "r"}, {"grade": 2}, {"own": "b"}, {"own": None},
        {"section": "U"}, {"target": "a"},
    ]  # fmt: skip
    others = [
        *(filled(**change) for change in changes),
        replace(whole, links=None),
        replace(whole, sections=None),
        replace(whole, passages=replace(whole.passages, sections=None)),
        replace(whole, splits={"test": whole.splits["test"]}),
        replace(whole, splits={"dev": whole.splits["train"], "test": whole.splits["test"]}),
        replace(whole, doc_ids=pa.chunked_array([["ab", ""]], type=pa.large_string())),
        replace(whole, doc_ids=whole.doc_titles, doc_titles=whole.doc_ids),
    ]
    assert len({whole.digest(), *(other.digest() for other in others)}) == 1 + len(others)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("collections") / "saved"
    save_collection(filled(), folder)
    return folder


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: change_manifest(f, version=2), "version 1, found 2"),
        (lambda f: change_manifest(f, parts=[["links"]]), "'parts'"),
        (lambda f: change_manifest(f, parts=["links"]), "'files' documents.parquet"),
        (lambda f: (f / "splits.parquet").write_bytes(b"x"), "splits.parquet: .*SHA-256"),
    ],
)
def test_damaged_folders_are_rejected(saved: Path, tmp_path: Path, damage: Callable[[Path], Any], message: str) -> None:
    folder = tmp_path / "c"
    shutil.copytree(saved, folder)
    damage(folder)
    with pytest.raises(FileFormatError, match=message) as error:
        load_collection(folder)
    assert "\n" not in str(error.value)


def test_texts_are_read_on_first_use(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, texts = tmp_path / "c", filled().passages.texts
    shutil.copytree(saved, folder)
    monkeypatch.chdir(tmp_path)
    loaded, changed = load_collection("c"), load_collection("c")
    monkeypatch.chdir("/")
    some = loaded.take([0])
    assert all("texts" not in vars(found.passages) for found in (loaded, some))
    assert some.passages.texts.equals(texts[: some.n_passages])
    kept = replace(loaded.passages, sections=None)
    assert kept.texts.equals(texts)
    assert kept.sections is None
    assert pickle.loads(pickle.dumps(loaded)).digest() == filled().digest()
    (folder / "texts.parquet").write_bytes(b"x")
    with pytest.raises(FileFormatError, match=r"texts\.parquet: .*SHA-256"):
        changed.take([0]).passages.texts  # noqa: B018
    assert loaded.passages.texts.equals(texts)


def test_a_collection_can_be_extended_a_thousand_times(toy: Collection) -> None:
    whole, n = toy, 1000
    for number in range(n):
        builder = CollectionBuilder("more")
        builder.add_document(f"more {number}", [f"text {number}"])
        whole = whole.extended(builder.build())
    assert whole.passages.texts.to_pylist() == toy.passages.texts.to_pylist() + [f"text {i}" for i in range(n)]
    assert whole.passages.texts.num_chunks < 65
    assert whole.take([0, whole.n_documents - 1]).passages.texts.to_pylist()[-1] == f"text {n - 1}"


def test_a_folder_that_is_not_empty_is_not_overwritten(saved: Path, toy: Collection) -> None:
    before = tree(saved)
    with pytest.raises(OutputExistsError, match="saved"):
        save_collection(toy, saved)
    assert tree(saved) == before
    with pytest.raises(FileFormatError, match="nowhere"):
        load_collection(saved / "nowhere")


@pytest.mark.parametrize(
    ("part", "column", "value"),
    [
        ("documents", "passages", 7),
        ("documents", "passages", -1),
        ("documents", "sections", 2),
        ("queries", "paragraphs", 0),
        ("queries", "own", 2),
        ("texts", "section", 2),
        ("splits", "query", 1),
        ("splits", "split", "none"),
        ("judgements", "query", -1),
        ("judgements", "document", 2),
        ("sections", "parent", -2),
        ("links", "kind", "other"),
        ("links", "source", 2),
        ("links", "target", 2),
    ],
)
def test_wrong_numbers_with_right_checksums_are_rejected(
    saved: Path, tmp_path: Path, part: str, column: str, value: Any
) -> None:
    """A forged table does not reach NumPy: one error names the file and the column."""
    folder = tmp_path / "c"
    shutil.copytree(saved, folder)
    table = pq.read_table(folder / f"{part}.parquet")
    at = table.column_names.index(column)
    forged = pa.array([value, *table[column].to_pylist()[1:]], type=table.schema.field(column).type)
    pq.write_table(table.set_column(at, table.schema.field(column), forged), folder / f"{part}.parquet")
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").unlink()
    write_manifest(folder, {name: each for name, each in manifest.items() if name not in ("sha256", "files")})
    with pytest.raises(FileFormatError, match=rf"{part}\.parquet: .*'{column}'"):
        load_collection(folder)
