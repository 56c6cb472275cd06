"""Check the base install on this Python: build an engine, train and rank, each in its own process."""

from __future__ import annotations

import json
import platform
import subprocess
import tempfile
from pathlib import Path

TOPICS = ("dogs", "taxes", "leases", "patents", "roads", "rivers")


def haybale(*arguments: object) -> str:
    """Run a command and return what it prints."""
    done = subprocess.run(["haybale", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_collection(folder: Path) -> None:
    """Write thirty-six documents about six topics in BEIR's layout, with a training query for each."""
    documents = [{"_id": f"d{n}", "text": f"law {n} about {TOPICS[n % 6]}, section {n // 6}"} for n in range(36)]
    queries = [{"_id": f"q{n}", "text": f"what of {TOPICS[n % 6]} in section {n // 6}"} for n in range(36)]
    for name, records in (("corpus", documents), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (folder / "qrels").mkdir()
    (folder / "qrels" / "train.tsv").write_text("".join(f"q{n}\td{n}\t1\n" for n in range(36)))


with tempfile.TemporaryDirectory() as temporary:
    data, engine, model = (Path(temporary, name) for name in ("data", "engine", "model"))
    data.mkdir()
    write_collection(data)
    haybale("index", data, "--out", engine)
    haybale("train", engine, "--ranker", "learned(bm25,svr(n_bags=2))", "--out", model)
    assert "d1 " in haybale("rank", engine, "taxes in section 0", "--ranker", "bm25-doc").splitlines()[1]
    assert "d1 " in haybale("rank", engine, "taxes in section 0", "--model", model, "--k", 36)
print(f"Python {platform.python_version()}: an engine was built, a ranker trained, and both ranked")
