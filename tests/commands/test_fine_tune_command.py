"""``haybale fine-tune``, an engine with the fine-tuned encoder, and a ranker that uses both engines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("sentence_transformers")
pytest.importorskip("datasets")

from support.tiny_models import save_bi_encoder

Call = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.filterwarnings("default")  # transformers and torch give warnings


def test_fine_tune_index_train_and_rank(data: Path, built: Path, tmp_path: Path, here: Call) -> None:
    bert, out = save_bi_encoder(tmp_path / "bert"), tmp_path / "out"
    values = ("frozen_layers=0", "evaluations=2", "batch_size=6", "match=bm25")
    how = ["--device", "cpu", "--fold", "0/2", *(part for value in values for part in ("--set", value))]
    command = ["fine-tune", str(built), "--encoder", bert, "--out", str(out), *how]
    status, printed, said = here(*command)
    assert status == 0, said
    facts = json.loads((out / "training.json").read_text())
    first, *rows = printed.splitlines()
    assert f"{facts['pairs']:,} pairs" in first
    assert str(out) in first
    assert len(rows) == 1 + 3  # the head, the values before training, and two evaluations
    assert {"✓ match paragraphs", "✓ train"} <= {
        line.strip().rpartition(" ")[0].rpartition(" ")[0] for line in said.splitlines()
    }
    assert (facts["fold"], facts["recipe"]["batch_size"], facts["recipe"]["frozen_layers"]) == ([0, 2], 6, 0)
    assert 0 < len({*facts["trained_on"], *facts["selected_on"]}) <= 12
    status, _, said = here(*command)
    assert status == 2
    assert str(out) in said
    status, _, said = here("index", str(data), "--encoder", str(out), "--out", str(tmp_path / "trained"))
    assert status == 0, said
    ranker = f"learned(bm25,space(parm-vrrf,engine='{tmp_path / 'trained'}'))"
    status, printed, said = here("train", str(built), "--ranker", ranker, "--out", str(tmp_path / "model"), "--verbose")
    assert status == 0, said
    assert f"queries that its encoder was trained on: {len(facts['trained_on']) + len(facts['selected_on'])}" in printed
    assert f"training queries: {24 - len(facts['trained_on']) - len(facts['selected_on'])}" in printed
    status, printed, said = here("rank", str(built), "rare3x", "--model", str(tmp_path / "model"), "--k", "1")
    assert status == 0, said
    assert "d03" in printed


def test_bad_options_are_refused(built: Path, tmp_path: Path, here: Call) -> None:
    out = tmp_path / "out"
    for arguments, message in (
        (("--encoder", "tfidf", "--fold", "2"), "fold"),
        (("--encoder", "tfidf", "--recipe", "large"), "'large'"),
        (("--encoder", "tfidf"), "tfidf"),
    ):
        status, _, said = here("fine-tune", str(built), "--out", str(out), *arguments)
        assert (status, message in said, out.exists()) == (2, True, False), said
