"""Commands in odd environments, each in a process of its own: closed streams, limits of memory, locales, the hub."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from haybale import Engine, __version__
from haybale.cli import main
from haybale.errors import InputError, StoreError
from haybale.extras import hub_options


def shell(arguments: str, before: str = "", after: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a shell, with commands before it and redirections after it."""
    command = f"{before} {shlex.join([sys.executable, '-m', 'haybale'])} {arguments} {after}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, env=os.environ | environment)
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_the_package_runs_as_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "haybale", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"haybale {__version__}\n", "")


def test_closed_streams(built: Path) -> None:
    done = shell(f"rank {built} -", after="<&-")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "stdin" in done.stderr
    done = shell(f"rank {built} rare3x", after="2>&-")
    assert done.returncode == 0
    assert "d03" in done.stdout
    done = shell("rank nowhere rare3x", after="2>&-")
    assert (done.returncode, done.stdout) == (2, "")  # the error is not taken for a result
    assert shell(f"rank {built} rare3x", after=">&-").returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="limits of address space are Linux's")
def test_too_little_address_space_is_one_clear_error(built: Path, tmp_path: Path) -> None:
    for command in (f"train {built} --ranker learned --out {tmp_path / 'm'}", "doctor"):
        done = shell(command, before="ulimit -v 1000000;")
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
        assert "ulimit -v" in done.stderr
    assert shell("--help", before="ulimit -v 1000000;").returncode == 0


def test_arguments_are_utf8_in_any_locale(built: Path) -> None:
    locale = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = shell(f"rank {built} 'Gebühr rare3x'", **locale)
    assert done.returncode == 0, done.stderr
    assert "Gebühr" in done.stdout
    done = shell(f"rank {built} $'Geb\\xfchr'", **locale)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "UTF-8" in done.stderr


def test_warnings_as_errors(built: Path) -> None:
    done = shell(f"rank {built} nosuchword", PYTHONWARNINGS="error::UserWarning")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "no document" in done.stderr


def test_too_little_memory_for_a_compiled_module(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def fail(**_: object) -> None:
        raise ImportError("module.so: failed to map segment from shared object")

    import haybale.cli.application

    list(haybale.cli.application.COMMANDS)  # register themselves with the real application
    monkeypatch.setattr("haybale.cli.application.app", fail)
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert "ulimit -v" in capsys.readouterr().err


def test_stray_links_in_an_engine_stay_out_of_the_way(built: Path, tmp_path: Path) -> None:
    engine, other = Path(shutil.copytree(built, tmp_path / "engine")), tmp_path / "other"
    other.mkdir()
    (other / "kept").write_text("x")
    for place, target in ((".x.123", other), ("0/.x.123", other), ("stray", "nowhere"), ("0/.y.123", "nowhere")):
        (engine / place).symlink_to(target)
    opened = Engine.open(engine)
    opened.remove(["d01"])
    opened.add({"new": "rare99x"})
    assert opened.collection.n_documents == 30
    assert (other / "kept").read_text() == "x"


@pytest.mark.parametrize("target", ["folder", "file", "nowhere", None])
def test_nothing_is_written_through_a_link_in_the_place_of_a_new_segment(
    built: Path, tmp_path: Path, target: str | None
) -> None:
    engine, others = Path(shutil.copytree(built, tmp_path / "engine")), tmp_path / "others"
    (others / "folder").mkdir(parents=True)
    (others / "file").write_text("x")
    if target is None:
        (engine / "1").write_text("x")
    else:
        (engine / "1").symlink_to(others / target)
    opened = Engine.open(engine)
    with pytest.raises(StoreError, match=r"/1: .*a (link|file); remove it"):
        opened.add({"new": "rare99x"})
    assert sorted(others.rglob("*")) == [others / "file", others / "folder"]
    (engine / "1").unlink()
    opened.add({"new": "rare99x"})
    assert Engine.open(engine).collection.n_documents == 31


def test_an_unreachable_hub_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub: Any = pytest.importorskip("huggingface_hub")
    constants: Any = pytest.importorskip("huggingface_hub.constants")
    asked: list[str] = []

    class Session:
        def head(self, url: str, timeout: float) -> None:
            asked.append(url)
            raise ConnectionError

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "get_session", Session)
    assert hub_options("some/model") == {"local_files_only": True}
    assert asked == [constants.ENDPOINT]
    assert hub_options(str(tmp_path)) == {}
    with pytest.raises(InputError, match="no-such"):
        hub_options("./no-such")
    assert len(asked) == 1


@pytest.mark.parametrize("encoder", ["./no-such", "no-such/model"])
def test_a_model_that_cannot_be_loaded_leaves_no_engine(
    encoder: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sentence_transformers")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    saved: list[Any] = []
    monkeypatch.setattr("haybale.engine.changes.save_collection", lambda *given: saved.append(given))
    with pytest.raises(InputError, match=r"no-such.*(folder|path)"):
        Engine.build(data, tmp_path / "engine", encoder=encoder)
    assert not saved
    assert not (tmp_path / "engine").exists()


def test_a_picture_of_nearly_equal_vectors_warns_of_nothing() -> None:
    """Three equal queries on equal passages have no variance; NumPy's warnings of that are errors in these tests."""
    from haybale.reports.picture import _project

    for vectors in (np.ones((9, 5), np.float32), np.ones((9, 5), np.float32) + np.eye(9, 5, dtype=np.float32) * 1e-7):
        assert np.isfinite(_project(vectors[:6], vectors[6:])).all()


def test_the_lock_of_a_missing_index_is_called_that(built: Path, tmp_path: Path) -> None:
    """A process that only opened an engine writes an index that was missing; another one that changes it says so."""
    engine = Path(shutil.copytree(built, tmp_path / "engine"))
    shutil.rmtree(engine / "0" / "bm25-passage")
    code = """
import sys, time
from haybale import Engine
from haybale.retrieval import BM25Index
BM25Index.save = lambda *given: (print("writing", flush=True), time.sleep(60))
Engine.open(sys.argv[1]).bm25("passage")
"""
    with subprocess.Popen([sys.executable, "-c", code, str(engine)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"writing\n"
            with pytest.raises(StoreError, match=rf"process {process.pid}.*index bm25-passage.*wait"):
                Engine.open(engine).remove(["d01"])
        finally:
            process.kill()
