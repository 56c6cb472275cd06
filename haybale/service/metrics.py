"""What Prometheus reads at ``/metrics``: requests by route and status, their seconds, the engine and the process."""

from __future__ import annotations

import bisect
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path

from haybale import __version__
from haybale.service.workspace import Workspace

BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # seconds


class Metrics:
    """Counts of the requests of a service. Several threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._buckets: dict[str, list[int]] = {}
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._start = time.time()
        self.running = 0

    def begin(self) -> None:
        """Count a request that is running."""
        with self._lock:
            self.running += 1

    def end(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered, or whose client has gone."""
        with self._lock:
            self.running -= 1
            self._requests[method, route, status] += 1
            self._buckets.setdefault(route, [0] * (len(BOUNDS) + 1))[bisect.bisect_left(BOUNDS, seconds)] += 1
            self._seconds[route] += seconds

    def text(self, workspace: Workspace) -> str:
        """Return the metrics in the text format of Prometheus."""
        collection = workspace.engine.snapshot().collection
        gauges = {
            "haybale_requests_running": self.running,
            "haybale_documents": collection.n_documents,
            "haybale_passages": collection.n_passages,
            "haybale_topics": len(workspace.store.topics()),
            "haybale_judgement_rows": workspace.store.n_rows(),
            "haybale_start_time_seconds": self._start,
            "process_resident_memory_bytes": resident_bytes(),
        }
        lines = ["# TYPE haybale_info gauge", f'haybale_info{{version="{__version__}"}} 1']
        for name, value in gauges.items():
            lines += [f"# TYPE {name} gauge", f"{name} {value}"]
        if workspace.processes is not None:
            lines += ["# TYPE haybale_search_processes_ready gauge"]
            lines += [f"haybale_search_processes_ready {workspace.processes.n_ready}"]
            lines += ["# TYPE haybale_search_process_resident_bytes gauge"]
            for place, process in workspace.processes.process_ids.items():
                lines.append(f'haybale_search_process_resident_bytes{{process="{place}"}} {resident_bytes(process)}')
        with self._lock:
            lines.append("# TYPE haybale_requests_total counter")
            for (method, route, status), count in sorted(self._requests.items()):
                labels = f'method="{_label(method)}",route="{_label(route)}",status="{status}"'
                lines.append(f"haybale_requests_total{{{labels}}} {count}")
            lines.append("# TYPE haybale_request_seconds histogram")
            for route, counts in sorted(self._buckets.items()):
                total = 0
                for bound, count in zip((*map(str, BOUNDS), "+Inf"), counts, strict=True):
                    total += count
                    lines.append(f'haybale_request_seconds_bucket{{route="{_label(route)}",le="{bound}"}} {total}')
                lines.append(f'haybale_request_seconds_sum{{route="{_label(route)}"}} {self._seconds[route]:.6f}')
                lines.append(f'haybale_request_seconds_count{{route="{_label(route)}"}} {total}')
        return "\n".join(lines) + "\n"


def _label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def resident_bytes(process: int | str = "self") -> int:
    """Return the memory of a process, by default of this one; 0 where the system does not say."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * 4096
