"""What was not read of files goes up from the reader to the collection, the engine, and the file in its folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haybale import Engine, FileFormatError, InputError, open_collection
from haybale.collections import UnreadPart, load_collection, save_collection
from haybale.collections.files.file_document import FileDocument, Part
from haybale.collections.files.file_reader import FILE_READERS, FileReader, Unreadable
from haybale.collections.readers.files import read_files
from haybale.collections.unread import UNREAD_FILE, counted, read_unread, refuse_unread, sorted_parts, write_unread

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=8)
PARTS = st.builds(UnreadPart, file=TEXTS, part=TEXTS, reason=TEXTS)


@pytest.fixture
def parted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register a format of lines: a line is a paragraph, ``?`` a page that cannot be read, ``!`` ends reading."""

    for part in ("_known", "_owners"):  # all names are loaded first, and the new one is forgotten after the test
        monkeypatch.setattr(FILE_READERS, part, dict(list(FILE_READERS) and getattr(FILE_READERS, part)))

    class Parted(FileReader):
        name, suffixes = "parted", (".parted",)

        def read(self, data: bytes, columns: Mapping[str, str]) -> Iterator[FileDocument | UnreadPart]:
            parts = []
            for number, line in enumerate(data.decode().split(), 1):
                if line == "?":
                    yield UnreadPart(part=f"page {number}", reason="no text")
                elif line == "!":
                    yield FileDocument(parts)
                    raise Unreadable("ends early")
                else:
                    parts.append(Part(line, page=number))
            yield FileDocument(parts)


@pytest.fixture
def source(tmp_path: Path, parted: None) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    for name, lines in {"a": "one ? three ?", "b": "one two", "c": "? ?", "d": "one ? !"}.items():
        (folder / f"{name}.parted").write_text(lines)
    (folder / "e.unknown").write_text("some text")
    return folder


LISTED = [
    ("a.parted", "page 2"),
    ("a.parted", "page 4"),
    ("c.parted", ""),
    ("c.parted", "page 1"),
    ("c.parted", "page 2"),
    ("d.parted", ""),
    ("d.parted", "page 2"),
    ("e.unknown", ""),
]


def listed(unread: list[UnreadPart]) -> list[tuple[str, str]]:
    return sorted((part.file, part.part) for part in unread)


def test_what_a_reader_lists_is_in_the_collection_and_in_the_engine(source: Path, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="could not be read"):
        collection = open_collection(source)
    assert collection.doc_ids.to_pylist() == ["a.parted", "b.parted", "d.parted"]
    assert listed(list(collection.unread)) == LISTED
    save_collection(collection, tmp_path / "saved")
    assert load_collection(tmp_path / "saved").unread == collection.unread
    assert collection.take([0]).unread == collection.unread
    in_memory = Engine(collection, language="english", encoder="tfidf(min_df=1)")
    in_folder = Engine.build(collection, tmp_path / "engine", language="english", encoder="tfidf(min_df=1)")
    for engine in (in_memory, in_folder, Engine.open(tmp_path / "engine"), in_memory.snapshot()):
        assert listed(engine.unread) == LISTED
    with pytest.raises(InputError):
        refuse_unread(source, collection.unread)


@pytest.mark.parametrize("is_in_memory", [True, False])
def test_a_file_that_replaces_another_replaces_what_was_not_read_of_it(
    source: Path, tmp_path: Path, is_in_memory: bool
) -> None:
    collection, settings = read_files(source), {"language": "english", "encoder": "tfidf(min_df=1)"}
    engine = Engine(collection, **settings) if is_in_memory else Engine.build(collection, tmp_path / "e", **settings)
    for path in source.iterdir():
        path.unlink()
    (source / "a.parted").write_text("one two ?")
    (source / "b.parted").write_text("?")
    (source / "f.parted").write_text("one")
    engine.replace(read_files(source))
    assert listed(engine.unread) == [("a.parted", "page 3"), ("b.parted", ""), ("b.parted", "page 1"), *LISTED[2:]]
    assert is_in_memory or read_unread(tmp_path / "e") == engine.unread


def test_a_file_without_any_text_has_the_reason_in_the_error(tmp_path: Path, parted: None) -> None:
    (tmp_path / "c.parted").write_text("? ?")
    with pytest.raises(InputError, match=r"c\.parted, page 1: no text"):
        read_files(tmp_path)


@given(st.lists(PARTS))
def test_the_file_of_an_engine_has_all_parts(tmp_path_factory: pytest.TempPathFactory, parts: list[UnreadPart]) -> None:
    folder = tmp_path_factory.getbasetemp()
    write_unread(folder, parts)
    assert read_unread(folder) == sorted_parts(parts)
    assert (folder / UNREAD_FILE).exists() == bool(parts)


def test_files_of_earlier_versions_and_damaged_files(tmp_path: Path) -> None:
    path = tmp_path / UNREAD_FILE
    path.write_text("file,reason\na.pdf,no text\n")
    assert read_unread(tmp_path) == [UnreadPart(file="a.pdf", reason="no text")]
    path.write_text("name\na.pdf\n")
    with pytest.raises(FileFormatError):
        read_unread(tmp_path)


@given(st.lists(PARTS, min_size=1))
def test_counts_are_of_all_files(parts: list[UnreadPart]) -> None:
    whole = {part.file for part in parts if not part.part}
    digits = [int(word) for word in counted(parts).split() if word.isdigit()]
    others = [part for part in parts if part.file not in whole]
    n_others = len({part.file for part in others})
    assert digits == [*([len(whole)] if whole else []), *([len(others), n_others] if others else [])]
