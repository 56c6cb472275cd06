"""Rankers as text, plain values and Python: every form round-trips, and errors name what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from support.topics import LEARNED
from support.topics import RANKERS as EXAMPLES

from haybale import PLI, CrossEncoder
from haybale.context import LinearContext, LinkedDocuments, TokenContext
from haybale.errors import FileFormatError, InputError, UnknownNameError
from haybale.rankers import (
    BM25,
    KNN,
    PARM,
    RANKERS,
    RRF,
    SVR,
    InSpace,
    Learned,
    Ranker,
    Remote,
    SimilarQueries,
    Stored,
    WeightedBM25,
    from_spec,
    parse,
    parse_all,
    read_yaml,
    set_all,
    set_values,
)
from haybale.rankers.bm25 import LONG_QUERIES
from haybale.ranking.ranker_texts import _with_nested, parse_value

KINDS = tuple(dict.fromkeys(variant.ranker for _, variant in RANKERS.items()))
CLASSES = {kind.__name__: kind for kind in KINDS}
NAMES = [
    name for name, (kind, _) in RANKERS.items() if name in kind.variants and kind.__module__.startswith("haybale.")
]  # without names of classes, such as parm
# Names that need no argument.
PLAIN = [
    name
    for name in NAMES
    if name != "rrf" and not {"ranker", "runs", "url"}.intersection(RANKERS[name].ranker.parameters())
]
CASES = [
    *map(parse, [*PLAIN, *EXAMPLES]),
    CrossEncoder(parse(LEARNED), "o'neill/model", aggregation="mean"),
    PLI(parse(LEARNED), "a/model", n=3, epochs=2, store="folder"),
    parse("pli-paper(bm25-doc,cell=lstm)"),
    InSpace(parse(LEARNED), "o'neill's engine", folds=("one", "an/other")),
    Stored("o'neill's run.trec", unknown_queries="empty", label="ours"),
    Stored(["train.trec", "test.trec.gz"], unknown_documents="drop"),
    Remote("https://host:9200/laws", {"query": {"match": {"body": "{text}"}}, "size": 7}, id_field="a.b", timeout=1.5),
    LinearContext(KNN(), mask="off", l2=1e-7, n_documents=50),
    TokenContext(KNN(), "a/model", kind="mix-im", n_passages=1),
    LinkedDocuments(SimilarQueries(), direction="citing", steps=1, decay=0.25),
    SVR(candidates=[BM25(k1=0.9), SimilarQueries(3, power=0.0)], gamma=(0.1, 1e-7), memory_budget=None),
    SVR((), candidates=[KNN()], unit="passage", gamma=0.123456789, standardize=True, random_state=None, rows_per_bag=7),
    Learned(RRF(KNN(), PARM("vmin"), depth=5), unseen_share=0.0, l2=1e-12, n_queries=7),
]


@pytest.mark.parametrize("ranker", CASES, ids=str)
def test_every_form_round_trips(ranker: Ranker, tmp_path: Path) -> None:
    ranker._check_params()
    path = tmp_path / "ranker.yaml"
    path.write_text(yaml.safe_dump(ranker.to_dict(), sort_keys=False, allow_unicode=True))
    forms: dict[str, Ranker] = {
        "text": parse(str(ranker)),
        "plain values": from_spec(json.loads(json.dumps(ranker.to_dict()))),
        "clone": ranker.clone(),
        "sklearn": clone(ranker),
        "python": eval(repr(ranker), CLASSES),
        "yaml": read_yaml(path),
    }
    path.write_text(json.dumps(str(ranker)))
    forms["yaml of a name"] = read_yaml(path)
    for name, other in forms.items():
        assert (other, other._cache_key(), str(other)) == (ranker, ranker._cache_key(), str(ranker)), name
        assert other.to_dict() == ranker.to_dict(), name
    assert from_spec(ranker) is ranker
    both = explicit(ranker), explicit(forms["clone"])  # kept, because other objects would get their ids
    mine, others = ({id(each) for each in one} for one in both)
    assert not mine & others, "a clone shares no ranker"


def explicit(ranker: Ranker) -> list[Ranker]:
    """Return the ranker and its nested rankers, except default ones."""
    return [ranker, *(each for inner in ranker.nested() if not ranker._implied() for each in explicit(inner))]


@pytest.mark.parametrize(
    ("ranker", "text"),
    [
        *((parse(name), name) for name in PLAIN),
        (BM25("document", k1=6), "bm25-doc(k1=6)"),
        (BM25("document", k1=6, k3=0), "bm25-doc(k1=6,k3=0)"),
        (PARM("rrf", over="bm25", k3=2.0), "bm25-parm-rrf(k3=2)"),
        (
            parse(
                "svr(evidence=[],candidates=[bm25,knn,bm25-doc,knn-doc,parm-rrf,parm-vrrf,knn-queries],gamma=[12,0.5])"
            ),
            "svr-memory",
        ),
        (SVR([BM25()], candidates=None), "svr(evidence=[bm25],candidates=none)"),
        (PARM("rrf", over="bm25", b=0.25), "bm25-parm-rrf(b=0.25)"),
        (CrossEncoder(KNN(), "m"), "cross-encoder(knn,model='m')"),
        (CrossEncoder(KNN(), "it's"), 'cross-encoder(knn,model="it\'s")'),
        (parse(" rrf( bm25 ,knn ) "), "rrf(bm25,knn)"),
    ],
)
def test_texts_use_the_shortest_name(ranker: Ranker, text: str) -> None:
    assert str(ranker) == text


leaves = st.one_of(
    st.builds(BM25, st.sampled_from(["passage", "document"]), k1=st.floats(0, 100), k3=st.none() | st.integers(0, 9)),
    st.builds(SimilarQueries, st.integers(1, 99), power=st.floats(0, 9)),
    st.builds(PARM, st.sampled_from(["rrf", "vrrf", "vmin"]), rrf_k=st.floats(0, 99), n_hits=st.integers(1, 9)),
    st.builds(
        SVR,
        st.none() | st.just((BM25(), SimilarQueries())),
        candidates=st.sampled_from(["evidence", None]) | st.just((KNN(),)),
        gamma=st.just("scale") | st.floats(1e-9, 9) | st.tuples(st.floats(1e-9, 9), st.floats(1e-9, 9)),
        overlap=st.none() | st.floats(0, 3),
    ),
)
models = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="'\""), min_size=1)


def nested(inner: st.SearchStrategy[Ranker]) -> st.SearchStrategy[Ranker]:
    several = st.lists(inner, min_size=1, max_size=3, unique_by=str)
    fused = several.map(lambda rankers: RRF(*rankers, k=7)) | several.map(lambda rankers: Learned(*rankers, l2=0.1))
    return fused | st.builds(CrossEncoder, inner, models)


@settings(max_examples=60, deadline=None)
@given(st.recursive(leaves, nested, max_leaves=6))
def test_random_rankers_round_trip(ranker: Ranker) -> None:
    assert parse(str(ranker)) == ranker
    assert from_spec(json.loads(json.dumps(ranker.to_dict()))) == ranker


def test_equality() -> None:
    assert BM25(k1=6) == BM25(k1=6.0)
    assert BM25(k1=6)._cache_key() == BM25(k1=6.0)._cache_key()
    assert SVR(candidates=[KNN()]) == SVR(candidates=(KNN(),))
    assert RRF(BM25(), depth=np.int64(7)) == RRF(BM25(), depth=7)
    for one, other in [
        (BM25(), BM25("document")),
        (BM25(), KNN()),
        (BM25(), "bm25"),
        (SVR(candidates=[KNN()]), SVR(candidates=[KNN("document")])),
        (RRF(BM25(), KNN()), RRF(KNN(), BM25())),
    ]:
        assert one != other


def test_parameters_of_nested_rankers() -> None:
    ranker = CrossEncoder(BM25(k1=2), "m")
    assert ranker.get_params()["ranker__k1"] == 2
    assert "ranker__k1" not in ranker.get_params(deep=False)
    assert ranker.set_params(ranker__k1=3, n_documents=7) is ranker
    assert (ranker.ranker, ranker.n_documents) == (BM25(k1=3), 7)
    with pytest.raises(UnknownNameError, match="BM25 'k2'"):
        ranker.set_params(ranker__k2=1)


@pytest.mark.parametrize("kind", KINDS)
def test_constructors_only_assign(kind: type[Ranker]) -> None:
    values = {name: object() for name in kind.parameters() if name != "rankers"}
    ranker = kind(**values)
    assert all(getattr(ranker, name) is value for name, value in values.items())


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ("nothing", r"'nothing'.* bm25, bm25-doc, .*knn, .*parm-vrrf"),
        ("rrf(bm25,bm26)", r"'bm26' \(did you mean bm25\?\)$"),
        ("bm25doc", r"'bm25doc' \(did you mean bm25-doc\?\)$"),
        ("vrrf", r"'vrrf' \(did you mean parm-vrrf or rrf\?\)$"),
        ("rrf(bm25,knn", r"rrf\(bm25,knn"),
        ("", "''"),
        ("bm25,knn", "found 2"),
        ("'bm25'", "found 'bm25'"),
        ("bm25(k1=)", "k1="),
        ("bm25(k1=1,k1=2)", "k1, k1"),
        ("bm25(k2=1)", "bm25 'k2'.* unit, k1, b, k3"),
        ("bm25(k1=-1)", "'k1' parameter of BM25"),
        ("rrf", "RRF .*none"),
        ("rrf(bm25,bm25(k1=1.2))", "RRF .*bm25 twice"),
        ("learned(bm25,unseen_share=2)", "'unseen_share' parameter of Learned"),
        ("pli", r"^pli .*ranker.* pli\(bm25\)"),
        ("cross-encoder", r"ranker .*model.* cross-encoder\(bm25,model='MODEL'\)"),
        ("cross-encoder(knn)", r"model.* cross-encoder\(knn,model='MODEL'\)"),
        ("cross-encoder(bm25,knn,model='m')", "cross-encoder .*model once.* bm25, knn and m"),
        ("knn(bm25,knn)", "knn .* 1 .*found bm25, knn"),
        ("parm-vrrf(over='bm25')", "'vrrf' .*BM25"),
        ("svr(unit=passage,candidates=[parm-rrf])", "unit='passage'.* parm-rrf"),
        ("svr(unit=passage,evidence=[bm25,knn-queries])", "unit='passage'.* knn-queries"),
        ("svr(evidence=[])", "candidates='evidence'"),
        ("svr(candidates=[3])", r"candidates: .*\(3,\)"),
        ("svr(candidates=bm25)", r"candidates: .*BM25\(\)"),
        ("svr(unit=passage,candidates=none)", "candidates=None .*unit='document'"),
        (7, "found 7"),
        ({"ranker": "rrf", "rankers": "bm25"}, "'rankers' .*'bm25'"),
        ({"ranker": "cross-encoder", "rankers": ["bm25"], "model": None}, "'model' parameter of CrossEncoder"),
    ],
)
def test_errors_name_what_is_wrong(spec: Any, named: str) -> None:
    with pytest.raises(InputError, match=named):
        from_spec(spec)


def test_yaml_files(tmp_path: Path) -> None:
    path = tmp_path / "ranker.yaml"
    path.write_text(
        """
        ranker: learned
        unseen_share: 0.5
        rankers:
          - bm25-doc(k1=6)
          - ranker: svr
            candidates: [bm25, {ranker: knn, unit: document}]
        """
    )
    expected = Learned(BM25("document", k1=6), SVR(candidates=(BM25(), KNN("document"))), unseen_share=0.5)
    assert read_yaml(path) == expected
    for content, error, named in [
        (b"ranker: [", FileFormatError, "ranker.yaml: .*YAML"),
        (b"\xff\xfe\xff", FileFormatError, "UTF-8"),
        (b"!!python/object/apply:os.getcwd []", FileFormatError, "YAML"),
        (b"- bm25", FileFormatError, "'ranker'"),
        (b"ranker: bm26", UnknownNameError, "'bm26'"),
    ]:
        path.write_bytes(content)
        with pytest.raises(error, match=named):
            read_yaml(path)
    with pytest.raises(InputError, match="no such file"):
        read_yaml(tmp_path / "nothing.yaml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("6", 6), ("-0.5", -0.5), ("1e-3", 0.001), ("true", True), ("none", None), ("'6'", "6")),
        *(("[8,2.5]", (8, 2.5)), ("[]", ()), ("[bm25,knn-doc]", (BM25(), KNN("document")))),
        *(("bm25(k1=2)", BM25(k1=2)), ("a/model-of.mine", "a/model-of.mine"), ("3 models", "3 models")),
        *(("document", "document"), ("a-model", "a-model"), ("2j", "2j"), ("b'6'", "b'6'")),
    ],
)
def test_values_of_options(text: str, value: Any) -> None:
    found = parse_value(text)
    assert found == value
    assert type(found) is type(value)


TUNED = {"bm25.k1": 0.9, "bm25.b": 0.5, "bm25.k3": 0, "bm25-doc.k1": 6, "bm25-doc.b": 0.3, "bm25-doc.k3": 2}


@pytest.mark.parametrize(
    "name", ["learned", "svr", "svr-memory", "svr(unit=passage)", "rrf(bm25,bm25-doc)", "learned(svr,bm25-parm-rrf)"]
)
def test_values_reach_every_nested_bm25_by_name(name: str) -> None:
    values = {key: value for key, value in TUNED.items() if name != "svr(unit=passage)" or key.startswith("bm25.")}
    changed = set_values(parse(name), values)
    found = [each for each in _with_nested(changed) if hasattr(each, "k1")]
    assert found
    long_queries = [BM25(unit, **LONG_QUERIES) for unit in ("passage", "document")]
    assert any(each in long_queries for each in found) == (name in ("svr", "learned", "learned(svr,bm25-parm-rrf)"))
    for each in found:
        if each in long_queries:
            continue  # default rankers with values of their own keep them
        whole = isinstance(each, WeightedBM25) or (isinstance(each, BM25) and each.unit == "document")
        if isinstance(each, BM25 | WeightedBM25) or each.over == "bm25":
            assert (each.k1, each.b, each.k3) == ((6, 0.3, 2) if whole else (0.9, 0.5, 0)), each
        else:
            assert (each.k1, each.k3) == (1.2, None), "PARM over vectors does not search BM25"
    unchanged = [each for each in _with_nested(parse(name)) if hasattr(each, "k1")]
    assert {each.k1 for each in unchanged} <= {1.2, 6}, "set_values changes a copy"
    for before, after in zip(parse(name).nested(), changed.nested(), strict="svr" not in name):
        own, new = before.get_params(), after.get_params()
        assert {key for key in own if own[key] != new[key]} <= {"k1", "b", "k3", "evidence"}


def test_default_rankers_that_become_equal_are_one() -> None:
    changed = set_values(parse("learned"), {"bm25.k1": 6, "bm25.b": 0.9, "bm25.k3": 0})
    svr = next(each for each in changed.nested() if isinstance(each, SVR))
    for names in (list(map(str, changed.nested())), list(map(str, svr.evidence))):
        assert names.count("bm25(k1=6,b=0.9,k3=0)") == 1
        assert "bm25" not in names
        assert {"bm25-doc", "bm25-doc(k1=6,b=0.9,k3=0)"} <= set(names)


def test_unchanged_default_rankers_stay_implicit() -> None:
    assert str(set_values(parse("learned"), {"learned.unseen_share": 0.5})) == "learned(unseen_share=0.5)"
    changed = set_values(parse("learned(bm25,bm25-doc,svr)"), {"k1": 2})
    assert {each.k1 for each in _with_nested(changed) if hasattr(each, "k1")} == {2, 6}


def test_values_of_several_rankers() -> None:
    rankers = parse_all("knn,bm25,learned(knn,svr)")
    knn, bm25, learned = set_all(rankers, {"bm25.k1": 0.9, "svr.n_bags": 9})
    assert (knn, bm25) == (rankers[0], BM25(k1=0.9))
    assert learned.rankers[1].n_bags == 9
    assert learned.rankers[1].evidence[0].k1 == 0.9
    with pytest.raises(UnknownNameError, match="svr"):
        set_all(rankers[:2], {"svr.n_bags": 9})


@pytest.mark.parametrize("name", [name for name in PLAIN if RANKERS[name].ranker.parameters()])
def test_values_reach_a_ranker_by_its_own_name_only(name: str) -> None:
    ranker = parse(name)
    parameter = next(p for p in ranker.get_params() if p != "rankers")
    value = getattr(ranker, parameter)
    assert set_values(ranker, {f"{name}.{parameter}": value}) == ranker
    for other in NAMES:
        alias = parameter in ("k1", "b", "k3") and (
            (other == "bm25" and name.startswith("bm25-parm")) or (other, name) == ("bm25-doc", "bm25-weighted")
        )
        if other != name and not alias and not [each for each in _with_nested(ranker) if str(each) == other]:
            with pytest.raises(UnknownNameError):
                set_values(ranker, {f"{other}.{parameter}": value})
