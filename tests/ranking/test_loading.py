"""Saved rankers: bitwise equal rankings in any process, and one error for every changed file."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.engines import CountingEncoder, assert_same, tree
from support.ranker_cases import PAPER, queries_of
from support.topics import LEARNED, NEW, RANKERS

from haybale import Engine
from haybale.collections import Collection
from haybale.errors import FileFormatError, InputError
from haybale.manifest import digest, with_checksum
from haybale.rankers import BM25, RRF, Ranker, Training, load, parse
from haybale.ranking.saved_rankers import MANIFEST

pytestmark = pytest.mark.filterwarnings("ignore:.* bags have no relevant row", "ignore:.*bags are trained")

# A program that loads the rankers in a folder and writes their rankings.
OTHER_PROCESS = """
import sys
from pathlib import Path
import numpy as np
from haybale import Engine, load

folder = Path(sys.argv[1])
engine = Engine.open(folder / "engine")
for path in sorted(folder.glob("ranker*")):
    ranker = load(path, engine)
    for how, run in (("rank", ranker.rank("dev")), ("out", ranker.out_of_fold("train"))):
        rows, ranks, documents, scores = run.flat()
        np.savez(folder / f"{path.name}.{how}.npz", rows=rows, ranks=ranks, scores=scores,
            documents=np.array(documents.to_pylist()), queries=np.array(run.query_ids))
