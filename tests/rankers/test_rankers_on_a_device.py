"""Every registered ranker on an engine whose device is a GPU ranks as on the CPU, through all changes of the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.structured import structured_collection

from haybale import Engine, Ranker, Run, load, parse
from haybale.collections import Collection
from haybale.rankers import RANKERS, ranker_names

SVR = "n_candidates=8,n_bags=2,n_jobs=1,tol=1e-5"
NETWORK = "heads=2,epochs=1,n_documents=6"
# Rankers with arguments; a name that is not here needs none.
ARGUMENTS = {
    "rrf": "bm25-doc,knn,parm-vrrf",
    "space": "knn,engine='{space}'",
    "learned": f"bm25-doc,knn,knn-queries,svr(evidence=[bm25-doc,knn],{SVR})",
    "svr": f"evidence=[bm25-doc,knn-doc,parm-vrrf],{SVR}",
    "svr-memory": SVR,
    "svr-paper": "n_bags=20,n_train=8,n_candidates=9,n_jobs=1,tol=1e-5",
    "bm25-weighted": "min_count=2",
    "linear-context": "knn,n_documents=6,n_train=4",
    "section-propagation": "knn,n_documents=6",
    **dict.fromkeys(("linked", "linked-cited", "linked-citing"), "knn"),
    **dict.fromkeys(("lim", "mim", "mix-im"), f"knn,{NETWORK}"),
    **dict.fromkeys(("lim-paper", "mim-paper", "mix-im-paper"), "bm25-doc,heads=2,epochs=1"),
    **dict.fromkeys(("token-lim", "token-mim", "token-mix-im"), f"knn,model='{{bi}}',{NETWORK}"),
    "cross-encoder": "knn,model='{cross}',n_documents=3,device=cpu",
    "maxsim": "knn,model='{bi}',n_documents=3,device=cpu",
    "pli": "knn,n_documents=5,epochs=1,n_seeds=1,hidden=8",
    "pli-paper": "bm25-doc,model='{cross}',n_documents=4,epochs=1,hidden=8,device=cpu",
}
# Rankers that need dense vectors, and those whose networks read texts, so that the vectors make no difference.
DENSE_ONLY = ("svr-paper", "lim", "mim", "mix-im", "lim-paper", "mim-paper", "mix-im-paper")
DENSE_ONLY += ("token-lim", "token-mim", "token-mix-im", "cross-encoder", "maxsim", "pli", "pli-paper")
ENCODERS = {"sparse": "tfidf(min_df=1)", "dense": "lsa(n_components=10)"}
# Their networks compute where torch does, so make thorough runs them.
ONLY_THOROUGH = [name for name in DENSE_ONLY if name not in ("svr-paper", "lim", "pli")]
CASES = [
    pytest.param(name, encoder, id=f"{name}-{encoder}", marks=pytest.mark.thorough if name in ONLY_THOROUGH else ())
    for name in ranker_names()
    for encoder in ENCODERS
    if (encoder == "dense" or name not in DENSE_ONLY)
    and name not in ("cut", "unseen", "nearby", "run", "remote")  # which take rankings, on the CPU
]
DEPTH = 10

pytestmark = [
    pytest.mark.filterwarnings("ignore::haybale.rankers.EmptyRankingWarning"),
    pytest.mark.filterwarnings("ignore:.* bags have no relevant row"),
    pytest.mark.filterwarnings("ignore:.* training queries for"),
]


@pytest.fixture(scope="module")
def structured() -> Collection:
    return structured_collection(5, n_documents=14, n_queries=12)


@pytest.fixture(scope="module")
def folders(structured: Collection, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders of the engines on the CPU, of an engine in another space, and of models where torch is installed."""
    folder = tmp_path_factory.mktemp("folders")
    for name, encoder in (*ENCODERS.items(), ("space", "lsa(n_components=6)")):
        Engine.build(structured, folder / name, encoder=encoder).prepare()
    return {name: str(folder / name) for name in (*ENCODERS, "space")}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    pytest.importorskip("sentence_transformers")
    from support.tiny_models import save_bi_encoder, save_cross_encoder

    folder = tmp_path_factory.mktemp("models")
    return {"bi": save_bi_encoder(folder / "bi"), "cross": save_cross_encoder(folder / "cross")}


def ranker_of(name: str, folders: dict[str, str], request: pytest.FixtureRequest) -> Ranker:
    """Return a small ranker of a registered name; skip those that need torch where it is not installed."""
    arguments = ARGUMENTS.get(name, "")
    if RANKERS[name].ranker.__module__.startswith(("haybale.pairs", "haybale.context")):
        pytest.importorskip("torch")
    paths = folders | (request.getfixturevalue("models") if "{bi}" in arguments or "{cross}" in arguments else {})
    return parse(f"{name}({arguments.format(**paths)})")


