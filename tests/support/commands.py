"""For tests of the command line: a small collection in BEIR's layout, and the command in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

N_DOCUMENTS, N_TRAIN, N_DEV = 30, 24, 8


def haybale(*arguments: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command in a new process."""
    done = subprocess.run([sys.executable, "-m", "haybale", *arguments], capture_output=True, input=stdin)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


ONE_AFTER_ANOTHER = """
import json, sys
from haybale.cli import main
for arguments in json.loads(sys.argv[1]):
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
    print("END")
"""  # runs the commands of its argument, a list in JSON, in one process


_INTERRUPTED = """
import os, signal, sys
from haybale.cli import main

signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background of a shell ignores interrupts
sent = []

def interrupt(event, args):
    if event in ("open", "os.rename") and not sent and os.path.exists(there):
        sent.append(event)
        os.kill(os.getpid(), signal.SIGINT)

sys.addaudithook(interrupt)
main()
"""


def interrupted(command: list[str], there: Path) -> subprocess.CompletedProcess[str]:
    """Run the command, which interrupts itself when it opens or renames a file and ``there`` exists."""
    run = [sys.executable, "-c", f"there = {str(there)!r}\n{_INTERRUPTED}", *command]
    done = subprocess.run(run, stderr=subprocess.PIPE, text=True)
    return subprocess.CompletedProcess(command, done.returncode, "", done.stderr)


def word_folder(folder: Path) -> Path:
    """Write documents of two or three lines with common words, and a rare word that occurs in one document only.

    A query has the rare word of its relevant document.
    """
    rng = np.random.default_rng(0)

    def common(n: int) -> str:
        return " ".join(f"common{i}" for i in np.minimum(rng.geometric(0.1, size=n), 30))

    folder.mkdir(parents=True)
    documents = [
        {
            "_id": f"d{i:02d}",
            "title": f"Title {i}" if i % 2 else "",
            "text": "\n".join(f"rare{i}x {common(6)}" for _ in range(2 + i % 2)),
        }
        for i in range(N_DOCUMENTS)
    ]
    queries, qrels = [], {}
    for split, n in (("train", N_TRAIN), ("dev", N_DEV)):
        qrels[split] = ""
        for i in range(n):
            document = (i * 7 + (split == "dev")) % N_DOCUMENTS
            text = f"rare{document}x {common(2)}\nrare{document}x {common(1)}"
            queries.append({"_id": f"{split}{i}", "text": text})
            qrels[split] += f"{split}{i}\td{document:02d}\t1\n"
    for name, records in (("corpus", documents), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (folder / "qrels").mkdir()
    for split, text in qrels.items():
        (folder / "qrels" / f"{split}.tsv").write_text(text)
    return folder