"""


@pytest.mark.parametrize("encoder", ["tfidf", pytest.param("lsa(n_components=12)", marks=pytest.mark.thorough)])
def test_rankings_in_another_process(topics: Collection, tmp_path: Path, encoder: str) -> None:
    engine = Engine.build(topics, tmp_path / "engine", encoder=encoder).prepare()
    training = Training.of(engine)
    rankers = [parse(name)._fitted_copy(training) for name in (*RANKERS, *([] if encoder == "tfidf" else [PAPER]))]
    for number, ranker in enumerate(rankers):
        ranker.save(tmp_path / f"ranker{number}")
    command = [sys.executable, "-c", OTHER_PROCESS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for number, ranker in enumerate(rankers):
        for how, run in (("rank", ranker.rank("dev")), ("out", ranker.out_of_fold("train"))):
            found = np.load(tmp_path / f"ranker{number}.{how}.npz")
            rows, ranks, documents, scores = run.flat()
            assert found["queries"].tolist() == run.query_ids
            assert np.array_equal(found["rows"], rows)
            assert np.array_equal(found["ranks"], ranks)
            assert np.array_equal(found["scores"], scores), str(ranker)
            assert found["documents"].tolist() == documents.to_pylist(), str(ranker)


@pytest.fixture(scope="module")
def engine(topics: Collection) -> Engine:
    return Engine(topics)


@pytest.fixture(scope="module")
def saved(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Ranker, Path]]:
    """Return a function that fits and saves a ranker once, and returns it with its folder."""
    made: dict[str, tuple[Ranker, Path]] = {}

    def find(name: str) -> tuple[Ranker, Path]:
        if name not in made:
            ranker = parse(name).fit(engine)
            folder = tmp_path_factory.mktemp("saved") / "ranker"
            ranker.save(folder)
            made[name] = ranker, folder
        return made[name]

    return find


@pytest.mark.parametrize("name", RANKERS)
def test_round_trip(engine: Engine, saved: Callable[[str], tuple[Ranker, Path]], tmp_path: Path, name: str) -> None:
    ranker, folder = saved(name)
    again = load(folder, engine)
    assert again == ranker
    assert again._cache_key() == ranker._cache_key()
    assert again.fit_report_ == ranker.fit_report_
    assert again.learned_from() == ranker.learned_from()
    assert_same(again.rank("dev"), ranker.rank("dev"))
    assert_same(again.out_of_fold("train"), ranker.out_of_fold("train"))
    doc = ranker.rank("dev")["dev1"][0][0]
    assert (
        again.explain(queries_of(again, "dev1"), doc).to_dict()
        == ranker.explain(queries_of(ranker, "dev1"), doc).to_dict()
    )
    again.save(tmp_path / "again")
    assert tree(tmp_path / "again") == tree(folder)
    if ranker.needs_training:  # a loaded ranker is fitted, so other rankers do not fit it again
        whole: Any = RRF(again, BM25(k1=9)).fit(engine)
        assert whole.rankers_[0] is again


def test_the_manifest_lists_all_files_and_none_is_a_pickle(saved: Callable[[str], tuple[Ranker, Path]]) -> None:
    for name in RANKERS:
        ranker, folder = saved(name)
        files = tree(folder)
        manifest = json.loads(files.pop(MANIFEST))
        assert manifest["ranker"] == ranker.to_dict()
        assert bool(files) == ranker.needs_training
        for path, content in files.items():
            assert Path(path).suffix in {".json", ".parquet", ".safetensors"}
            assert not (content[:1] == b"\x80" and content[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"))
        assert manifest["files"] == {path: digest(folder / path) for path in files}
    _, folder = saved(f"learned(bm25-doc,rrf(knn,knn-queries),{LEARNED})")
    fitted = json.loads((folder / MANIFEST).read_text())["fitted"]
    names = [entry["ranker"]["ranker"] for entry in fitted]
    assert names.count("svr") == names.count("knn-queries") == 1, "shared rankers are saved once"


def test_every_damaged_file_is_one_error(
    engine: Engine, saved: Callable[[str], tuple[Ranker, Path]], tmp_path: Path
) -> None:
    _, whole = saved(LEARNED)
    folder = tmp_path / "ranker"
    shutil.copytree(whole, folder)
    for name, content in tree(whole).items():
        path, middle = folder / name, len(content) // 2
        flips = [content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :] for at in (0, middle, len(content) - 2)]
        for damaged in [None, b"", content[:middle], content[:-1], content + b"\n", *flips]:
            if damaged is None:
                path.unlink()
            else:
                path.write_bytes(damaged)
            if name == MANIFEST and values_of(damaged) == values_of(content):
                continue  # such as another white space
            with pytest.raises(FileFormatError, match=path.name):
                load(folder, engine)
        path.write_bytes(content)
    for extra in ("notes.txt", "fitted/more.json", "fitted/9/tensors.safetensors"):
        (folder / extra).parent.mkdir(exist_ok=True, parents=True)
        (folder / extra).write_text("mine")
        with pytest.raises(FileFormatError, match=Path(extra).name):
            load(folder, engine)
        (folder / extra).unlink()
    assert load(folder, engine) == parse(LEARNED)


def values_of(content: bytes | None) -> Any:
    try:
        return json.loads(content or b"")
    except ValueError:
        return None


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"fitted": []}, "fitted ranker 0"),
        ({"fitted": [3]}, "'fitted'"),
        ({"files": 3}, "'files'"),
        ({"fitted": [{"ranker": {"ranker": "bm25", "k1": -1}}]}, "'k1'"),
        ({"fitted": [{"within": [7]}]}, "fitted ranker 0"),
        ({"fitted": [{"ranker": {"ranker": "learned", "rankers": ["bm25"]}}]}, "fitted ranker 0"),
    ],
)
def test_errors_of_valid_checksums(
    engine: Engine, saved: Callable[[str], tuple[Ranker, Path]], tmp_path: Path, change: dict[str, Any], named: str
) -> None:
    shutil.copytree(saved("bm25")[1], tmp_path / "ranker")
    path = tmp_path / "ranker" / MANIFEST
    entry = {"ranker": {"ranker": "bm25"}, "within": [], "digest": None, "facts": {}}
    if "fitted" in change:
        change = {"fitted": [entry | each if isinstance(each, dict) else each for each in change["fitted"]]}
    path.write_text(json.dumps(with_checksum(json.loads(path.read_text()) | change)))
    with pytest.raises(FileFormatError, match=named):
        load(tmp_path / "ranker", engine)


def test_a_ranker_belongs_to_its_engine(
    topics: Collection, saved: Callable[[str], tuple[Ranker, Path]], tmp_path: Path
) -> None:
    """It can be loaded on an engine that was built from the same documents, but on no other."""
    for name in ("bm25", LEARNED):
        ranker, folder = saved(name)
        for other in (
            Engine(topics, encoder="lsa(n_components=12)"),
            Engine(topics, language="german"),
            Engine(topics.take(np.arange(40))),
            Engine(topics, encoder=CountingEncoder()),
        ):
            with pytest.raises(InputError, match=other.id[:12]):
                load(folder, other)
        built = Engine.build(topics, tmp_path / f"engine {len(name)}")
        assert_same(load(folder, built).rank("dev"), ranker.rank("dev"))


@pytest.mark.parametrize("name", RANKERS)
@pytest.mark.filterwarnings("ignore::haybale.rankers.EmptyRankingWarning")
def test_loaded_on_an_engine_that_has_changed(topics: Collection, tmp_path: Path, name: str) -> None:
    """The loaded ranker is equal to the one that was fitted."""
    engine = Engine.build(topics, tmp_path / "engine")
    ranker = parse(name).fit(engine)
    ranker.save(tmp_path / "ranker")
    engine.add(NEW)
    engine.remove(["d01", "d02", "d30"])
    for each in (engine, Engine.open(tmp_path / "engine")):
        again = load(tmp_path / "ranker", each)
        assert_same(again.rank("dev"), ranker.rank("dev"))
        assert_same(again.out_of_fold("train"), ranker.out_of_fold("train"))
        assert_same(again.rank("dev", within=["d05", "n1", "d07"]), ranker.rank("dev", within=["d05", "n1", "d07"]))