def assert_same_up_to_ties(found: Run, expected: Run, atol: float = 2e-4) -> None:
    """Assert that each of the first documents of one run has the same score in the other."""
    assert found.query_ids == expected.query_ids
    for query in expected.query_ids:
        scores, others = dict(expected[query]), dict(found[query])
        assert len(scores) == len(others), query
        for doc_id in [doc_id for run in (found, expected) for doc_id, _ in run[query][:DEPTH]]:
            np.testing.assert_allclose(others[doc_id], scores[doc_id], rtol=1e-4, atol=atol, err_msg=query)


@pytest.mark.parametrize(("name", "encoder"), CASES)
def test_a_device_ranks_as_the_cpu(
    name: str,
    encoder: str,
    structured: Collection,
    folders: dict[str, str],
    cupy: Any,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """Ranked, out of fold, filtered and explained; a ranker saved on one device ranks on the other."""
    engines = {device: Engine.open(folders[encoder], device=device) for device in ("cpu", "cuda")}
    rankers = {device: ranker_of(name, folders, request).fit(engine) for device, engine in engines.items()}
    within = [f"d{number:02d}" for number in range(2, 11)]
    runs = {device: ranker.rank("dev") for device, ranker in rankers.items()}
    assert_same_up_to_ties(runs["cuda"], runs["cpu"])
    filtered = [rankers[device].rank("dev", within=within) for device in ("cuda", "cpu")]
    assert_same_up_to_ties(*filtered)
    assert_same_up_to_ties(*(rankers[device].out_of_fold() for device in ("cuda", "cpu")))
    query = runs["cpu"].query_ids[0]
    doc_id = runs["cpu"][query][0][0]
    texts = structured.queries.texts([int(structured.query_numbers([query])[0])])
    shares = [rankers[device].explain(texts[0], doc_id) for device in ("cuda", "cpu")]
    np.testing.assert_allclose(shares[0].score or 0.0, shares[1].score or 0.0, rtol=1e-4, atol=2e-4)
    found = [rankers[device].search(texts[0], 5) for device in ("cuda", "cpu")]
    assert [len(hit.snippets) for hit in found[0]] == [len(hit.snippets) for hit in found[1]]
    for before, after in (("cuda", "cpu"), ("cpu", "cuda")):
        rankers[before].save(tmp_path / before)
        assert_same_up_to_ties(load(tmp_path / before, engines[after]).rank("dev"), runs["cpu"])


CHANGED = ("bm25", "bm25-doc", "knn", "knn-doc", "knn-firstp", "parm-rrf", "parm-vrrf", "parm-vmin", "bm25-parm-rrf")
NEW = {"n1": ["d00 title rain and snow", "more rain"], "n2": "snow in winter"}


@pytest.mark.parametrize("encoder", ENCODERS)
def test_an_engine_on_a_device_changes_as_on_the_cpu(
    encoder: str, structured: Collection, cupy: Any, tmp_path: Path
) -> None:
    """Additions, replacements and removals on one device are ranked on the other, also with a condition on metadata; so
    is an engine built anew."""
    folder = tmp_path / "engine"
    engine = Engine.build(structured, folder, encoder=ENCODERS[encoder], device="cuda")
    engine.set_metadata({f"d{number:02d}": {"court": "BGH" if number % 2 else "BAG"} for number in range(14)})
    fitted = {name: parse(name).fit(engine) for name in CHANGED}

    def check(whole: Engine) -> None:
        other = Engine.open(folder, device="cpu" if whole.device == "cuda" else "cuda")
        for name in CHANGED:
            rankers = fitted[name] if whole is engine else parse(name).fit(whole), parse(name).fit(other)
            for condition in (None, "court = 'BGH'"):
                assert_same_up_to_ties(*(ranker.rank("dev", where=condition) for ranker in rankers))

    check(engine)
    engine.add(NEW)
    check(engine)
    engine.replace({"n2": "another text about snow"})
    engine.remove(["d03", "n1"])
    check(engine)
    on_cpu = Engine.open(folder)
    on_cpu.add({"n3": "hail and snow"})
    assert engine.refresh()
    check(engine)
    check(on_cpu)
    folder = tmp_path / "again"
    check(Engine.build(on_cpu.collection, folder, encoder=ENCODERS[encoder], device="cuda"))
