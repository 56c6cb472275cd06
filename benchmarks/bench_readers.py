"""Measure how many words of files of other makers haybale reads: documentation packages of Debian, and messages.

    python benchmarks/bench_readers.py FOLDER

The packages are downloaded into FOLDER with `apt-get download`, unless they are there, and unpacked beside it. Words of
PDF files are compared with those of `pdftotext` (package poppler-utils), words of HTML pages with the text outside of
script, style, head and menus (nav, or the role navigation or search), and words of messages, with which Python's own
`email` is tested, with the text parts that `email` finds. Recall is the share of these words that haybale reads,
precision the share of its words that are among them; each occurrence counts. Hyphens are left out, so a word is the
same with and without one.
"""

from __future__ import annotations

import email
import email.policy
import gzip
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import lxml.html
from provenance import options, provenance, shown, table, write_page

from haybale.collections.files.file_reader import read_documents, reader_of
from haybale.normalisation import normalise

PDF_PACKAGES = (
    *("asymptote-doc", "bash-doc", "debian-faq", "debian-policy", "debian-refcard", "debian-reference-de"),
    *("debian-reference-en", "developers-reference", "ghostscript-doc", "gnuplot-doc", "maint-guide-de", "r-doc-pdf"),
)
REFCARDS = {"refcard-en-a4.pdf.gz", "refcard-de-a4.pdf.gz", "refcard-fr-a4.pdf.gz"}  # of debian-refcard; in columns
HTML_PACKAGES = ("debian-policy", "debian-reference-en", "sqlite3-doc")
MESSAGES = "libpython3.11-testsuite"
MIN_WORDS = 200  # of a PDF file; the others have pictures
UNSEEN = ("script", "style", "head", "nav", "noscript", "template")
BLOCKS = (
    "p",
    "div",
    "li",
    "dt",
    "dd",
    "td",
    "th",
    "tr",
    "br",
    "pre",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "option",
    "hr",
)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("folder", type=Path, help="a folder for the packages")
    a = parser.parse_args()
    warnings.simplefilter("ignore")
    names = sorted({*PDF_PACKAGES, *HTML_PACKAGES, MESSAGES})
    versions = {name: unpack(a.folder, name) for name in names}
    lines = [
        "# Words of files of other makers",
        "",
        "Recall is the share of the words of the reference that haybale reads, precision the share of its words that",
        "are in the reference; each occurrence counts, and hyphens do not. `pdftotext` is the reference of PDF files.",
        *table(
            "package|file|written by|pages|words|recall|precision|s, pdftotext|s, haybale",
            (row for name in PDF_PACKAGES for row in pdf_rows(a.folder / name, name)),
            3,
            show_share,
        ),
        "",
        "The reference of HTML pages is the text outside of script, style, head and menus; that of messages, with",
        "which Python's `email` is tested, is what `email` finds in their text parts.",
        *table("files|number|words|recall|precision|below 80 % recall", other_rows(a.folder), 1, show_share),
        "",
        "Packages: " + ", ".join(f"{name} {version}" for name, version in versions.items()) + ".",
        "",
        provenance(shown("bench_readers.py", sys.argv[1:]), more=("pypdfium2", "lxml")),
    ]
    write_page(a.results / "readers.md", lines)


def show_share(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4f}" if value <= 1 else f"{value:.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def unpack(folder: Path, name: str) -> str:
    """Download a package and unpack it into a folder of its name, unless it is there; return its version."""
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob(f"{name}_*.deb")):
        subprocess.run(["apt-get", "download", name], cwd=folder, check=True, capture_output=True)
    (package,) = folder.glob(f"{name}_*.deb")
    if not (folder / name).exists():
        subprocess.run(["dpkg-deb", "-x", package.name, name], cwd=folder, check=True)
    return package.name.split("_")[1].replace("%3a", ":")


def words(text: str) -> Counter[str]:
    return Counter(re.findall(r"\w+", re.sub(r"[-\u2010]\s*", "", normalise(text)).casefold()))


def read(name: str, data: bytes) -> str:
    """Return the text that haybale reads in a file, without titles."""
    reader = reader_of(name)
    assert reader is not None
    documents, _ = read_documents(reader, data, {})
    texts, heading = list[str](), ""
    for part in (part for document in documents for part in document.parts):
        texts += [part.heading] if part.heading and part.heading != heading else []
        texts.append(part.text)
        heading = part.heading or ""
    return "\n".join(texts)


