"""Decisions of other programs are imported on the page and by the interface, and what does not match is shown."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from support.decisions import decisions
from support.reference_files import ris

from haybale.errors import InputError
from haybale.review import exported_workbook
from haybale.service.decisions_worker import decisions_of_output
from haybale.service.imported_decisions import has_bare_grades
from haybale.service.limited_process import output_of

IDS = sorted(decisions())


def titles(workspace: Any) -> list[str]:
    return [workspace.titles([doc_id])[doc_id] for doc_id in IDS]


def test_the_page_says_what_did_not_match(client: Any, workspace: Any) -> None:
    topic = workspace.create_topic("dogs").id
    one, two = titles(workspace)[:2]
    table = f'title,included,reviewer\n"{one}",1,Ada\n"{two}",0,Ada\nNo such title,1,Ada\n'
    answer = client.post(f"/topics/{topic}/import", files={"file": ("old.csv", table.encode())})
    assert answer.status_code == 200
    assert "2 judgements added" in answer.text
    assert "No such title" in answer.text
    assert {(row["judge"], row["kind"]) for row in workspace.judgements(topic).to_dict("records")} == {("Ada", "known")}


def test_a_file_of_included_records(client: Any, workspace: Any) -> None:
    topic = workspace.create_topic("dogs").id
    records = [
        dict.fromkeys(("abstract", "authors", "year", "doi", "keywords", "journal"), "") | {"title": title}
        for title in titles(workspace)[:3]
    ]
    file = {"file": ("included.ris", ris(records).encode())}
    assert client.post(f"/topics/{topic}/import", files=file).status_code == 422
    assert workspace.topic(topic).n_judged == 0
    assert client.post(f"/topics/{topic}/import", files=file, data={"otherwise": "relevant"}).status_code == 200
    assert (workspace.topic(topic).n_judged, workspace.topic(topic).n_relevant) == (3, 3)
    assert client.post(f"/topics/{topic}/import", files=file, data={"otherwise": "perhaps"}).status_code == 422


def test_the_interface_returns_the_lists(client: Any, workspace: Any) -> None:
    topic = workspace.create_topic("dogs").id
    table = f'title,included\n"{titles(workspace)[0]}",1\nNo such title,1\n'
    done = client.post(f"/api/topics/{topic}/decisions", files={"file": ("old.csv", table.encode())}).json()
    assert (done["n_added"], done["unmatched"]) == (1, ["line 3: No such title"])
    for path, file in ((f"/api/topics/{topic}/decisions", b"nothing"), ("/api/topics/99/decisions", table.encode())):
        assert client.post(path, files={"file": ("old.csv", file)}).status_code in (404, 409)


@pytest.mark.parametrize("format", ["csv", "ris", "xlsx"])
def test_exports_are_imported_again(format: str, client: Any, workspace: Any) -> None:
    topic = workspace.create_topic("dogs").id
    for number, doc_id in enumerate(IDS[:4]):
        workspace.judge(topic, doc_id, number % 2, "Ada", f"note {number}")
    exported = client.get(f"/topics/{topic}/export", params={"format": format, "documents": "all"})
    assert exported.status_code == 200
    other = workspace.create_topic("others").id
    file = {"file": (f"a.{format}", exported.content)}
    assert client.post(f"/topics/{other}/import", files=file).status_code == 200
    columns = ["doc_id", "grade", "judge", "note", "time"]
    assert (
        workspace.judgements(other)[columns].to_numpy().tolist()
        == workspace.judgements(topic)[columns].to_numpy().tolist()
    )
    assert client.get(f"/api/topics/{topic}/export", params={"format": format}).status_code == 200


def test_a_table_has_unread_documents_with_their_probabilities(workspace: Any) -> None:
    topic = workspace.create_topic("dogs").id
    workspace.judge(topic, IDS[0], 1)
    rows = list(csv.DictReader(io.StringIO(workspace.export(topic, "csv", documents="all"))))
    assert sorted(row["doc_id"] for row in rows) == IDS
    unread = rows[1:]
    assert [row["rank"] for row in unread] == [str(rank) for rank in range(1, len(IDS))]
    assert all(0 <= float(row["probability"]) <= 1 and not row["grade"] for row in unread)
    assert exported_workbook(workspace._review(topic), "all").startswith(b"PK")


def test_what_is_hostile_is_one_problem() -> None:
    for name, data in (
        ("a.asreview", b"PK\x03\x04"),
        ("a.xlsx", b"PK\x05\x06" + bytes(18)),
        ("a.ris", b"\x00\xff" * 9),
    ):
        with pytest.raises(InputError, match="expected"):
            decisions_of_output(output_of("haybale.service.decisions_worker", [name, ""], data))
    with pytest.raises(InputError, match="split it"):
        decisions_of_output(b"")


def test_bare_grades_need_no_process() -> None:
    assert all(map(has_bare_grades, (b"", b"q1 0 a 1\n", b"query_id,doc_id,relevance\nq,a,1\n")))
    others = (
        b"doc_id,title,grade\na,b,1\n",
        b"TY  - JOUR\nTI  - T\nER  - \n",
        "Gebühr,x\n".encode("cp1252"),
        b"PK\x03\x04",
    )
    assert not any(map(has_bare_grades, others))


def test_large_files_are_uploads_only(client: Any, workspace: Any) -> None:
    topic = workspace.create_topic("dogs").id
    table = f'title,included,abstract\n"{titles(workspace)[0]}",1,"{"word " * 1_100_000}"\n'.encode()
    assert client.post(f"/topics/{topic}/judge", files={"file": ("a.csv", table)}).status_code == 413
    answer = client.post(f"/api/topics/{topic}/decisions", files={"file": ("a.csv", table)})
    assert answer.json()["n_added"] == 1
