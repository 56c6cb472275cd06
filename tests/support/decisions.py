"""Decisions of courts, with metadata, for tests of the service."""

COURTS = ("BGH", "BVerfG")
SUBJECTS = {
    "lease": "The landlord may end the lease if the tenant does not pay the rent for two months.",
    "dog": "The keeper of a dog must pay the damage that the dog does, unless the dog guards a house.",
    "tax": "The tax office may estimate the income of a company that keeps no books.",
    "road": "A driver who leaves the scene of an accident on the road loses the licence.",
}


def decisions(n=24):
    """Return decisions of four subjects, with a court, a year, a date and topics each."""
    subjects = list(SUBJECTS)
    return {
        f"{subjects[i % 4]}/{i}": {
            "text": [SUBJECTS[subjects[i % 4]], f"The appeal number {i} was {'allowed' if i % 3 else 'dismissed'}."],
            "title": f"{subjects[i % 4].title()} {i}",
            "court": COURTS[i % 2],
            "year": 2000 + i,
            "date": f"{2000 + i}-05-01",
            "topics": [subjects[i % 4], "civil"],
        }
        for i in range(n)
    }
