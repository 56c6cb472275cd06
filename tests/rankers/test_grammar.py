"""Rankers as text, as plain values and as Python: what is written is what is read, and what cannot be read says why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from topics import LEARNED
from topics import RANKERS as EXAMPLES

import haybale.rankers
from haybale.errors import FileFormatError, HaybaleError, InputError, UnknownNameError
from haybale.rankers import (
    BM25,
    KNN,
    PARM,
    RANKERS,
    RRF,
    SVR,
    CrossEncoder,
    Learned,
    Ranker,
    SimilarQueries,
    find_ranker,
    from_spec,
    parse,
    parse_all,
    read_yaml,
    set_all,
    set_values,
)
from haybale.rankers.grammar import KINDS, parse_value

CLASSES = {name: getattr(haybale.rankers, name) for name in haybale.rankers.__all__}


def examples() -> list[Ranker]:
    """Every name, every class, and parameters of every kind."""
    made = [parse(name) for name in RANKERS if name not in ("rrf", "cross-encoder")]
    made += [parse(name) for name in EXAMPLES]
    return [
        *made,
        CrossEncoder(BM25("document"), "a/model", n_documents=3, max_length=16, device="cpu"),
        CrossEncoder(parse(LEARNED), "o'neill/model", aggregation="mean"),
        SVR(candidates=[BM25(k1=0.9), SimilarQueries(3, power=0.0)], gamma=(0.1, 1e-7), memory_budget=None),
        SVR("passage", gamma=0.123456789, tol=1e-5, standardize=True, random_state=None, rows_per_bag=7),
        SVR(gamma=[8, 2.5]),
        SVR.as_published(n_bags=3),
        RRF(BM25(b=1 / 3), BM25(b=0.33333), k=59.5),
        Learned(RRF(KNN(), PARM("vmin"), depth=5), unseen_share=0.0, l2=1e-12, n_queries=7),
    ]


@pytest.mark.parametrize("ranker", examples(), ids=str)
def test_every_form_gives_the_ranker_back(ranker: Ranker, tmp_path: Path) -> None:
    ranker.check_params()
    forms: dict[str, Ranker] = {
        "text": parse(str(ranker)),
        "python": eval(repr(ranker), CLASSES),
        "plain values": from_spec(ranker.to_dict()),
        "json": from_spec(json.loads(json.dumps(ranker.to_dict()))),
        "clone": ranker.clone(),
        "sklearn": clone(ranker),
        "parameters": type(ranker)(*getattr(ranker, "rankers", ()), **keywords(ranker)),
    }
    path = tmp_path / "ranker.yaml"
    path.write_text(yaml.safe_dump(ranker.to_dict(), sort_keys=False, allow_unicode=True))
    forms["yaml"] = read_yaml(path)
    path.write_text(json.dumps(str(ranker)))
    forms["yaml of a name"] = read_yaml(path)
    for name, other in forms.items():
        assert other == ranker, name
        assert other is not ranker, name
        assert str(other) == str(ranker), name
        assert other.key() == ranker.key(), name
        assert other.to_dict() == ranker.to_dict(), name
    assert find_ranker(ranker) is ranker
    # A clone shares no ranker, so setting a parameter of one changes no other.
    shared = [one for one in all_of(ranker) if any(one is other for other in all_of(forms["sklearn"]))]
    assert shared == []


def keywords(ranker: Ranker) -> dict[str, Any]:
    return {name: value for name, value in ranker.get_params(deep=False).items() if name != "rankers"}


def all_of(ranker: Ranker) -> list[Ranker]:
    """The ranker, and those that were given to it."""
    given = [] if ranker.implied() else ranker.nested()
    return [ranker, *(each for inner in given for each in all_of(inner))]


def test_the_text_is_the_shortest_name() -> None:
    assert [str(parse(name)) for name in RANKERS if name not in ("rrf", "cross-encoder")] == [
        name for name in RANKERS if name not in ("rrf", "cross-encoder")
    ]
    assert str(BM25("document", k1=6)) == "bm25-doc(k1=6)"
    assert str(BM25(k1=6.0)) == "bm25(k1=6)"
    assert str(SVR()) == "svr-doc"
    assert str(PARM()) == str(parse("vrrf")) == "parm-vrrf"
    assert str(PARM("rrf", over="bm25", b=0.25)) == "bm25-parm-rrf(b=0.25)"
    assert str(CrossEncoder(KNN(), "m")) == "cross-encoder(knn,model='m')"
    assert str(CrossEncoder(KNN(), "it's")) == 'cross-encoder(knn,model="it\'s")'
    assert repr(RRF(BM25("document", k1=6), KNN())) == "RRF(BM25('document', k1=6), KNN())"
    assert [str(each) for each in parse_all(" bm25 , rrf( bm25 ,knn ) ")] == ["bm25", "rrf(bm25,knn)"]


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(
        st.one_of(
            st.builds(
                BM25,
                st.sampled_from(["passage", "document"]),
                k1=st.floats(0, 100) | st.integers(0, 9),
                b=st.floats(0, 1),
            ),
            st.builds(KNN, st.sampled_from(["passage", "document", "first passage"])),
            st.builds(SimilarQueries, st.integers(1, 99), power=st.floats(0, 9)),
            st.builds(PARM, st.sampled_from(["rrf", "vrrf", "vmin"]), rrf_k=st.floats(0, 99), n_hits=st.integers(1, 9)),
            st.builds(SVR, gamma=st.none() | st.floats(1e-9, 9) | st.tuples(st.floats(1e-9, 9), st.floats(1e-9, 9))),
        ),
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3, unique_by=str).map(lambda found: RRF(*found, k=7)),
            st.lists(inner, min_size=1, max_size=3, unique_by=str).map(lambda found: Learned(*found, unseen_share=0.1)),
            st.tuples(inner, st.text(st.characters(exclude_characters="'\"", codec="utf-8"), min_size=1)).map(
                lambda found: CrossEncoder(*found)
            ),
        ),
        max_leaves=6,
    )
)
def test_drawn_rankers_come_back(ranker: Ranker) -> None:
    ranker.check_params()
    assert parse(str(ranker)) == ranker
    assert eval(repr(ranker), CLASSES) == ranker
    assert from_spec(json.loads(json.dumps(ranker.to_dict()))) == ranker
    assert clone(ranker) == ranker


def test_what_is_equal_and_what_is_not() -> None:
    assert BM25(k1=6) == BM25(k1=6.0)
    assert BM25(k1=6).key() == BM25(k1=6.0).key()
    assert BM25() != BM25("document")
    assert BM25() != KNN()
    assert BM25() != "bm25"
    assert SVR(candidates=[KNN()]) == SVR(candidates=(KNN(),))
    assert SVR(candidates=[KNN()]) != SVR(candidates=[KNN("document")])
    assert RRF(BM25(), KNN()) != RRF(KNN(), BM25())
    assert SVR(solver=solver) == SVR(solver=solver) != SVR(solver=other_solver)
    assert SVR(solver=solver).key() != SVR(solver=other_solver).key()
    assert RRF(BM25(), depth=np.int64(7)) == RRF(BM25(), depth=7)


def solver() -> None:
    """Of one's own."""


