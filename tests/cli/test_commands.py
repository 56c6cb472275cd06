"""The command line as a user meets it: help, comparisons, tuning, reports, what is usable; and refusals in one line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import haybale
from support.cupy_double import installed

from haybale import __version__
from haybale.cli.doctor import CHECKS, Check, examine
from haybale.errors import InputError
from haybale.retrieval.backends import auto

ROOT = Path(__file__).parents[2]
Call = Callable[..., tuple[int, str, str]]
HEAVY = "numpy scipy pandas pyarrow sklearn numba joblib fsspec zarr faiss torch matplotlib jinja2 haybale.engine"

pytestmark = pytest.mark.filterwarnings("ignore:.* training queries for")


@pytest.mark.parametrize("asked", [("--help",), (), ("--version",), ("rank", "--help")])
def test_help_costs_nothing(asked: tuple[str, ...]) -> None:
    """Less than a second: nothing heavy is imported before a command runs."""
    code = f"""
import sys, time
sys.argv = ["haybale", *{asked!r}]
from haybale.cli import main
try:
    main()
except SystemExit as left:
    assert not left.code, left.code
assert not [name for name in {HEAVY!r}.split() if name in sys.modules], sys.modules.keys()
assert time.process_time() < 1, time.process_time()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"haybale {__version__}\n" if asked == ("--version",) else "Usage: haybale" in done.stdout


def test_every_command_says_what_it_does(here: Call) -> None:
    _, shown, _ = here("--help")
    commands = re.findall(r"^│ (\w[\w-]+)  ", shown, re.M)
    assert set(commands) == {
        *("index", "add", "remove", "train", "rank", "compare"),
        *("fine-tune", "interactions", "tune", "report", "embed", "demo", "doctor"),
    }
    for command in commands:
        status, shown, _ = here(command, "--help")
        assert status == 0
        assert len(re.findall(r"^│ (?:\* +)?--", shown, re.M)) <= 19, command


def test_compare_prints_one_table_and_writes_everything(data: Path, tmp_path: Path, here: Call) -> None:
    out = tmp_path / "out"
    values = ("n_bags=2", "n_jobs=1", "k1=2", "bm25-doc.k1=6")
    options = [part for value in values for part in ("--set", value)]
    status, shown, said = here(
        "compare", str(data), "--rankers", "bm25, bm25-doc, svr, parm-rrf, parm-vrrf, rrf(bm25,svr)", *options,
        "--out", str(out),
    )  # fmt: skip
    assert status == 0, said
    names = [name.partition("(")[0] for name in re.findall(r"^│ ([a-z][^ ]*) +│ +[01]\.\d{4}", shown, re.M)]
    assert names == ["bm25", "bm25-doc", "svr", "parm-rrf", "parm-vrrf", "rrf"]
    assert "Bonferroni-corrected for 5 comparisons" in shown
    assert len(re.search(r"^seconds: (.*)$", shown, re.M)[1].split(" · ")) == 8
    assert "fit svr" in said
    assert "\x1b[" not in shown + said  # no colours, no bars: this is no terminal
    results = json.loads((out / "results.json").read_text())
    assert len(results["seconds"]) > 8
    assert results["collection"]["source"] == str(data)
    assert len(list((out / "runs").glob("*.trec"))) == 6
    rankers = {name.partition("(")[0]: each for name, each in results["settings"]["rankers"].items()}
    assert (rankers["bm25"]["k1"], rankers["bm25-doc"]["k1"]) == (2, 6)
    page = tmp_path / "r.html"
    status, shown, said = here("report", str(out), "--out", str(page), "--queries", "1")
    assert status == 0, said
    assert re.fullmatch(r"(No ranker is above the baseline bm25, |.* is best: ).*\n", shown), shown
    assert re.search(r"\(p [=<] \S+ by the t-test and p [=<] \S+ by the randomisation test", shown)
    assert str(data) not in page.read_text()  # where it lies on this machine


