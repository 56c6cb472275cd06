"""Results in a notebook and a paper: HTML, frames and LaTeX have the numbers of the evaluation, and no text escapes."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from haybale import Engine
from haybale.collections import Collection
from haybale.errors import InputError, UnknownNameError
from haybale.evaluation import Outcome, Results, compare, intervals, results
from haybale.evaluation.latex_table import escaped

HOSTILE = "<script>alert(1)</script> & \\input{/etc/passwd} 50% $x$ #1 a_b ^~|`' \"a\" {--} ,, '' \x1b[2J\nb"


@pytest.fixture(scope="module")
def measured() -> Results:
    """Three rankers on 40 queries; the second is significantly better in A, and the third in B, but less surely."""
    rng = np.random.default_rng(0)
    queries = pd.Index([f"q{number}" for number in range(40)], name="query_id")
    base = pd.DataFrame({"A_1": rng.uniform(0.2, 0.4, 40), "B%": rng.uniform(0.4, 0.6, 40)}, queries)
    better, other = base.copy(), base.copy()
    better["A_1"] += rng.uniform(0.1, 0.3, 40)
    other["B%"] += rng.normal(0.02, 0.045, 40)
    table = results({"bm25": base, HOSTILE: better, "other": other}, "bm25")
    assert table.comparisons[HOSTILE]["A_1"].p < 0.01 < table.comparisons["other"]["B%"].p < 0.05
    return table


@pytest.fixture(scope="module")
def outcome(topics: Collection) -> Outcome:
    return compare(Engine(topics), {"bm25": "bm25", HOSTILE: "knn-doc", "fused": "rrf(bm25,knn-doc)"})


class Cells(HTMLParser):
    """The texts of the cells of each row, and the names of all elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.names: set[str] = set()
        self.open = 0
        self.in_cell = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.names.add(tag)
        self.open += 1
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
            self.in_cell = True

    def handle_endtag(self, tag: str) -> None:
        self.open -= 1
        self.in_cell = self.in_cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.in_cell:
            self.rows[-1][-1] += data


def test_a_notebook_shows_the_table(measured: Results, outcome: Outcome) -> None:
    for shown, table in ((measured, measured), (outcome, outcome.results)):
        page = shown._repr_html_()
        cells = Cells(page)
        assert cells.open == 0
        assert cells.names == {"div", "table", "caption", "thead", "tbody", "tr", "th", "td", "b", "p", "small"}
        assert "\x1b" not in page
        head, *rows = cells.rows
        assert head[: 1 + len(table.measures)] == ["ranker", *table.measures]
        assert [row[0] for row in rows[:2]] == ["bm25", HOSTILE.replace("\x1b", "\\x1b")]
        for row, values in zip(rows, table.values.values(), strict=True):
            means = [f"{values[name].mean():.4f}" for name in table.measures]
            assert [cell.rstrip("†‡") for cell in row[1 : 1 + len(means)]] == means
    assert outcome.title in outcome._repr_html_()
    assert len(repr(outcome)) < 100


def test_frames_have_the_values_of_the_evaluation(outcome: Outcome) -> None:
    table = outcome.results
    frame, per_query = outcome.to_frame().set_index("ranker"), outcome.to_frame(per_query=True)
    assert list(frame.index) == list(outcome.runs)
    assert list(per_query.columns) == ["ranker", "query_id", *table.measures]
    for name, values in table.values.items():
        assert per_query[per_query["ranker"] == name].set_index("query_id")[table.measures].equals(values)
        for measure in table.measures:
            assert frame.loc[name, measure] == pytest.approx(values[measure].mean())
            compared = table.comparisons.get(name, {}).get(measure)
            expected = [np.nan] * 2 if compared is None else [compared.p, compared.effect_size]
            np.testing.assert_array_equal(frame.loc[name, [f"p {measure}", f"d {measure}"]].astype(float), expected)
            low, high = intervals(values)[measure]
            assert (frame.loc[name, f"low {measure}"], frame.loc[name, f"high {measure}"]) == (low, high)
    record = outcome.to_dict()
    assert record["rankers"]["fused"]["intervals"] == {
        measure: list(bounds) for measure, bounds in intervals(table.values["fused"]).items()
    }
    assert record["intervals"] == {"level": 0.95, "samples of queries": 2000, "random state": 0}
    alone = results({"bm25": table.values["bm25"]}, "bm25").to_frame()
    bounds = [f"{end} {measure}" for measure in table.measures for end in ("low", "high")]
    assert list(alone.columns) == ["ranker", *table.measures, *bounds]
    with pytest.raises(InputError, match="'per_query'"):
        outcome.to_frame(per_query="yes")  # type: ignore[arg-type]