other_solver = lambda: None  # noqa: E731
other_solver.__qualname__ = solver.__qualname__


def test_parameters_are_read_and_set() -> None:
    ranker = CrossEncoder(BM25(k1=2), "m")
    assert ranker.get_params()["ranker__k1"] == 2
    assert "ranker__k1" not in ranker.get_params(deep=False)
    assert ranker.set_params(ranker__k1=3, n_documents=7) is ranker
    assert (ranker.ranker.k1, ranker.n_documents) == (3, 7)
    assert ranker == CrossEncoder(BM25(k1=3), "m", n_documents=7)
    with pytest.raises(InputError, match=r"BM25 has no parameter 'k2'; it has unit, k1, b"):
        BM25().set_params(k2=1)
    for kind in KINDS:  # __init__ only assigns
        given = {name: object() for name, p in kind._parameters().items() if p.kind is not p.VAR_POSITIONAL}
        ranker = kind(**given)
        assert all(getattr(ranker, name) is value for name, value in given.items()), kind


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bm26", r"unknown ranker 'bm26'; known: bm25, bm25-doc, knn, .*cross-encoder, vrrf"),
        ("rrf(bm25,bm26)", "unknown ranker 'bm26'"),
        ("rrf(bm25,knn", "expected ',' or '\\)', found the end"),
        ("bm25)", r"expected the end, found '\)'"),
        ("rrf(bm25 knn)", r"expected ',' or '\)', found 'knn'"),
        ("rrf(bm25,,knn)", "expected the name of a ranker, found ','"),
        ("", "expected the name of a ranker, found the end"),
        ("bm25,", "expected the end, found ','"),
        ("bm25(k1=)", "expected a value"),
        ("bm25(k1=1,k1=2)", "k1 stands there twice"),
        ("bm25(k2=1)", "unknown parameter of bm25 'k2'; known: unit, k1, b"),
        ("bm25(k1=-1)", "'k1' parameter of BM25 must be a float in the range"),
        ("bm25(k1='high')", "'k1' parameter of BM25"),
        ("bm25(rrf(bm25))", "'unit' parameter of BM25 must be a str among"),
        ("bm25(§)", "cannot read '§"),
        ("rrf", "RRF fuses rankers, found none"),
        ("rrf(bm25,bm25)", "bm25 stands there twice"),
        ("rrf(bm25,bm25(k1=1.2))", "bm25 stands there twice"),
        ("learned(bm25,unseen_share=2)", "'unseen_share' parameter of Learned"),
        ("cross-encoder(bm25)", "cross-encoder wants ranker and model"),
        ("cross-encoder(model='m')", "cross-encoder wants ranker and model"),
        ("cross-encoder(bm25,knn,model='m')", "found 2 rankers and model"),
        ("knn-queries(bm25,knn)", "found 2 rankers and no parameters"),
        ("bm25-parm-vrrf", "unknown ranker 'bm25-parm-vrrf'"),
        ("parm-vrrf(over=bm25)", "'over' parameter of PARM must be a str among .*Got BM25"),
        ("parm-vrrf(over='bm25')", "'vrrf' needs vectors, which BM25 lacks"),
        ("svr(candidates=[parm-rrf])", "retrieved by BM25 or KNN over passages, found parm-rrf"),
        ("svr-doc(candidates=[])", r"candidates: expected rankers, found \(\)"),
        ("svr-doc(candidates=[3])", r"candidates: expected rankers, found \(3,\)"),
        ("svr-doc(n_bags=0)", "'n_bags' parameter of SVR"),
    ],
)
def test_what_cannot_be_read_says_why(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse(text)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "a ranker is a name, or an object with 'ranker'"),
        ({"ranker": 3}, "a ranker is a name, or an object with 'ranker'"),
        (7, "a ranker is a name, or an object with 'ranker', found 7"),
        ({"ranker": "rrf", "rankers": None}, "'rankers' is a list of rankers, found None"),
        ({"ranker": "rrf", "rankers": "bm25"}, "'rankers' is a list of rankers, found 'bm25'"),
        ({"ranker": "rrf", "rankers": [3]}, "RRF fuses rankers, found 3"),
        ({"ranker": "rrf", "rankers": [{"ranker": "bm26"}]}, "unknown ranker 'bm26'"),
        ({"ranker": "bm25", "k": 3}, "unknown parameter of bm25 'k'"),
        ({"ranker": "cross-encoder", "rankers": ["bm25"], "model": None}, "'model' parameter of CrossEncoder"),
    ],
)
def test_plain_values_that_are_no_ranker(spec: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_spec(spec)


def test_yaml_files(tmp_path: Path) -> None:
    path = tmp_path / "ranker.yaml"
    path.write_text(
        """
        ranker: learned
        unseen_share: 0.5
        rankers:
          - bm25-doc(k1=6)
          - ranker: svr-doc
            candidates: [bm25, {ranker: knn, unit: document}]
        """
    )
    expected = Learned(BM25("document", k1=6), SVR(candidates=(BM25(), KNN("document"))), unseen_share=0.5)
    assert read_yaml(path) == expected
    for text, error, message in [
        ("ranker: [", FileFormatError, "ranker.yaml: expected YAML"),
        ("- bm25", FileFormatError, "expected the name of a ranker, or an object"),
        ("", FileFormatError, "expected the name of a ranker, or an object"),
        ("ranker: bm26", UnknownNameError, "unknown ranker 'bm26'"),
        ("!!python/object/apply:os.getcwd []", FileFormatError, "expected YAML"),
    ]:
        path.write_text(text)
        with pytest.raises(error, match=message):
            read_yaml(path)
    path.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(HaybaleError, match="expected YAML"):
        read_yaml(path)
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_yaml(tmp_path / "nothing.yaml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("6", 6),
        ("-0.5", -0.5),
        ("1e-3", 0.001),
        ("true", True),
        ("none", None),
        ("null", None),
        ("document", "document"),
        ("'6'", "6"),
        ("[8,2.5]", (8, 2.5)),
        ("[]", ()),
        ("[bm25,knn-doc]", (BM25(), KNN("document"))),
        ("bm25(k1=2)", BM25(k1=2)),
        ("a/model-of.mine", "a/model-of.mine"),
        ("3 models", "3 models"),
    ],
)
def test_values_of_options(text: str, value: Any) -> None:
    found = parse_value(text)
    assert found == value
    assert type(found) is type(value)


