"""A reader of folders of notes."""

from haybale.collections import FolderReader


class Notes(FolderReader):
    """Reader of ``notes.txt``, where a line ``# id title`` begins a document and each other line is a passage of it.

    ``queries.txt`` has a query per line: split, id, text and ids of relevant documents, separated by ``|``.
    """

    name = "notes"
    expected = "notes.txt"
    query_files = ("queries.txt",)

    def add_documents(self, builder, folder):
        head, passages = None, []
        for line in [*(folder / "notes.txt").read_text(encoding="utf-8").splitlines(), "#"]:
            if not line.startswith("#"):
                passages.append(line)
                continue
            if head is not None:
                builder.add_document(head[0], passages, title=head[1])
            head, passages = line[1:].strip().partition(" ")[::2], []

    def add_queries(self, builder, folder):
        for line in (folder / "queries.txt").read_text(encoding="utf-8").splitlines():
            split, query_id, text, relevant = line.split("|")
            builder.add_query(query_id, [text], split=split)
            for doc_id in relevant.split():
                builder.add_judgement(split, query_id, doc_id)
