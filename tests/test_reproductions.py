"""benchmarks/reproductions.yaml: well-formed, checked by a script that can fail; pydocs gives its numbers here."""

from __future__ import annotations

import doctest
import importlib
import itertools
import json
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from haybale.errors import InputError
from haybale.rankers import parse, parse_all, set_all
from haybale.rankers.grammar import parse_value

yaml = pytest.importorskip("yaml")
FOLDER = Path(__file__).parent.parent / "benchmarks"
ENTRIES = yaml.safe_load((FOLDER / "reproductions.yaml").read_text(encoding="utf-8"))
RANKER = "rrf(bm25,learned(svr, knn))"
FOUND = {RANKER: {"MRR@10": 0.25, "nDCG@10": 0.5, "Recall@100": 0.75, "MAP": 0.125}}


@pytest.fixture(scope="module")
def script() -> Iterator[Any]:
    """benchmarks/reproduce.py, as a module."""
    sys.path.insert(0, str(FOLDER))
    yield importlib.import_module("reproduce")
    sys.path.remove(str(FOLDER))
    for name in ("reproduce", "reproductions"):
        del sys.modules[name]


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


def ran(script: Any, path: Path, *options: str) -> int:
    status: int = script.main(["--file", str(path), *options])
    return status


def test_the_file_is_well_formed(script: Any) -> None:
    path = FOLDER / "reproductions.yaml"
    entries = script.read(path)
    assert {e.collection for e in entries} == {"pydocs", "gesetze", "irled", "peps"}
    assert path.read_text(encoding="utf-8").startswith("#")
    assert {e.collection for e in entries if e.expected} >= {"pydocs", "peps"}


@pytest.mark.parametrize("one", ENTRIES, ids=lambda e: e["name"])
def test_rankers_are_known_and_those_of_the_command_and_tolerances_are_small(one: dict[str, Any]) -> None:
    words = shlex.split(one["command"])
    expected = [parse(ranker) for ranker in one["expected"]]
    if words[:2] == ["haybale", "compare"] and expected:
        asked = parse_all(words[words.index("--rankers") + 1])
        assert asked == expected
        values = [following for word, following in itertools.pairwise(words) if word == "--set"]
        changed = set_all(asked, {name: parse_value(text) for name, _, text in (v.partition("=") for v in values)})
        assert (changed == asked) == (not values)
    assert one["tolerance"] <= (0.01 if any(ranker.needs_training for ranker in expected) else 0.002)
    assert not re.search(r"(?<![\w}])[/~]", one["command"]), "a path of one machine"


