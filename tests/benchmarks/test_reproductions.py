"""reproduce.py, and the entries of reproductions.yaml."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from haybale import parse
from haybale.rankers import parse_all, parse_value, set_all

yaml = pytest.importorskip("yaml")
ENTRIES = yaml.safe_load((Path(__file__).parents[2] / "benchmarks" / "reproductions.yaml").read_text(encoding="utf-8"))
RANKER = "rrf(bm25,learned(svr, knn))"
FOUND = {RANKER: {"MRR@10": 0.25, "nDCG@10": 0.5, "Recall@100": 0.75, "MAP": 0.125}}


def entry(found: Any = None, **changes: Any) -> dict[str, Any]:
    """A made-up entry, whose command writes the results itself."""
    results = json.dumps({"rankers": {name: {"measures": m} for name, m in (found or FOUND).items()}})
    command = f"mkdir {{out}} && echo {shlex.quote(results)} > {{out}}/results.json"
    values = {"name": "made-up", "collection": "pydocs", "command": command, "tolerance": 0.002, "minutes": 0.1}
    return values | {"expected": {RANKER: {"MRR@10": 0.25, "Recall@100": 0.75}}} | changes


@pytest.fixture
def reproduced(script: Any, tmp_path: Path, capfd: Any) -> Callable[..., tuple[int, str, str]]:
    """The exit status of reproduce.py on some entries, and what it wrote."""

    def run(*entries: Any, options: tuple[str, ...] = ()) -> tuple[int, str, str]:
        path = tmp_path / "entries.yaml"
        path.write_text(yaml.safe_dump(list(entries), sort_keys=False), encoding="utf-8")
        return script("reproduce").main([*options, "--file", str(path)]), *capfd.readouterr()

    return run


@pytest.mark.parametrize("one", ENTRIES, ids=lambda e: e["name"])
def test_rankers_are_known_and_those_of_the_command_and_tolerances_are_small(one: dict[str, Any]) -> None:
    arguments = shlex.split(one["command"])
    expected = [parse(ranker) for ranker in one["expected"]]
    asked = parse_all(arguments[arguments.index("--rankers") + 1])
    assert asked == expected
    values = [following for word, following in itertools.pairwise(arguments) if word == "--set"]
    changed = set_all(asked, {name: parse_value(text) for name, _, text in (v.partition("=") for v in values)})
    assert (changed == asked) == (not values)
    assert one["tolerance"] <= (0.01 if any(ranker.needs_training for ranker in expected) else 0.002)
    assert not re.search(r"(?<![\w}])[/~]", one["command"]), "a path of one machine"


@pytest.mark.parametrize("name", ["pydocs-dev"])
@pytest.mark.thorough
def test_pydocs_gives_its_numbers(script: Any, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    status = script("reproduce").main([name])
    out, err = capfd.readouterr()
    assert status == 0, out + err
    assert re.search(rf"{name} .* MRR@10 .* ok", out)


def test_entries_that_agree_differ_fail_or_lack_their_collection(reproduced: Any, tmp_path: Path) -> None:
    folder = tmp_path / "peps's" / "peps"
    folder.mkdir(parents=True)
    entries = [
        entry(),
        entry(
            name="there", collection="peps", command=f'test -d {{folder}} && test -z "$(ls)" && {entry()["command"]}'
        ),
        entry(name="no", collection="irled"),
        entry(name="wrong", expected={RANKER: {"MRR@10": 0.25, "nDCG@10": 0.5021}}),
        entry(name="other", expected={"bm25": {"MAP": 0.5}}),
        entry(name="died", command="echo first >&2; echo why >&2; exit 3; {out}"),
        entry(name="empty", command="mkdir {out}; echo '[]' > {out}/results.json"),
    ]
    assert reproduced(*entries, options=("made-up",))[0] == 0
    status, out, err = reproduced(*entries, options=("--collections", str(folder)))
    assert status == 1
    for line in (
        r"made-up .*MRR@10 .* 0\.2500 .* 0\.2500 .*\+0\.0000 .*ok",
        r"there .* ok",
        "no: not given",
        rf"wrong .*{re.escape(RANKER)} .*nDCG@10 .* 0\.5021 .* 0\.5000 .*-0\.0021.* FAILED",
        r"other +bm25 +MAP .*FAILED",
        "died: the command ended with 3: why",
        "empty: no results.json with measures",
    ):
        assert re.search(line, out + err), line


@pytest.mark.parametrize("options", [("other",), ("--collections", "none")])
def test_what_is_unknown_is_named(reproduced: Any, options: tuple[str, ...]) -> None:
    status, _, err = reproduced(entry(), options=options)
    assert (status, len(err.splitlines())) == (2, 1)
