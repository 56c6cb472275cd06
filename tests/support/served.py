"""A real service in a process of its own, and judges that ask it over HTTP with nothing but the standard library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any


class Served:
    """``haybale serve`` in a process; a context manager that ends it."""

    def __init__(self, engine: Path, *options: str) -> None:
        command = [
            sys.executable,
            "-c",
            "from haybale.cli import main; main()",
            "serve",
            str(engine),
            "--port",
            "0",
            *options,
        ]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip().rstrip("/")
        assert self.address.startswith("http://"), "the service did not start"

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        if self.process.stdout is not None:
            self.process.stdout.close()

    def kill(self) -> None:
        """End the process as the machine might: at once."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def ask(self, path: str, given: Any = None, timeout: float = 60) -> Any:
        """Return the JSON that a GET, or with ``given`` a POST of JSON, answers."""
        data = None if given is None else json.dumps(given).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return json.load(answer)


def judge_until_killed(served: Served, topic: int, judge: str, acknowledged: list[tuple[str, str, int]]) -> None:
    """Judge documents one after the other until the service is gone, and note each judgement that was acknowledged."""
    number = 0
    try:
        while True:
            for document in served.ask(f"/api/topics/{topic}/next?n=3&judge={judge}")["documents"]:
                grade = (len(document["doc_id"]) + number) % 3
                given = {"doc_id": document["doc_id"], "grade": grade, "judge": judge}
                served.ask(f"/api/topics/{topic}/judgements", given)
                acknowledged.append((document["doc_id"], judge, grade))
                number += 1
    except (OSError, urllib.error.URLError, ValueError):
        return


def judge_together(served: Served, topic: int, n_judges: int, acknowledged: list[tuple[str, str, int]]) -> list[Any]:
    """Let judges begin, each in a thread, and return the threads."""
    judges = [
        threading.Thread(target=judge_until_killed, args=(served, topic, f"judge{n}", acknowledged))
        for n in range(n_judges)
    ]
    for each in judges:
        each.start()
    return judges
