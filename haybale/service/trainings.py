"""The trainings of a workspace: each in a process and a folder of its own, kept over restarts of the service."""

from __future__ import annotations

import fcntl
import json
import math
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

from haybale.engine import Engine
from haybale.errors import HaybaleError, InputError, StoreError, UnknownNameError
from haybale.folders import locked, replace_json, whole_folder, write_json
from haybale.rankers import Ranker, load
from haybale.service.request_errors import NotFoundError
from haybale.service.training_readiness import RECIPES

_JSON_FILES = ("request", "progress", "result", "error")
_FOLDER_NAME = re.compile(r"[1-9][0-9]{0,8}")  # the name of the folder of a training
_NICENESS = 10  # of the process of a training, above that of the service
_MAX_NUMBER = 10**9 - 1
_INTERRUPTED_DETAIL = "the training was interrupted; start it again"


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
    it or the machine was stopped, has failed, and so has a folder without the files of a training. Entries with other
    names are ignored.

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
        """Begin a training in a process of its own.

        Raises
        ------
        InputError
            While another training is running.
        StoreError
            If the disk is full, or the folder cannot be written to; nothing is left behind then.
        """
        if recipe is not None and recipe not in RECIPES:
            raise UnknownNameError("recipe of a training", recipe, RECIPES)
        with self._lock, self._reporting():
            self.folder.mkdir(parents=True, exist_ok=True)
            with locked(self.folder):
                running = next((training for training in self._all() if training.status == "running"), None)
                if running is not None:
                    raise InputError(f"expected no running training, found number {running.id}; wait until it is done")
                if self._process is not None:
                    self._process.wait()  # it has written its result, and is ending
                self._sweep()
                number = self._free_number()
                with whole_folder(self.folder / str(number)) as aside:
                    self._write_request(aside, before, recipe, random_state)
                try:
                    self._process = _started(self.folder / str(number))
                except BaseException:
                    shutil.rmtree(self.folder / str(number), ignore_errors=True)
                    raise
            return self._training(number)

    def _write_request(self, folder: Path, before: Ranker, recipe: str | None, random_state: int) -> None:
        """Write to a folder what the process of a training reads."""
        before.save(folder / "before")
        request = {
            "engine": str(Path(self.engine.folder or "").absolute()),
            "judgements": str(self.judgements.absolute()),
            "recipe": recipe,
            "random_state": random_state,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        write_json(folder / "request.json", request)

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Raise errors of the disk as StoreError; nothing is left of a training that could not begin."""
        try:
            yield
        except OSError as error:
            if isinstance(error, HaybaleError):
                raise
            why = error.strerror or str(error)
            raise StoreError(
                f"{self.folder}: the training cannot be kept: {why}; make room, or give --models a folder to write to"
            ) from None

    def _sweep(self) -> None:
        """Remove the unfinished folders of starts that were killed."""
        for path in self.folder.glob(".[0-9]*.*"):
            shutil.rmtree(path, ignore_errors=True)

    def _free_number(self) -> int:
        """Return the number of a new training, one more than the last one."""
        last = max(self._numbers(), default=0)
        numbers = chain(range(last + 1, _MAX_NUMBER + 1), range(1, last))
        return next(number for number in numbers if not os.path.lexists(self.folder / str(number)))

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
        listed = (_read(self.folder / "accepted.json") or {}).get("accepted")
        numbers = [number for number in listed if type(number) is int] if isinstance(listed, list) else []
        return [number for number in dict.fromkeys(numbers) if (self.model_folder(number)).is_dir()]

    def model(self, number: int) -> Ranker:
        """Load the ranker of a training; InputError is raised if it is not done."""
        status = self.get(number).status
        if status != "done":
            raise InputError(f"expected a training that is done, found number {number}, which is {status}; wait")
        return load(self.model_folder(number), self.engine)

    def model_folder(self, number: int) -> Path:
        """Return the folder of the ranker of a training."""
        return self.folder / str(number) / "model"

    def accept(self, number: int) -> None:
        """Note that the ranker of a training is the default ranker from now on."""
        with self._changing() as accepted:
            self._write_accepted([*(other for other in accepted if other != number), number])

    def revert(self) -> None:
        """Take the last acceptance back; InputError is raised if there is none."""
        with self._changing() as accepted:
            if not accepted:
                raise InputError("revert() needs an accepted training, found none; call accept() first")
            self._write_accepted(accepted[:-1])

    @contextmanager
    def _changing(self) -> Iterator[list[int]]:
        """Yield the accepted numbers, which no other service changes meanwhile."""
        with self._lock, self._reporting(), locked(self.folder):
            yield self.accepted()

    def _write_accepted(self, numbers: list[int]) -> None:
        replace_json(self.folder / "accepted.json", {"accepted": numbers})

    def _numbers(self) -> list[int]:
        """Return the numbers of the trainings, the last one first; other files and folders are ignored."""
        try:
            names = [entry.name for entry in os.scandir(self.folder) if entry.is_dir()]
        except OSError:  # there is no folder yet
            return []
        return sorted((int(name) for name in names if _FOLDER_NAME.fullmatch(name)), reverse=True)

    def _all(self) -> Iterator[ModelTraining]:
        for number in self._numbers():
            yield self._training(number)

    def _training(self, number: int) -> ModelTraining:
        number = min(max(number, 0), _MAX_NUMBER + 1)  # numbers out of range have no folder
        folder = self.folder / str(number)
        if not 0 < number <= _MAX_NUMBER or not folder.is_dir():
            raise NotFoundError(f"expected the number of a training, found {number}; see the list of trainings")
        if self._process is not None:
            self._process.poll()  # reaps the process if it has ended
        is_running = _is_running(folder)  # before the files are read, so that a result is not overlooked
        contents = {name: _read(folder / f"{name}.json") or {} for name in _JSON_FILES}
        result, error = contents["result"], contents["error"]
        is_done = bool(result) and self.model_folder(number).is_dir()
        status = "done" if is_done else "running" if is_running and not error else "failed"
        detail = str(error.get("detail") or _INTERRUPTED_DETAIL) if status == "failed" else ""
        return ModelTraining(
            number,
            status,
            str(contents["request"].get("time", "")),
            _checked_progress(contents["progress"]),
            result if is_done else None,
            detail,
            is_accepted=self.accepted()[-1:] == [number],
        )


def _started(folder: Path) -> subprocess.Popen[bytes]:
    """Start the process of a training, which holds a lock on its folder for as long as it lives."""
    lock = os.open(folder / "running", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with open(folder / "training.log", "wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "haybale.service.model_training", str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[lock],
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
        with suppress(OSError):  # searches and reviews come first where cores are few
            os.setpriority(os.PRIO_PROCESS, process.pid, os.getpriority(os.PRIO_PROCESS, 0) + _NICENESS)
        return process
    finally:
        os.close(lock)  # the process has its own copy, and the lock with it


def _is_running(folder: Path) -> bool:
    """Return whether the process of a training runs, whichever service has started it."""
    try:
        with open(folder / "running", "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a training that could not begin has no such file
        return False
    return False


def _read(path: Path) -> dict[str, Any] | None:
    """Return the object in a JSON file, with None for numbers that are not finite; None if it is damaged or not there.

    JSON that the service sends cannot have such numbers.
    """
    try:
        value = json.loads(path.read_bytes(), parse_float=_finite, parse_constant=lambda name: None)
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _finite(digits: str) -> float | None:
    return value if math.isfinite(value := float(digits)) else None


def _checked_progress(progress: dict[str, Any]) -> dict[str, Any]:
    """Return the progress of a training without damaged values."""
    kinds = {"step": str, "stage": str, "done": int, "steps": int}
    return {name: progress[name] for name, kind in kinds.items() if type(progress.get(name)) is kind}


def is_result(result: dict[str, Any]) -> bool:
    """Return whether a value is what :func:`~haybale.service.model_training.train` returns, so that pages can show it.

    >>> is_result({"recipe": "svr"})
    False
    """
    texts = all(isinstance(result.get(name), str) for name in ("recipe", "ranker", "before"))
    counts = all(type(result.get(name)) is int for name in ("n_topics", "n_judgements"))
    questions, reasons = result.get("questions"), (result.get(name, {}) for name in ("unanswered", "instead_of"))
    has_reasons = all(
        isinstance(value, dict) and all(isinstance(why, str) for why in value.values()) for value in reasons
    )
    answers = isinstance(questions, dict) and all(map(_is_answer, questions.values()))
    return texts and counts and has_reasons and answers


def _is_answer(answer: Any) -> bool:
    """Return whether a value is the answer to a question: the number of topics, and the measures of both rankers."""
    if not isinstance(answer, dict) or type(answer.get("n_topics")) is not int:
        return False
    measures = answer.get("measures")
    return isinstance(measures, dict) and all(
        isinstance(measure, dict)
        and all(_is_number(measure.get(name)) for name in ("before", "after", "difference"))
        and (measure.get("p") is None or _is_number(measure["p"]))
        for measure in measures.values()
    )


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e9
