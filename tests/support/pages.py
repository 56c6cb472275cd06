"""For tests of the report: a small collection, a collection of hostile texts, and a parser of pages."""

from __future__ import annotations

import re
from functools import partial
from html.parser import HTMLParser
from typing import Any

import numpy as np
from sklearn.manifold import TSNE

from haybale.collections import Collection, CollectionBuilder

QUICK_TSNE = partial(TSNE, max_iter=250)  # a quarter of the iterations, for haybale.reports.picture
VOID = {"meta", "link", "br", "img", "input", "hr"}


def small(seed: int = 0, n_documents: int = 30, n_queries: int = 24) -> Collection:
    """Return documents of 1 to 4 passages about a topic; a query has words of its one or two relevant documents."""
    rng = np.random.default_rng(seed)
    words = np.array(
        [a + b for a in ("ba", "do", "ki", "lu", "me", "ro", "ti") for b in ("bel", "dar", "gon", "mil", "sur")]
    )
    topics = [rng.choice(words, size=6, replace=False) for _ in range(n_documents)]
    builder = CollectionBuilder("small", language="english")
    for number, topic in enumerate(topics):
        passages = [
            " ".join([*rng.choice(topic, 5), *rng.choice(words, 4)]) for _ in range(int(rng.integers(1, 5)))
        ]  # fmt: skip
        builder.add_document(f"d{number}", passages, title=f"Document {number}")
    for split in ("train", "dev"):
        for number in range(n_queries):
            answers = rng.choice(n_documents, size=1 + number % 2, replace=False)
            topic = np.concatenate([topics[i] for i in answers])
            texts = [" ".join([*rng.choice(topic, 3), *rng.choice(words, 3)]) for _ in range(3)]
            if number % 4 == 0:  # one paragraph of two sentences
                texts = [f"{texts[0].capitalize()}. {texts[1].capitalize()}."]
            builder.add_query(f"{split}-{number}", texts, split=split)
            for answer in answers:
                builder.add_judgement(split, f"{split}-{number}", f"d{answer}")
    return builder.build()


def hostile() -> Collection:
    """Return a collection with markup in every text."""
    builder = CollectionBuilder("<i>bad</i>", language="english")
    texts = ["<script>alert('dev')</script> apples", "<img src=x onerror=alert(1)> pears", "</details></p> plums ]]>"]
    for number in range(12):
        parts = [f"{text} {number} &amp; \"quoted\" 'text'" for text in texts[: 1 + number % 3]]
        builder.add_document(f"<b>{number}</b>", parts, title=f"</b><script>x{number}</script>\x07\x9b\u202e")
    for number in range(4):
        query = f"q{number}\"onmouseover='x'"
        builder.add_query(
            query, [f"apples {number} <script>alert('dev')</script>\x00", "pears </svg> plums"], split="dev"
        )
        builder.add_judgement("dev", query, f"<b>{number + 2}</b>")
    return builder.build()


class Page(HTMLParser):
    """Parse a page: its parts, and tags that do not match."""

    def __init__(self, raw: str) -> None:
        super().__init__(convert_charrefs=True)
        self.raw = raw
        self.open: list[str] = []
        self.unbalanced: list[str] = []
        self.addresses: list[tuple[str, str]] = []
        self.handlers: list[tuple[str, str]] = []
        self.sections: list[str] = []
        self.absent: list[str] = []
        self.ids: set[str] = set()
        self.n_ids = self.n_scripts = self.unlabelled = 0
        self.style = self.script = self.title = self.policy = ""
        self.tables: list[list[list[str]]] = []
        self.bold_cells: list[str] = []
        self.parts: list[str] = []
        self.feed(raw)
        self.close()
        self.unbalanced += self.open
        self.text = re.sub(r"\s+([.,:])", r"\1", re.sub(r"\s+", " ", " ".join(self.parts)))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given: dict[str, Any] = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in given.items():
            if name in ("src", "href", "srcset", "action", "data", "poster") or name.endswith(":href"):
                self.addresses.append((name, value))
            if name.startswith("on"):
                self.handlers.append((tag, name))
        if "id" in given:
            self.ids.add(given["id"])
            self.n_ids += 1
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"]
        if tag == "section":
            (self.absent if given.get("class") == "absent" else self.sections).append(given["id"])
        self.n_scripts += tag == "script"
        self.unlabelled += tag == "svg" and not (given.get("aria-label") or given.get("aria-hidden"))
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open[-1] != tag:
            self.unbalanced.append(f"</{tag}> within {self.open[-3:]}")
        else:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        inside = self.open[-1] if self.open else ""
        if inside == "style":
            self.style += data
        elif inside == "script":
            self.script += data
        elif inside == "title" and "svg" not in self.open:
            self.title += data
        else:
            self.parts.append(data)
            if self.tables and ("td" in self.open or "th" in self.open):
                self.tables[-1][-1][-1] += data
            if inside == "strong" and "td" in self.open:
                self.bold_cells.append(data)
