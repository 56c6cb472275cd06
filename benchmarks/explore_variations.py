"""What `explore_ensemble.py` changes about the ensemble over documents, one thing at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SEARCHES = ("bm25", "bm25-doc", "knn", "knn-doc", "knn-queries")  # the pool's, as haybale has them
TAUGHT, RANKED = 10, 60  # documents of each search: of a training query, of a ranked one; as haybale's settings


@dataclass(frozen=True)
class Variation:
    """One row of the table. What is not named is as `svr-doc` has it."""

    group: str  # what is changed
    label: str  # into what
    parameters: dict[str, Any] = field(default_factory=dict)  # of SVREnsemble
    space: str = "tfidf"  # "lsa", or "both": a product of their kernels
    searches: tuple[str, ...] = SEARCHES
    taught: int = TAUGHT
    ranked: int = RANKED
    share: float = 1.0  # of the training queries that the ensemble learns from
    random_negatives: bool = False
    symmetric: bool = False
    intercepts: bool = True  # False: bags' intercepts are left out of the sum, so that nothing of it is rounded away
    fusion: str = ""  # what is done to the scores before they are fused, or to the fusion
    ranker: str = "svr-doc"  # or "svr" and "knn", over passages
    chunked: bool = False  # passages are cut into pieces
    only: tuple[str, ...] = ()  # collections; (): all

    @property
    def out_of_bag(self) -> bool:
        """Whether training queries can be scored as new ones are, and so the fusion be learned."""
        return self.parameters.get("routes") is None and self.ranker != "knn"


def _each(group: str, name: str, *values: Any) -> list[Variation]:
    """A parameter of SVREnsemble."""
    return [Variation(group, _shown(value), {name: value}) for value in values]


def _shown(value: Any) -> str:
    return " and ".join(f"{part:g}" for part in value) if isinstance(value, tuple) else f"{value:g}"


def _gammas() -> list[Variation]:
    queries = [Variation("γ of the query half", f"{g:g}", {"gamma": (g, 2.5)}) for g in (2.0, 4.0, 16.0, 32.0)]
    documents = [Variation("γ of the document half", f"{g:g}", {"gamma": (8.0, g)}) for g in (0.5, 1.0, 5.0, 10.0)]
    bare = [
        Variation("the same, without intercepts", f"{g:g}", {"gamma": (g, 2.5)} if g != 8 else {}, intercepts=False)
        for g in (4.0, 8.0, 12.0, 16.0, 32.0)
    ]
    return [*queries, *bare, *documents, *_each("one γ for both halves", "gamma", 2.5, 4.5, 8.0)]


def _spaces() -> list[Variation]:
    group, wide = "vectors", 1024  # a z-scored vector of LSA is about as many times as long as a normalised one
    scaled = {"standardize": True, "gamma": (3.0 / wide, 2.5 / wide)}
    whole, half = [(8.0, 2.5), (3.0, 2.5)], [(4.0, 1.25), (1.5, 1.25)]
    return [
        Variation(group, "LSA, γ 3 and 2.5", space="lsa"),
        Variation(group, "LSA, z-scored, γ 3 and 2.5 over 1,024", scaled, space="lsa"),
        Variation(group, "LSA, z-scored, γ 1/(features · variance)", {"standardize": True, "gamma": "scale"}, "lsa"),
        Variation(group, "TF-IDF × LSA", {"gamma": whole}, space="both"),
        Variation(group, "TF-IDF × LSA, each γ halved", {"gamma": half}, space="both"),
    ]


def _bags() -> list[Variation]:
    return [
        *_each("bags", "n_bags", 8, 16, 70),
        *_each("overlap", "overlap", 0.0, 2.0),
        Variation("bags are made of", "rows", {"strategy": "rows"}),
        Variation("bags are made of", "regions", {"strategy": "regions"}),
        Variation("bags are made of", "regions, the 3 nearest asked", {"strategy": "regions", "routes": 3}),
    ]


def _candidates() -> list[Variation]:
    group = "documents of each search, of a training query"
    without = {left: tuple(name for name in SEARCHES if name not in left) for left in (("knn-queries",), SEARCHES[:2])}
    return [
        Variation("training queries learned from", "a quarter", share=0.25),
        Variation("training queries learned from", "half", share=0.5),
        *(Variation(group, str(n), taught=n) for n in (3, 30)),
        Variation(group, "10, all but the relevant drawn at random", random_negatives=True),
        Variation("pool without", "documents of similar queries", searches=without[("knn-queries",)]),
        Variation("pool without", "BM25", searches=without[SEARCHES[:2]]),
        *(Variation("documents of each search, of a ranked query", str(n), ranked=n) for n in (30, 120, 200)),
        Variation("pairs", "the relevant also the other way round", symmetric=True),
    ]


def _fusions() -> list[Variation]:
    group = "scores of the memory, for the fusion"
    return [
        Variation(group, "only place and rank within the query", fusion="level"),
        Variation(group, "divided by the query's best", fusion="divided"),
        Variation(group, "less the query's mean", fusion="centred"),
    ]


def _passages() -> list[Variation]:
    groups = "passages for documents", "pieces of 100 words, every 50"
    gammas = [{"gamma": (3.0, 2.5)}, {"gamma": (8.0, 2.5)}]
    rows = [Variation(groups[0], f"`svr`, γ {_shown(each['gamma'])}", each, ranker="svr") for each in gammas]
    more: dict[str, Any] = {"chunked": True, "only": ("irled",)}
    rows += [Variation(groups[1], "`knn`", ranker="knn", **more)]
    return rows + [Variation(groups[1], f"`svr`, γ {_shown(e['gamma'])}", e, ranker="svr", **more) for e in gammas]


DEFAULT = Variation("`svr-doc` as it is", "γ 8 and 2.5, C 1, ε 0.1, weight 3, 35 bags, overlap 0.6")
VARIATIONS = [
    *_gammas(),
    *_each("C", "C", 0.1, 10.0),
    *_each("ε", "epsilon", 0.01, 0.3),
    *_each("weight of a relevant row", "positive_weight", 1.0, 10.0),
    *_spaces(),
    *_bags(),
    *_candidates(),
    *_fusions(),
    *_each("η: pair features as an added kernel", "eta", 0.01, 1.0),
    *_passages(),
]
NOT_DONE = {
    "fusion by the memory's `score` alone, without its `level` and ranks": "LearnedFusion has no switch for it; "
    "leaving out `score` has a row",
    "regions, the 3 nearest asked: out of bag and with cosines": "a routed ensemble has no out-of-bag scores, and the "
    "fusion is learned from these",
    "interactions as features ([q·p], |q − p| a dimension)": "the ensemble takes a query's and a passage's vectors and "
    "numbers of the pair; the product kernel and η are its interactions",
    "z-scored TF-IDF": "a shift would make sparse vectors dense",
}