def test_compare_an_engine_with_a_model(built: Path, data: Path, tmp_path: Path, here: Call) -> None:
    """The same table as of the collection; a model has the values of what it was trained as."""
    engine, model, trained = str(built), str(tmp_path / "m"), "learned(bm25,knn-queries)"
    assert here("train", engine, "--ranker", trained, "--out", model)[0] == 0
    rankers = ("--rankers", f"bm25,{trained}")
    status, shown, said = here("compare", engine, *rankers, "--model", f"mine={model}", "--out", str(tmp_path / "1"))
    assert status == 0, said
    assert re.search(r"^│ mine +│", shown, re.M)
    how = ("--language", "english", "--out", str(tmp_path / "2"))
    assert here("compare", str(data), *rankers, *how)[0] == 0
    first, second = (json.loads((tmp_path / each / "results.json").read_text())["rankers"] for each in "12")
    assert first["bm25"] == second["bm25"]
    assert first["mine"]["measures"] == first[trained]["measures"] == second[trained]["measures"]
    status, _, said = here("compare", engine, "--model", f"bm25={model}", "--rankers", "bm25")
    assert (status, said) == (2, "haybale: two rankers are called 'bm25'\n")


def test_tune(data: Path, tmp_path: Path, here: Call) -> None:
    values = tmp_path / "values.json"
    status, shown, said = here("tune", str(data), "--language", "english", "--out", str(values))
    assert status == 0, said
    assert re.search(r"BM25 over passages, words, dev: nDCG@10 of \d+ quer", shown), shown
    best = re.findall(r"^best: .*, (\d\.\d{4}); by default: ", shown, re.M)
    tables = [re.findall(r"^\d+\.\d +(.*)$", part, re.M) for part in shown.split("best: ")[:2]]
    assert all(value in " ".join(rows) for value, rows in zip(best, tables, strict=True))
    options = re.search(r"for the other commands: (--set bm25.k1=.* --set bm25-doc.k3=.*)\n", shown)
    how = ("--language", "english", "--rankers", "bm25,bm25-doc", *options[1].split())
    assert here("compare", str(data), *how, "--out", str(tmp_path / "out"))[0] == 0
    found = json.loads((tmp_path / "out" / "results.json").read_text())["rankers"]
    assert [f"{found[name]['measures']['nDCG@10']:.4f}" for name in ("bm25", "bm25-doc")] == best
    record = json.loads(values.read_text())
    assert record["collection"] == "words"
    assert [f"{tuned['value']:.4f}" for tuned in record["tuned"]] == best


def test_tune_passes_on_what_is_drawn(data: Path, here: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("haybale.tune_bm25", lambda *_, **how: (each for each in ()).throw(InputError(str(how))))
    said = here("tune", str(data), "--queries", "3", "--random-state", "7")[2]
    assert said.endswith("haybale: {'n_queries': 3, 'random_state': 7}\n")


def test_doctor_lists_what_is_usable() -> None:
    done = haybale("doctor")
    assert done.returncode == 0
    assert all(check.what in done.stdout for check in CHECKS)
    assert re.search(r"✓ │ charts of reports +│ \d", done.stdout)
    device, backend = auto()
    assert done.stdout.endswith(f'"auto" here: device {device}; index backend {backend}\n')
    missing = Check("nothing", "no_such_module", "no-such", "gpu")
    assert examine(missing) == (False, "", 'pip install "haybale[gpu]"')


def test_doctor_names_devices(cupy_double: Any) -> None:
    check = next(check for check in CHECKS if check.module == "cupy")
    assert examine(check)[::2] == (True, "cuda:0 Double, 8.0 of 16.0 GiB free")
    with installed(devices=0):
        usable, _, remark = examine(check)
    assert not usable
    assert remark.startswith("CUDARuntimeError")


def test_rooms_do_not_reach_back() -> None:
    rooms = ["collections", "embeddings", "retrieval", "ensemble", "engine", "rankers", "evaluation", "reports", "cli"]
    for number, room in enumerate(rooms):
        for path in (ROOT / "haybale" / room).rglob("*.py"):
            used = set(re.findall(r"^\s*(?:from|import) haybale\.(\w+)", path.read_text(), re.M))
            assert not used & set(rooms[number + 1 :]), f"{path.name} imports from a room behind {room}"
    for path in (ROOT / "haybale").glob("[!_]*.py"):  # which every room may import
        used = set(re.findall(r"^\s*(?:from|import) haybale\.(\w+)", path.read_text(), re.M))
        assert path.stem == "pyterrier" or not used & set(rooms), f"{path.name} imports from a room"
