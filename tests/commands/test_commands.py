"""The commands demo, compare, report, tune and doctor, and the help."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer
from support.cupy_double import installed
from support.pages import QUICK_TSNE
from support.pydocs_part import part_of_pydocs

from haybale import __version__
from haybale.cli.application import COMMANDS, app
from haybale.collections import Collection
from haybale.commands.doctor import CHECKS, Check, examine
from haybale.errors import InputError
from haybale.evaluation import device_stages
from haybale.retrieval import Hits, Run, aggregate
from haybale.retrieval.backends import auto

ROOT = Path(__file__).parents[2]
Call = Callable[..., tuple[int, str, str]]
HEAVY = "numpy scipy pandas pyarrow sklearn numba joblib fsspec zarr faiss torch matplotlib jinja2 haybale.engine"

pytestmark = pytest.mark.filterwarnings("ignore:.* training queries for")


@pytest.mark.parametrize("arguments", [("--help",), (), ("--version",), ("rank", "--help")])
def test_help_imports_nothing_heavy(arguments: tuple[str, ...]) -> None:
    """Nothing heavy is imported before a command runs, so the help takes less than a second."""
    code = f"""
import sys
sys.argv = ["haybale", *{arguments!r}]
from haybale.cli import main
try:
    main()
except SystemExit as left:
    assert not left.code, left.code
assert not [name for name in {HEAVY!r}.split() if name in sys.modules], sys.modules.keys()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"haybale {__version__}\n" if arguments == ("--version",) else "Usage: haybale" in done.stdout


def test_every_command_and_option_is_described_in_sentences() -> None:
    expected = "index add remove judge train rank search compare fine-tune interactions tune report embed demo doctor"
    expected += " review simulate topics serve add-user change-user remove-user users login-link backup restore attach"
    expected += " alert log"
    assert set(COMMANDS) == set(expected.split())
    commands: Any = typer.main.get_command(app)
    for name, command in commands.commands.items():
        assert command.help.endswith("."), name
        options = [each for each in command.params if each.opts[0] != "--help"]
        assert len(options) <= 23, name  # more would not fit one screen of help
        for each in options:
            assert re.fullmatch(r"\S.*\.", each.help), (name, each.opts)
            if each.opts[0].startswith("--") and not (each.required or each.is_flag or each.multiple):
                assert "Default: " in each.help or each.opts[0] in ("--heatmap", "--out"), (name, each.opts)


