"""``numbered``: introduction, summary and numbered paragraphs; numbers that are none; French beside English."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_splitters import split

from haybale.collections.paragraphs.french import is_french
from haybale.collections.paragraphs.numbering import numbering

ENGLISH = "The officer did not consider the evidence that was before the Board."
FRENCH = "La requête est accordée par le juge pour les motifs exposés dans cette décision."
ENGLISH_FIRST = "[French language version follows English language version]"
FRENCH_FIRST = "[La version anglaise vient à la suite de la version française]"


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
def test_numbers_come_in_five_forms(form: str) -> None:
    text = "\n".join(form.format(i, f"Paragraph {i} has 5\nwords here.") for i in range(1, 31))
    expected = {str(i): f"Paragraph {i} has 5 words here." for i in range(1, 31)}
    assert split("numbered", text) == expected
    assert split("numbered", f"What is claimed is:\n{text}") == {"I": "What is claimed is:"} | expected


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([1, 2, 3, 4, 5, 6, 7, 3, 8], [[1, 2, 3, 4, 5, 6, 7, 8]]),  # cited again
        ([1, 2, 3, 47, 48, 4, 5], [[1, 2, 3, 4, 5]]),  # quoted from another case
        ([1, 2, 6, 3, 4, 5, 6, 7], [[1, 2, 3, 4, 5, 6, 7]]),  # announced
        ([1, 2, 4, 5, 8, 9, 10], [[1, 2, 4, 5, 8, 9, 10]]),  # lost in the files
        ([2, 3, 4], [[2, 3, 4]]),
        ([1, 2, 3, 5], [[1, 2, 3, 5]]),
        ([1, 2, 3, 23], [[1, 2, 3]]),
        ([1, 2, 3, 4, 5, 6, 1, 2], [[1, 2, 3, 4, 5, 6]]),  # claims of an order at the end
        ([1, 2, 3, 1, 2, 3], [[1, 2, 3], [1, 2, 3]]),  # two languages
        ([2015], []),
        ([0], []),
    ],
)
def test_numbers_of_paragraphs_rise_and_jumps_must_pay(numbers: list[int], expected: list[list[int]]) -> None:
    for form in ("[{}]", "{}", "{}. x"):
        found = numbering([form.format(number) for number in numbers])
        assert [[number.value for number in chain] for chain in found] == expected


@given(st.lists(st.integers(1, 8), max_size=8))
def test_the_chain_of_numbers_is_the_best_of_all(numbers: list[int]) -> None:
    best = 0
    for chosen in range(2 ** len(numbers)):  # slow oracle: all of them
        chain = [number for place, number in enumerate(numbers) if chosen >> place & 1]
        if chain and all(a < b for a, b in pairwise(chain)):
            best = max(best, 2 * len(chain) - (chain[-1] - len(chain)))
    found = numbering([f"[{number}]" for number in numbers])
    chain = [number.value for number in found[0]] if found else []
    assert 2 * len(chain) - (chain[-1] - len(chain) if chain else 0) == best


def test_pages_and_lists_do_not_win_over_brackets() -> None:
    pages = "\n".join(f"[{i}] text\n{i}\n1. one\n2. two" for i in range(1, 20))
    assert list(split("numbered", pages)) == [str(i) for i in range(1, 20)]
    footnote = "\n".join([*(f"{i}. text" for i in range(1, 20)), "[1] See above."])
    assert split("numbered", footnote)["19"] == "text [1] See above."


def bilingual(first: str, second: str, marker: str = "") -> str:
    halves = ["\n".join(f"[{i}] {text}" for i in range(1, 4)) for text in (first, second)]
    return f"Federal Court of Appeal {marker}\n" + "\n".join(halves)


@pytest.mark.parametrize("marker", [ENGLISH_FIRST, FRENCH_FIRST, ""])
def test_french_versions_are_dropped(marker: str) -> None:
    halves = (FRENCH, ENGLISH) if marker == FRENCH_FIRST else (ENGLISH, FRENCH)
    expected = {"I": "Federal Court of Appeal"} | {str(i): ENGLISH for i in range(1, 4)}
    assert split("numbered", bilingual(*halves, marker)) == expected
    kept = split("numbered", bilingual(*halves, marker), french="keep")
    assert list(kept) == ["I", "1", "2", "3", "1 (2)", "2 (2)", "3 (2)"]


def test_the_remark_decides_where_words_do_not() -> None:
    short = bilingual("Accordé.", "Granted.", FRENCH_FIRST)
    assert split("numbered", short) == {
        "I": "Federal Court of Appeal",
        "1": "Granted.",
        "2": "Granted.",
        "3": "Granted.",
    }
    assert len(split("numbered", bilingual("Accordé.", "Granted."))) == 7  # not known to be French
    # A French version is dropped whole, though one of its paragraphs alone would not be known.
    text = bilingual(FRENCH, ENGLISH).replace(f"[2] {FRENCH}", "[2] Accordé.")
    assert "Accordé." not in split("numbered", text).values()


def test_single_french_paragraphs_are_dropped_and_nothing_else() -> None:
    text = f"[1] {ENGLISH}\n[2] {FRENCH}\n[3] The Court said: « la requête est accordée » and dismissed the motion."
    assert list(split("numbered", text)) == ["1", "3"]
    assert list(split("numbered", text, french="keep")) == ["1", "2", "3"]
    assert split("numbered", f"{ENGLISH}\n\n{FRENCH}") == {"0": ENGLISH}
    for other in (
        "Das Verfahren nach Anspruch 1, wobei des Weiteren die Menge des Stoffes in der Lösung bestimmt wird.",
        "La solicitud de que se trata es la de la parte que no ha de pagar las costas de un proceso.",
        "La domanda del ricorrente è accolta e le spese sono a carico della parte che ha perso la causa.",
        "Nemo debet esse iudex in propria causa, et qui tacet non est consentire.",
    ):
        assert not is_french(other)


def test_a_text_without_numbers_is_split_at_blank_lines() -> None:
    assert split("numbered", "It\nrained.\n\n<FRAGMENT_SUPPRESSED>\n\nIt snowed.") == {
        "0": "It rained.",
        "1": "It snowed.",
    }
