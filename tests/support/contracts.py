"""Write invented contracts as Markdown files, with metadata and the contracts that are relevant to one question.

    python tests/support/contracts.py FOLDER [NUMBER]

The page on a legal team searches them (docs/tutorials/team.md), and so do the tests of the service's pages. Everything
in them is invented. About every sixth contract may be ended if the other side gets a new owner, in one of eight
wordings, of which few share words; ``judgements.csv`` beside the folder says which.
"""

from __future__ import annotations

import csv
import random
import sys
from pathlib import Path

QUESTION = "Which contracts may the other side end if our company gets a new owner?"
CITIES = ("Bergen", "Graz", "Lille", "Leeds", "Porto", "Turin", "Utrecht", "Valencia")
SIGNS = ("Alder", "Birch", "Cedar", "Elm", "Hazel", "Juniper", "Larch", "Maple", "Oak", "Rowan", "Spruce", "Willow")
TRADES = ("Foods", "Freight", "Glass", "Instruments", "Paper", "Pharma", "Software", "Steel", "Textiles", "Tools")
KINDS = {  # by kind: the parties, what is done, and what is paid
    "Lease": ("the landlord", "the tenant", "lets the premises described in the annex to", "rent"),
    "Supply agreement": ("the supplier", "the customer", "supplies the goods listed in the annex to", "price"),
    "Service agreement": ("the provider", "the client", "renders the services described in the annex to", "fee"),
    "Software licence": ("the licensor", "the licensee", "licenses the programs listed in the annex to", "licence fee"),
    "Loan agreement": ("the lender", "the borrower", "lends the sum stated below to", "interest"),
    "Distribution agreement": ("the maker", "the distributor", "gives the sale in the territory to", "commission"),
}
# The clauses that answer the question.
OWNER = (
    "If a third party acquires more than half of the voting rights in {b}, {a} may terminate with thirty days' notice.",
    "A change of control of {b} entitles {a} to end the agreement. Control is the power to appoint most of the board.",
    "{a} may withdraw from the agreement if the majority of the shares of {b} passes to another holder.",
    "Should {b} merge with, or be taken over by, a competitor of {a}, this agreement lapses unless {a} agrees.",
    "{b} shall tell {a} of any sale of its business or its capital. Within two months {a} may then give notice.",
    "These rights are granted to {b} as it is owned today; under other ownership they cease at the option of {a}.",
    "On the transfer of a controlling interest in {b}, directly or through a parent company, all sums fall due if {a} "
    "so requires, and its obligations come to an end.",
    "{a} is free to leave when those who hold {b} on the date of signature hold less than half of it.",
)
CLAUSES = {
    "Term": (
        "This agreement begins on {date} and runs for {years} years. It is prolonged by a year unless a party objects.",
        "The agreement is concluded for an indefinite time and takes effect on {date}.",
        "The agreement starts on {date} and ends after {years} years without notice.",
    ),
    "Payment": (
        "The {price} is {amount} euros a month. It is due on the third working day, and late payment bears interest.",
        "{b} pays a {price} of {amount} euros each quarter, within thirty days of the invoice.",
        "The {price} of {amount} euros is adjusted every year to the index of consumer prices.",
    ),
    "Ordinary termination": (
        "Either party may terminate this agreement with {months} months' notice to the end of a quarter.",
        "After the first two years the agreement may be ended by notice of {months} months.",
        "Ordinary termination is excluded during the fixed term.",
    ),
    "Termination for cause": (
        "Either party may terminate without notice if the other commits a material breach and does not cure it within "
        "thirty days of a warning.",
        "If {b} is more than two payments in arrears, {a} may terminate the agreement immediately.",
        "Insolvency of a party entitles the other to end the agreement, as far as the law permits.",
    ),
    "Assignment": (
        "Neither party may assign this agreement without the consent of the other.",
        "{b} may transfer its rights to a company under common control, and tells {a} of the transfer.",
        "Claims may be assigned to banks as security. A change of the creditor leaves the terms as they are.",
    ),
    "Liability": (
        "Each party is liable for intent and gross negligence. Otherwise its liability is limited to {amount} euros.",
        "Neither party is liable for loss of profit. Claims for injury are not limited.",
        "{a} is liable for defects only if {b} gives notice of them within eight days.",
    ),
    "Confidentiality": (
        "The parties keep secret what they learn of each other's business, for five years after the agreement ends.",
        "Documents that are marked as confidential are shown only to those who need them, and returned at the end.",
    ),
    "Data protection": (
        "{a} is the controller of personal data and {b} the processor. The processor acts on instructions only.",
        "The parties process personal data as the law requires, and tell each other of breaches within a day.",
    ),
    "Insurance": (
        "{b} takes out insurance against fire, water and theft, and shows the policy on request.",
        "{a} insures the goods until they are handed over to {b}.",
    ),
    "Force majeure": (
        "Neither party is in default while events beyond its control prevent it from performing.",
        "War, strikes and floods suspend the duties of both parties. After six months either may end the agreement.",
    ),
    "Inspection": (
        "{a} may inspect the premises and books of {b} once a year, during business hours and with two weeks' notice.",
        "{b} keeps records of its performance for ten years and makes them available to {a}.",
    ),
    "Shareholders and guarantees": (
        "The owner of {b} guarantees payment up to {amount} euros. The guarantee ends with the agreement.",
        "{b} names its shareholders in the annex and brings the list up to date every year.",
    ),
    "Law and courts": (
        "The law of {b}'s seat applies. The courts of {city} have jurisdiction.",
        "Disputes are settled by one arbitrator in {city}.",
    ),
    "Final provisions": (
        "Changes of this agreement need the written form. If a provision is void, the others remain in force.",
        "The annexes are part of this agreement. There are no oral side agreements.",
    ),
}  # fmt: skip


