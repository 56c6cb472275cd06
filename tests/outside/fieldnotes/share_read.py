"""A stopping rule that reads a share of the documents."""

from dataclasses import dataclass
from typing import ClassVar

from haybale.review import Advice, StoppingRule


@dataclass(frozen=True)
class ShareRead(StoppingRule):
    """Stop when a share of all documents has been read."""

    share: float = 0.5

    name: ClassVar[str] = "share-read"
    kind: ClassVar[str] = "heuristic"

    @property
    def promise(self):
        return f"Reads {self.share:.0%} of the documents. It promises nothing about recall."

    def advise(self, screening):
        needed = self.share * screening.n_documents
        return Advice(screening.n_read >= needed, f"{screening.n_read:,} of {needed:,.0f} documents have been read")