def shares(reference: Counter[str], ours: Counter[str]) -> tuple[float, float]:
    """Return recall and precision."""
    both = (reference & ours).total()
    return both / max(1, reference.total()), both / max(1, ours.total())


def pdf_rows(folder: Path, package: str) -> Iterator[list[object]]:
    """Yield a row for each PDF file of a package, and compare its words."""
    contents = set[bytes]()  # some packages have a file twice
    for path in sorted({*folder.rglob("*.pdf"), *folder.rglob("*.pdf.gz")}):
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        if path.is_symlink() or data in contents or (package == "debian-refcard" and path.name not in REFCARDS):
            continue
        contents.add(data)
        with tempfile.NamedTemporaryFile(suffix=".pdf") as file:
            file.write(data)
            file.flush()
            start = time.perf_counter()
            printed = subprocess.run(["pdftotext", "-enc", "UTF-8", file.name, "-"], capture_output=True, check=True)
            theirs = time.perf_counter() - start
            about = subprocess.run(["pdfinfo", file.name], capture_output=True, text=True, check=True).stdout
        reference = words(printed.stdout.decode(errors="replace").replace("\f", "\n"))
        if reference.total() < MIN_WORDS:
            continue
        start = time.perf_counter()
        ours = words(read("file.pdf", data))
        seconds = time.perf_counter() - start
        facts = dict(line.split(":", 1) for line in about.splitlines() if ":" in line)
        producer = facts.get("Producer", "").strip() or "unknown"
        file_name = path.name.removesuffix(".gz")
        yield [
            package,
            file_name,
            producer[:40],
            int(facts["Pages"]),
            reference.total(),
            *shares(reference, ours),
            theirs,
            seconds,
        ]


def page_text(page: bytes | str) -> str:
    """Return the text of an HTML page outside of elements that are not seen; blocks are on lines of their own."""
    root = lxml.html.fromstring(page)
    for element in [*root.iter(*UNSEEN), *root.xpath("//*[@role='navigation' or @role='search']")]:
        if element.getparent() is not None:
            element.drop_tree()
    for element in root.iter(*BLOCKS):
        element.text = f"\n{element.text or ''}"
        element.tail = f"\n{element.tail or ''}"
    return str(root.text_content())


def message_text(data: bytes) -> str:
    """Return the text of all text parts of a message, as far as `email` finds them."""
    texts = []
    for part in email.message_from_bytes(data, policy=email.policy.default).walk():
        if part.get_content_maintype() == "text":
            payload = part.get_payload(decode=True)
            assert isinstance(payload, bytes)
            try:
                text = payload.decode(part.get_content_charset("utf-8"), errors="replace")
            except LookupError:
                text = payload.decode("latin-1")
            texts.append(page_text(text) if part.get_content_subtype() == "html" and text.strip() else text)
    return "\n".join(texts)


def other_rows(folder: Path) -> Iterator[list[object]]:
    for package in HTML_PACKAGES:
        pages = (
            path for path in sorted((folder / package).rglob("*.html*")) if path.is_file() and not path.is_symlink()
        )
        texts = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes() for path in pages)
        yield other_row(
            f"HTML pages of {package}", ((page_text(text), read("page.html", text)) for text in texts if text)
        )
    messages = [path.read_bytes() for path in sorted((folder / MESSAGES).rglob("test_email/data/msg_*.txt"))]
    yield other_row("messages of Python's tests", ((message_text(data), read("mail.eml", data)) for data in messages))


def other_row(name: str, texts: Iterable[tuple[str, str]]) -> list[object]:
    """Return a row for files: the reference text of each, and what haybale reads."""
    counts = [(words(reference), words(ours)) for reference, ours in texts]
    both = sum((reference & ours).total() for reference, ours in counts)
    n_reference, n_ours = (sum(count.total() for count in column) for column in zip(*counts, strict=True))
    n_low = sum(shares(*pair)[0] < 0.8 for pair in counts if pair[0])
    return [name, len(counts), n_reference, both / max(1, n_reference), both / max(1, n_ours), n_low]


if __name__ == "__main__":
    main()
