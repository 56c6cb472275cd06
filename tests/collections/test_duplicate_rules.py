"""Which records are one: each case is a pair as databases export it, and what a reader would say."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from haybale import Collection, CollectionBuilder
from haybale.collections.record_fields import RecordFields, sources_of
from haybale.collections.text_sketches import TextSketches
from haybale.engine.duplicates import groups_of
from haybale.review.minhash import _shingles, _similarity

ABSTRACT = (
    "Background: the effect of statins on the risk of stroke in adults with diabetes is not clear. Methods: we "
    "assigned 4,312 adults at random to a statin or to placebo, and followed them for five years. Results: stroke "
    "occurred in 3.1 per cent of those with a statin, and in 4.4 per cent of those with placebo. Conclusions: statins "
    "reduce the risk."
)
OTHER_ABSTRACT = (
    "Wheat was sown on forty plots with and without nitrogen. Yield was weighed at harvest in each of six seasons, and "
    "soil was sampled before and after. Nitrogen raised the yield on sandy soil, while on clay no difference was seen "
    "between the plots in any season, whatever the weather had been during spring and early summer."
)
RECORD = {
    "title": "Statins and the risk of stroke in adults with diabetes: a randomised trial",
    "year": 2010,
    "authors": ["Smith, John", "Doe, Jane"],
    "journal": "The Lancet",
    "volume": "375",
    "start_page": "1201",
    "text": ABSTRACT,
}


def collection_of(*records: dict[str, Any]) -> Collection:
    builder = CollectionBuilder("records")
    for number, record in enumerate(records):
        metadata = {name: value for name, value in record.items() if name not in ("title", "text")}
        text = record.get("text") or record.get("title", "")
        builder.add_document(f"r{number}", [text], title=record.get("title", ""), metadata=metadata)
    return builder.build(warn=False)


def n_groups(*records: dict[str, Any]) -> int:
    return len(groups_of(collection_of(*records)))


def without(*names: str, **changed: Any) -> dict[str, Any]:
    return {name: value for name, value in RECORD.items() if name not in names} | changed


SAME = {
    "as another database writes it": (
        without(doi="10.1016/S0140-6736(10)1"),
        without(
            "authors", title="STATINS AND THE RISK OF STROKE IN ADULTS WITH DIABETES - A RANDOMISED TRIAL.",
            doi="https://doi.org/10.1016/s0140-6736(10)1", author="Smith J; Doe J", start_page="1201-9",
        ),
    ),
    "same DOI, other title for one work": (
        without("volume", "start_page", doi="10.1000/a", title="Statins and stroke in adults with diabetes"),
        without("text", doi="10.1000/A."),
    ),
    "same PubMed id": (without("text", pmid=19), without("year", PMID="PMID: 19")),
    "without ids": (without(), without("text", journal="Lancet")),
    "abstract cut": (without("authors"), without("authors", "journal", text=ABSTRACT[: len(ABSTRACT) // 2])),
    "year of the electronic version": (without(year=2009), without(year=2010)),
    "title with another ending": (
        without(title="Broadcast disks: data management for communications environments", text=""),
        without(title="Broadcast Disks - Data Management for Communication Environments", text=""),
    ),
    "subtitle missing": (without(), without(title="Statins and the risk of stroke in adults with diabetes")),
    "title and text only": (
        {"title": RECORD["title"], "text": ABSTRACT},
        {"title": RECORD["title"].upper(), "text": ABSTRACT.upper()},
    ),
    "markup and accents": (
        without("text", title="Étude of <i>β</i>-blockers in adults with heart failure"),
        without("text", title="Etude of β-blockers in adults with heart failure"),
    ),
    "one file with both": (
        without("text", "volume", "start_page", file="library.csv"),
        without("text", "volume", "start_page", file="library.csv", authors="Smith, J.; Doe, J."),
    ),
    "title and year": (
        {"title": "A history of the potato in Europe", "year": 1999, "file": "a.ris"},
        {"title": "A History of the Potato in Europe.", "year": "1999", "file": "b.ris"},
    ),
    "copies of a file": (
        {"title": "contract", "text": ABSTRACT * 2, "file": "contract.txt"},
        {"title": "old letters of May", "text": ABSTRACT.upper() * 2, "file": "old/letters.txt"},
    ),
}  # fmt: skip
APART = {
    "different DOIs": (without(doi="10.1000/a"), without(doi="10.1000/b")),
    "preprint and article": (without(doi="10.1101/2010.01.01", journal="medRxiv"), without(doi="10.1000/b")),
    "different PubMed ids": (without(pmid=1), without(pmid=2)),
    "conference paper and article of the next year": (
        without("volume", year=2009, journal="Annual Conference on Stroke", start_page="17"),
        without(),
    ),
    "first and second part": (
        without(title="Statins and stroke in adults with diabetes. Part 1"),
        without(title="Statins and stroke in adults with diabetes. Part 2"),
    ),
    "Roman numbers": (
        without("text", title="A model of queues in hospitals II"),
        without("text", title="A model of queues in hospitals III"),
    ),
    "men and women": (
        without("text", "volume", title="Risk of stroke in men with diabetes and hypertension"),
        without("text", "volume", title="Risk of stroke in women with diabetes and hypertension"),
    ),
    "other authors": (without("text", authors="Smith J"), without("text", authors="Miller A; Wu B")),
    "letters with a common title": (
        without("text", title="Opioids and chronic pain", start_page="12"),
        without("text", title="Opioids and chronic pain", start_page="871"),
    ),
    "other abstract": (without("volume"), without("volume", text=OTHER_ABSTRACT)),
    "abstracts of a supplement with one DOI": (
        without("text", doi="10.1000/suppl", title="Knee pain in runners of marathons", start_page="S1"),
        without("text", doi="10.1000/suppl", title="Sleep quality among nurses on night shifts", start_page="S9"),
    ),
    "contracts of one template": (
        {"title": "Rental agreement", "text": f"Landlord: Miller. {ABSTRACT} Rent: 750 euros."},
        {"title": "Rental agreement", "text": f"Landlord: Meier. {ABSTRACT} Rent: 790 euros."},
    ),
    "one mail on two days": (
        {"title": "Your invoice is attached to this message", "text": ABSTRACT, "date": "2020-01-02"},
        {"title": "Your invoice is attached to this message", "text": ABSTRACT, "date": "2020-02-02"},
    ),
    "replies of one day": (
        {"title": "Re: Contract for the flat in Berlin", "text": "Yes, we sign it.", "date": "2020-01-02"},
        {"title": "Re: Contract for the flat in Berlin", "text": "No, we do not.", "date": "2020-01-02"},
    ),
    "decisions of one court and year": (
        {"title": "Judgment of the Federal Court of Justice", "text": ABSTRACT, "year": 2010, "file": "a.csv"},
        {"title": "Judgment of the Federal Court of Justice", "text": OTHER_ABSTRACT, "year": 2010, "file": "a.csv"},
    ),
    "contracts of one template and year": (
        {"title": "Rental agreement for residential premises", "text": f"Miller. {ABSTRACT}", "year": 2010},
        {"title": "Rental agreement for residential premises", "text": f"Meier. {ABSTRACT}", "year": 2010},
    ),
    "rows with one abstract by mistake": (
        {"title": "Three paradigms of computer science education", "text": ABSTRACT * 2, "file": "a.csv"},
        {"title": "Valuing computer science education research", "text": ABSTRACT * 2, "file": "a.csv"},
    ),
    "short texts": ({"title": "a", "text": "No abstract available."}, {"title": "b", "text": "No abstract available."}),
}  # fmt: skip


@pytest.mark.parametrize("case", SAME)
def test_one_work_is_one_group(case: str) -> None:
    one, other = SAME[case]
    assert n_groups(one, other) == n_groups(other, one) == 1


@pytest.mark.parametrize("case", APART)
def test_two_works_are_apart(case: str) -> None:
    one, other = APART[case]
    assert n_groups(one, other) == n_groups(other, one) == 0


def test_a_record_without_ids_does_not_join_two_works() -> None:
    records = [without(doi="10.1000/a"), without(), without(doi="10.1000/b")]
    for order in permutations(records):
        groups = groups_of(collection_of(*order))
        assert [len(group.doc_ids) for group in groups] == [2]


def test_many_copies_are_one_group() -> None:
    copies = [{"title": f"copy {number}", "text": ABSTRACT * 2, "file": f"{number}.txt"} for number in range(300)]
    [group] = groups_of(collection_of(*copies, {"title": "another", "text": OTHER_ABSTRACT * 2}))
    assert len(group.doc_ids) == 300


def test_titles_of_series_are_no_evidence() -> None:
    notes = [
        without("text", "volume", "start_page", title="Notes of the editor in chief", year=year, file="dblp.csv")
        for year in (2001, 2001, 2002, 2003)
    ]
    assert n_groups(*notes) == 0


def test_the_longest_text_represents_a_group_and_groups_do_not_depend_on_the_order() -> None:
    records = [without("text"), without(text=ABSTRACT[:120]), without(), without(title="Something else entirely, in 7")]
    for order in permutations(range(4)):
        collection = collection_of(*(records[number] for number in order))
        [group] = groups_of(collection)
        assert order[int(group.representative[1:])] == 2
        assert sorted(order[int(doc_id[1:])] for doc_id in group.doc_ids) == [0, 1, 2]


def test_sources_are_files_or_databases() -> None:
    records = [{"text": "a", "file": "x.ris"}, {"text": "b", "name_of_database": "Embase"}, {"text": "c"}]
    assert sources_of(collection_of(*records)) == ["x.ris", "Embase", ""]


def test_columns_whose_names_differ_in_case_are_one() -> None:
    fields = RecordFields.of(collection_of({"text": "a", "doi": "10.1000/a"}, {"text": "b", "DOI": "10.1000/B"}))
    assert fields.doi == ["10.1000/a", "10.1000/b"]


def test_fields_that_are_not_understood_are_left_out() -> None:
    fields = RecordFields.of(
        collection_of({"text": "a", "doi": "NA", "year": "in press", "pages": "n/a", "pmid": True})
    )
    assert (fields.doi, fields.year, fields.page, fields.pmid) == ([""], [0], [""], [""])


def test_overlap_of_sketches_estimates_the_jaccard_index() -> None:
    random = np.random.default_rng(3)
    words = [f"word{number}" for number in range(400)]
    base = [str(word) for word in random.choice(words, 150)]
    texts = [" ".join(base)]
    for n_changed in (0, 3, 10, 25, 60, 150):
        changed = list(base)
        for place in random.choice(150, n_changed, replace=False):
            changed[place] = "other" + changed[place]
        texts.append(" ".join(changed))
    sketches = TextSketches.of(collection_of(*({"text": text} for text in texts)))
    for number, text in enumerate(texts):
        jaccard = _similarity(_shingles(texts[0]), _shingles(text))
        assert abs(sketches.overlap(0, number) - jaccard) <= 4 * np.sqrt(jaccard * (1 - jaccard) / 80) + 0.02
    assert sketches.n_words.tolist() == [150] * len(texts)


def test_sketches_ignore_case_and_punctuation_and_split_scripts_without_spaces() -> None:
    texts = ["Dogs, bark — at night!", "dogs bark at night", "dogs bark at noon", "租约终止", "租约 终止", "", "…"]
    sketches = TextSketches.of(collection_of(*({"text": text, "title": "t"} for text in texts)))
    hashes = sketches.texts.tolist()
    assert hashes[0] == hashes[1] != hashes[2]
    assert hashes[3] == hashes[4] != 0
    assert sketches.n_words.tolist()[:5] == [4, 4, 4, 4, 4]


def test_sketches_do_not_depend_on_the_documents_beside_them(tmp_path: Any) -> None:
    texts = [{"text": text} for text in (ABSTRACT, OTHER_ABSTRACT, "Ein Vertrag über 750 Euro", "ไม่มี")]
    whole = TextSketches.of(collection_of(*texts))
    parts = TextSketches.joined(
        [TextSketches.of(collection_of(*texts[:1])), TextSketches.of(collection_of(*texts[1:]))]
    )
    whole.save(tmp_path / "sketches.npz")
    saved = TextSketches.open(tmp_path / "sketches.npz", 4)
    assert saved is not None
    for name in ("values", "texts", "n_words"):
        assert (getattr(whole, name) == getattr(parts, name)).all()
        assert (getattr(whole, name) == getattr(saved, name)).all()
    (tmp_path / "sketches.npz").write_bytes(b"PK")
    assert TextSketches.open(tmp_path / "sketches.npz", 4) is None