def test_demo(pydocs: Collection, tmp_path: Path, here: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo uses an engine that exists already, and the command that it recommends can be run."""
    part = part_of_pydocs(pydocs, 40)
    monkeypatch.setattr("haybale.collections.readers.pydocs.read_pydocs", lambda: part)
    monkeypatch.setattr("sklearn.manifold.TSNE", QUICK_TSNE)
    monkeypatch.chdir(tmp_path)
    assert here("index", "pydocs", "--out", "haybale-demo/engine")[0] == 0
    status, shown, said = here("demo")
    assert status == 0, said
    assert "haybale-demo/report.html" in shown
    assert (tmp_path / "haybale-demo" / "report.html").is_file()
    command = re.search(r"haybale search (\S+) \"(.*?)\"", shown)
    assert here("search", command[1], command[2])[0] == 0
    for page in re.findall(r"docs/\S+\.md", shown):
        assert (ROOT / page).is_file()


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
    rankers = ["bm25", "bm25-doc", "svr", "parm-rrf", "parm-vrrf", "rrf"]
    assert names == [*rankers, *rankers]  # the second table has the seen and unseen queries
    assert re.search(r"^│ no text +│ +[01]\.\d{4}", shown, re.M)
    assert len(re.findall(r" \d+\.\d s\b", shown)) == 8  # the longest stages
    assert "fit svr" in said
    assert "\x1b[" not in shown + said  # no colours, because this is not a terminal
    results = json.loads((out / "results.json").read_text())
    assert len(results["seconds"]) > 8
    assert results["collection"]["source"] == str(data)
    assert len(list((out / "runs").glob("*.trec"))) == 6
    settings = {name.partition("(")[0]: each for name, each in results["settings"]["rankers"].items()}
    assert (settings["bm25"]["k1"], settings["bm25-doc"]["k1"]) == (2, 6)
    page = tmp_path / "r.html"
    status, shown, said = here("report", str(out), "--out", str(page), "--queries", "1")
    assert status == 0, said
    assert shown.count("\n") == 1
    assert "bm25" in shown
    assert len(re.findall(r"p [=<] \d", shown)) == 2
    assert results["seen"]["summary"].partition(":")[0] in page.read_text()
    assert str(data) not in page.read_text()  # the page does not show folders of the machine


def test_compare_prints_formats_for_papers_and_programs(data: Path, tmp_path: Path, here: Call) -> None:
    """The table alone is on stdout, and the folder has the values of each query."""
    how = ("compare", str(data), "--rankers", "bm25,bm25-doc")
    status, shown, said = here(*how, "--format", "csv", "--out", str(tmp_path / "out"))
    assert status == 0, said
    frame = pd.read_csv(io.StringIO(shown)).set_index("ranker")
    values = pd.read_csv(tmp_path / "out" / "per_query.csv").groupby("ranker")["MAP"].mean()
    assert list(frame.index) == ["bm25", "bm25-doc"]
    assert frame["MAP"].to_dict() == pytest.approx(values.to_dict())
    assert "per_query.csv" in said
    status, shown, said = here(*how, "--format", "latex")
    assert status == 0, said
    assert shown.startswith("% ")
    assert f"bm25-doc & {frame.loc['bm25-doc', 'MRR@10']:.4f}" in re.sub(r"\\textbf\{([\d.]+)\}", r"\1", shown)
    assert shown.endswith("\\end{table}\n")
    status, shown, said = here(*how, "--format", "json")
    assert status == 0, said
    assert json.loads(shown)["rankers"]["bm25"]["measures"]["MAP"] == pytest.approx(values["bm25"])
    status, _, said = here(*how, "--format", "xml")
    assert (status, said.count("\n")) == (2, 1)
    assert "'xml'" in said


def test_compare_measures_what_is_asked_for(data: Path, tmp_path: Path, here: Call) -> None:
    """The table, the formats, the files and the report have the chosen measures, also without nDCG@10."""
    out, names = tmp_path / "out", ["MicroF1", "SetF", "P@2"]
    how = ("compare", str(data), "--rankers", "bm25,cut(svr(n_bags=2))", "--measures", "MicroF1, SetF,P@2")
    status, shown, said = here(*how, "--out", str(out))
    assert status == 0, said
    assert all(name in shown for name in names)
    assert "nDCG" not in shown
    assert re.search(r"^│ no text +│ +\d\.\d{4}", shown, re.M)
    record = json.loads((out / "results.json").read_text())
    assert all(list(ranker["measures"]) == list(ranker["intervals"]) == names for ranker in record["rankers"].values())
    assert list(pd.read_csv(out / "per_query.csv").columns) == ["ranker", "query_id", "group", *names]
    page = tmp_path / "r.html"
    status, shown, said = here("report", str(out), "--out", str(page), "--picture", "none")
    assert status == 0, said
    low, high = record["rankers"]["bm25"]["intervals"]["SetF"]
    assert f"{low:.3f} to {high:.3f}" in page.read_text()
    assert f"{record['rankers']['bm25']['measures']['MicroF1']:.4f}" in page.read_text()
    assert "nDCG" not in page.read_text()
    status, shown, said = here(*how, "--format", "csv")
    assert status == 0, said
    frame = pd.read_csv(io.StringIO(shown))
    assert set(frame["group"]) >= {"all", *(name for name, part in record["seen"]["groups"].items() if part["queries"])}
    status, shown, said = here(*how, "--format", "latex")
    assert status == 0, said
    assert shown.count("\\begin{table}") == 2
    for measures, named in (
        ("microf1@5", "mean MicroF1@5"),
        ("P@5,P@5", "'P@5' twice"),
        ("P@5,,MAP", "''"),
        ("P", "P@10"),
    ):
        status, _, said = here("compare", str(data), "--rankers", "bm25", "--measures", measures)
        assert (status, said.count("\n")) == (2, 1)
        assert named in said


def test_compare_on_the_documents_that_fulfil_a_condition(built: Path, tmp_path: Path, here: Call) -> None:
    pytest.importorskip("duckdb")
    how = ("--rankers", "bm25", "--where", "title <> 'Title 5'", "--out", str(tmp_path / "out"))
    status, _, said = here("compare", str(built), *how)
    assert status == 0, said
    assert json.loads((tmp_path / "out" / "settings.json").read_text())["where"] == "title <> 'Title 5'"
    run = Run.from_trec(tmp_path / "out" / "runs" / "bm25.trec")
    assert "d05" not in {doc_id for query in run.query_ids for doc_id, _ in run[query]}


def test_compare_an_engine_with_a_model(built: Path, data: Path, tmp_path: Path, here: Call) -> None:
    """An engine gives the same table as its collection, and a trained ranker the same values as training it anew."""
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
    assert (status, said.count("\n")) == (2, 1)
    assert "'bm25'" in said
    assert "--model" in said


def test_tune(data: Path, tmp_path: Path, here: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tune prints the best values of its grid, and options with which compare reaches them."""
    file = tmp_path / "values.json"
    status, shown, said = here("tune", str(data), "--language", "english", "--out", str(file))
    assert status == 0, said
    record = json.loads(file.read_text())
    assert record["collection"] == "words"
    best = [f"{tuned['value']:.4f}" for tuned in record["tuned"]]
    grids = [re.findall(r"^\d+\.\d +(.*)$", part, re.M) for part in shown.split("BM25 over ")[1:]]
    assert all(value in " ".join(rows) for value, rows in zip(best, grids, strict=True))
    options = re.findall(r"--set \S+", shown)
    assert len(options) == 6
    how = ("--language", "english", "--rankers", "bm25,bm25-doc", *" ".join(options).split())
    assert here("compare", str(data), *how, "--out", str(tmp_path / "out"))[0] == 0
    found = json.loads((tmp_path / "out" / "results.json").read_text())["rankers"]
    assert [f"{found[name]['measures']['nDCG@10']:.4f}" for name in ("bm25", "bm25-doc")] == best
    monkeypatch.setattr("haybale.tune_bm25", lambda *_, **how: (each for each in ()).throw(InputError(str(how))))
    said = here("tune", str(data), "--queries", "3", "--random-state", "7")[2]
    assert said.endswith("haybale: {'n_queries': 3, 'random_state': 7}\n")


@pytest.mark.filterwarnings("ignore")  # of other packages, when they are imported
def test_doctor_lists_what_is_usable(here: Call) -> None:
    status, shown, said = here("doctor")
    assert status == 0, said
    assert all(check.feature in shown for check in CHECKS)
    assert re.search(rf"✓ │ {CHECKS[0].feature} +│ \d", shown)
    *_, last = shown.splitlines()
    assert all(str(name) in last for name in auto())
    missing = Check("nothing", "no_such_module", "no-such", "gpu")
    assert examine(missing) == (False, "", 'pip install "haybale[gpu]"')


def test_doctor_names_devices(cupy_double: Any) -> None:
    check = next(check for check in CHECKS if check.module == "cupy")
    assert examine(check)[::2] == (True, "cuda:0 Double, 8.0 of 16.0 GiB free")
    with installed(devices=0):
        usable, _, remark = examine(check)
    assert not usable
    assert remark.startswith("CUDARuntimeError")


def small_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_stages, "check_stages", partial(device_stages.check_stages, scale=0.02))


