"""A store of interactions whose writer is killed over and over, at random moments; what comes of it, byte for byte.

PYTHONPATH=.:tests python tests/pairs/kills.py --kills 25
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

# Imports once, then forks a writer for every line it reads: a real process each, without the seconds of the imports.
NURSERY = """
import os, sys
from support.rerank_cases import write

for line in sys.stdin:
    seconds, log = line.split()
    pid = os.fork()
    if not pid:
        write(sys.argv[1], float(seconds), log)
        os._exit(0)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


def killed(folder: Path, kills: int, seconds: float = 0.01) -> dict[str, int]:
    """Kill a writer so often, let the last one finish, and compare with an undisturbed one; counts, or an error."""
    from support.engines import tree
    from support.rerank_cases import N_CHUNKS, write

    from haybale import InteractionStore

    write(folder / "whole", 0, folder / "undisturbed")
    log, store, rng = folder / "log", folder / "store", random.Random(0)
    command = [sys.executable, "-W", "ignore", "-c", NURSERY, str(store)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])}
    process = subprocess.Popen(command, stdin=-1, stdout=-1, text=True, env=environment)
    assert process.stdin is not None
    assert process.stdout is not None
    done, longest = 0, 0.1
    while True:
        print(seconds if done < kills else 0, log, file=process.stdin, flush=True)
        pid = int(process.stdout.readline())
        if done < kills:
            time.sleep(rng.uniform(0, longest))
            os.kill(pid, signal.SIGKILL)
        status = int(process.stdout.readline())
        if status == 0 and done == kills:
            break
        if status == 0:
            raise AssertionError("a writer was done before it was killed: take more seconds")
        done += 1
        longest += 0.005
        try:
            InteractionStore(store)
        except (OSError, ValueError):
            continue
        raise AssertionError("a store that was not finished was taken for a whole one")
    process.communicate()
    assert tree(store) == tree(folder / "whole")
    chunks = log.read_text().splitlines()
    assert set(chunks) == set((folder / "undisturbed").read_text().splitlines())
    assert N_CHUNKS <= len(chunks) <= N_CHUNKS + kills  # a kill costs one chunk at most
    return {"kills": done, "chunks": N_CHUNKS, "made": len(chunks)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=25)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        print(killed(Path(place), arguments.kills))