def write_contracts(folder: Path, n: int = 400, seed: int = 0) -> dict[str, int]:
    """Write contracts to a folder and ``judgements.csv`` beside it; return the grade of each document's id."""
    draw = random.Random(seed)
    folder.mkdir(parents=True)
    grades, rows = {}, [("file", "kind", "city", "signed", "value")]
    for number in range(1, n + 1):
        kind = draw.choice(list(KINDS))
        a, b, does, price = KINDS[kind]
        one, other = (f"{draw.choice(SIGNS)} {draw.choice(TRADES)}" for _ in range(2))
        city, signed = draw.choice(CITIES), f"{draw.randint(2012, 2025)}-{draw.randint(1, 12):02}-01"
        value, years, months = draw.randint(2, 90) * 500, draw.randint(2, 10), draw.randint(2, 9)
        values = {"a": a, "b": b, "city": city, "price": price, "amount": f"{value:,}", "date": signed}
        values |= {"years": years, "months": months}
        articles = [("Subject", f"{one}, {a}, {does} {other}, {b}. Both have their seat in {city}.")]
        articles += [(name, draw.choice(CLAUSES[name])) for name in CLAUSES if draw.random() < 0.8]
        relevant = draw.random() < 1 / 6
        if relevant:
            name = draw.choice(["Special termination", "Reservations", "Miscellaneous"])
            articles.insert(draw.randint(2, len(articles)), (name, draw.choice(OWNER)))
        articles = [(name, clause.format(**values)) for name, clause in articles]
        parts = [
            f"## § {place} {name}\n\n{clause[0].upper()}{clause[1:]}"
            for place, (name, clause) in enumerate(articles, 1)
        ]
        file = f"{number:03}.md"
        (folder / file).write_text(f"# {kind} {one} – {other}\n\n" + "\n\n".join(parts) + "\n", encoding="utf-8")
        rows.append((file, kind, city, signed, value))
        grades[file] = int(relevant)
    with open(folder / "metadata.csv", "w", newline="", encoding="utf-8") as out:
        csv.writer(out, lineterminator="\n").writerows(rows)
    with open(folder.parent / "judgements.csv", "w", newline="", encoding="utf-8") as out:
        csv.writer(out, lineterminator="\n").writerows([("doc_id", "grade"), *grades.items()])
    return grades


if __name__ == "__main__":
    found = write_contracts(Path(sys.argv[1]), *map(int, sys.argv[2:3]))
    print(f"{len(found):,} contracts, {sum(found.values()):,} relevant to: {QUESTION}")
