"""The report in a real browser: it renders on a phone and on a desk, dark and light, and its script works."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.browser import MISSING, Browser, find_chromium
from support.pages import hostile, small

from haybale.evaluation import compare
from haybale.reports import write_report

pytestmark = pytest.mark.skipif(find_chromium() is None, reason=MISSING)

PHONE, DESK = (390, 844), (1280, 800)
DARK, LIGHT = "rgb(21, 23, 27)", "rgb(251, 250, 247)"  # the ground of the page
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
GROUND = "getComputedStyle(document.body).backgroundColor"
SEEN = "[...document.querySelectorAll('svg.chart')].filter(each => each.getBoundingClientRect().width > 0).length"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Addresses of two pages: an ordinary one and one of hostile texts."""
    folder = tmp_path_factory.mktemp("report")
    addresses = {}
    for name, collection, rankers in (
        ("small", small(), ("bm25", "bm25-doc", "knn", "parm-vrrf", "rrf(bm25,knn)")),
        ("hostile", hostile(), ("bm25", "bm25-doc")),
    ):
        compare(collection, rankers).write(folder / name)
        write_report([folder / name], folder / f"{name}.html", collection=collection)
        addresses[name] = (folder / f"{name}.html").as_uri()
    return addresses


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.mark.parametrize(
    ("name", "size", "scheme"),
    [("small", PHONE, "light"), ("small", DESK, "dark"), ("hostile", PHONE, "dark"), ("hostile", DESK, "light")],
)
def test_it_renders(browser: Browser, pages: dict[str, str], name: str, size: tuple[int, int], scheme: str) -> None:
    browser.open(pages[name], *size, scheme)
    assert browser.errors == []
    assert browser.run("window.innerWidth") == size[0]
    browser.run("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    assert browser.run(OVERFLOW) == 0
    assert browser.run(GROUND) == (DARK if scheme == "dark" else LIGHT)
    assert browser.run(SEEN) == 4  # recall, differences, heatmap, picture
    assert browser.run("performance.getEntriesByType('resource').length") == 0
    sizes = "[...document.querySelectorAll('svg.chart text')].map(e => e.getBoundingClientRect())"
    assert browser.run(f"Math.min(...{sizes}.map(box => Math.max(box.width, box.height)))") > 10  # letters one can read


def test_the_reader_chooses_dark_or_light(browser: Browser, pages: dict[str, str]) -> None:
    browser.open(pages["small"], *DESK, "light")
    browser.run("document.getElementById('theme').click()")
    assert browser.run(GROUND) == DARK
    browser.open(pages["small"], *DESK, "light")
    assert browser.run(GROUND) == DARK  # kept
    browser.run("document.getElementById('theme').click()")
    assert browser.run(GROUND) == LIGHT
    browser.run("localStorage.clear()")


def test_columns_sort(browser: Browser, pages: dict[str, str]) -> None:
    browser.open(pages["small"], *DESK, "light")
    names = "[...document.querySelectorAll('.results tbody th bdi')].map(each => each.textContent.trim())"
    first = browser.run(names)
    click = "document.querySelectorAll('.results thead button')[{}].click()"
    values = "[...document.querySelectorAll('.results tbody tr')].map(each => Number(each.cells[{}].dataset.value))"
    browser.run(click.format(1))
    found = browser.run(values.format(1))
    assert found == sorted(found, reverse=True)
    sorts = browser.run("[...document.querySelectorAll('.results th[aria-sort]')].map(e => e.ariaSort)")
    assert (sorts[1], sorts.count("none")) == ("descending", len(sorts) - 1)
    browser.run(click.format(1))
    assert browser.run(values.format(1)) == sorted(found)
    browser.run(click.format(0))
    assert browser.run(names) == sorted(first)
    browser.run(click.format(7))  # p: the smallest first, the baseline, which has none, last
    assert browser.run(names)[-1] == "bm25"


def test_legends_hide_lines_and_bars_lead_to_queries(browser: Browser, pages: dict[str, str]) -> None:
    browser.open(pages["small"], *DESK, "light")
    lines = "[...document.querySelectorAll('.recall-chart [data-series]')]"
    shown = f"{lines}.filter(each => getComputedStyle(each).display !== 'none').length"
    name = "document.querySelector('[role=button][data-switch=\"1\"]')"
    assert browser.run(shown) == 5
    browser.run(f"{name}.dispatchEvent(new MouseEvent('click'))")
    assert (browser.run(shown), browser.run(f"{name}.ariaPressed")) == (4, "false")
    browser.run(f"{name}.dispatchEvent(new KeyboardEvent('keydown', {{key: 'Enter'}}))")
    assert (browser.run(shown), browser.run(f"{name}.ariaPressed")) == (5, "true")
    assert not browser.run("document.getElementById('q0').open")
    browser.run("document.querySelector('.difference-chart a').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    browser.run("new Promise(done => setTimeout(done, 50))")
    assert browser.run("document.getElementById('q0').open")


def test_paper_has_everything_unfolded_and_light(browser: Browser, pages: dict[str, str]) -> None:
    browser.open(pages["small"], *DESK, "dark")
    assert browser.run("document.querySelectorAll('details[open]').length") == 0
    browser.run("window.dispatchEvent(new Event('beforeprint'))")
    assert browser.run("document.querySelectorAll('details:not([open])').length") == 0
    browser.media("dark", "print")
    assert browser.run("getComputedStyle(document.querySelector('h1')).color") == "rgb(29, 31, 35)"
    assert browser.run("getComputedStyle(document.getElementById('theme')).display") == "none"
    browser.run("window.dispatchEvent(new Event('afterprint'))")
    assert browser.run("document.querySelectorAll('details[open]').length") == 0