# values set by name -----------------------------------------------------------------------------------------

TUNED = {"bm25.k1": 0.9, "bm25.b": 0.5, "bm25-doc.k1": 6, "bm25-doc.b": 0.3}


def within(ranker: Ranker) -> Iterator[Ranker]:
    """The ranker, and those it asks; of a ranker that makes some itself, these."""
    yield ranker
    for inner in [*ranker.nested(), *(each for made in ranker.implied().values() for each in made)]:
        yield from within(inner)


@pytest.mark.parametrize("name", ["learned", "svr-doc", "svr", "rrf(bm25,bm25-doc)", "learned(svr-doc,bm25-parm-rrf)"])
def test_every_bm25_within_is_reached_and_each_by_its_name(name: str) -> None:
    values = {key: value for key, value in TUNED.items() if name != "svr" or key.startswith("bm25.")}
    changed = set_values(parse(name), values)
    found = [each for each in within(changed) if hasattr(each, "k1")]
    assert found
    for each in found:
        whole = isinstance(each, BM25) and each.unit == "document"
        if isinstance(each, BM25) or each.over == "bm25":
            assert (each.k1, each.b) == ((6, 0.3) if whole else (0.9, 0.5)), each
        else:
            assert each.k1 == 1.2, "PARM over vectors asks no BM25"
    assert all(each.k1 == 1.2 for each in within(parse(name)) if hasattr(each, "k1")), "what was given has changed"


