"""Try the REST interface with programs of others: a fuzzer, and a client that is generated from its description.

    python tests/interface.py

Both are installed into an environment of their own. The service is asked without users, by an administrator, and by
a user who only reads, with the fuzzer alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import urllib.request
import venv
from pathlib import Path

from support.decisions import decisions
from support.matters import WORDS, build_matter
from support.served import Served

from haybale import Engine
from haybale.service.users import User
from haybale.service.users_file import add_user

PACKAGES = ("schemathesis==4.32", "openapi-python-client==0.29.1", "ruff==0.14.0")
CLIENT = """
from haybale_client import AuthenticatedClient, Client
from haybale_client.api.api import create_topic, judge, progress, search
from haybale_client.models import NewJudgement, NewTopic

options = {{"base_url": {address!r}, "raise_on_unexpected_status": True}}
client = AuthenticatedClient(token={token!r}, **options) if {token!r} else Client(**options)
hits = search.sync(client=client, q="damage by dogs", k=3).hits
topic = create_topic.sync(client=client, body=NewTopic(text="damage by dogs")).id
for hit in hits:
    judge.sync(topic, client=client, body=NewJudgement(doc_id=hit.doc_id, grade=1))
assert progress.sync(topic, client=client).n_relevant == len(hits) == 3
"""


def environment(folder: Path) -> Path:
    """Return the folder of the programs of an environment that has the packages."""
    programs = folder / "bin"
    if not (programs / "st").exists():
        venv.create(folder, with_pip=True)
        alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        subprocess.run([programs / "python", "-m", "pip", "install", "-q", *PACKAGES], check=True, env=alone)
    return programs


def fuzz(programs: Path, address: str, token: str, phases: str = "examples,coverage,fuzzing") -> None:
    """Raise CalledProcessError if the fuzzer finds an answer that the description does not allow."""
    options = ["--max-examples", "25", "--phases", phases, "--request-timeout", "60"]
    # It draws ids of documents that an address cannot have, throws them away, and may fail because of too many of them.
    options += ["--suppress-health-check", "filter_too_much"]
    header = ["-H", f"Authorization: Bearer {token}"] if token else []
    subprocess.run([programs / "st", "run", f"{address}/openapi.json", *options, *header], check=True, cwd=programs)


def generate(programs: Path, address: str, token: str, folder: Path) -> None:
    """Generate a client, and do a review with it."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with urllib.request.urlopen(urllib.request.Request(f"{address}/openapi.json", headers=headers)) as answer:
        (folder / "openapi.json").write_bytes(answer.read())
    path = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(folder / "client")}
    command = [programs / "openapi-python-client", "generate", "--path", folder / "openapi.json"]
    subprocess.run([*command, "--output-path", folder / "client", "--overwrite"], check=True, env=path)
    code = CLIENT.format(address=address, token=token)
    subprocess.run([programs / "python", "-c", code], check=True, env=path)


def main() -> None:
    """Try the interface without users, as an administrator and as a reader."""
    programs = environment(Path("build/interface").absolute())
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        Engine.build(decisions(), folder / "engine", language="english", encoder="tfidf(min_df=1)").prepare()
        for right in ("", "administer", "read"):
            options, token = ["--judgements", str(folder / f"judgements-{right}.sqlite")], ""
            if right:
                users = folder / f"users-{right}.json"
                token = str(add_user(users, User("Ada", right)))
                options += ["--users", str(users)]
            with Served(folder / "engine", *options) as served:
                if right == "read":
                    fuzz(programs, served.address, token, "coverage")
                else:
                    generate(programs, served.address, token, folder)
                    fuzz(programs, served.address, token)
                print(f"{right or 'no users'}: what was tried is as described", file=sys.stderr)
        for name, word in WORDS.items():
            build_matter(folder / "matters" / name, word)
        for number, path in enumerate(("", f"/matters/{name}")):  # the fuzzer removes users, too
            users = folder / f"users-{number}.json"
            token = str(add_user(users, User("Ada", "administer")))
            with Served(folder / "matters", "--users", str(users)) as served:
                fuzz(programs, served.address + path, token, "coverage")
                print(f"several matters, {path or '/'}: what was tried is as described", file=sys.stderr)


if __name__ == "__main__":
    main()
