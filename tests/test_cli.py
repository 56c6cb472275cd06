"""The command line as a user meets it, and the light imports behind it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import haybale, word_folder
from cupy_double import installed
from layouts import gerdalir

from haybale import __version__
from haybale.cli.doctor import CHECKS, Check, examine
from haybale.retrieval.exact import auto

ROOT = Path(__file__).parent.parent


Call = Callable[..., tuple[int, str, str]]
FAST = ("--set", "n_bags=2", "--set", "n_jobs=1")
HEAVY = "numpy scipy pandas pyarrow sklearn numba joblib fsspec zarr faiss torch haybale.engine haybale.rankers"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return word_folder(tmp_path_factory.mktemp("cli") / "words")


@pytest.mark.parametrize("asked", [("--help",), (), ("--version",), ("rank", "--help"), ("compare", "--help")])
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
    commands = re.findall(r"^│ (\w+)  ", shown, re.M)
    assert set(commands) == {
        *("index", "add", "remove", "train", "rank"),
        *("compare", "tune", "report", "embed", "demo", "doctor"),
    }
    for command in commands:
        status, shown, _ = here(command, "--help")
        assert status == 0
        options = set(re.findall(r"--[a-z][a-z-]*", shown)) - {"--help"}
        assert len(re.findall(r"^│ (?:\* +)?--", shown, re.M)) <= 19, options


@pytest.mark.filterwarnings("ignore:.* training queries for")
def test_compare_prints_one_table_and_writes_everything(data: Path, tmp_path: Path, here: Call) -> None:
    status, shown, said = here(
        "compare", str(data), "--rankers", "bm25, knn, svr, parm-rrf, vrrf, rrf(bm25,svr)", *FAST,
        "--out", str(tmp_path / "out"),
    )  # fmt: skip
    assert status == 0, said
    names = re.findall(r"^│ ([a-z][^ ]*) +│ +[01]\.\d{4}", shown, re.M)
    assert [name.partition("(")[0] for name in names] == ["bm25", "knn", "svr", "parm-rrf", "parm-vrrf", "rrf"]
    assert "Bonferroni-corrected for 5 comparisons" in shown
    assert len(re.search(r"^seconds: (.*)$", shown, re.M)[1].split(" · ")) == 8
    assert "fit svr" in said
    assert "\x1b[" not in shown + said  # no colours, no bars: this is no terminal
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert len(results["seconds"]) > 8
    assert results["collection"]["source"] == str(data)
    assert len(list((tmp_path / "out" / "runs").glob("*.trec"))) == 6
    status, _, said = here("compare", str(data), "--out", str(tmp_path / "out"))
    assert (status, said) == (
        2,
        f"haybale: {tmp_path / 'out'} exists and is not empty; give a new folder or empty it\n",
    )


@pytest.mark.filterwarnings("ignore:.* training queries for")
def test_compare_an_engine_with_a_model(data: Path, tmp_path: Path, here: Call) -> None:
    """The same table as of the collection; a model has the values of what it was trained as."""
    engine, model = str(tmp_path / "e"), str(tmp_path / "m")
    assert here("index", str(data), "--out", engine)[0] == 0
    assert here("train", engine, "--ranker", "learned(bm25,knn-queries)", "--out", model)[0] == 0
    rankers = ("--rankers", "bm25,learned(bm25,knn-queries)")
    status, shown, said = here("compare", engine, *rankers, "--model", f"mine={model}", "--out", str(tmp_path / "1"))
    assert status == 0, said
    assert re.search(r"^│ mine +│", shown, re.M)
    status, _, said = here("compare", str(data), *rankers, "--out", str(tmp_path / "2"))
    assert status == 0, said
    first, second = (json.loads((tmp_path / each / "results.json").read_text())["rankers"] for each in "12")
    trained = "learned(bm25,knn-queries)"
    assert first["bm25"] == second["bm25"]
    assert first["mine"]["measures"] == first[trained]["measures"] == second[trained]["measures"]
    for arguments, message in [
        (("--model", model), f"--model takes NAME=FOLDER, found {model!r}"),
        (("--model", "a=nowhere"), "nowhere: no trained ranker; haybale train makes one"),
        (("--model", f"bm25={model}", "--rankers", "bm25"), "two rankers are called 'bm25'"),
        (("--encoder", "lsa"), "is an engine, which was built with its settings: leave out --encoder"),
        (("--layout", "beir"), "leave out --layout"),
    ]:
        status, _, said = here("compare", engine, *arguments)
        assert status == 2, arguments
        assert message in said.splitlines()[-1]
    other = str(tmp_path / "other")
    assert here("index", str(data), "--out", other, "--encoder", "lsa", "--width", "3")[0] == 0
    status, _, said = here("compare", other, "--rankers", "bm25", "--model", f"mine={model}")
    assert status == 2
    assert "this ranker was fitted on another engine" in said.splitlines()[-1]


def test_values_go_to_the_rankers_that_have_them(data: Path, tmp_path: Path, here: Call) -> None:
    def compared(*values: str) -> dict[str, Any]:
        out = tmp_path / "-".join(["out", *values])
        options = [part for value in values for part in ("--set", value)]
        status, _, said = here("compare", str(data), "--rankers", "bm25,bm25-doc,knn", *options, "--out", str(out))
        assert status == 0, said
        found: dict[str, Any] = json.loads((out / "settings.json").read_text())["rankers"]
        return found

    both = compared("k1=0.9")
    assert (both["bm25"]["k1"], both["bm25-doc"]["k1"]) == (0.9, 0.9)
    one = compared("k1=2", "bm25-doc.k1=6")
    assert (one["bm25"]["k1"], one["bm25-doc"]["k1"]) == (2, 6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere",), r"haybale: nowhere: no such folder; expected 'pydocs' or the folder of a collection\n"),
        (("pydocs", "--rankers", "bm26"), r"haybale: unknown ranker 'bm26'; known: bm25, .*\n"),
        (("pydocs", "--rankers", "bm25,"), r"haybale: ranker 'bm25,': expected the name of a ranker, .*\n"),
        (("pydocs", "--baseline", "bm26"), r"haybale: unknown ranker 'bm26'; known: bm25, .*\n"),
        (("pydocs", "--set", "bags=3"), r"haybale: unknown parameter of .* 'bags'; known: .*\n"),
        (("pydocs", "--set", "b=1.5"), r"haybale: The 'b' parameter of BM25 must be .*\n"),
        (("pydocs", "--out", "DATA/corpus.jsonl/x"), r"haybale: .*: nothing can be written to .*corpus.jsonl\n"),
        (("pydocs", "--device", "cuda"), r"haybale: tfidf makes sparse vectors, which stay on the CPU, .*\n"),
        (("DATA", "--split", "test"), r"(?s).*haybale: unknown split of words 'test'; known: train, dev\n"),
        (("DATA", "--split", "train"), r"(?s).*haybale: .* would be trained and evaluated on the same split, .*\n"),
        (("DATA", "--bags", "3"), r"haybale: No such option: --bags.*\n"),
    ],
)
def test_bad_input_is_one_line(data: Path, here: Call, arguments: tuple[str, ...], message: str) -> None:
    status, _, said = here("compare", *(each.replace("DATA", str(data)) for each in arguments))
    assert status == 2
    assert re.fullmatch(message, said), said


def test_a_missing_extra_is_one_line_with_the_pip_line(tmp_path: Path) -> None:
    data = str(gerdalir(tmp_path / "data"))
    code = (
        "import sys; sys.modules['sentence_transformers'] = None; from haybale.cli import main;"
        f"sys.argv = ['haybale', 'compare', {data!r}, '--encoder', 'some/model', '--rankers', 'knn']; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        'haybale: sentence_transformers is not installed; pip install "haybale[neural]"'
    )


def test_doctor_lists_what_is_usable() -> None:
    done = haybale("doctor")
    assert done.returncode == 0
    for check in CHECKS:
        assert check.what in done.stdout
    assert re.search(r"✓ │ BM25 +│ \d", done.stdout)
    missing = Check("nothing", "no_such_module", "no-such", "gpu")
    assert examine(missing) == (False, "", 'pip install "haybale[gpu]"')
    broken = Check("deaf", "json", "json", "gpu", probe=lambda module: (_ for _ in ()).throw(RuntimeError("no device")))
    assert examine(broken) == (False, "?", "no device")


def test_the_import_is_light() -> None:
    """No torch, no CUDA, and neither index nor measures before they are used."""
    code = "import sys, haybale; print([m for m in {heavy} if m in sys.modules])".format(
        heavy=[
            "torch",
            "transformers",
            "sentence_transformers",
            "cupy",
            "cuml",
            "cudf",
            "faiss",
            "ir_measures",
            "matplotlib",
            "dask",
        ]
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_rooms_do_not_reach_back() -> None:
    rooms = ["collections", "embeddings", "retrieval", "ensemble", "engine", "rankers", "evaluation", "reports", "cli"]
    for number, room in enumerate(rooms):
        for path in (ROOT / "haybale" / room).rglob("*.py"):
            used = set(re.findall(r"^\s*(?:from|import) haybale\.(\w+)", path.read_text(), re.M))
            assert not used & set(rooms[number + 1 :]), f"{path.name} imports from a room behind {room}"
    for path in (ROOT / "haybale").glob("[!_]*.py"):  # which every room may import
        used = set(re.findall(r"^\s*(?:from|import) haybale\.(\w+)", path.read_text(), re.M))
        assert path.stem == "pyterrier" or not used & set(rooms), f"{path.name} imports from a room"


def test_doctor_says_what_auto_means() -> None:
    done = haybale("doctor")
    for row in ("index backend cuvs", "index backend faiss-gpu", "arrays in GPU memory", "our CUDA kernels"):
        assert row in done.stdout
    device, single, half = auto()
    assert (
        f'"auto" here: device {device}; index backend {single} for float32 passages, {half} for float16' in done.stdout
    )


def test_doctor_names_devices(cupy_double: Any) -> None:
    check = next(check for check in CHECKS if check.module == "cupy")
    assert examine(check)[::2] == (True, "cuda:0 Double, 8.0 of 16.0 GiB free")
    with installed(devices=0):
        usable, _, remark = examine(check)
    assert not usable
    assert remark == "no CUDA device answers (CUDARuntimeError)"
    faiss = next(check for check in CHECKS if check.what == "index backend faiss-gpu")
    usable, _, remark = examine(faiss)
    assert usable == (remark == "")
    kernels = next(check for check in CHECKS if check.module == "numba.cuda")
    for answers in (True, False):
        module = types.SimpleNamespace(is_available=lambda answers=answers: answers)
        if answers:
            assert kernels.probe(module) == ""
        else:
            with pytest.raises(RuntimeError, match="no CUDA device"):
                kernels.probe(module)