def test_other_parameters_stay_as_they_were() -> None:
    plain, changed = parse("learned"), set_values(parse("learned"), TUNED)
    for before, after in zip(plain.nested(), changed.nested(), strict=True):
        assert type(before) is type(after)
        own, new = before.get_params(deep=False), after.get_params(deep=False)
        assert {key for key in own if own[key] != new[key]} <= {"k1", "b", "candidates"}


def test_what_no_value_changes_stays_implied() -> None:
    changed = set_values(parse("learned"), {"learned.unseen_share": 0.5})
    assert str(changed) == "learned(unseen_share=0.5)"
    assert changed.implied()


def test_a_name_without_a_dot_is_set_everywhere() -> None:
    changed = set_values(parse("learned(bm25,bm25-doc,svr-doc)"), {"k1": 2})
    assert {each.k1 for each in within(changed) if hasattr(each, "k1")} == {2}


def test_several_rankers_of_which_one_has_the_name() -> None:
    rankers = parse_all("knn,bm25,learned(knn,svr-doc)")
    knn, bm25, learned = set_all(rankers, {"bm25.k1": 0.9, "svr-doc.n_bags": 9})
    assert knn == rankers[0]
    assert bm25.k1 == 0.9
    assert learned.rankers[1].n_bags == 9
    assert learned.rankers[1].candidates[0].k1 == 0.9
    with pytest.raises(UnknownNameError, match=r"svr-doc\.n_bags"):
        set_all(rankers[:2], {"svr-doc.n_bags": 9})
    with pytest.raises(UnknownNameError, match=r"bm25-doc\.k1"):
        set_values(parse("bm25"), {"bm25-doc.k1": 1})


@pytest.mark.parametrize("name", [name for name in RANKERS if name not in ("rrf", "cross-encoder")])
def test_a_ranker_is_reached_by_its_own_name_and_by_no_other(name: str) -> None:
    ranker = parse(name)
    parameter = next(p for p in ranker.get_params(deep=False) if p != "rankers")
    value = getattr(ranker, parameter)
    assert set_values(ranker, {f"{name}.{parameter}": value}) == ranker
    for other in RANKERS:
        alias = other == "bm25" and name.startswith("bm25-parm") and parameter in ("k1", "b")
        if other != name and not alias and not [each for each in within(ranker) if str(each) == other]:
            with pytest.raises(UnknownNameError):
                set_values(ranker, {f"{other}.{parameter}": value})