@pytest.mark.parametrize("name", [e["name"] for e in ENTRIES if e["collection"] == "pydocs"])
def test_pydocs_gives_its_numbers(script: Any, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    status = script.main([name])
    out, err = capfd.readouterr()
    assert status == 0, out + err
    assert re.search(rf"{name} .* MRR@10 .* ok", out)


def test_the_examples_in_the_scripts(script: Any) -> None:
    for name in ("reproduce", "reproductions"):
        assert doctest.testmod(importlib.import_module(name)) == (0, 1 if name == "reproduce" else 3)


@given(st.integers(0, 10_000), st.integers(-600, 600), st.integers(1, 500))
def test_a_difference_of_the_tolerance_agrees_and_a_larger_one_does_not(
    script: Any, expected: int, difference: int, tolerance: int
) -> None:
    values = (expected / 10_000, (expected + difference) / 10_000, tolerance / 10_000)
    assert script.agrees(*values) == (abs(difference) <= tolerance)


def test_an_entry_that_agrees(script: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "peps's" / "peps"
    folder.mkdir(parents=True)
    seen = f'test -d {{folder}} && test -z "$(ls)" && {entry()["command"]}'
    path = written(
        tmp_path, entry(), entry(name="there", collection="peps", command=seen), entry(name="no", collection="irled")
    )
    assert ran(script, path, "--collections", str(folder)) == 0
    out = capfd.readouterr().out
    assert re.search(r"made-up .*MRR@10 .* 0\.2500 .* 0\.2500 .* \+0\.0000 .* ok", out)
    assert re.search(r"there .* ok", out)
    assert re.search(r"no .* not given", out)
    assert ran(script, path, "--only", "irled", "--collections", str(folder)) == 0
    assert "made-up" not in capfd.readouterr().out
    assert ran(script, path, "there") == 0
    assert re.search(r"there .* not given", capfd.readouterr().out)


def test_a_wrong_expectation_fails(script: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    wrong = entry(name="wrong", expected={RANKER: {"MRR@10": 0.25, "nDCG@10": 0.5021}})
    assert ran(script, written(tmp_path, entry(), wrong, entry(name="last"))) == 1
    out = capfd.readouterr().out
    (line,) = [line for line in out.splitlines() if "FAILED" in line]
    assert re.search(rf"wrong .* {re.escape(RANKER)} .* nDCG@10 .* 0\.5021 .* 0\.5000 .* -0\.0021", line)
    assert re.search(r"last .* ok", out)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"expected": {"bm25": {"MAP": 0.5}}}, "the results have no ranker 'bm25'; they have rrf"),
        ({"expected": {RANKER: {"P@5": 0.5}}}, f"{RANKER}: the results have no number for 'P@5'"),
        ({"found": {RANKER: {"MRR@10": float("nan"), "Recall@100": 1}}}, "no number for 'MRR@10'"),
        ({"found": {RANKER: {"MRR@10": "0.25", "Recall@100": 1}}}, "no number for 'MRR@10'"),
        ({"command": "echo first >&2; echo the reason >&2; exit 3; {out}"}, "the command ended with 3: the reason"),
        ({"command": "true {out}"}, "no results.json"),
        ({"command": "mkdir {out}; echo '[]' > {out}/results.json"}, "no results.json with measures"),
        ({"expected": {}}, "nothing is expected yet; --record"),
    ],
)
def test_what_cannot_be_compared_fails_in_one_line(
    script: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str], changes: dict[str, Any], message: str
) -> None:
    assert ran(script, written(tmp_path, entry(**changes), entry(name="last"))) == 1
    out, err = capfd.readouterr()
    (line,) = [line for line in err.splitlines() if message in line and "about" not in line]
    assert line.startswith("made-up")
    assert re.search(r"made-up .* FAILED", out)
    assert re.search(r"last .* ok", out)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tolerence": 1}, "made-up: unknown key 'tolerence'; known: name, "),
        ({"collection": "trec"}, "made-up: unknown collection 'trec'; known: pydocs, "),
        ({"command": "haybale demo"}, "made-up: the command has no {out}"),
        ({"command": None}, "made-up: command is None; expected one line of text"),
        ({"command": "a {out}\nb"}, "expected one line of text"),
        ({"name": 3}, "entry 1: name is 3; expected one line of text"),
        ({"tolerance": 0.2}, "made-up: tolerance is 0.2; expected a number from 0.0001 to 0.05"),
        ({"tolerance": 0}, "made-up: tolerance is 0;"),
        ({"minutes": "2"}, "made-up: minutes is '2'"),
        ({"expected": {RANKER: {"MAP": "0,5"}}}, f"made-up, {RANKER}: MAP is '0,5'; expected a number from 0 to 1"),
        ({"expected": {RANKER: {"MAP": 55.15}}}, "MAP is 55.15"),
        ({"expected": {RANKER: {"MAP": float("nan")}}}, "MAP is nan"),
        ({"expected": {RANKER: {"MAP": True}}}, "MAP is True"),
        ({"expected": {RANKER: 0.5}}, f"made-up, {RANKER}: 0.5; expected measure: value"),
        ({"expected": [RANKER]}, "made-up: expected is ["),
    ],
)
def test_a_bad_entry_is_named_and_nothing_is_run(
    script: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str], changes: dict[str, Any], message: str
) -> None:
    assert ran(script, written(tmp_path, entry(**changes))) == 2
    out, err = capfd.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("entries.yaml, ")
    assert message in line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: a\n", "entries.yaml: expected a list of entries"),
        ("- 3\n", "entries.yaml, entry 1: expected a mapping"),
        ("- {name: a, collection: peps}\n", "entries.yaml, a: command is missing"),
        ("- a: [\n", "entries.yaml, line 2: no YAML"),
        ("- name: a\n  name: b\n", "entries.yaml, line 2: no YAML: 'name' is there twice"),
        (yaml.safe_dump([entry(), entry()]), "entries.yaml, made-up: the name is there twice"),
    ],
)
def test_a_bad_file(script: Any, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "entries.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=f"^{re.escape(message)}[^\n]*$"):
        script.read(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["other"], "unknown entry 'other'; known: made-up"),
        (["--collections", "{tmp}/none"], "none is no folder"),
        (["--collections", "{tmp}/trec"], "trec: expected one folder each, called gesetze, irled, peps"),
        (["--collections", "{tmp}/peps", "{tmp}/peps"], "peps: expected one folder each"),
        (["--file", "{tmp}/none.yaml"], "none.yaml"),
    ],
)
def test_bad_arguments(
    script: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    (tmp_path / "trec").mkdir()
    (tmp_path / "peps").mkdir()
    assert ran(script, written(tmp_path, entry()), *(o.replace("{tmp}", str(tmp_path)) for o in options)) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert message in line


def test_recording_changes_the_values_and_keeps_the_rest(
    script: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = {"bm25": FOUND[RANKER] | {"MRR@10": 0.123456}} | FOUND
    path = written(
        tmp_path,
        entry(name="old", expected={RANKER: {"MRR@10": 0.9, "MAP": 0.9}}),
        entry(found, name="new", expected={}),
        entry(name="fails", command="exit 1 {out}"),
        entry(name="elsewhere", collection="irled", expected={RANKER: {"MAP": 0.98765}}),
    )
    before = script.read(path)
    assert ran(script, path, "--record") == 1
    old, new, *others = script.read(path)
    assert path.read_text(encoding="utf-8").startswith("# why\n\n- name: old")
    assert old.expected == {RANKER: {"MRR@10": 0.25, "MAP": 0.125}}
    kept = {"MRR@10": 0.25, "nDCG@10": 0.5, "Recall@100": 0.75}
    assert new.expected == {"bm25": kept | {"MRR@10": 0.1235}, RANKER: kept}
    assert others == before[2:]
    assert [e.command for e in script.read(path)] == [e.command for e in before]
    assert ran(script, path, "old", "new") == 0
    assert [p.name for p in tmp_path.iterdir()] == ["entries.yaml"]


@settings(max_examples=40)
@example([("a", 1e-12)])
@given(
    st.lists(st.tuples(st.text("a '\"\\{},()#:-", min_size=1, max_size=150), st.floats(0, 1)), min_size=1, max_size=3)
)
def test_what_is_written_is_read_again(
    script: Any, tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[str, float]]
) -> None:
    """Long or odd commands and names too."""
    module = importlib.import_module("reproductions")
    path = tmp_path_factory.mktemp("written") / "entries.yaml"
    path.write_text("# why\n[]\n", encoding="utf-8")
    entries = [
        module.Reproduction(f"e{n}", "peps", f"x {text} {{out}}", 0.01, n, {text: {"MAP": value, text: value}})
        for n, (text, value) in enumerate(drawn)
    ]
    module.write(path, entries)
    assert module.read(path) == entries
    assert path.read_text(encoding="utf-8").startswith("# why\n- name: e0")
    with pytest.raises(InputError, match="cannot be written as it is; the file was left alone"):
        module.write(path, [replace(entries[0], name="a: b")])
    assert module.read(path) == entries
    assert [p.name for p in path.parent.iterdir()] == ["entries.yaml"]


def test_other_docstrings_are_told(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.setattr(script, "version", lambda package: "0.1")
    assert ran(script, written(tmp_path, entry())) == 0
    assert "numpy 0.1, not " in capfd.readouterr().err
