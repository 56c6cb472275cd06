"""The page of simulated reviews is well-formed, loads nothing, escapes all texts, and shows measures and promises."""

from __future__ import annotations

from html import escape
from pathlib import Path

import pytest
from support.learners import CountingLearner
from support.pages import Page

from haybale import Engine, InputError
from haybale.review import LabelledTopic, Simulation, parse_rule, simulate, write_simulation
from haybale.review.simulation_results import formatted

NASTY = "</script><script>alert(1)</script>"
TEXTS = {f"d{i:02d}": f"tea leaves {i}" if i % 5 == 0 else f"coffee {i}" for i in range(40)}
RELEVANT = [name for name, text in TEXTS.items() if text.startswith("tea")]
RULES = ["consecutive(5)", "cmh(target=0.8)"]


def simulated(topics: list[str], rules: list[str], **options: object) -> Simulation:
    labelled = [LabelledTopic(name, RELEVANT, "tea") for name in topics]
    engine = Engine(TEXTS, language="english", encoder="tfidf(min_df=1)")
    return simulate(engine, topics=labelled, rules=rules, learner=CountingLearner, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return simulated(["tea", NASTY], RULES, seeds=2, start=["random", "both"])


def test_the_page_is_complete_and_loads_nothing(simulation: Simulation, tmp_path: Path) -> None:
    write_simulation(simulation, tmp_path / "page.html")
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert page.unbalanced == []
    assert page.sections == ["recall", "measures", "stops", "runs"]
    assert page.absent == []
    assert all(value.startswith(("#", "data:")) for _, value in page.addresses), page.addresses
    assert len(page.ids) == page.n_ids
    assert page.unlabelled == 0
    assert "default-src 'none'" in page.policy
    assert NASTY not in page.raw
    assert escape(NASTY) in page.raw
    for rule in RULES:
        assert parse_rule(rule).promise in page.text
    n_marks = sum(stop.read is not None for run in simulation.runs for stop in run.stops.values())
    assert page.raw.count("seed 0: ") + page.raw.count("seed 1: ") == n_marks  # each mark says what it is


def test_the_tables_have_the_numbers_of_the_simulation(simulation: Simulation, tmp_path: Path) -> None:
    write_simulation(simulation, tmp_path / "page.html", title="Tea & coffee")
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    for shown, table in zip(page.tables, (simulation.table(), simulation.stops_table()), strict=False):
        expected = [[name, *map(formatted, row)] for name, *row in table.itertuples()]
        assert shown[1:] == expected
    assert len(page.tables[2]) == 1 + len(simulation.runs)
    assert "Tea &amp; coffee" in page.raw


def test_starts_have_rows_and_curves_of_their_own(simulation: Simulation) -> None:
    assert simulation.starts == ("random", "both")
    for start in simulation.starts:
        alone = simulated(["tea"], RULES, seeds=2, start=start)
        assert simulation.table().loc[f"tea, {start}"].equals(alone.table().loc["tea"])
        both = simulation.stops_table().loc[f"{simulation.rules[0]}, {start}"]
        assert both["runs"] == 4
        assert simulation.recall_curves()[f"tea, {start}"] == pytest.approx(alone.recall_curves()["tea"])
    assert len(simulation.draw().axes[0].get_lines()) == 5  # two topics from two starts, and the target


def test_without_rules_the_page_says_what_is_missing(tmp_path: Path) -> None:
    write_simulation(simulated(["tea"], [], seeds=1), tmp_path / "page.html")
    assert Page((tmp_path / "page.html").read_text(encoding="utf-8")).absent == ["stops"]
    with pytest.raises(InputError):
        write_simulation(simulated(["tea"], [], seeds=1), tmp_path)