def rows_of(latex: str) -> list[list[str]]:
    """Return the cells of the head and of each row of a LaTeX table."""
    return [re.split(r"(?<!\\) & ", line.removesuffix(r" \\")) for line in latex.splitlines() if line.endswith(r" \\")]


def test_latex_marks_the_best_and_what_is_significant(measured: Results) -> None:
    head, *rows = rows_of(measured.to_latex())
    assert head == ["Ranker", r"A\_1", r"B\%"]
    means = {name: values.mean() for name, values in measured.values.items()}
    better, surely, perhaps = (
        f"{means[name][m]:.4f}" for name, m in ((HOSTILE, "A_1"), (HOSTILE, "B%"), ("other", "B%"))
    )
    assert rows[0] == ["bm25", f"{means['bm25']['A_1']:.4f}", f"{means['bm25']['B%']:.4f}"]
    assert rows[1][1:] == [rf"\textbf{{{better}}}\rlap{{$^{{\ddagger}}$}}", surely]
    assert rows[2] == ["other", rows[0][1], rf"\textbf{{{perhaps}}}\rlap{{$^{{\dagger}}$}}"]
    caption = re.search(r"\\caption\{(.*)\}$", measured.to_latex(title="Of 100 % & more."), re.M)
    assert caption[1].startswith(r"Of 100 \% \& more. Means over 40 queries")
    assert all(mark in caption[1] for mark in (r"$^{\dagger}$ $p < 0.05$", r"$^{\ddagger}$ $p < 0.01$", "bm25"))
    some = measured.to_latex(["B%"], label="tab:b")
    assert rows_of(some)[0] == ["Ranker", r"B\%"]
    assert r"\label{tab:b}" in some
    assert r"\label" not in measured.to_latex()


@pytest.mark.parametrize(
    ("how", "error", "named"),
    [
        ({"measures": ["C"]}, UnknownNameError, "'C'.* A_1, B%"),
        ({"measures": []}, InputError, "at least one measure"),
        ({"measures": "A_1"}, InputError, "'measures'"),
        ({"label": "a}b"}, InputError, "label"),
        ({"title": 5}, InputError, "'title'"),
    ],
)
def test_latex_refuses(measured: Results, how: dict[str, Any], error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=named):
        measured.to_latex(**how)


def test_no_text_is_a_command_of_latex() -> None:
    """Without the escapes that haybale writes, no special character is left."""
    shown = escaped(HOSTILE)
    assert "\n" not in shown
    assert "\x1b" not in shown
    names = "textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar|textasciigrave|char34"
    rest = re.sub(rf"\\(?:{names})\{{\}}|\\[{{}}%&$#_]|\{{\}}(?=[-,'])", "x", shown)
    assert not re.search(r"[\\{}%&$#_~^<>|`\"]|--|,,|''", rest), rest


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="LaTeX is not installed")
def test_latex_compiles(measured: Results, tmp_path: Path) -> None:
    body = measured.to_latex(title=HOSTILE, label="tab:results")
    page = f"\\documentclass{{article}}\\usepackage{{booktabs}}\\begin{{document}}\n{body}\n\\end{{document}}\n"
    (tmp_path / "page.tex").write_text(page, encoding="utf-8")
    how = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    done = subprocess.run(how, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "page.pdf").is_file()
