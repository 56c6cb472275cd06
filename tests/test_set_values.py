"""Values set by name: wherever a ranker of that name is, also in those that rankers make themselves, not elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from haybale.errors import UnknownNameError
from haybale.rankers import BM25, RANKERS, Ranker, parse, parse_all, set_all, set_values

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
