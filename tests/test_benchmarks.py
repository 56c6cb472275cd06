"""Benchmarks: scripts that run on small collections, pages that say what their JSON does, reproductions that hold."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import json
import math
import re
import runpy
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cupy_double import HAS_CUDA
from worlds import word_collection

from haybale import InputError, Learned, parse
from haybale.rankers import parse_all, parse_value, set_all

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parent.parent
BENCHMARKS, RESULTS = ROOT / "benchmarks", ROOT / "benchmarks" / "results"
LIBRARIES = ("protocol_tables", "provenance", "synthetic")
SCRIPTS = sorted(path.stem for path in BENCHMARKS.glob("*.py") if path.stem not in LIBRARIES)
ENTRIES = yaml.safe_load((BENCHMARKS / "reproductions.yaml").read_text(encoding="utf-8"))


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """A script of benchmarks/ by its name; they are forgotten afterwards."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    yield importlib.import_module
    for path in BENCHMARKS.glob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collection of words as a folder of Parquet files; its test queries are those of dev."""
    folder = tmp_path_factory.mktemp("words") / "words"
    folder.mkdir()
    collection = word_collection()
    ids, passages, queries = collection.doc_ids.to_pylist(), collection.passages, collection.queries
    columns = {"doc_id": [ids[number] for number in passages.doc_of], "text": passages.texts.to_pylist()}
    pq.write_table(pa.table(columns), folder / "passages.parquet")
    columns = {"query_id": queries.ids.to_pylist(), "text": queries.texts(range(len(queries)))}
    columns["own"] = [ids[number] if number >= 0 else None for number in queries.own.tolist()]
    pq.write_table(pa.table(columns), folder / "queries.parquet")
    frames = [collection.qrels_frame(split).assign(split=split) for split in ("train", "dev")]
    frames.append(frames[1].assign(split="test"))
    pq.write_table(pa.concat_tables(map(pa.Table.from_pandas, frames)), folder / "qrels.parquet")
    return folder


@pytest.fixture
def ran(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What a script writes into its results; its constants may be changed before."""

    def run(name: str, page: str, *arguments: str, **constants: Any) -> str:
        module = script(name)
        for constant, value in constants.items():
            monkeypatch.setattr(module, constant, value)
        monkeypatch.setattr(sys, "argv", [name, *arguments, "--results", str(tmp_path)])
        module.main()
        return (tmp_path / page).read_text(encoding="utf-8")

    return run


