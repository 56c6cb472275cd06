"""Add files of records to the engine while the service runs: each in a process, one after the other."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import threading
from collections import deque
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any

from haybale.collections.unread import UnreadPart
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.service.limited_process import MAX_MEMORY, MAX_SECONDS, output_of

_MAX_FILES = 100  # files whose outcome is kept
_MAX_NAME_CHARACTERS = 100
_MAX_DETAIL_CHARACTERS = 1000


@dataclass(frozen=True)
class AddedFile:
    """A file of records that somebody has added.

    Parameters
    ----------
    name : str
        The name under which its records are in the engine.
    status : {"running", "done", "failed"}
    time : str
        When it was added: ISO 8601, in UTC.
    n_records : int
    unread : list of UnreadPart
        What was not read of it, or not with certainty.
    detail : str
        What ``haybale add`` has said.
    """

    name: str
    status: str
    time: str
    n_records: int
    unread: list[UnreadPart]
    detail: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


class AddedRecords:
    """The files of records that were added since the service has begun. Several threads may use it.

    A file is read with limits of memory and time first (:mod:`haybale.service.records_worker`), because it may be
    hostile. Then ``haybale add`` adds its records to the engine's folder, where the service finds them.

    Parameters
    ----------
    engine : Engine
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._files: deque[AddedFile] = deque(maxlen=_MAX_FILES)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    @property
    def is_possible(self) -> bool:
        """Whether the engine is in a folder, as adding needs."""
        return self.engine.folder is not None

    def files(self) -> list[AddedFile]:
        """Return the files, the last one first."""
        with self._lock:
            return list(reversed(self._files))

    def add(self, name: str, data: bytes, replace_same: bool = False) -> AddedFile:
        """Read a file, and begin to add its records; return without waiting for the end.

        Parameters
        ----------
        name : str
        data : bytes
        replace_same : bool, default False
            Whether records whose ids the engine has are replaced; otherwise nothing is added if there is one.

        Raises
        ------
        InputError
            If the file has no records, another file is being added, or the engine is in memory only.
        """
        if self.engine.folder is None:
            raise InputError(f"{name!r:.80} needs an engine in a folder, found one in memory only; index into a folder")
        plain = re.sub(r"[^\w. -]+", "-", PurePath(name.replace("\\", "/")).name).strip(" .")[-_MAX_NAME_CHARACTERS:]
        about = self._checked(plain, data)
        unread = [UnreadPart(part=part, reason=reason) for part, reason in about["unread"]]
        added = AddedFile(plain, "running", datetime.now(UTC).isoformat(timespec="seconds"), about["n_records"], unread)
        with self._lock:
            running = [file.name for file in self._files if file.status == "running"]
            if running:
                raise InputError(f"expected no file that is being added, found {running[0]!r}; wait until it is done")
            self._files.append(added)
        threading.Thread(target=self._run, args=(added, data, replace_same), daemon=True).start()
        return added

    def _checked(self, name: str, data: bytes) -> dict[str, Any]:
        """Return what the process with limits says about a file."""
        try:
            about: dict[str, Any] = json.loads(output_of("haybale.service.records_worker", [name], data))
        except ValueError:
            limits = f"{MAX_SECONDS} seconds or {MAX_MEMORY // 2**20:,} MiB"
            about = {"problem": f"expected a file of records, found one that takes more than {limits}; split it"}
        if "problem" in about:
            raise InputError(f"{name!r}: expected records that can be added, but {about['problem']}; give another file")
        return about

    def _run(self, added: AddedFile, data: bytes, replace_same: bool) -> None:
        """Add a file to the engine, and note how it went."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / added.name
            path.write_bytes(data)
            command = [sys.executable, "-m", "haybale", "add", str(self.engine.folder), str(path)]
            command += ["--replace"] if replace_same else []
            with self._lock:
                self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            output, _ = self._process.communicate()
            status = "done" if self._process.returncode == 0 else "failed"
        lines = [line.replace(f"{folder}/", "").strip() for line in output.splitlines() if line.strip()]
        detail = (lines[-1] if status == "done" and lines else "\n".join(lines))[:_MAX_DETAIL_CHARACTERS]
        with self._lock:
            self._process = None
            self._files[self._files.index(added)] = replace(added, status=status, detail=detail)

    def stop(self) -> None:
        """End a process that adds; the engine is the old or the new one."""
        with self._lock:
            if self._process is not None:
                self._process.terminate()
