"""Search results: the documents of the ranking, with the passages and terms that carried the score."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.ranker_cases import Fitted, every_ranker, queries_of

from haybale import Chunking, Engine, InputError, NotFittedError, SearchResults, TfidfEncoder, evaluate, parse
from haybale.collections import Collection, CollectionBuilder, open_collection
from haybale.rankers import Explanation, Share
from haybale.search.evidence import evidence_of

pytestmark = pytest.mark.filterwarnings("ignore:.* bags have no relevant row")

SCHEMA = Path(__file__).parents[2] / "docs" / "search.schema.json"
LAWS = {
    "dogs": ["Dogs must be kept on a lead. Cats need none.", "A dog that bites must be muzzled."],
    "cats": ["Cats need no lead.", "A cat may not be left alone for a week."],
    "taxes": ["Taxes are due in May.", "Who pays late pays more.", "Dog owners pay a tax on each dog."],
}


@pytest.fixture(scope="module")
def laws() -> Engine:
    return Engine(LAWS, encoder=TfidfEncoder(min_df=1), language="english")


@pytest.fixture(scope="module")
def schema() -> Any:
    validators = pytest.importorskip("jsonschema")
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    validators.Draft202012Validator.check_schema(schema)
    return validators.Draft202012Validator(schema)


def marked(results: SearchResults, rank: int = 0, snippet: int = 0) -> list[str]:
    shown = results[rank].snippets[snippet]
    return [shown.text[start:end] for start, end in shown.highlights]


@every_ranker
def test_results_are_the_ranking_with_its_passages(fitted: Fitted, schema: Any, name: str, encoder: str) -> None:
    ranker = fitted(name, encoder)
    collection = ranker.engine_.collection
    text = queries_of(ranker, "dev1").texts([0])[0]
    found = ranker.search(text, k=5)
    assert [(hit.rank, hit.doc_id) for hit in found] == [
        (rank, doc_id) for rank, (doc_id, _) in enumerate(ranker.rank({"q": text})["q"][:5], 1)
    ]
    for hit in found:
        number = int(collection.document_numbers([hit.doc_id])[0])
        start, end = collection.passages.doc_offsets[number : number + 2]
        own = dict(
            zip(
                *(column[start:end].to_pylist() for column in (collection.passages.ids, collection.passages.texts)),
                strict=True,
            )
        )
        assert 1 <= len({snippet.passage_id for snippet in hit.snippets}) == len(hit.snippets) <= 2
        for snippet in hit.snippets:
            assert own[snippet.passage_id] == snippet.text
            flat = [0, *(edge for span in snippet.highlights for edge in span), len(snippet.text)]
            assert flat == sorted(flat)
        size = max(abs(hit.score), sum(abs(share.share) for share in hit.shares))
        assert sum(share.share for share in hit.shares) == pytest.approx(hit.score, abs=1e-6 + 1e-5 * size)
    schema.validate(json.loads(found.to_json()))
    assert 0 < len(found.to_frame()) == len(found) <= 5


def test_the_passage_and_terms_of_bm25(laws: Engine) -> None:
    ranker = parse("bm25").fit(laws)
    found = ranker.search("Must a dog bite? Which taxes are due?", k=3)
    for rank, hit in enumerate(found):
        reason = ranker.explain("Must a dog bite? Which taxes are due?", hit.doc_id)
        assert hit.snippets[0].passage_id == reason.passage_id
        terms = {share.term for share in reason.shares}
        assert {term for word in marked(found, rank) for term in laws.analyzer.terms(word)} == terms
        assert all(len(laws.analyzer.terms(word)) == 1 for word in marked(found, rank))
    assert {hit.doc_id: marked(found, at) for at, hit in enumerate(found)} == {
        "dogs": ["dog", "bites", "must"],
        "taxes": ["Taxes", "due"],
    }


@pytest.mark.parametrize("name", ["bm25-doc", "knn-doc", "knn-firstp", "parm-vrrf", "rrf(bm25-doc,parm-vrrf)"])
def test_terms_carry_the_score_of_other_rankers(laws: Engine, name: str) -> None:
    found = parse(name).fit(laws).search("muzzled dogs bite")
    assert found[0].doc_id == "dogs" or name == "knn-firstp"
    first = {"knn-firstp": ["Dogs"]}.get(name, ["dog", "bites", "muzzled"])
    assert [marked(found, at) for at, hit in enumerate(found) if hit.doc_id == "dogs"] == [first]


def test_the_nearest_sentence_of_dense_vectors(laws: Engine) -> None:
    engine = Engine(LAWS, language="english", encoder="lsa(n_components=4)")
    for query in ("cats need none", "dogs on a lead"):
        found = parse("knn").fit(engine).search(query)
        for hit in found:
            best = hit.snippets[0]
            start = int(engine.collection.passage_numbers([best.passage_id])[0])
            near = engine.passages.similarities(engine.encoder.encode([query]), int(engine.passages.doc_of[start]))[0]
            assert near[start - int(engine.passages.doc_offsets[engine.passages.doc_of[start]])] == near.max()
            sentences = [f"{part.strip('. ')}." for part in best.text.split(". ")]
            values = [
                float((engine.encoder.encode([query]) @ engine.encoder.encode([each]).T)[0, 0]) for each in sentences
            ]
            ((first, last),) = best.highlights
            assert best.text[first:last] == sentences[int(np.argmax(values))]
    found = parse("rrf(bm25-doc,knn)").fit(engine).search("muzzled dog")
    assert marked(found) == ["dog", "muzzled"]  # terms carried at least as much as vectors


def test_a_ranker_without_evidence_shows_the_words_of_the_query(fitted: Fitted) -> None:
    ranker = fitted("knn-queries(k=7)")
    text = queries_of(ranker, "dev1").texts([0])[0]
    terms = set(ranker.engine_.analyzer.terms(text))
    for hit in ranker.search(text):
        shown = hit.snippets[0]
        assert {shown.text[a:b] for a, b in shown.highlights} == terms & set(shown.text.split())


def test_evidence_weighs_nested_rankers() -> None:
    analyzer = Engine({"a": "b c"}, language="none").analyzer
    terms = Explanation(
        "bm25", "q", "d", 4.0, 1, [Share("dog", 3.0, term="dog"), Share("cat", 1.0, term="cat")], matcher=analyzer
    )
    other = Explanation("bm25", "q", "other", 1.0, 1, [Share("x", 1.0, term="x")], matcher=analyzer)
    passage = Explanation(
        "svr", "q", "d", 1.0, 1, [Share("pair", 2.0), Share("pair", -1.0)], passage_id="d:1", matcher=analyzer
    )
    parts = ((0.4, terms), (0.4, passage), (0.2, other), (-1.0, terms))
    outer = Explanation("rrf", "q", "d", 1.0, 1, [Share("ranker", size, of=inner) for size, inner in parts])
    first, second = evidence_of(outer)
    assert first.terms == pytest.approx({"dog": 0.3, "cat": 0.1})
    assert second.passages == pytest.approx({"d:1": 0.4})
    negative = Explanation("learned", "q", "d", -2.0, 1, [Share("bm25", -2.0, of=terms)])
    assert next(iter(evidence_of(negative))).terms == pytest.approx({"dog": 0.75, "cat": 0.25})


def test_phrases_must_occur(laws: Engine) -> None:
    ranker = parse("rrf(bm25-doc,parm-vrrf)").fit(laws)
    assert {hit.doc_id for hit in ranker.search("lead dogs")} == {"dogs", "cats", "taxes"}
    assert [hit.doc_id for hit in ranker.search('"kept on a lead"')] == ["dogs"]
    assert [hit.doc_id for hit in ranker.search('"kept on the lead"')] == []  # stop words count
    assert marked(ranker.search('"a"')) == ["a"]
    assert marked(ranker.search('dog "needs no lead"')) == ["need no lead"]
    assert [hit.doc_id for hit in ranker.search('"lead" "alone"')] == ["cats"]
    nothing = ranker.search('"lead kept"')
    assert (len(nothing), nothing.to_dict(), len(nothing.to_frame())) == (0, {"query": '"lead kept"', "hits": []}, 0)
    assert "no document" in nothing._repr_html_()
    # The passage with the phrase comes first, whatever else is in the others.
    found = ranker.search('Dogs lead cats "dog owner"')
    assert (found[0].doc_id, found[0].snippets[0].passage_id) == ("taxes", "taxes:2")
    assert "Dog owners" in marked(found)
    for wrong in ("", '""', '"."', '"--"', " "):
        with pytest.raises(InputError):
            ranker.search(wrong)
    with pytest.raises(InputError, match="k"):
        ranker.search("dog", k=0)
    with pytest.raises(NotFittedError):
        parse("bm25").search("dog")


PROVISIONS = {
    "art6": ["It is lawful by Art. 6 (1) lit. f."],
    "art7": ["It is lawful by Art. 7, and 6 months later.", "Exhibit A."],
    "bgb5": ["The claim follows from § 5 BGB."],
    "zpo5": ["The claim follows from section 5 BGB and 5 ZPO.", "Exhibit B, a copy."],
    "rate": ["Interest of 5 % a year, or 5 € a day."],
}


@pytest.mark.parametrize("segments", [1, 2])
@pytest.mark.parametrize(
    ("phrase", "expected"),
    [
        ("Art. 6", ["art6"]),
        ("art 6 1 lit f", ["art6"]),
        ("§ 5 BGB", ["bgb5"]),
        ("§5", ["bgb5"]),
        ("5 BGB", ["bgb5", "zpo5"]),
        ("Exhibit A", ["art7"]),
        ("exhibits b", ["zpo5"]),
        ("B, a copy", ["zpo5"]),
        ("5 %", ["rate"]),
        ("5 €", ["rate"]),
        ("5", ["bgb5", "rate", "zpo5"]),
        ("a", ["art7", "rate", "zpo5"]),
        ("8", []),
    ],
)
def test_every_word_and_sign_of_a_phrase_counts(
    tmp_path: Path, segments: int, phrase: str, expected: list[str]
) -> None:
    documents = PROVISIONS | {"gone": ["Art. 6, § 5 BGB, Exhibit A, Exhibit B, a copy, 5 %, 5 €, 8"]}
    engine = Engine.build(documents, tmp_path / "engine", language="english", segments=segments)
    engine.remove(["gone"])
    found = parse("bm25-doc").fit(engine).search(f'"{phrase}"')
    assert sorted(hit.doc_id for hit in found) == expected
    assert [hit.rank for hit in found] == list(range(1, len(expected) + 1))
    words = re.findall(r"[a-z]+|[0-9]+|[§%€]", phrase.lower())
    for hit in found:
        marked_texts = [hit.snippets[0].text[start:end].lower() for start, end in hit.snippets[0].highlights]
        assert any(word.startswith(words[0][:5]) for word in marked_texts)
    assert [hit.doc_id for hit in parse("bm25").fit(engine).search(f'"{phrase}"', k=1)] == [
        hit.doc_id for hit in parse("bm25").fit(engine).search(f'"{phrase}"')[:1]
    ]


def test_conditions_on_metadata() -> None:
    pytest.importorskip("duckdb")
    builder = CollectionBuilder("laws", language="english")
    for year, (doc_id, passages) in enumerate(LAWS.items(), 2001):
        builder.add_document(doc_id, passages, metadata={"year": year})
    builder.add_document("blank", metadata={"year": 1999})
    ranker = parse("bm25").fit(Engine(builder.build()))
    found = ranker.search("dogs need a lead", where="year >= 2002")
    expected = ranker.rank({"q": "dogs need a lead"}, where="year >= 2002")["q"]
    assert [(hit.doc_id, hit.score) for hit in found] == expected
    assert {hit.doc_id for hit in found} == {"cats", "taxes"}
    assert found[0].metadata == {"year": 2002}
    dogs = ranker.search('dogs "dog owner"', where="year > 2001")
    assert [(hit.doc_id, hit.snippets[0].passage_id) for hit in dogs] == [("taxes", "taxes:2")]
    for where in ("year < 1900", "year = 1999"):
        assert len(ranker.search("dogs", where=where)) == 0
    with pytest.raises(InputError, match="year"):
        ranker.search("dogs", where="court = 'BGH'")


def test_pieces_and_paragraphs() -> None:
    engine = Engine(LAWS, language="english", chunking=Chunking(4))
    found = parse("bm25").fit(engine).search(["who is muzzled?", "and why?"])
    assert found.query == "who is muzzled?\nand why?"
    assert found[0].snippets[0].passage_id == "dogs:1#1"
    assert marked(found) == ["muzzled"]


def test_titles_pages_headings_and_metadata(tmp_path: Path, schema: Any) -> None:
    canvas = pytest.importorskip("reportlab.pdfgen.canvas")
    pytest.importorskip("pypdfium2")
    (tmp_path / "notes.md").write_text(
        "---\ncourt: BGH\ndate: 2015-03-01\n---\n# Leases\n\nRent is due.\n\n## Return\n\nThe keys are returned.\n"
    )
    made = canvas.Canvas(str(tmp_path / "case.pdf"))
    for text in ("The lease of the flat began in May.", "The keys were never returned by the lessee."):
        made.drawString(50, 700, text)
        made.showPage()
    made.save()
    engine = Engine(open_collection(tmp_path), language="english")
    found = parse("bm25").fit(engine).search("who returns the keys?")
    by_id = {hit.doc_id: hit for hit in found}
    assert (by_id["case.pdf"].snippets[0].page, by_id["case.pdf"].snippets[0].heading) == (2, None)
    notes = by_id["notes.md"]
    assert (notes.title, notes.snippets[0].page, notes.snippets[0].heading) == ("Leases", None, "Return")
    assert notes.metadata["date"] == date(2015, 3, 1)
    values = json.loads(found.to_json())
    schema.validate(values)
    assert next(hit for hit in values["hits"] if hit["doc_id"] == "notes.md")["metadata"]["date"] == "2015-03-01"
    frame = found.to_frame().set_index("doc_id")
    assert (frame.loc["case.pdf", "page"], frame.loc["notes.md", "court"]) == (2, "BGH")
    assert pd.isna(frame.loc["notes.md", "page"])


def test_everything_in_html_is_escaped() -> None:
    builder = CollectionBuilder("<b>", language="english")
    builder.add_document("<i>", ["<script>alert('dog')</script> & dog"], title="<u>")
    builder.add_document("two", ["nothing"])
    engine = Engine(builder.build())
    ranker = parse("bm25").fit(engine)
    found, run = ranker.search("dog <script>"), ranker.rank({"<q>": "dog"})
    for shown in (found, run, engine, ranker.explain("dog", "<i>")):
        html = shown._repr_html_()
        assert not any(tag in html for tag in ("<script", "<u>", "<i>", "<q>"))
    assert "&lt;<mark>script</mark>&gt;" in found._repr_html_()
    assert found._repr_html_().count("<mark>") == Counter(marked(found)).total()


def test_representations_are_short(fitted: Fitted) -> None:
    ranker = fitted("rrf(knn,rrf(bm25,bm25-doc),depth=25)")
    text = queries_of(ranker, "dev1").texts([0])[0]
    doc_id = ranker.search(text, k=1)[0].doc_id
    for shown in (ranker.explain(text, doc_id), ranker.search(text), ranker.rank("dev"), ranker.engine_):
        assert len(repr(shown)) < 400
        assert shown._repr_html_().startswith(("<table>", "<div>"))
    assert repr(ranker.explain("nothing like it", "blank")).endswith("does not find it")


def test_runs_go_into_evaluation_as_they_are(toy: Collection) -> None:
    measures = pytest.importorskip("ir_measures")
    run, qrels = parse("bm25").fit(Engine(toy)).rank("dev"), toy.qrels_frame("dev")
    expected = evaluate(run, qrels)
    assert evaluate(run.to_frame(), qrels).equals(expected)
    values = measures.calc_aggregate([measures.nDCG @ 10], qrels, run.to_frame())
    assert values[measures.nDCG @ 10] == pytest.approx(float(expected["nDCG@10"].mean()))
