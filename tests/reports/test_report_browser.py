"""The report in a browser: it renders on small and large screens, in the dark and light theme, and its script works."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.browser import DESK, OVERFLOW, PHONE, chromium, collect_errors, needs_browser
from support.learners import CountingLearner
from support.pages import hostile, small

from haybale.evaluation import compare
from haybale.reports import write_report
from haybale.review import LabelledTopic, simulate, write_simulation

pytestmark = needs_browser

DARK, LIGHT = "rgb(21, 23, 27)", "rgb(251, 250, 247)"  # background colours of the page
GROUND = "getComputedStyle(document.body).backgroundColor"
SEEN = "[...document.querySelectorAll('svg.chart')].filter(each => each.getBoundingClientRect().width > 0).length"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The addresses of three pages: an ordinary one, one with hostile texts, and one of simulated reviews."""
    folder = tmp_path_factory.mktemp("report")
    addresses = {}
    for name, collection, rankers in (
        ("small", small(), ("bm25", "bm25-doc", "knn", "parm-vrrf", "rrf(bm25,knn)")),
        ("hostile", hostile(), ("bm25", "bm25-doc")),
    ):
        compare(collection, rankers).write(folder / name)
        write_report([folder / name], folder / f"{name}.html", collection=collection, picture="tsne")
        addresses[name] = (folder / f"{name}.html").as_uri()
    topics = [LabelledTopic(name, ["d0", "d1", "d2", "d3"], "bel gon") for name in ("a topic", 40 * "long")]
    how = {"seeds": 2, "start": ["random", "both"], "rules": ["cmh", "consecutive(3)"], "learner": CountingLearner}
    write_simulation(simulate(small(), topics=topics, **how), folder / "simulated.html")  # type: ignore[arg-type]
    return addresses | {"simulated": (folder / "simulated.html").as_uri()}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page in a large window and the light theme; scripts in it raise no error."""
    page = browser.new_page(viewport=DESK, color_scheme="light")
    errors = collect_errors(page)
    yield page
    page.close()
    assert errors == []


@pytest.mark.parametrize(
    ("name", "size", "scheme"),
    [
        ("small", PHONE, "light"),
        ("small", DESK, "dark"),
        ("hostile", PHONE, "dark"),
        ("hostile", DESK, "light"),
        ("simulated", PHONE, "dark"),
        ("simulated", DESK, "light"),
    ],
)
def test_the_page_renders(page: Any, pages: dict[str, str], name: str, size: dict[str, int], scheme: str) -> None:
    page.set_viewport_size(size)
    page.emulate_media(color_scheme=scheme)
    page.goto(pages[name])
    assert page.evaluate("window.innerWidth") == size["width"]
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    assert page.evaluate(OVERFLOW) == 0
    assert page.evaluate(GROUND) == (DARK if scheme == "dark" else LIGHT)
    assert page.evaluate(SEEN) == (1 if name == "simulated" else 4)  # recall, differences, heatmap, picture
    assert page.evaluate("performance.getEntriesByType('resource').length") == 0
    sizes = "[...document.querySelectorAll('svg.chart text')].map(e => e.getBoundingClientRect())"
    assert page.evaluate(f"Math.min(...{sizes}.map(box => Math.max(box.width, box.height)))") > 10  # pixels


def test_the_reader_chooses_dark_or_light(page: Any, pages: dict[str, str]) -> None:
    page.goto(pages["small"])
    page.evaluate("document.getElementById('theme').click()")
    assert page.evaluate(GROUND) == DARK
    page.goto(pages["small"])
    assert page.evaluate(GROUND) == DARK  # the choice is stored
    page.evaluate("document.getElementById('theme').click()")
    assert page.evaluate(GROUND) == LIGHT
    page.evaluate("localStorage.clear()")


def test_columns_sort(page: Any, pages: dict[str, str]) -> None:
    page.goto(pages["small"])
    names = "[...document.querySelectorAll('.results tbody th bdi')].map(each => each.textContent.trim())"
    first = page.evaluate(names)
    click = "document.querySelectorAll('.results thead button')[{}].click()"
    values = "[...document.querySelectorAll('.results tbody tr')].map(each => Number(each.cells[{}].dataset.value))"
    page.evaluate(click.format(1))
    found = page.evaluate(values.format(1))
    assert found == sorted(found, reverse=True)
    sorts = page.evaluate("[...document.querySelectorAll('.results th[aria-sort]')].map(e => e.ariaSort)")
    assert (sorts[1], sorts.count("none")) == ("descending", len(sorts) - 1)
    page.evaluate(click.format(1))
    assert page.evaluate(values.format(1)) == sorted(found)
    page.evaluate(click.format(0))
    assert page.evaluate(names) == sorted(first)
    page.evaluate(click.format(7))  # p-values in ascending order; the baseline has none and comes last
    assert page.evaluate(names)[-1] == "bm25"


def test_legends_hide_curves_and_bars_link_to_queries(page: Any, pages: dict[str, str]) -> None:
    page.goto(pages["small"])
    lines = "[...document.querySelectorAll('.recall-chart [data-series]')]"
    shown = f"{lines}.filter(each => getComputedStyle(each).display !== 'none').length"
    name = "document.querySelector('[role=button][data-switch=\"1\"]')"
    assert page.evaluate(shown) == 5
    page.evaluate(f"{name}.dispatchEvent(new MouseEvent('click'))")
    assert (page.evaluate(shown), page.evaluate(f"{name}.ariaPressed")) == (4, "false")
    page.evaluate(f"{name}.dispatchEvent(new KeyboardEvent('keydown', {{key: 'Enter'}}))")
    assert (page.evaluate(shown), page.evaluate(f"{name}.ariaPressed")) == (5, "true")
    assert not page.evaluate("document.getElementById('q0').open")
    page.evaluate(
        "document.querySelector('.difference-chart a').dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    )
    page.evaluate("new Promise(done => setTimeout(done, 50))")
    assert page.evaluate("document.getElementById('q0').open")


def test_the_printed_page_is_unfolded_and_light(page: Any, pages: dict[str, str]) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto(pages["small"])
    assert page.evaluate("document.querySelectorAll('details[open]').length") == 0
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.querySelectorAll('details:not([open])').length") == 0
    page.emulate_media(color_scheme="dark", media="print")
    assert page.evaluate("getComputedStyle(document.querySelector('h1')).color") == "rgb(29, 31, 35)"
    assert page.evaluate("getComputedStyle(document.getElementById('theme')).display") == "none"
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.querySelectorAll('details[open]').length") == 0
