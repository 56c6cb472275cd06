"""Test splitters: they keep every word in order, take linear time, and split each form of text correctly."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haybale.collections import (
    SPLITTERS,
    Collection,
    CollectionBuilder,
    by_section,
    find_splitter,
    open_collection,
    resplit,
    with_paragraphs,
)
from haybale.collections.splitters import is_french, numbering, sentences, split_sentences
from haybale.errors import InputError, UnknownNameError


def split(name: str, text: str) -> dict[str, str]:
    found = find_splitter(name)(text)
    labels = [paragraph.label for paragraph in found]
    assert len(set(labels)) == len(labels)
    return {paragraph.label: paragraph.text for paragraph in found}


TOKENS = ["wort", "Word", "v.", "No.", "e.g.", "Ende.", "?", "été", "[1]", "[2]", "[3]", "1", "2.", "II.", "§", "FACTS"]
TOKENS += ["Summary:", "#", "===", "---", "Art.", "5", "\u00a0", "\t", "\r", "\n", "\n", "\n\n"]
texts = st.lists(st.sampled_from(TOKENS), max_size=60).map(" ".join)
# The words that "numbered" and "headings" drop, as documented.
NUMBER = re.compile(r"\[[0-9]+\]|[0-9]+\.?|Summary:|\W+")
SIGNS = re.compile(r"#+|[=\-~^*+]{3,}")


@pytest.mark.parametrize("name", SPLITTERS)
@given(text=texts)
def test_only_documented_words_are_dropped_and_the_order_is_kept(name: str, text: str) -> None:
    found = find_splitter(name)(text)
    assert found or not text.split() or name in ("numbered", "headings")
    kept = [word for paragraph in found for word in paragraph.text.split()]
    dropped = Counter(text.split()) - Counter(kept)
    documented = {"numbered": NUMBER, "headings": SIGNS}.get(name, re.compile(r"(?!)"))
    assert all(documented.fullmatch(word) for word in dropped)
    words = iter(text.split())
    assert all(word in words for word in kept)  # a subsequence
    assert all(paragraph.text == paragraph.text.strip() != "" for paragraph in found)
    assert len({paragraph.label for paragraph in found}) == len(found)


HARD = {
    "one line": lambda n: "word " * n,
    "one number": lambda n: "[1]\nword\n" * (n // 2),
    "one heading": lambda n: "# Facts\nword\n" * (n // 2),
    "rules": lambda n: "=" * n + "\n" + "===\n" * n,
    "brackets": lambda n: "[" * n + "<" * n + "A" * n,
}


@pytest.mark.parametrize("name", SPLITTERS)
@pytest.mark.parametrize("make", HARD.values(), ids=HARD.keys())
def test_long_texts_take_linear_time(name: str, make) -> None:
    """Linear time is about a second, quadratic time would be many minutes."""
    text = make(60_000)
    found = find_splitter(name)(text)
    assert sum(len(paragraph.text.split()) for paragraph in found) <= len(text.split())


def test_unknown_names_are_rejected() -> None:
    with pytest.raises(UnknownNameError, match=r"'pages'.* lines, blank-lines, numbered"):
        find_splitter("pages")


def test_lines_and_blank_lines() -> None:
    """Without headings or numbers, ``headings`` and ``numbered`` also split at blank lines."""
    assert split("lines", " a b\r\n\n c\n") == {"0": "a b", "1": "c"}
    for name in ("blank-lines", "headings", "numbered"):
        assert split(name, " a\r\n b\r\n\r\n \n c\n") == {"0": "a b", "1": "c"}


@given(texts, st.integers(1, 12))
def test_paragraphs_of_sentences_are_as_long_as_the_limit_allows(text: str, words: int) -> None:
    found = [paragraph.text.split() for paragraph in split_sentences(text, words)]
    assert all(len(paragraph) <= words for paragraph in found)
    # Slow reference: a sentence that does not fit begins a new paragraph, and so does a word that does not fit.
    expected: list[list[str]] = [[]]
    for sentence in sentences(text):
        if len(expected[-1]) + len(sentence) > words and expected[-1]:
            expected.append([])
        for word in sentence:
            if len(expected[-1]) == words:
                expected.append([])
            expected[-1].append(word)
    assert found == [paragraph for paragraph in expected if paragraph]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It rained. It snowed.", 2),
        ("A line without a stop\nThe next", 2),
        ("See Smith v. Jones, No. 12, Art. 5 Abs. 2 Nr. 3 and S. 7.", 1),
        ("It costs 3.50 a day, e.g. on Sundays, i.e. seldom.", 1),
        ("Das gilt seit dem 3. Mai 2010. Der Kläger, vgl. BGH, z.B. Urt. v. 4. Juni, irrt.", 2),
        ('"Why?" she asked. "No reason." They left.', 3),
        ("It ended … and began again.", 1),
        ("See para. 7 and seq. and so on. end", 1),
    ],
)
def test_sentence_ends(text: str, expected: int) -> None:
    found = list(sentences(text))
    assert len(found) == expected, found


def test_headings_of_all_kinds() -> None:
    text = (
        "before\n# Facts #\nIt rained.\n\nA lot.\nTitle\n=====\nunder it\n----\nOver\n----\nboth\n"
        "§ 12\nlaw\n§ 13a Der Name\nlaw\nArt. 5.\nlaw\nArticle 6 Scope\nlaw\nII. Facts\nfacts\nA. Background\n"
        "2.1 Method\nhow\nTHE ISSUE:\nwhich\n# Facts\nagain"
    )
    assert split("headings", text) == {
        "0": "before",
        "Facts": "Facts\nIt rained. A lot.",
        "Title": "Title\nunder it",
        "Over": "Over\nboth",
        "§ 12": "§ 12\nlaw",
        "§ 13a Der Name": "§ 13a Der Name\nlaw",
        "Art. 5.": "Art. 5.\nlaw",
        "Article 6 Scope": "Article 6 Scope\nlaw",
        "II. Facts": "II. Facts\nfacts",
        "2.1 Method": "A. Background\n2.1 Method\nhow",  # a heading without text is prepended to the next one
        "THE ISSUE:": "THE ISSUE:\nwhich",
        "Facts (2)": "Facts\nagain",
    }


@pytest.mark.parametrize(
    "line",
    [
        "§ 12 BGB is applied here.",
        "§ 12 des Gesetzes",
        "Article 5 was breached.",
        "3.5 per cent",
        "(2) [CITATION] .)",
        "THIS COURT ORDERS THAT the application be dismissed",
        "#hashtag",
        "A very long title that is underlined\n===",
    ],
)
def test_lines_that_are_not_headings(line: str) -> None:
    assert set(split("headings", f"# Real\ntext\n{line}\nmore")) == {"Real"}


ENGLISH = "The officer did not consider the evidence that was before the Board."
FRENCH = "La requête est accordée par le juge pour les motifs exposés dans cette décision."


def test_a_case_of_the_federal_court() -> None:
    case = (
        "Minister v. Doe\n\u00a0\nMLB headnote\n<FRAGMENT_SUPPRESSED>\n* * *\nSummary:\nA visa\nwas refused.\n\n"
        "Aliens - Topic 1331\n\n[1]\nThe officer\u00a0erred in <FRAGMENT_SUPPRESSED>,\n\nat para. 3.\n[2]\n[3] Costs.\n"
        "ANALYSIS\n[4]\nOrder:\n1. The motion is allowed.\n2. No costs.\n[End of document]"
    )
    assert split("numbered", case) == {
        "I": "Minister v. Doe MLB headnote",
        "S": "A visa was refused. Aliens - Topic 1331",
        "1": "The officer erred in , at para. 3.",
        "3": "Costs. ANALYSIS",
        "4": "Order: 1. The motion is allowed. 2. No costs. [End of document]",
    }
    empty = case.replace("A visa\nwas", "This case is unedited, therefore contains no summary.\n")
    assert "S" not in split("numbered", empty)
    assert "S" not in split("numbered", case.replace("Summary:", "Headnote:"))


@pytest.mark.parametrize("form", ["[{}] {}", "[{}]\n{}", "{}\n{}", "{}. {}", "{}.\n{}"])
def test_forms_of_paragraph_numbers(form: str) -> None:
    text = "\n".join(form.format(i, f"Paragraph {i} has 5\nwords here.") for i in range(1, 31))
    expected = {str(i): f"Paragraph {i} has 5 words here." for i in range(1, 31)}
    assert split("numbered", text) == expected
    assert split("numbered", f"What is claimed is:\n{text}") == {"I": "What is claimed is:"} | expected


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([1, 2, 3, 4, 5, 6, 7, 3, 8], [[1, 2, 3, 4, 5, 6, 7, 8]]),  # a reference to an earlier paragraph
        ([1, 2, 3, 47, 48, 4, 5], [[1, 2, 3, 4, 5]]),  # a quotation from another case
        ([1, 2, 6, 3, 4, 5, 6, 7], [[1, 2, 3, 4, 5, 6, 7]]),  # a reference to a later paragraph
        ([1, 2, 4, 5, 8, 9, 10], [[1, 2, 4, 5, 8, 9, 10]]),  # numbers that are missing in the file
        ([1, 2, 3, 23], [[1, 2, 3]]),
        ([1, 2, 3, 4, 5, 6, 1, 2], [[1, 2, 3, 4, 5, 6]]),  # a numbered order at the end
        ([1, 2, 3, 1, 2, 3], [[1, 2, 3], [1, 2, 3]]),  # two languages
        ([2015], []),
    ],
)
def test_paragraph_numbers_are_the_best_ascending_chain(numbers: list[int], expected: list[list[int]]) -> None:
    for form in ("[{}]", "{}", "{}. x"):
        found = numbering([form.format(number) for number in numbers])
        assert [[number.value for number in chain] for chain in found] == expected


@given(st.lists(st.integers(1, 8), max_size=8))
def test_the_chain_has_the_highest_score_of_all(numbers: list[int]) -> None:
    best = 0
    for chosen in range(2 ** len(numbers)):  # slow reference: all subsequences
        chain = [number for position, number in enumerate(numbers) if chosen >> position & 1]
        if chain and all(a < b for a, b in pairwise(chain)):
            best = max(best, 2 * len(chain) - (chain[-1] - len(chain)))
    found = numbering([f"[{number}]" for number in numbers])
    chain = [number.value for number in found[0]] if found else []
    assert 2 * len(chain) - (chain[-1] - len(chain) if chain else 0) == best


def test_brackets_take_precedence_over_page_numbers_and_lists() -> None:
    pages = "\n".join(f"[{i}] text\n{i}\n1. one\n2. two" for i in range(1, 20))
    assert list(split("numbered", pages)) == [str(i) for i in range(1, 20)]


def bilingual(first: str, second: str) -> str:
    halves = ["\n".join(f"[{i}] {text}" for i in range(1, 4)) for text in (first, second)]
    return "Federal Court of Appeal\n" + "\n".join(halves)


def test_french_versions_are_dropped() -> None:
    expected = {"I": "Federal Court of Appeal"} | {str(i): ENGLISH for i in range(1, 4)}
    assert split("numbered", bilingual(ENGLISH, FRENCH)) == split("numbered", bilingual(FRENCH, ENGLISH)) == expected
    # All of a French version is dropped, even a paragraph that is too short to be recognised.
    assert split("numbered", bilingual(FRENCH, ENGLISH).replace(f"[2] {FRENCH}", "[2] Accordé.")) == expected
    assert len(split("numbered", bilingual("Accordé.", "Granted."))) == 7  # not recognised as French


def test_only_french_paragraphs_are_dropped() -> None:
    text = f"[1] {ENGLISH}\n[2] {FRENCH}\n[3] The Court said: « la requête est accordée » and dismissed the motion."
    assert list(split("numbered", text)) == ["1", "3"]
    assert split("numbered", f"{ENGLISH}\n\n{FRENCH}") == {"0": ENGLISH}
    for other in (
        "Das Verfahren nach Anspruch 1, wobei des Weiteren die Menge des Stoffes in der Lösung bestimmt wird.",
        "La solicitud de que se trata es la de la parte que no ha de pagar las costas de un proceso.",
        "Nemo debet esse iudex in propria causa, et qui tacet non est consentire.",
    ):
        assert not is_french(other)


@pytest.fixture
def laws() -> Collection:
    builder = CollectionBuilder("laws", language="english")
    a, b = builder.add_document("a", title="A"), builder.add_document("b", ["[1] One.", "[2] Two.\nStill two."])
    root = builder.add_section(a, "a/", "A", None)
    first = builder.add_section(a, "a/1", "First", "a/")
    builder.add_section(a, "a/2", "Empty", "a/")
    for number, section in enumerate([root, first, first, -1, root, -1]):
        builder.add_passage(a, f"passage {number}", f"a:{number}", section)
    builder.add_passage(b, "[3] Three.")
    builder.add_document("c")
    for source in ("a:1", "a:2"):
        builder.add_internal_link(source, "a/2")
        builder.add_external_link(source, "b")
    builder.add_external_link("a/1", "b")
    builder.add_query("q", ["[1] What?", "[2] And", "why?"], own="b", split="test")
    builder.add_query("r", ["…"], split="test")
    builder.add_judgement("test", "q", "a", 2)
    return builder.build()


def test_resplit_changes_only_passages_sections_and_links(laws: Collection) -> None:
    new = resplit(laws, find_splitter("numbered"))
    assert new.passages.ids.to_pylist() == ["a:0", "b:1", "b:2", "b:3"]
    assert new.passages.texts.to_pylist()[1:] == ["One.", "Two. Still two.", "Three."]
    assert new.passages.doc_offsets.tolist() == [0, 1, 4, 4]
    assert new.queries.paragraphs.to_pylist() == ["What?", "And why?", "…"]  # "…" has no paragraph and stays whole
    assert new.queries.offsets.tolist() == [0, 2, 3]
    assert (new.sections, new.links) == (None, None)
    for name in ("name", "language", "splits"):
        assert getattr(new, name) == getattr(laws, name)
    assert new.doc_titles.equals(laws.doc_titles)
    assert new.queries.own.tolist() == laws.queries.own.tolist()


def test_resplit_rejects_duplicate_passage_ids() -> None:
    builder = CollectionBuilder("colons")
    builder.add_document("a", ["# b:0", "x"])
    builder.add_document("a:b", ["x"])
    with pytest.raises(InputError, match="'a:b:0'"):
        resplit(builder.build(), find_splitter("headings"))


def test_by_section_joins_the_passages_of_a_section(laws: Collection, toy: Collection) -> None:
    new = by_section(laws)
    assert new.passages.ids.to_pylist() == ["a/", "a/1", "a:3", "a:5", "b:0", "b:1", "b:2"]
    assert new.passages.texts.to_pylist()[:3] == ["passage 0\npassage 4", "passage 1\npassage 2", "passage 3"]
    assert new.passages.doc_offsets.tolist() == [0, 4, 7, 7]
    assert new.passages.sections is not None
    assert new.passages.sections.tolist() == [0, 1, -1, -1, -1, -1, -1]
    assert new.links is not None
    assert new.links.internal.tolist() == [[1, 2]]
    assert new.links.passage_to_document.tolist() == [[1, 1]]
    assert new.links.section_to_document.tolist() == [[1, 1]]
    assert (new.sections, new.queries) == (laws.sections, laws.queries)
    with pytest.raises(InputError, match="'toy'"):
        by_section(toy)


def test_by_section_keeps_the_texts_of_documents(pydocs: Collection) -> None:
    new = by_section(pydocs)
    assert new.n_passages < pydocs.n_passages
    assert new.document_texts() == pydocs.document_texts()


def test_a_split_that_finds_no_boundary_is_said(tmp_path: Path) -> None:
    """BEIR's reader splits at line ends and leaves out blank lines, so no blank line is left to split at."""
    (tmp_path / "corpus.jsonl").write_text('{"_id": "a", "title": "", "text": "one\\n\\ntwo"}\n')
    with pytest.warns(UserWarning, match=r"no boundary.*choose"):
        whole = with_paragraphs(open_collection(tmp_path), "blank-lines")
    assert whole.passages.texts.to_pylist() == ["one two"]
    assert with_paragraphs(open_collection(tmp_path), "lines").n_passages == 2
