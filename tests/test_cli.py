"""The command line as a user meets it, and the light import behind it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from cupy_double import installed
from test_readers import beir, gerdalir

from haybale.cli.doctor import CHECKS, Check, examine
from haybale.retrieval.exact import auto

ROOT = Path(__file__).parent.parent


def haybale(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    code = "import sys; from haybale.cli import main; sys.argv[0] = 'haybale'; main()"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)


def test_compare_prints_one_table_and_writes_everything(tmp_path: Path) -> None:
    folder = beir(
        tmp_path / "data",
        **{
            "corpus.jsonl": "\n".join(
                json.dumps({"_id": f"d{i}", "text": f"{word} one\n{word} two"})
                for i, word in enumerate(["apples", "pears", "plums", "figs"])
            ),
            "queries.jsonl": "\n".join(
                json.dumps({"_id": f"q{i}", "text": f"some {word}"})
                for i, word in enumerate(["apples", "pears", "plums", "figs"] * 2)
            ),
            "qrels/train.tsv": "".join(f"q{i}\td{i}\t1\n" for i in range(4)),
            "qrels/dev.tsv": "".join(f"q{i + 4}\td{i}\t1\n" for i in range(4)),
        },
    )
    done = haybale(
        "compare", str(folder), "--rankers", "bm25, knn, svr, parm-rrf, vrrf, rrf(bm25,svr)",
        "--out", str(tmp_path / "out"), "--bags", "2", "--width", "6",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for name in ("bm25", "knn", "svr", "parm-rrf", "vrrf", "rrf(bm25,svr)"):
        assert re.search(rf"^│ {re.escape(name)} +│ +1\.0000", done.stdout, re.M), done.stdout
    assert "Bonferroni-corrected for 5 comparisons" in done.stdout
    assert "seconds: " in done.stdout
    assert "train svr" in done.stderr
    assert "\x1b[" not in done.stdout + done.stderr  # no colours, no bars: this is no terminal
    assert (tmp_path / "out" / "runs" / "rrf-bm25-svr.trec").is_file()
    again = haybale("compare", str(folder), "--out", str(tmp_path / "out"))
    assert again.returncode == 2
    assert again.stderr == f"haybale: {tmp_path / 'out'} exists and is not empty; give a new folder or empty it\n"


def test_compare_injected(tmp_path: Path) -> None:
    folder = gerdalir(tmp_path / "data")
    done = haybale(
        "compare", str(folder), "--protocol", "injected", "--bags", "1", "--overlap", "0", "--width", "2",
        "--language", "german", "--out", str(tmp_path / "out"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "These are classification figures, not retrieval results" in done.stdout
    record = json.loads((tmp_path / "out" / "injected.json").read_text())
    assert record["figures"]["n_positive"] == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere",), r"haybale: nowhere: no such folder; expected 'pydocs' or the folder of a collection\n"),
        (("pydocs", "--rankers", "bm26"), r"haybale: unknown ranker 'bm26'; known: bm25, .*\n"),
        (("DATA", "--split", "test"), r"(?s).*haybale: unknown split of data 'test'; known: train, dev\n"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    data = str(gerdalir(tmp_path / "data"))
    done = haybale("compare", *(data if a == "DATA" else a for a in arguments))
    assert done.returncode == 2
    assert re.fullmatch(message, done.stderr), done.stderr
    assert "Traceback" not in done.stderr


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
    rooms = ["collections", "embeddings", "retrieval", "ensemble", "evaluation", "experiments", "reports", "cli"]
    for number, room in enumerate(rooms):
        for path in (ROOT / "haybale" / room).rglob("*.py"):
            used = set(re.findall(r"^\s*(?:from|import) haybale\.(\w+)", path.read_text(), re.M))
            assert not used & set(rooms[number + 1 :]), f"{path.name} imports from a room behind {room}"
            if room == "evaluation":
                assert "ensemble" not in used
    for path in (ROOT / "haybale").glob("[!_]*.py"):  # which every room may import
        used = set(re.findall(r"^\s*(?:from|import) haybale\.(\w+)", path.read_text(), re.M))
        assert not used & set(rooms), f"{path.name} imports from a room"


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
