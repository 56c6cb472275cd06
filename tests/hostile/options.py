"""Run every option of every command with invalid values."""

from __future__ import annotations

import random
from functools import partial
from itertools import product
from typing import Any

import typer
from hostile.target import CORRECT, NOT_NUMBERS, REJECTED, Cases, Target, shell

from haybale.cli.application import app

BAD_TEXTS = ("", " ", "\x1b[2Jx", "\u202etxet", "x" * 300, "../..", "/proc/x", "/dev/null/x", "\udcff", "💥", "a,b=c(d")
COMMANDS = {
    "index": "DATA --out NEW",
    "add": "E DATA",
    "remove": "E nobody",
    "judge": "E nobody",
    "train": "E --ranker svr --out NEW",
    "rank": "E ba",
    "compare": "E --rankers bm25 --out NEW",
    "tune": "DATA --unit document",
    "report": "NEW --out NEW.html",
    "embed": "DATA --out NEW --encoder lsa(2)",
}
RANKERS = ("bm25", "parm-rrf", "svr", "knn-queries", "rrf(bm25,knn)", "learned(bm25,knn)")
PARAMETERS = (
    "k1 b k3 k n_hits rrf_k n_bags overlap strategy rows_per_bag n_candidates epsilon random_state gamma C tol depth"
    " unseen_share l2 n_jobs unit"
)


def options(target: Target, rng: random.Random) -> Cases:
    shell("--version")  # registers the commands
    commands: Any = typer.main.get_command(app)
    for name in COMMANDS:
        for parameter in commands.commands[name].params:
            option = parameter.opts[0]
            if option.startswith("--") and option not in ("--help", "--explain"):
                # Every numeric option has a minimum, which Typer before 0.29 keeps in the type.
                bounded = parameter if hasattr(parameter, "min") else parameter.type
                number = getattr(bounded, "min", None) is not None
                for value in (*NOT_NUMBERS, "-1", "-9999999999999999999999") if number else BAD_TEXTS:
                    yield f"{name} {option}={value!r}", partial(given, target, name, option, value, number)
    for ranker, parameter, value in product(RANKERS, PARAMETERS.split(), (*NOT_NUMBERS, "-1", "-1e300")):
        yield f"--set {parameter}={value!r} of {ranker}", partial(ranked, target, ranker, parameter, value)


def given(target: Target, name: str, option: str, value: str, number: bool) -> str:
    """Run a command with one option; a numeric option must reject a value that is not a number."""
    new = str(target.new())
    places = {"E": str(target.folder / "engine"), "DATA": str(target.data), "NEW": new, "NEW.html": f"{new}.html"}
    arguments = [places.get(each, each) for each in COMMANDS[name].split()]
    if option in arguments:
        at = arguments.index(option)
        del arguments[at : at + 2]
    status, output = shell(name, *arguments, f"{option}={value}")
    rejected = number and value != "1.0"  # typer accepts 1.0 as 1
    assert status == 2 if rejected else status in (0, 2), f"status {status}: {output[-200:]}"
    return REJECTED if status else CORRECT


def ranked(target: Target, ranker: str, parameter: str, value: str) -> str:
    """Rank with one parameter of a ranker set on the command line."""
    engine, values = str(target.folder / "engine"), f"{parameter}={value}"
    status, output = shell("rank", engine, "ba", "--ranker", ranker, "--set", values)
    is_valid = value in ("0x10", "1e3", "1.0") or (parameter, value) == ("n_jobs", "-1")
    assert status == 2 or is_valid, f"accepted: {output[-200:]}"
    return REJECTED if status else CORRECT
