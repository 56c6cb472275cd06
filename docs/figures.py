"""Make the pictures of the README and of tutorials: walks through pages, by Playwright and Chromium.

    python docs/figures.py [FOLDER]         default: docs

``make figures`` runs it. It writes invented contracts, serves them, judges with their true grades, trains, and takes
pictures of pages as it goes. It also prints the measures of the training. Then it searches two PDF files, and compares
rankers on pydocs. The README's pictures are in the folder ``pictures``, each in light and in dark.
"""

from __future__ import annotations

import io
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from support.browser import chromium  # noqa: E402
from support.contracts import QUESTION, write_contracts  # noqa: E402
from support.page_files import PASSAGES, by_reportlab, engine_of  # noqa: E402

import haybale  # noqa: E402
from haybale import Engine, parse  # noqa: E402
from haybale.cli.options import DEFAULT_RANKER  # noqa: E402
from haybale.review import JudgementStore  # noqa: E402
from haybale.service import Workspace, create_app  # noqa: E402

EACH = 10  # judgements of a topic
COLOURS = 64  # of a picture
DESK, PHONE = {"width": 1180, "height": 760}, {"width": 390, "height": 760}


def main(out: Path) -> None:
    (out / "pictures").mkdir(exist_ok=True)
    see_a_comparison(out / "pictures")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        grades = write_contracts(folder / "contracts")
        texts = {path.name: path.read_text(encoding="utf-8") for path in (folder / "contracts").glob("*.md")}
        truth = {
            QUESTION: grades,
            "Which payments follow inflation?": {name: "consumer prices" in text for name, text in texts.items()},
            "Which disputes go to arbitration, not to a court?": {n: "arbitrator" in text for n, text in texts.items()},
        }
        engine = Engine.build(folder / "contracts", folder / "engine", language="english").prepare()
        with JudgementStore(folder / "judgements.sqlite") as store:
            workspace = Workspace(engine, {DEFAULT_RANKER: parse(DEFAULT_RANKER).fit(engine)}, store)
            with served(workspace) as address, chromium() as browser:
                see_reasons(browser, address, out / "pictures")
                walk(browser, address, workspace, truth, out / "tutorials")
            workspace.close()
        see_a_page(folder, out / "tutorials")


def see_a_comparison(out: Path) -> None:
    """Compare rankers on the test split of pydocs, and take pictures of the report."""
    from haybale.reports import write_report

    with tempfile.TemporaryDirectory() as scratch, chromium() as browser:
        report = Path(scratch, "report.html")
        outcome = haybale.compare("pydocs", "bm25,bm25-doc,knn-doc,parm-vrrf,svr,learned", split="test")
        outcome.write(Path(scratch, "results"))
        write_report([Path(scratch, "results")], report)
        page = browser.new_page(viewport=DESK)
        page.goto(report.as_uri())
        in_light_and_dark(page, out, "comparison")


def see_reasons(browser: Any, address: str, out: Path) -> None:
    """Search with a filter, open the reasons of the first hit, and take pictures."""
    page = browser.new_page(base_url=address, viewport=DESK)
    page.goto(f"/?q={QUESTION}&f.kind=Lease")
    page.locator(".open-why").first.click()
    page.wait_for_selector(".shares")
    in_light_and_dark(page, out, "search")
    page.close()


def in_light_and_dark(page: Any, out: Path, name: str) -> None:
    """Take a picture of a page in each colour scheme."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        picture(page, out / f"{name}-{scheme}.png")


def see_a_page(folder: Path, out: Path) -> None:
    """Open the page of a hit in a PDF file on a phone, with a picture."""
    (folder / "leases").mkdir()
    for name, order in (("workshop.pdf", PASSAGES), ("office.pdf", PASSAGES[::-1])):
        (folder / "leases" / name).write_bytes(by_reportlab(order, -1))
    engine = engine_of(folder / "leases", folder / "leases-engine").prepare()
    with JudgementStore() as store:
        workspace = Workspace(engine, {DEFAULT_RANKER: parse(DEFAULT_RANKER).fit(engine)}, store)
        with served(workspace) as address, chromium() as browser:
            page = browser.new_page(base_url=address, viewport=PHONE, color_scheme="light")
            page.goto("/?q=how+long+may+the+lessor+keep+the+deposit")
            page.locator(".page-view summary").first.click()
            while not page.evaluate("document.querySelector('.page-view img').naturalWidth"):
                page.wait_for_timeout(50)
            page.evaluate("document.querySelector('.hit').scrollIntoView()")
            picture(page, out / "pdfs-page.png")
        workspace.close()


def walk(browser: Any, address: str, workspace: Workspace, truth: dict[str, dict[str, Any]], out: Path) -> None:
    """Search, judge and train, with pictures."""
    page = browser.new_page(base_url=address, viewport=DESK, color_scheme="light")
    page.goto(f"/?q={QUESTION}&f.kind=Lease")
    page.locator(".open-why").first.click()
    page.wait_for_selector(".shares")
    picture(page, out / "team-search.png")
    for text, grade in truth.items():
        topic = workspace.create_topic(text).id
        for _ in range(EACH):
            doc_id = workspace.next(topic, judge="Ada")[0].doc_id
            workspace.judge(topic, doc_id, int(grade[doc_id]), judge="Ada", seconds=8.0)
    page.goto("/topics/1/review")
    page.locator(".rules summary").nth(1).click()
    picture(page, out / "team-review.png")
    page.set_viewport_size(PHONE)
    page.emulate_media(color_scheme="dark")
    page.goto("/topics/1/review")
    picture(page, out / "team-phone.png")
    page.set_viewport_size(DESK)
    page.emulate_media(color_scheme="light")
    page.goto("/train")
    page.get_by_role("button", name="Train on").click()
    page.get_by_role("button", name="Accept").wait_for(timeout=300_000)
    picture(page, out / "team-train.png")
    for name, found in workspace.trainings()[0].result["questions"].items():
        print(
            name,
            {measure: f"{each['before']:.3f} → {each['after']:.3f}" for measure, each in found["measures"].items()},
        )


@contextmanager
def served(workspace: Workspace) -> Iterator[str]:
    """Serve a workspace in a thread, and yield its address."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(create_app(workspace), port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def picture(page: Any, path: Path) -> None:
    """Write what is seen of a page as a PNG file of few colours."""
    from PIL import Image

    page.mouse.move(0, 0)
    page.wait_for_timeout(200)
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    print(path.name, f"{path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
