"""A real service in a process of its own, and judges that ask it over HTTP with nothing but the standard library."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from haybale.service import Workspace, create_app


class Served:
    """``haybale serve`` in a process; a context manager that ends it.

    Searches run in the service itself unless ``processes`` is given; None is the default of the command. ``before`` is
    code that the process runs first, such as one that sets limits.
    """

    def __init__(self, engine: Path, *options: str, processes: int | None = 0, before: str = "") -> None:
        command = [
            sys.executable,
            *(["-c", f"{before}\nfrom haybale.cli import main\nmain()"] if before else ["-m", "haybale"]),
            "serve",
            str(engine),
            "--port",
            "0",
            *([] if processes is None else ["--processes", str(processes)]),
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

    def wait_for_processes(self, seconds: float = 120) -> None:
        """Wait until all processes that search are ready."""
        end = time.monotonic() + seconds
        while (found := self.ask("/health").get("search_processes")) and found["ready"] < found["wanted"]:
            assert time.monotonic() < end, found
            time.sleep(0.05)

    @property
    def children(self) -> list[int]:
        """The ids of the processes that the service has started."""
        stats = [path.read_text() for path in Path("/proc").glob("[0-9]*/stat") if path.exists()]
        rows = [(stat.partition(" ")[0], stat.rpartition(")")[2].split()) for stat in stats]
        return [int(number) for number, (_, parent, *_) in rows if int(parent) == self.process.pid]

    def memory(self) -> tuple[float, float]:
        """Return the bytes that the service has in memory, and those of the processes that search."""
        with urllib.request.urlopen(f"{self.address}/metrics", timeout=60) as answer:
            rows = [line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if not line.startswith("#")]
        own = sum(float(value) for name, value in rows if name == "process_resident_memory_bytes")
        return own, sum(
            float(value) for name, value in rows if name.startswith("haybale_search_process_resident_bytes")
        )

    def ask(self, path: str, given: Any = None, timeout: float = 60) -> Any:
        """Return the JSON that a GET, or with ``given`` a POST of JSON, answers."""
        data = None if given is None else json.dumps(given).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return json.load(answer)


@contextmanager
def serving(workspace: Workspace) -> Iterator[str]:
    """Serve a workspace in a thread of this process, and yield its address."""
    import uvicorn

    config = uvicorn.Config(create_app(workspace), port=0, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        workspace.close()


class Within:
    """A matter of a service that serves several, at a path such as ``/matters/NAME``."""

    def __init__(self, served: Served, path: str) -> None:
        self.served, self.path = served, path

    def ask(self, path: str, given: Any = None) -> Any:
        """Return the JSON of an answer about the matter."""
        return self.served.ask(self.path + path, given)


def is_running(process: int) -> bool:
    """Return whether a process lives; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def judge_until_killed(
    served: Served | Within, topic: int, judge: str, acknowledged: list[tuple[str, str, int]]
) -> None:
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
    except (OSError, http.client.HTTPException, ValueError):
        return


def judge_together(
    served: Served | Within, topic: int, n_judges: int, acknowledged: list[tuple[str, str, int]]
) -> list[Any]:
    """Let judges begin, each in a thread, and return the threads."""
    judges = [
        threading.Thread(target=judge_until_killed, args=(served, topic, f"judge{n}", acknowledged))
        for n in range(n_judges)
    ]
    for each in judges:
        each.start()
    return judges
