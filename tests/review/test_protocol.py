"""A protocol keeps its versions, marks keywords, gives reasons to judgements, and steers the ranking only if asked."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest

from haybale import Engine
from haybale.errors import InputError, UnknownNameError
from haybale.review import JudgementStore, Review, keyword_spans, protocol_versions
from haybale.review.keywords import marked_pieces

TEXTS = {
    "drug": "A trial of a new drug against pain.",
    "rats": "Rats were given a drug against pain.",
    "yoga": "Yoga against pain, a randomised trial in adults.",
    "cars": "The price of used cars.",
    "tea": "Tea and sleep in adults.",
}


@pytest.fixture
def engine() -> Engine:
    return Engine(TEXTS, language="english", encoder="tfidf(min_df=1)")


@pytest.fixture
def review(engine: Engine) -> Review:
    return Review(engine, "pain", topic="pain")


def test_the_last_version_counts_and_all_are_kept(review: Review) -> None:
    assert review.protocol.to_dict() == {
        "inclusion_criteria": "", "exclusion_criteria": "", "exclusion_reasons": [], "include_keywords": [],
        "exclude_keywords": [], "n_stages": 1, "criteria_as_query": False,
    }  # fmt: skip
    review.change_protocol(
        "Ada", inclusion_criteria="# Who\r\nAdults\n", exclusion_reasons=["no trial", " no  trial", ""]
    )
    review.change_protocol("Bob", inclusion_criteria="# Who\nAdults", n_stages=2)
    changed = review.change_protocol("Bob", inclusion_criteria="Anybody")
    assert changed == review.protocol
    assert (changed.inclusion_criteria, changed.exclusion_reasons, changed.n_stages) == ("Anybody", ("no trial",), 2)
    versions = [(event.kind, event.value, event.judge) for event in protocol_versions(review.store, review.topic)]
    assert versions == [
        ("inclusion_criteria", "# Who\nAdults", "Ada"),
        ("exclusion_reasons", ["no trial"], "Ada"),
        ("n_stages", 2, "Bob"),
        ("inclusion_criteria", "Anybody", "Bob"),
    ]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"criteria": "x"}, UnknownNameError),
        ({"inclusion_criteria": 3}, InputError),
        ({"exclusion_criteria": "x" * 100_001}, InputError),
        ({"exclusion_reasons": "no trial"}, InputError),
        ({"include_keywords": ["x" * 201]}, InputError),
        ({"exclude_keywords": [str(n) for n in range(501)]}, InputError),
        ({"n_stages": 3}, InputError),
        ({"n_stages": True}, InputError),
        ({"criteria_as_query": "yes"}, InputError),
    ],
)
def test_a_wrong_change_changes_nothing(review: Review, changes: dict, error: type[Exception]) -> None:
    with pytest.raises(error):
        review.change_protocol(**{"include_keywords": ["left out"], **changes})
    assert protocol_versions(review.store, review.topic) == []


def test_criteria_steer_the_ranking_only_if_asked(engine: Engine) -> None:
    review = Review(engine, "pain", topic="pain")
    _, before = review.scores()
    review.change_protocol(inclusion_criteria="yoga for adults", exclusion_criteria="cars", include_keywords=["tea"])
    assert np.array_equal(review.scores()[1], before)
    review.judge("rats", 0)
    review.undo()
    review.change_protocol(criteria_as_query=True)
    assert review.next()[0].doc_id == "yoga"
    asked = Review(engine, "pain\n\nyoga for adults", topic="both")
    assert np.array_equal(review.scores()[1], asked.scores()[1])
    review.change_protocol(criteria_as_query=False)
    assert np.array_equal(review.scores()[1], before)


def test_keywords_are_whole_words_or_beginnings() -> None:
    text = "A randomised Trial; trials, untrialled. Tea-room\nand new\ndrug (drug*)."
    words = [text[start:end] for start, end in keyword_spans(text, ["trial", "random*", "new drug", "tea", "drug", ""])]
    assert words == ["randomised", "Trial", "Tea", "new\ndrug", "drug"]
    assert keyword_spans(text, []) == keyword_spans(text, ["*", " "]) == []
    assert keyword_spans("a.b axb", ["a.b"]) == [(0, 3)]  # no pattern of users is run
    pieces = marked_pieces(text, [(2, 12), (13, 18)], ["trial*"], ["a randomised"])
    assert "".join(piece for piece, _ in pieces) == text
    assert pieces[:4] == [("A randomised", "exclude"), (" ", ""), ("Trial", "include"), ("; ", "")]


def test_reasons_are_kept_exported_and_taken_back(review: Review) -> None:
    review.judge("rats", 0, "Ada", reasons=["animals", "no trial"])
    review.judge("cars", 0, "Ada")
    review.judge("cars", 0, "Bob", reasons=["off topic"])
    with pytest.raises(InputError, match="reasons"):
        review.judge("drug", 1, "Ada", reasons=["animals"])
    with pytest.raises(InputError):
        review.judge("drug", 0, "Ada", reasons="animals")
    judged = {(row["doc_id"], row["judge"]): row["reasons"] for row in review.judgements().to_dict("records")}
    assert judged == {
        ("rats", "Ada"): ["animals", "no trial"], ("cars", "Ada"): [], ("cars", "Bob"): ["off topic"],
    }  # fmt: skip
    rats, cars = csv.DictReader(io.StringIO(review.export("csv")))
    assert (rats["reasons"], cars["reasons"]) == ("animals; no trial", "off topic")
    assert '"reason": ["animals", "no trial"]' in review.export("ris")
    review.judge("rats", 0, "Ada")
    assert review.judgements()["reasons"].tolist().count([]) == 2
    review.undo("Ada")
    assert ["animals", "no trial"] in review.judgements()["reasons"].tolist()


def test_a_protocol_is_that_of_the_file(engine: Engine, tmp_path) -> None:
    with JudgementStore(tmp_path / "store.sqlite") as store:
        ada, bob = (Review(engine, "pain", topic="pain", judgements=store) for _ in range(2))
        ada.change_protocol(exclusion_reasons=["animals"], inclusion_criteria="yoga", criteria_as_query=True)
        assert bob.protocol.exclusion_reasons == ("animals",)
        assert np.array_equal(ada.scores()[1], bob.scores()[1])
