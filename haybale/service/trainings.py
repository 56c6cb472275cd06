"""The trainings of a workspace: each in a process and a folder of its own, kept over restarts of the service."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from haybale.engine import Engine
from haybale.errors import InputError, UnknownNameError
from haybale.folders import replace_json, write_json
from haybale.rankers import Ranker, load
from haybale.service.model_training import RECIPES
from haybale.service.request_errors import NotFoundError

_FILES = ("request", "progress", "result", "error")


@dataclass(frozen=True)
class ModelTraining:
    """A training, as its page shows it.

    Parameters
    ----------
    id : int
    status : {"running", "done", "failed"}
    time : str
        When it began: ISO 8601, in UTC.
    progress : dict
        ``step``, ``stage``, and ``done`` of ``steps``, while it runs.
    result : dict or None
        What :func:`~haybale.service.model_training.train` returns, when it is done.
    detail : str
        Why it failed.
    is_accepted : bool
        Whether its ranker is the default ranker now.
    """

    id: int
    status: str
    time: str
    progress: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] | None = None
    detail: str = ""
    is_accepted: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


class Trainings:
    """The trainings in a folder, and which of their rankers were accepted. Several threads may use it.

    Each training has a folder named by its number. ``accepted.json`` lists the numbers of the accepted ones; the last
    is the default ranker, and :meth:`revert` removes it. A training whose process has ended without a result, because
    it or the machine was stopped, has failed.

    Parameters
    ----------
    folder : Path
        Made with the first training.
    engine : Engine
        In a folder, which the process opens.
    judgements : Path
        The file of the store.
    """

    def __init__(self, folder: Path, engine: Engine, judgements: Path) -> None:
        self.folder, self.engine, self.judgements = folder, engine, judgements
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, before: Ranker, recipe: str | None = None, random_state: int = 0) -> ModelTraining:
        """Begin a training in a process of its own. InputError is raised while another one is running."""
        if recipe is not None and recipe not in RECIPES:
            raise UnknownNameError("recipe of a training", recipe, RECIPES)
        with self._lock:
            for each in self._all():
                if each.status == "running":
                    raise InputError(f"expected no running training, found number {each.id}; wait until it is done")
            number = max(self._numbers(), default=0) + 1
            place = self.folder / str(number)
            place.mkdir(parents=True)
            before.save(place / "before")
            paths = {
                "engine": str(Path(self.engine.folder or "").absolute()),
                "judgements": str(self.judgements.absolute()),
            }
            how = {
                "recipe": recipe,
                "random_state": random_state,
                "time": datetime.now(UTC).isoformat(timespec="seconds"),
            }
            write_json(place / "request.json", paths | how)
            self._process = _started(place)
            return self._training(number)

    def stop(self) -> None:
        """End the running training, if any; it has failed then."""
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                self._process.terminate()
                self._process.wait()

    def all(self) -> list[ModelTraining]:
        """Return all trainings, the last one first."""
        with self._lock:
            return list(self._all())

    def get(self, number: int) -> ModelTraining:
        """Return a training; an unknown number raises NotFoundError."""
        with self._lock:
            return self._training(number)

    def accepted(self) -> list[int]:
        """Return the numbers of the accepted trainings; the last one is the default ranker."""
        with suppress(FileNotFoundError):
            found = json.loads((self.folder / "accepted.json").read_text(encoding="utf-8"))
            return [number for number in found["accepted"] if (self.folder / str(number) / "model").is_dir()]
        return []

    def model(self, number: int) -> Ranker:
        """Load the ranker of a training; InputError is raised if it is not done."""
        found = self.get(number)
        if found.status != "done":
            raise InputError(f"expected a training that is done, found number {number}, which is {found.status}; wait")
        return load(self.model_folder(number), self.engine)

    def model_folder(self, number: int) -> Path:
        """Return the folder of the ranker of a training."""
        return self.folder / str(number) / "model"

    def accept(self, number: int) -> None:
        """Note that the ranker of a training is the default ranker from now on."""
        with self._lock:
            self._write_accepted([*(each for each in self.accepted() if each != number), number])

    def revert(self) -> None:
        """Take the last acceptance back; InputError is raised if there is none."""
        with self._lock:
            found = self.accepted()
            if not found:
                raise InputError("revert() needs an accepted training, found none; call accept() first")
            self._write_accepted(found[:-1])

    def _write_accepted(self, numbers: list[int]) -> None:
        replace_json(self.folder / "accepted.json", {"accepted": numbers})

    def _numbers(self) -> list[int]:
        if not self.folder.is_dir():
            return []
        return sorted((int(path.name) for path in self.folder.iterdir() if path.name.isdecimal()), reverse=True)

    def _all(self) -> Iterator[ModelTraining]:
        for number in self._numbers():
            yield self._training(number)

    def _training(self, number: int) -> ModelTraining:
        place = self.folder / str(number)
        if not (place / "request.json").is_file():
            raise NotFoundError(f"expected the number of a training, found {number}; see the list of trainings")
        if self._process is not None:
            self._process.poll()  # takes note of its end
        is_running = _is_running(place)  # before the files are read, so that a result is not overlooked
        found = {name: _read(place / f"{name}.json") for name in _FILES}
        status = "done" if found["result"] else "running" if is_running and not found["error"] else "failed"
        detail = ""
        if status == "failed":
            detail = (found["error"] or {}).get("detail", "the training was interrupted; start it again")
        accepted = self.accepted()
        return ModelTraining(
            number,
            status,
            (found["request"] or {}).get("time", ""),
            found["progress"] or {},
            found["result"],
            detail,
            is_accepted=accepted[-1:] == [number],
        )


def _started(place: Path) -> subprocess.Popen[bytes]:
    """Start the process of a training, which holds a lock on its folder for as long as it lives."""
    lock = os.open(place / "running", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with open(place / "training.log", "wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "haybale.service.model_training", str(place)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[lock],
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
    finally:
        os.close(lock)  # the process has its own copy, and the lock with it


def _is_running(place: Path) -> bool:
    """Return whether the process of a training lives, of this service or of one before."""
    try:
        with open(place / "running", "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return found