def loaded(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


# every script ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCRIPTS)
def test_help(name: str, script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    if name == "bench_longformer":
        pytest.importorskip("sentence_transformers")
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(BENCHMARKS / f"{name}.py"), run_name="__main__")
    assert left.value.code == 0
    assert "usage: " in capsys.readouterr().out


def test_every_page_is_listed() -> None:
    listed = (RESULTS / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in RESULTS.glob("*.md") if path.name not in listed and path.name != "README.md"] == []


def test_a_small_bm25(ran: Any, words: Path) -> None:
    assert "| search, 6 queries, k = 24 |" in ran("bench_bm25", "bm25.md", str(words), "--rounds", "1")


def test_small_parm(ran: Any, words: Path) -> None:
    page = ran("bench_parm", "parm.md", str(words), "--rounds", "1", "--hits", "20")
    rows = [line.split(" | ") for line in page.splitlines() if re.match(r"\| v?[a-z]+ \| \d", line)]
    assert [row[0][2:] for row in rows[:9]] == list(importlib.import_module("bench_parm").NAMES)
    assert all(float(row[7].rstrip(" |")) < 1e-5 for row in rows[:9])  # the dictionaries agree


@pytest.mark.filterwarnings("ignore")
def test_small_svr(ran: Any, words: Path) -> None:
    cases = ((40, False, 20, 1, 1),)
    page = ran("bench_svr", "svr.md", str(words), WIDTH=6, CASES=cases)
    assert re.search(r"\| sklearn \(1 rounds\) .*e-0\d \|", page)


@pytest.mark.filterwarnings("ignore")
def test_small_scaling(ran: Any, script: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    small = {"PASSAGES": (10_000, 20_000), "STORED": (10_000,), "ROWS": (5_000,), "PARAGRAPHS": (50,)}
    ran("bench_scaling", "scaling.md", "--shrink", "50", **small, TRAINING=(500,), SCORED=(2_500,))
    assert loaded(tmp_path / "scaling.json")["curves"].keys() == script("bench_scaling").CONTENT.keys()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("device", ["cpu", "double", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_small_gpu(
    device: str, ran: Any, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device == "cuda" and not HAS_CUDA:
        pytest.skip("no CUDA device")
    if device == "double":
        request.getfixturevalue("cupy_double")
    on = "cpu" if device == "cpu" else "cuda"
    page = ran("bench_gpu", "gpu.md", "--device", on, "--scale", "0.0003", "--rounds", "1")
    assert ("**Not yet run on a GPU.**" in page) == (on == "cpu")
    assert "OTHER DOCUMENTS" not in page
    assert re.search(r"\| (numpy|cupy) \| 50 .* 100.00% \|", page)
    assert all(f"## {part}\n" in page for part in ("knn", "svr", "scoring", "parm", "whole"))


@pytest.mark.filterwarnings("ignore")
def test_small_serving(script: Any, words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serving, asked = script("bench_serving"), set()
    monkeypatch.setattr(serving, "ADDED", 30)

    def ask(step: str, **given: Any) -> Any:  # in this process
        asked.add(step)
        return json.loads(json.dumps(serving.STEPS[step](**json.loads(json.dumps(given, default=str)))))

    record = serving.measured(str(words), tmp_path, 5, ask)
    assert asked == set(serving.STEPS)
    assert record["collection"] == {"name": "words", "documents": 12, "passages": 24}
    assert sum(record["disk after adding"].values()) > sum(record["disk"].values())
    for name in serving.RANKERS:
        warm = record["rankers"][name]["one by one"]["warm"]
        assert warm["queries"] == 4
        assert 0 < warm["median"] <= warm["p99"]
    grown, whole = (record["approximate"][what] for what in ("grown", "at once"))
    assert grown["documents"] == whole["documents"] == 12
    assert grown["rankers"]["bm25-doc"] == whole["rankers"]["bm25-doc"]
    text = serving.page({"words": record | {"provenance": "- made by a test"}})
    assert all(f"| `{name}` |" in text for name in serving.RANKERS)
    assert str(tmp_path) not in json.dumps(record)


def test_small_effectiveness(script: Any, words: Path, recwarn: pytest.WarningsRecorder) -> None:
    effectiveness, pages = script("effectiveness"), script("effectiveness_pages")
    assert parse(effectiveness.BEST).nested() == Learned().nested()  # the best ranker is the default one
    small = {"n_bags": 12, "n_jobs": 1, "n_train": 4, "n_candidates": 5}
    record = effectiveness.measured(str(words), width=6, values=small)
    # dev and test are the same queries here, and no ranker may tell them apart.
    for ranker, values in record["rankers"]["dev"].items():
        assert values["measures"] == record["rankers"]["test"][ranker]["measures"], ranker
    rows = record["unseen share"]
    assert [row[effectiveness.UNSEEN_SHARE] for row in rows] == list(effectiveness.SHARES)
    best = record["rankers"]["dev"][record["best"]]["measures"]["MRR@10"]
    assert rows[effectiveness.SHARES.index(0.3)]["MRR@10"] == pytest.approx(best)
    assert {"training queries", "bm25 rank", "bm25-doc level"} <= record["facts"][record["best"]].keys()
    text = pages.page(json.loads(json.dumps(record)))
    assert "| **best** |" in text
    assert str(words) not in text
    assert all("bags have no relevant row" in str(found.message) for found in recwarn.list)


# pages ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", sorted(RESULTS.glob("effectiveness-*.json")), ids=lambda path: path.stem)
def test_pages_of_effectiveness(source: Path, script: Any) -> None:
    record = loaded(source)
    assert source.with_suffix(".md").read_text(encoding="utf-8") == script("effectiveness_pages").page(record)
    for split, rankers in record["rankers"].items():  # a mean of groups is the mean of all
        groups = [record["strata"][split][group] for group in ("all seen", "some seen", "none seen")]
        parts = [group for group in groups if group["queries"]]
        assert sum(part["queries"] for part in parts) == record["n_queries"][split]
        for ranker in parts[0]["rankers"]:
            total = sum(part["queries"] * part["rankers"][ranker]["MRR@10"] for part in parts)
            whole = rankers[ranker]["measures"]["MRR@10"]
            assert total / record["n_queries"][split] == pytest.approx(whole), ranker


def test_the_readme_has_the_summary(script: Any) -> None:
    pages = script("effectiveness_pages")
    whole = pages.summary(pages.read(RESULTS))
    assert (RESULTS / "effectiveness.md").read_text(encoding="utf-8") == whole
    lines = [line for line in whole.split("Recall@100:")[0].splitlines() if line.startswith("|")]
    assert "\n".join(lines) in (ROOT / "README.md").read_text(encoding="utf-8")


def test_other_pages(script: Any, tmp_path: Path) -> None:
    serving = script("bench_serving").page(loaded(RESULTS / "serving.json"))
    assert serving == (RESULTS / "serving.md").read_text(encoding="utf-8")
    for source in RESULTS.glob("protocols-*.json"):
        page = script("protocol_tables").page(loaded(source))
        assert page == source.with_suffix(".md").read_text(encoding="utf-8")
    for name in ("protocols", "scaling"):
        module = docs_script(name)
        module.make(tmp_path)
        page = (tmp_path / f"{name}.md").read_text(encoding="utf-8")
        assert page == (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        assert "{" not in page


def docs_script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_arithmetic_of_scaling() -> None:
    scaling = docs_script("scaling")
    assert scaling.gpus(10_000_000_000) == math.ceil(10**10 * 1536 / (0.8 * 141e9))
    square = [{"n": n, "seconds": 3.0 * n**2} for n in (10, 20, 40)]
    assert scaling.exponent(square) == pytest.approx(2)
    assert scaling.curve_at(square, 100) == pytest.approx(30_000)
    assert [scaling.duration(s) for s in (5, 600, 86400 * 3, 3e8)] == ["5 s", "10 minutes", "3 days", "10 years"]


# reproductions --------------------------------------------------------------------------------------------

RANKER = "rrf(bm25,learned(svr, knn))"
FOUND = {RANKER: {"MRR@10": 0.25, "nDCG@10": 0.5, "Recall@100": 0.75, "MAP": 0.125}}


def entry(found: Any = None, **changes: Any) -> dict[str, Any]:
    """A made-up entry, whose command writes the results itself."""
    results = json.dumps({"rankers": {name: {"measures": m} for name, m in (found or FOUND).items()}})
    command = f"mkdir {{out}} && echo {shlex.quote(results)} > {{out}}/results.json"
    values = {"name": "made-up", "collection": "pydocs", "command": command, "tolerance": 0.002, "minutes": 0.1}
    return values | {"expected": {RANKER: {"MRR@10": 0.25, "Recall@100": 0.75}}} | changes


def written(folder: Path, *entries: Any) -> Path:
    path = folder / "entries.yaml"
    path.write_text("# why\n\n" + yaml.safe_dump(list(entries), sort_keys=False), encoding="utf-8")
    return path


@pytest.mark.parametrize("one", ENTRIES, ids=lambda e: e["name"])
def test_rankers_are_known_and_those_of_the_command_and_tolerances_are_small(one: dict[str, Any]) -> None:
    arguments = shlex.split(one["command"])
    expected = [parse(ranker) for ranker in one["expected"]]
    asked = parse_all(arguments[arguments.index("--rankers") + 1])
    assert asked == expected
    values = [following for word, following in itertools.pairwise(arguments) if word == "--set"]
    changed = set_all(asked, {name: parse_value(text) for name, _, text in (v.partition("=") for v in values)})
    assert (changed == asked) == (not values)
    assert one["tolerance"] <= (0.01 if any(ranker.needs_training for ranker in expected) else 0.002)
    assert not re.search(r"(?<![\w}])[/~]", one["command"]), "a path of one machine"


@pytest.mark.parametrize("name", [e["name"] for e in ENTRIES if e["collection"] == "pydocs"])
def test_pydocs_gives_its_numbers(script: Any, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    status = script("reproduce").main([name])
    out, err = capfd.readouterr()
    assert status == 0, out + err
    assert re.search(rf"{name} .* MRR@10 .* ok", out)


def test_a_difference_of_the_tolerance_agrees_and_a_larger_one_does_not(script: Any) -> None:
    agrees = script("reproduce").agrees
    for expected, tolerance in itertools.product(range(0, 10_000, 123), (1, 20, 500)):
        for difference in (-tolerance - 1, -tolerance, 0, tolerance, tolerance + 1):
            values = (expected / 10_000, (expected + difference) / 10_000, tolerance / 10_000)
            assert agrees(*values) == (abs(difference) <= tolerance)
    assert not agrees(0.5, float("nan"), 0.05)


def test_entries_that_agree_and_one_that_does_not(script: Any, tmp_path: Path, capfd: Any) -> None:
    folder = tmp_path / "peps's" / "peps"
    folder.mkdir(parents=True)
    seen = f'test -d {{folder}} && test -z "$(ls)" && {entry()["command"]}'
    wrong = entry(name="wrong", expected={RANKER: {"MRR@10": 0.25, "nDCG@10": 0.5021}})
    elsewhere = [entry(name="there", collection="peps", command=seen), entry(name="no", collection="irled")]
    options = ["--file", str(written(tmp_path, entry(), *elsewhere, wrong)), "--collections", str(folder)]
    assert script("reproduce").main(["made-up", *options]) == 0
    assert re.search(r"made-up .*MRR@10 .* 0\.2500 .* 0\.2500 .*\+0\.0000 .*ok", capfd.readouterr().out)
    assert script("reproduce").main(options) == 1
    out = capfd.readouterr().out
    assert re.search(r"there .* ok", out)
    assert "no: not given" in out
    (line,) = [line for line in out.splitlines() if "FAILED" in line]
    assert re.search(rf"wrong .*{re.escape(RANKER)} .*nDCG@10 .* 0\.5021 .* 0\.5000 .*-0\.0021", line)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"expected": {"bm25": {"MAP": 0.5}}}, "made-up, bm25: the results have no number for 'MAP'"),
        ({"found": {RANKER: {"MRR@10": float("nan"), "Recall@100": 1}}}, "no number for 'MRR@10'"),
        ({"found": {RANKER: {"MRR@10": "0.25", "Recall@100": 1}}}, "no number for 'MRR@10'"),
        ({"command": "echo first >&2; echo the reason >&2; exit 3; {out}"}, "the command ended with 3: the reason"),
        ({"command": "true {out}"}, "no results.json"),
        ({"command": "mkdir {out}; echo '[]' > {out}/results.json"}, "no results.json with measures"),
        ({"expected": {}}, "nothing is expected yet; --record"),
    ],
)
def test_what_cannot_be_compared_fails(
    script: Any, tmp_path: Path, capfd: Any, changes: dict[str, Any], message: str
) -> None:
    path = written(tmp_path, entry(**changes), entry(name="last"))
    assert script("reproduce").main(["--file", str(path)]) == 1
    out, err = capfd.readouterr()
    assert [line for line in err.splitlines() if message in line and line.startswith("made-up")]
    assert "made-up: FAILED" in out
    assert re.search(r"last .* ok", out)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tolerence": 1}, "made-up: expected the keys name, "),
        ({"collection": "trec"}, "made-up: unknown collection 'trec'; known: pydocs, "),
        ({"command": "haybale demo"}, "made-up: the command has no {out}"),
        ({"command": None}, "made-up: command is None; expected one line of text"),
        ({"name": 3}, "entry 1: name is 3; expected one line of text"),
        ({"tolerance": 0.2}, "made-up: tolerance is 0.2; expected a number from 0.0001 to 0.05"),
        ({"minutes": "2"}, "made-up: minutes is '2'"),
        ({"expected": {RANKER: {"MAP": 55.15}}}, f"made-up, {RANKER}: MAP is 55.15; expected a number from 0 to 1"),
        ({"expected": {RANKER: {"MAP": float("nan")}}}, "MAP is nan"),
        ({"expected": {RANKER: {"MAP": True}}}, "MAP is True"),
        ({"expected": {RANKER: 0.5}}, f"made-up, {RANKER}: 0.5; expected measure: value"),
        ({"expected": [RANKER]}, "made-up: expected is ["),
    ],
)
def test_a_bad_entry_is_named_and_nothing_is_run(
    script: Any, tmp_path: Path, capfd: Any, changes: dict[str, Any], message: str
) -> None:
    assert script("reproduce").main(["--file", str(written(tmp_path, entry(**changes)))]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("entries.yaml, ")
    assert message in err


@pytest.mark.parametrize(
    ("text", "message"),
    [("name: a\n", "expected a list"), ("- 3\n", "entry 1: expected the keys"), ("- a: [\n", "entries.yaml: no YAML")],
)
def test_a_bad_file(script: Any, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "entries.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=f"^entries.yaml[^\n]*{message.removeprefix('entries.yaml')}"):
        script("reproduce").read(tmp_path / "entries.yaml")


@pytest.mark.parametrize("options", [["other"], ["--collections", "none"], ["--file", "none.yaml"]])
def test_bad_arguments(script: Any, tmp_path: Path, capfd: Any, options: list[str]) -> None:
    assert script("reproduce").main(["--file", str(written(tmp_path, entry(), entry(name="two"))), *options]) == 2
    assert len(capfd.readouterr().err.splitlines()) == 1


def test_recording_changes_the_values_and_keeps_the_rest(script: Any, tmp_path: Path) -> None:
    found = {"bm25": FOUND[RANKER] | {"MRR@10": 0.123456}} | FOUND
    odd = f"  : {{out}} '\"\\ # {'long ' * 60}"
    path = written(
        tmp_path,
        entry(name="old", expected={RANKER: {"MRR@10": 0.9, "MAP": 0.9}}),
        entry(found, name="new", expected={}),
        entry(name="fails", command="exit 1 {out}"),
        entry(name="elsewhere: {odd}", collection="irled", command=odd, expected={odd: {"MAP": 1e-12}}),
    )
    read, main = script("reproduce").read, script("reproduce").main
    before = read(path)
    assert main(["--file", str(path), "--record"]) == 1
    old, new, *others = read(path)
    assert path.read_text(encoding="utf-8").startswith("# why\n\n- name: old")
    assert old["expected"] == {RANKER: {"MRR@10": 0.25, "MAP": 0.125}}
    kept = {"MRR@10": 0.25, "nDCG@10": 0.5, "Recall@100": 0.75}
    assert new["expected"] == {"bm25": kept | {"MRR@10": 0.1235}, RANKER: kept}
    assert others == before[2:]
    assert [e["command"] for e in read(path)] == [e["command"] for e in before]
    assert main(["--file", str(path), "old", "new"]) == 0
    assert [p.name for p in tmp_path.iterdir()] == ["entries.yaml"]
