"""Run hostile input through haybale: every case ends in a right result, or in one error that says what was wrong.

    make hostile          # thousands of cases; prints counts by kind, and every case that fell short

A case falls short if it ends in another error than haybale's (a traceback, for a user), in a result that is not
finite, in a result that the intact input did not give, or in a control character on a terminal. Each kind of attack is
a module of this folder with a function of its name, which yields ``(name of the case, what to call)``.
"""

from __future__ import annotations

import argparse
import itertools
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
from hostile.full_disk import full_disk
from hostile.options import options
from hostile.parameters import parameters
from hostile.readers import readers
from hostile.saved import manifests, saved
from hostile.strings import strings
from hostile.target import REFUSED, RIGHT, Cases, Target

from haybale.errors import HaybaleError

KINDS: dict[str, Callable[[Target, random.Random], Cases]] = {
    each.__name__: each for each in (options, parameters, readers, saved, manifests, strings, arrays, full_disk)
}
SHARE = {"readers": 0.25, "saved": 0.2, "manifests": 0.12, "full_disk": 0.04}  # of all cases; the others are finite


class Tried(NamedTuple):
    """How the cases of a kind ended, and ``(name, reason)`` of those that fell short."""

    counts: Counter[str]
    short: list[tuple[str, str]]


def outcome(run: Callable[[], str]) -> tuple[str, str]:
    """Return how a case ended, and the reason if it fell short."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return run(), ""
    except KeyboardInterrupt:
        raise
    except HaybaleError as error:
        message = str(error)
        return (REFUSED, "") if message and "\n" not in message.strip() else ("short", f"message {message!r}")
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        if type(error).__name__ == "InvalidParameterError" or "sklearn/utils/" in where.filename:
            return REFUSED, ""  # scikit-learn's own message about a scikit-learn estimator
        return "short", f"{type(error).__name__}: {str(error)[:150]} ({Path(where.filename).name}:{where.lineno})"


def attack(target: Target, kind: str, most: int, seed: int = 0) -> Tried:
    """Try up to ``most`` cases of a kind; a finite kind with more cases is sampled."""
    cases: Iterator[tuple[str, Callable[[], str]]] = iter(KINDS[kind](target, random.Random(seed)))
    if kind not in SHARE:
        listed = list(cases)
        cases = iter(listed if len(listed) <= most else random.Random(seed).sample(listed, most))
    tried = Tried(Counter(), [])
    for name, run in itertools.islice(cases, most):
        how, why = outcome(run)
        tried.counts[how] += 1
        if how == "short":
            tried.short.append((name, why))
    return tried


def main() -> int:
    """Try all cases and print the table; the exit status is 1 if any fell short."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    a = parser.parse_args()
    total, short = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        target = Target(Path(folder))
        print(f"{'kind':12} {'tried':>6} {'right':>6} {'refused':>8} {'short':>6} {'seconds':>8}")
        for kind in a.kinds:
            start = time.perf_counter()
            tried = attack(target, kind, int(a.cases * SHARE.get(kind, 1)), a.seed)
            n, right, refused = sum(tried.counts.values()), tried.counts[RIGHT], tried.counts[REFUSED]
            seconds = time.perf_counter() - start
            total, short = total + n, short + len(tried.short)
            print(f"{kind:12} {n:6} {right:6} {refused:8} {len(tried.short):6} {seconds:8.1f}")
            for name, why in tried.short:
                print(f"    {name}: {why}".encode("ascii", "backslashreplace").decode())
    print(f"{total} tried, {short} fell short")
    return min(1, short)


if __name__ == "__main__":
    raise SystemExit(main())
