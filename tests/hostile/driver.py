"""Run hostile input through haybale: every case must end in a correct result or in one error of haybale.

    make hostile          # thousands of cases; prints counts by kind, and every case that failed

A case fails if it ends in another error (a user would see a traceback), in a result that is not finite or differs from
that of the intact input, or in a control character on a terminal. Each kind of attack is a function in the module of
the same name, which yields pairs of a case's name and a function to call.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from hostile.arrays import arrays
from hostile.at_once import at_once
from hostile.bombs import bombs
from hostile.columns import columns
from hostile.environment import environment
from hostile.full_disk import full_disk
from hostile.judging import judging
from hostile.kills import kills
from hostile.laws import laws
from hostile.merges import merges
from hostile.options import options
from hostile.parameters import parameters
from hostile.readers import readers
from hostile.rebuilt import rebuilt
from hostile.records import records
from hostile.requests import requests
from hostile.saved import manifests, saved
from hostile.segments import segments
from hostile.shared_keys import shared_keys
from hostile.stores import checkpoints, stores
from hostile.streams import streams
from hostile.strings import strings
from hostile.target import CORRECT, REJECTED, Cases, Target
from hostile.twins import twins
from hostile.unicode_forms import unicode_forms
from hostile.units import units
from support.case_workers import run_cases

from haybale.errors import HaybaleError

ATTACKS = (options, parameters, readers, saved, manifests, strings, arrays, full_disk, environment, streams, kills)
ATTACKS += (at_once, unicode_forms, stores, checkpoints, bombs, laws)
ATTACKS += (shared_keys, units, segments, rebuilt, columns, merges, requests, twins, judging, records)
KINDS: dict[str, Callable[[Target, random.Random], Cases]] = {each.__name__: each for each in ATTACKS}
# Share of all cases; the other kinds have a limited number of cases.
SHARE = {"readers": 0.25, "saved": 0.2, "manifests": 0.12, "full_disk": 0.04, "streams": 0.08, "kills": 0.05}
SHARE |= {"at_once": 0.06, "unicode_forms": 0.3, "stores": 0.15, "checkpoints": 0.05, "laws": 0.25}
SHARE |= {"shared_keys": 0.03, "units": 0.05, "requests": 0.3, "twins": 0.1, "judging": 0.1, "records": 0.04}
SHARE |= {"segments": 0.03, "rebuilt": 0.03, "columns": 0.08, "merges": 0.01}
FAILED = "failed"
SECONDS = 10.0  # of CPU; a case that takes longer has failed


class Tried(NamedTuple):
    """The number of cases by outcome, ``(name, reason)`` of each failed case, and the largest memory in MiB."""

    counts: Counter[str]
    failed: list[tuple[str, str]]
    memory: float


def outcome(run: Callable[[], str]) -> tuple[str, str]:
    """Return the outcome of a case, and the reason if it failed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return run(), ""
    except KeyboardInterrupt:
        raise
    except HaybaleError as error:
        message = str(error)
        return (REJECTED, "") if message and "\n" not in message.strip() else (FAILED, f"message {message!r}")
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        if type(error).__name__ == "InvalidParameterError" or "sklearn/utils/" in where.filename:
            return REJECTED, ""  # scikit-learn's own message about a scikit-learn estimator
        return FAILED, f"{type(error).__name__}: {str(error)[:150]} ({Path(where.filename).name}:{where.lineno})"


def attack(target: Target, kind: str, most: int, seed: int = 0, n_workers: int = 1, seconds: float = SECONDS) -> Tried:
    """Try up to ``most`` cases of a kind; sample a kind with a limited number of cases."""
    cases: Iterator[tuple[str, Callable[[], str]]] = iter(KINDS[kind](target, random.Random(seed)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        listed = list(itertools.islice(cases, most if kind in SHARE else None))
    if len(listed) > most:
        listed = random.Random(seed).sample(listed, most)
    tried, memory = Tried(Counter(), [], 0.0), 0.0

    def run(number: int) -> tuple[str, str]:
        try:
            return outcome(listed[number][1])
        finally:
            target.clean()

    for done in run_cases(len(listed), run, n_workers, seconds):
        tried.counts[done.outcome] += 1
        memory = max(memory, done.memory)
        if done.outcome == FAILED:
            tried.failed.append((listed[done.number][0], done.reason))
    return tried._replace(memory=memory)


def main() -> int:
    """Try all cases and print the table; return the exit status, 1 if a case failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    a = parser.parse_args()
    total, failed = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        target = Target(Path(folder))
        print(f"{'kind':12} {'tried':>6} {'correct':>7} {'rejected':>8} {'failed':>6} {'seconds':>8} {'MiB':>6}")
        for kind in a.kinds:
            start = time.perf_counter()
            tried = attack(target, kind, int(a.cases * SHARE.get(kind, 1)), a.seed, a.workers)
            n, correct, rejected = sum(tried.counts.values()), tried.counts[CORRECT], tried.counts[REJECTED]
            seconds = time.perf_counter() - start
            total, failed = total + n, failed + len(tried.failed)
            print(
                f"{kind:12} {n:6} {correct:7} {rejected:8} {len(tried.failed):6} {seconds:8.1f} {tried.memory:6.0f}",
                flush=True,
            )
            for name, why in tried.failed:
                print(f"    {name}: {why}".encode("ascii", "backslashreplace").decode(), flush=True)
    print(f"{total} tried, {failed} failed")
    return min(1, failed)


if __name__ == "__main__":
    raise SystemExit(main())
