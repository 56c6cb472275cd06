"""Keep the results of finished tasks in a folder, so that an interrupted computation goes on where it stopped.

Each result is a safetensors file whose name is a digest of everything that the result depends on. So results of other
data, settings or versions are never used, and equal tasks of several computations share one result.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.cluster import SAME_VERSIONS, spread
from haybale.errors import FileFormatError
from haybale.folders import replaced
from haybale.manifest import mapped_tensors, write_tensors
from haybale.versions import versions_of

Arrays = Mapping[str, NDArray[Any]]

_LOGGER = logging.getLogger("haybale")
RANKER = ".ranker-"  # begins the names of folders of rankers that are saved while blocks of queries are ranked
_SUFFIX = ".safetensors"
# The name of the file of a result, or of a file that a killed process left unfinished.
_RESULT_NAME = re.compile(r"\.?[0-9a-f]{64}\.safetensors(\.[0-9a-f]{12})?")


class KeptResults:
    """The results of tasks in a folder, by key. A result is complete or missing, even after a process was killed.

    Several processes may share a folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, key: str) -> Arrays | None:
        """Return a result as memory-mapped arrays, or None if it is missing or damaged."""
        try:
            return mapped_tensors(self.folder / f"{key}{_SUFFIX}")
        except (OSError, FileFormatError):
            return None

    def put(self, key: str, arrays: Arrays) -> None:
        """Write a result; an existing one is replaced."""
        with replaced(self.folder / f"{key}{_SUFFIX}") as aside:
            write_tensors(aside, arrays)

    def remove(self) -> None:
        """Remove all results, and the folder if it has no other files."""
        for path in self.folder.glob("*"):
            if _RESULT_NAME.fullmatch(path.name):
                path.unlink(missing_ok=True)
            elif path.name.startswith(RANKER):  # a killed process left this folder
                shutil.rmtree(path, ignore_errors=True)
        with suppress(OSError):
            self.folder.rmdir()


_kept: ContextVar[KeptResults | None] = ContextVar("kept results", default=None)


@contextmanager
def resumable(folder: str | Path) -> Iterator[None]:
    """Keep the results of finished tasks of haybale within the block, and take those that are there already.

    Tasks are the searches of training queries, the rankings of many queries (of training queries also by the bags that
    have not seen them), the bags of an ensemble, and the networks of folds. If the block is interrupted or killed, run
    it again with the same folder: it continues, and its results are the same bit for bit. When the block ends without
    an error, the results are removed, and the folder with them.

    Parameters
    ----------
    folder : str or Path
        A folder on the machine that runs the block, which is made when it is needed.

    Examples
    --------
    >>> import tempfile
    >>> from haybale import BM25, Engine
    >>> engine = Engine({"dogs": "Dogs bark.", "cats": "Cats purr."}, language="english", encoder="tfidf(min_df=1)")
    >>> with tempfile.TemporaryDirectory() as folder, resumable(f"{folder}/tasks"):
    ...     run = BM25().fit(engine).rank({"q": "barking dogs"})
    """
    kept = KeptResults(Path(folder).absolute())
    token = _kept.set(kept)
    try:
        yield
        kept.remove()
    finally:
        _kept.reset(token)


def kept_results() -> KeptResults | None:
    """Return the results that are kept within :func:`resumable`; None outside of it."""
    return _kept.get()


def task_key(*parts: Any) -> str:
    """Return a digest of arrays and of values that JSON can hold, and of the versions that results depend on.

    >>> task_key("bag", 3) == task_key("bag", 3), task_key("bag", 3) == task_key("bag", 4)
    (True, False)
    """
    sha256 = hashlib.sha256()
    for part in (versions_of(SAME_VERSIONS[1:]), *parts):
        if isinstance(part, np.ndarray):
            part, values = [part.dtype.str, part.shape], np.ascontiguousarray(part)
            sha256.update(values.reshape(-1).view(np.uint8).data)
        sha256.update(json.dumps(part, sort_keys=True).encode() + b"\0")
    return sha256.hexdigest()


def spread_resumably(
    function: Callable[..., Arrays],
    tasks: Sequence[tuple[Any, ...]],
    keys: Callable[[], Iterable[str]],
    description: str,
    n_jobs: int | None = None,
) -> list[Arrays]:
    """Return ``function(*task)`` for each task, as :func:`~haybale.cluster.spread` does; take results that are kept.

    ``keys()`` returns the :func:`task_key` of each task. It is called only within :func:`resumable`.
    """
    kept, task_keys = kept_results(), list[str]()
    results: list[Arrays | None] = [None] * len(tasks)
    if kept is not None:
        task_keys = list(keys())
        results = [kept.get(key) for key in task_keys]
        report_resumed(description, sum(arrays is not None for arrays in results), len(tasks))
    missing = [number for number, arrays in enumerate(results) if arrays is None]
    new_results = spread(function, [tasks[number] for number in missing], n_jobs, description)
    for number, arrays in zip(missing, new_results, strict=True):
        if kept is not None:
            kept.put(task_keys[number], arrays)
        results[number] = arrays
    return [arrays for arrays in results if arrays is not None]


def report_resumed(description: str, n_done: int, n: int) -> None:
    """Log how many tasks were done before an interruption, if any."""
    if n_done:
        _LOGGER.info("%s: %s of %s tasks were done before", description, f"{n_done:,}", f"{n:,}")
