"""A learned fusion on disk: it comes back to the bit, and what is none is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fusion_oracle import sample
from sklearn.base import clone

import haybale
from haybale.ensemble import LearnedFusion
from haybale.errors import FileFormatError, InputError


def test_a_saved_fusion_fuses_to_the_same_bits(tmp_path: Path) -> None:
    runs, relevant = sample()
    fusion = LearnedFusion(cold=0.1, depth=np.int64(20)).fit(runs, relevant, memories=["good"], novel=["q1"])
    fusion.save(tmp_path / "fusion.json")
    assert [path.name for path in tmp_path.iterdir()] == ["fusion.json"]
    again = LearnedFusion.load(tmp_path / "fusion.json")
    assert again.fuse(runs) == fusion.fuse(runs)
    assert again.to_dict() == fusion.to_dict() == json.loads(json.dumps(fusion.to_dict()))
    assert (again.n_queries_, again.n_novel_) == (30, 1)
    assert again.get_params() == fusion.get_params()
    assert again.weights_.equals(fusion.weights_)
    assert clone(again).get_params() == fusion.get_params()
    assert haybale.LearnedFusion is LearnedFusion


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "expected format 'haybale fusion', found 'other'"),
        ({"version": 2}, "expected version 1, found 2"),
        ({"parameters": {"depth": 0}}, "depth"),
        ({"parameters": {"deep": 3}}, "deep"),
        ({"runs": ["good"]}, "weights are not those of the features of its runs"),
        ({"memories": ["other"]}, "weights are not those"),
        ({"weights": None}, "TypeError"),
    ],
)
def test_files_that_are_no_fusion_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    runs, relevant = sample()
    plain = LearnedFusion().fit(runs, relevant).to_dict() | changes
    with pytest.raises(InputError, match=message):
        LearnedFusion.from_dict(plain)
    path = tmp_path / "fusion.json"
    path.write_text(json.dumps(plain))
    with pytest.raises(FileFormatError, match=message):
        LearnedFusion.load(path)


def test_broken_files_are_refused(tmp_path: Path) -> None:
    runs, relevant = sample()
    plain = LearnedFusion().fit(runs, relevant).to_dict()
    del plain["loss"]
    with pytest.raises(InputError, match="loss"):
        LearnedFusion.from_dict(plain)
    plain = LearnedFusion().fit(runs, relevant).to_dict()
    plain["weights"][0]["weight"] = math.nan
    with pytest.raises(InputError, match="no finite number"):
        LearnedFusion.from_dict(plain)
    path = tmp_path / "fusion.json"
    with pytest.raises(FileFormatError, match="not found"):
        LearnedFusion.load(path)
    for content, message in ((b"{", "line 1: expected JSON"), (b"\xff", "expected UTF-8"), (b"[]", "expected format")):
        path.write_bytes(content)
        with pytest.raises(FileFormatError, match=message):
            LearnedFusion.load(path)
