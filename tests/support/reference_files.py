"""Files with bibliographic records, in every format that programs export; all have the same records."""

from __future__ import annotations

import io
from collections.abc import Callable
from xml.sax.saxutils import escape

RECORDS: list[dict[str, str]] = [
    {
        "title": "Leases of flats: a trial", "abstract": "A lease ends with notice.\n\nSo does the rent.",
        "authors": "Müller, Jörg;de la Fuente, A", "year": "2016", "doi": "10.1000/leases.1", "pmid": "17",
        "keywords": "lease;flat", "journal": "Journal of Rents",
    },
    {
        "title": "Dogs in parks", "abstract": "", "authors": "Roe, J", "year": "2015", "doi": "", "pmid": "18",
        "keywords": "dog", "journal": "Parks",
    },
    {
        "title": "Taxes of 50% & more", "abstract": "A tax is due in May.", "authors": "Doe, Ann", "year": "2014",
        "doi": "10.1000/taxes", "pmid": "19", "keywords": "tax", "journal": "Fiscal Studies",
    },
]  # fmt: skip


def ris(records: list[dict[str, str]] = RECORDS) -> str:
    tags = {
        "title": "TI",
        "abstract": "AB",
        "authors": "AU",
        "year": "PY",
        "doi": "DO",
        "keywords": "KW",
        "journal": "T2",
    }
    return "".join(
        "TY  - JOUR\n"
        + "".join(
            f"{tag}  - {part}\n"
            for name, tag in tags.items()
            for part in (record[name].split(";") if name in ("authors", "keywords") else [record[name]])
            if part
        )
        + "ER  - \n\n"
        for record in records
    )


def nbib(records: list[dict[str, str]] = RECORDS) -> str:
    lines = []
    for record in records:
        lines += [f"PMID- {record['pmid']}", "OWN - NLM", f"DP  - {record['year']} Mar", f"TI  - {record['title']}"]
        words = record["abstract"].replace("\n\n", "\n\n      ").split(" with ")
        lines += [f"AB  - {words[0]}", *(f"      with {part}" for part in words[1:])] if record["abstract"] else []
        lines += [f"FAU - {author}" for author in record["authors"].split(";")]
        lines += [f"JT  - {record['journal']}", *(f"OT  - {word}" for word in record["keywords"].split(";"))]
        lines += [f"AID - {record['doi']} [doi]"] if record["doi"] else []
        lines.append("")
    return "\n".join(lines)


def web_of_science(records: list[dict[str, str]] = RECORDS) -> str:
    lines = ["FN Clarivate Analytics Web of Science", "VR 1.0"]
    for record in records:
        authors = "\n   ".join(record["authors"].split(";"))
        lines += ["PT J", f"AU {authors}", f"AF {authors}", f"TI {record['title']}", f"SO {record['journal']}"]
        lines += [f"DE {'; '.join(record['keywords'].split(';'))}", f"PY {record['year']}", f"PM {record['pmid']}"]
        lines += [f"AB {record['abstract'].replace(chr(10) * 2, chr(10) * 2 + '   ')}"] if record["abstract"] else []
        lines += [f"DI {record['doi']}"] if record["doi"] else []
        lines += ["ER", ""]
    return "\ufeff" + "\n".join([*lines, "EF"])


def refer(records: list[dict[str, str]] = RECORDS) -> str:
    lines = []
    for record in records:
        lines += ["%0 Journal Article", f"%T {record['title']}", *(f"%A {a}" for a in record["authors"].split(";"))]
        lines += [f"%D {record['year']}", f"%J {record['journal']}", "%K " + record["keywords"].replace(";", "\n")]
        lines += [f"%R {record['doi']}"] if record["doi"] else []
        lines += [f"%X {record['abstract']}"] if record["abstract"] else []
        lines.append("")
    return "\n".join(lines)


def bibtex(records: list[dict[str, str]] = RECORDS) -> str:
    entries = ['@comment{exported}\n@string{rents = "Journal of Rents"}\n']
    for record in records:
        title = record["title"].replace("%", r"\%").replace("&", r"\&")
        journal = "rents" if record["journal"] == "Journal of Rents" else f"{{{record['journal']}}}"
        authors = " and ".join(record["authors"].replace("ü", r"{\"u}").replace("ö", r"{\"o}").split(";"))
        fields = [f"title = {{{{{title}}}}}", f"author = {{{authors}}}", f"journal = {journal}"]
        fields += [f'year = "{record["year"]}"', f"keywords = {{{', '.join(record['keywords'].split(';'))}}}"]
        fields += [f"doi = {{{record['doi']}}}"] if record["doi"] else []
        fields += [f"abstract = {{{record['abstract']}}}"] if record["abstract"] else []
        entries.append("@article{same_key,\n  " + ",\n  ".join(fields) + "\n}\n")
    return "% exported\n" + "\n".join(entries)


def endnote_xml(records: list[dict[str, str]] = RECORDS) -> str:
    def element(name: str, text: str) -> str:
        return f'<{name}><style face="normal" font="default">{escape(text)}</style></{name}>' if text else ""

    written = []
    for record in records:
        authors = "".join(element("author", author) for author in record["authors"].split(";"))
        keywords = "".join(element("keyword", word) for word in record["keywords"].split(";"))
        abstract = element("abstract", record["abstract"]).replace("\n", "&#xD;")
        written.append(
            '<record><database name="a.enl">a.enl</database><ref-type name="Journal Article">17</ref-type>'
            f"<contributors><authors>{authors}</authors></contributors>"
            f"<titles>{element('title', record['title'])}</titles>"
            f"<periodical>{element('full-title', record['journal'])}</periodical><keywords>{keywords}</keywords>"
            f"<dates>{element('year', record['year'])}</dates>{abstract}"
            f"{element('electronic-resource-num', record['doi'])}</record>"
        )
    return f'<?xml version="1.0" encoding="UTF-8" ?><xml><records>{"".join(written)}</records></xml>'


def workbook(rows: list[dict[str, str]]) -> bytes:
    import openpyxl

    book = openpyxl.Workbook()
    book.active.append(list(rows[0]))
    for row in rows:
        book.active.append(list(row.values()))
    book.save(out := io.BytesIO())
    return out.getvalue()


# The maker of each format, by the end of the name.
MAKE: dict[str, Callable[[], str]] = {
    "ris": ris, "nbib": nbib, "ciw": web_of_science, "enw": refer, "bib": bibtex, "xml": endnote_xml,
}  # fmt: skip
