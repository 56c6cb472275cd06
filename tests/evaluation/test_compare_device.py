"""A comparison on a device gives the results of the CPU, from vectors to measures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from haybale import Engine, TfidfEncoder, load
from haybale.collections import Collection
from haybale.errors import DeviceError
from haybale.evaluation import compare
from haybale.rankers import parse_all, set_all

RANKERS = "bm25,knn-doc,svr,svr-memory,parm-rrf,parm-vrrf,parm-vmax,rrf(knn,svr(candidates=none))"


@pytest.mark.filterwarnings("ignore:.* bags have no relevant row")
@pytest.mark.filterwarnings("ignore:.* training queries for")
@pytest.mark.parametrize("encoder", ["lsa(n_components=8)", TfidfEncoder(min_df=1)], ids=["dense", "sparse"])
def test_all_rankers_on_a_device(toy: Collection, cupy: Any, encoder: Any, tmp_path: Path) -> None:
    """Every query has the same documents as on the CPU, with scores equal to 1e-4, the ensemble's tolerance."""
    engine = Engine(toy, device="cuda", encoder=encoder)
    rankers = set_all(parse_all(RANKERS), {"n_bags": 2, "n_jobs": 1, "tol": 1e-5})
    outcomes = [compare(each, rankers) for each in (Engine(toy, encoder=encoder), engine)]
    expected, found = (outcome.runs for outcome in outcomes)
    assert str(engine.passages.device) == str(engine.documents.device) == "cuda:0"
    assert found.keys() == expected.keys()
    assert len(found) == len(rankers)
    for name in found:
        left, right = (runs[name].to_frame().sort_values(["query_id", "doc_id"]) for runs in (found, expected))
        assert left["doc_id"].tolist() == right["doc_id"].tolist(), name
        np.testing.assert_allclose(left["score"], right["score"], atol=1e-4, err_msg=name)
    svr = next(name for name in found if name.startswith("svr("))
    outcomes[1].rankers[svr].save(tmp_path / "model")  # a saved model does not depend on a device
    again = load(tmp_path / "model", Engine(toy, encoder=encoder)).rank("dev")
    assert [again[query][0][0] for query in again.query_ids] == [expected[svr][q][0][0] for q in again.query_ids]
    with pytest.raises(DeviceError, match="'cuda:7'"):
        Engine(toy, encoder="lsa", device="cuda:7")
