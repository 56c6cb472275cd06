"""Which engine a file of judgements belongs to, where it is, and how it gets to another engine."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from haybale import Engine, parse
from haybale.errors import InputError, StoreError
from haybale.review import JudgementStore, Review, attach, judged_topics, judgement_file_of
from haybale.review.engine_of_judgements import fit_of

DOGS = {f"d{number}": f"Dog number {number} barks at night." for number in range(8)}
TAX = {f"d{number}": f"Tax rule number {number} holds for firms." for number in range(8)}
HOW = {"language": "english", "encoder": "tfidf(min_df=1)"}


def built(folder: Path, documents: dict[str, str] = DOGS) -> Engine:
    return Engine.build(documents, folder, **HOW)


def judged(engine: Engine, path: Path, text: str = "barking dogs", ids: tuple[str, ...] = ("d1", "d2")) -> None:
    with Review(engine, text, judgements=path) as review:
        for doc_id in ids:
            review.judge(doc_id, 1, "ann", note="of this matter only")


def test_a_file_of_judgements_belongs_to_one_engine(tmp_path: Path) -> None:
    from haybale.service import Workspace

    dogs, tax = built(tmp_path / "dogs"), built(tmp_path / "tax", TAX)
    judged(dogs, path := tmp_path / "j.sqlite")
    before = path.read_bytes()
    rankers = {"bm25": parse("bm25").fit(tax)}
    with pytest.raises(StoreError, match="attach"):
        Review(tax, "tax", judgements=path)
    with pytest.raises(StoreError, match="attach"):
        judged_topics(path, tax)
    with JudgementStore(path) as store:
        with pytest.raises(StoreError, match="attach"):
            Workspace(tax, rankers, store)
        with pytest.raises(StoreError, match="attach"):
            Review(tax, topic="barking dogs", judgements=store)
        assert store.n_rows() == 2
        assert len(store.topics()) == 1
    assert path.read_bytes() == before
    with Review(Engine.open(tmp_path / "dogs"), topic="barking dogs", judgements=path) as review:
        assert review.progress().n_relevant == 2


def test_twins_in_two_folders_are_two_engines(tmp_path: Path) -> None:
    judged(built(tmp_path / "one"), path := tmp_path / "j.sqlite")
    with pytest.raises(StoreError, match="attach"):
        Review(built(tmp_path / "two"), "dogs", judgements=path)


def test_a_moved_or_copied_engine_keeps_its_judgements(tmp_path: Path) -> None:
    judged(built(tmp_path / "one"), path := tmp_path / "j.sqlite")
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    shutil.move(tmp_path / "one", tmp_path / "moved")
    for name in ("copy", "moved"):
        with Review(Engine.open(tmp_path / name), topic="barking dogs", judgements=path) as review:
            assert review.progress().n_relevant == 2


@pytest.mark.parametrize("is_in_folder", [True, False])
def test_an_engine_that_was_built_again_takes_its_judgements_over_if_all_fit(
    tmp_path: Path, is_in_folder: bool
) -> None:
    def made(documents: dict[str, str]) -> Engine:
        shutil.rmtree(tmp_path / "engine", ignore_errors=True)
        return built(tmp_path / "engine", documents) if is_in_folder else Engine(documents, **HOW)

    judged(made(DOGS), path := tmp_path / "j.sqlite")
    with pytest.warns(UserWarning, match="built again"):
        judged(made(DOGS | {"new": "A new dog."} | {"d7": "Another text."}), path, ids=())
    for changed in (DOGS | {"d1": "Another text."}, {name: text for name, text in DOGS.items() if name != "d2"}):
        engine = made(changed)
        with pytest.raises(StoreError, match="attach"):
            judged(engine, path)
        assert attach(path, engine).n_judged == 2
        judged(engine, path, ids=())
        attach(path, made(DOGS))


def test_attach_says_what_fits(tmp_path: Path) -> None:
    judged(built(tmp_path / "one"), path := tmp_path / "j.sqlite", ids=("d0", "d1", "d2", "d3"))
    other = built(tmp_path / "two", {"d0": DOGS["d0"], "d1": "Another text.", "x": DOGS["d2"], "y": DOGS["d1"]})
    fit = attach(path, other)
    assert (fit.same, fit.changed, fit.missing) == (["d0"], ["d1"], ["d2", "d3"])
    assert fit.moved == {"d1": ["y"], "d2": ["x"]}
    with JudgementStore(path) as store:
        assert store.owner is not None
        assert (store.owner.identity, store.owner.folder) == (other.identity, os.path.realpath(tmp_path / "two"))
        assert fit_of(store, other) == fit
    with pytest.raises(StoreError, match="attach"):
        Review(Engine.open(tmp_path / "one"), topic="barking dogs", judgements=path)
    with pytest.raises(InputError, match="no file"):
        attach(tmp_path / "none.sqlite", other)
    assert not (tmp_path / "none.sqlite").exists()


def unbound(path: Path) -> None:
    """Make a store into one that was never used with an engine."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("DROP TRIGGER engines_remain; DELETE FROM engines")


def test_a_store_without_engine_is_bound_to_the_first_one_that_it_fits(tmp_path: Path) -> None:
    dogs, tax = built(tmp_path / "dogs"), built(tmp_path / "tax", TAX)
    judged(dogs, path := tmp_path / "j.sqlite")
    unbound(path)
    with pytest.raises(StoreError, match="attach"):
        Review(tax, "tax", judgements=path)
    judged(dogs, path, ids=())
    with JudgementStore(path) as store:
        assert store.owner is not None
        assert store.owner.identity == dogs.identity


def test_a_store_without_engine_and_with_topics_of_two_engines_is_not_bound(tmp_path: Path) -> None:
    dogs, tax = built(tmp_path / "dogs"), built(tmp_path / "tax", TAX)
    judged(dogs, path := tmp_path / "j.sqlite")
    attach(path, tax)
    judged(tax, path, "rules for firms", ("d4", "d5"))
    unbound(path)
    for engine in (dogs, tax):
        with pytest.raises(StoreError, match="attach"):
            Review(engine, "anything", judgements=path)
    assert attach(path, dogs).topics_apart == 1


def test_each_engine_has_a_default_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dogs, tax = built(tmp_path / "dogs"), built(tmp_path / "tax", TAX)
    path = judgement_file_of(tmp_path / "dogs")
    assert path.name == "dogs-judgements.sqlite"
    assert judgement_file_of(dogs) == path != judgement_file_of(tax)
    (tmp_path / "link").symlink_to(tmp_path / "dogs")
    monkeypatch.chdir(tmp_path / "dogs")
    for folder in (f"{tmp_path}/dogs/", ".", "../dogs", str(tmp_path / "link"), "../link/", f"{tmp_path}/tax/../dogs"):
        assert judgement_file_of(folder) == path, folder


def test_judgements_under_the_shared_name_of_before_are_not_lost_silently(tmp_path: Path) -> None:
    dogs, tax = built(tmp_path / "dogs"), built(tmp_path / "tax", TAX)
    judged(dogs, shared := tmp_path / "judgements.sqlite")
    assert judgement_file_of(tax) == tmp_path / "tax-judgements.sqlite"
    with pytest.raises(StoreError, match=r"dogs-judgements\.sqlite.*judgements\.sqlite; rename"):
        judgement_file_of(dogs)
    shared.rename(path := tmp_path / "dogs-judgements.sqlite")
    assert judgement_file_of(dogs) == path