def rows_of(shown: str) -> dict[str, list[str]]:
    """Return the cells of each row of the printed table, by the first one."""
    rows = ([cell.strip() for cell in line.strip("│ ").split("│")] for line in shown.splitlines() if "│" in line)
    return {name: cells for name, *cells in rows}


@pytest.mark.filterwarnings("ignore:.* bags have no relevant row")
@pytest.mark.parametrize("device", ["cpu", "auto", "cuda:0"])
def test_doctor_compares_a_device_with_the_cpu(
    device: str, cupy: Any, here: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every stage is right; seconds on such small data may be slow, which is said and is no failure."""
    small_stages(monkeypatch)
    status, shown, said = here("doctor", "--device", device)
    assert status == 0, shown + said
    rows, where = rows_of(shown), "cpu" if device == "cpu" else "cuda:0"
    assert list(rows) == [stage.name for stage in device_stages.STAGES]
    assert {cells[-1] for cells in rows.values()} <= {"right", "slow", "skipped"}
    for name in ("dense search", "a bag of support vectors", "scoring by an ensemble", "PARM aggregation"):
        assert rows[name][0] == where, name
        assert float(rows[name][4]) <= 2e-3
    assert rows["sparse search"][-1] in ("right", "slow")


def test_doctor_says_what_is_wrong(cupy_double: Any, here: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong result and an error of one stage are printed with the next step, and the other stages run."""
    small_stages(monkeypatch)
    stages = {stage.name: stage for stage in device_stages.STAGES}

    def off_by_a_bit(hits: Any, *arguments: Any, **how: Any) -> Any:
        queries, documents, scores = aggregate(hits, *arguments, **how)
        is_cpu = isinstance(scores, np.ndarray)
        return queries, documents, scores if is_cpu else scores + cupy_double.asarray(1e-3, dtype=scores.dtype)

    def fails(device: Any, scale: float) -> Any:
        raise RuntimeError("CUDA_ERROR_OUT_OF_SPACE [twice]")

    monkeypatch.setattr(device_stages, "aggregate", off_by_a_bit)
    changed = {"sparse search": stages["sparse search"]._replace(prepare=fails)}
    changed["scoring by an ensemble"] = stages["scoring by an ensemble"]._replace(
        difference=lambda found, expected: float("nan")
    )
    monkeypatch.setattr(device_stages, "STAGES", [changed.get(name, stage) for name, stage in stages.items()])
    status, shown, _ = here("doctor", "--device", "cuda")
    assert status == 1
    verdicts = {name: cells[-1] for name, cells in rows_of(shown).items()}
    assert verdicts["dense search"] in ("right", "slow")
    assert verdicts["sparse search"] == "failed"
    assert verdicts["scoring by an ensemble"] == verdicts["PARM aggregation"] == "wrong"
    remark = next(line for line in shown.splitlines() if line.startswith("sparse search, failed: "))
    assert "RuntimeError: CUDA_ERROR_OUT_OF_SPACE [twice]" in remark
    assert device_stages.REPORT in remark
    assert re.search(r"^PARM aggregation, wrong: .*1\.0e-03", shown, re.M)


def test_hits_differ_by_scores_and_by_passages() -> None:
    """Ties at the end of a list may be other passages; a better passage that is missing counts by its score."""
    expected = Hits(np.array([[3, 1, 2], [4, -1, -1]]), np.array([[0.9, 0.5, 0.25], [0.5, -np.inf, -np.inf]]))
    assert device_stages.hits_difference(expected, expected) == 0
    tied = Hits(np.array([[3, 1, 7], [4, -1, -1]]), expected.scores)
    assert device_stages.hits_difference(tied, expected) == 0
    wrong = Hits(np.array([[3, 8, 2], [4, -1, -1]]), expected.scores)
    assert device_stages.hits_difference(wrong, expected) == pytest.approx(0.25)
    fewer = Hits(np.array([[3, 1, -1], [4, -1, -1]]), np.array([[0.9, 0.5, -np.inf], [0.5, -np.inf, -np.inf]]))
    assert device_stages.hits_difference(fewer, expected) == np.inf
