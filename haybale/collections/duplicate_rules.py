"""Decide whether two documents are one record: the rules by which duplicates are found.

A false duplicate hides a document from its readers, and a missed one is read twice. So the rules ask for evidence, and
any contradiction outweighs it: different DOIs or PubMed ids, different authors, years or numbers in the title. A
preprint and its article have DOIs of their own, so they stay apart, as do a conference paper and the article of a later
year.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import combinations, pairwise

import numpy as np

from haybale.collections.collection import Ints
from haybale.collections.record_fields import RecordFields
from haybale.collections.text_sketches import TextSketches

# Words that databases leave out of titles, or add to them.
_UNIMPORTANT = frozenset(
    ("a", "abstract", "an", "and", "at", "book", "by", "during", "editorial", "for", "from", "in", "into", "letter",
     "of", "on", "or", "panel", "report", "review", "the", "to", "tutorial", "using", "via", "with")
)  # fmt: skip

# What two documents are duplicates by, the surest first.
REASONS = (
    "same DOI", "same PubMed id", "same title and year", "same title, and text or authors",
    "same place and similar title", "similar title, same year and authors", "same words", "nearly the same text",
)  # fmt: skip
_BY_DOI, _BY_PMID, _BY_TITLE, _BY_TITLE_AND_TEXT, _BY_PLACE, _BY_AUTHORS, _BY_WORDS, _BY_TEXT = range(len(REASONS))

_MIN_TITLE_WORDS = 4  # a shorter title, such as "Editorial", is shared by different works
_MIN_SPECIFIC_TITLE_WORDS = 6  # a title of so many words by the same authors is not that of a series
_MIN_TEXT_WORDS = 25  # an abstract; a shorter text may be "No abstract available"
_MIN_DOCUMENT_WORDS = 50  # of a document that is no record of literature
_SIMILAR_TITLES, _RELATED_TITLES = 0.85, 0.5  # shares of equal characters
_NEAR_TEXTS = 0.75  # Jaccard index of shingles
_SAME_TEXTS = 0.6  # share of the shingles of the shorter text that the other one has, as databases cut abstracts
_OTHER_TEXTS = 0.15  # a smaller share means that the abstracts are of different works
_MIN_STEM, _MAX_ENDING = 5, 3  # letters of words that are one word with another ending
_SAME_AUTHORS = 0.5  # Jaccard index of the words in the names
_MIN_YEARS_OF_SERIES = 3  # a title that comes in so many years, such as "Book reviews", is that of a series
_MAX_BLOCK = 50  # documents of which all pairs are compared; in a larger block, a value is no evidence by itself


class DuplicateRules:
    """The rules for the documents of a collection, which are numbers.

    Parameters
    ----------
    fields : RecordFields
    sketches : TextSketches
        Of the texts, without the titles.
    """

    def __init__(self, fields: RecordFields, sketches: TextSketches) -> None:
        self.fields, self.sketches = fields, sketches
        self._n_of_source = Counter(fields.source)
        self._series, self._repeated_in_source, self._repeated = _titles_of_several_works(fields)

    def groups(self) -> list[tuple[list[int], list[str]]]:
        """Return the groups of two or more documents that are duplicates, rising, with the reasons for each group.

        Groups are joined by their surest pairs first, and never if two of their documents contradict each other; of a
        large group, the first 50 documents are compared.
        """
        matches = sorted(
            (rule, one, other) for one, other in self._candidates() if (rule := self.rule(one, other)) >= 0
        )
        group_of: dict[int, list[int]] = {}
        rules: dict[int, set[int]] = {}
        for rule, one, other in matches:
            first, second = group_of.setdefault(one, [one]), group_of.setdefault(other, [other])
            if first is not second:
                if any(self._are_apart(a, b) for a in first[:_MAX_BLOCK] for b in second[:_MAX_BLOCK]):
                    continue
                large, small = (first, second) if len(first) >= len(second) else (second, first)
                large.extend(small)
                group_of.update(dict.fromkeys(small, large))
            rules.setdefault(one, set()).add(rule)
        distinct_groups = {id(group): sorted(group) for group in group_of.values() if len(group) > 1}
        ordered = sorted(distinct_groups.values())
        return [
            (group, [REASONS[rule] for rule in sorted(set().union(*(rules.get(document, ()) for document in group)))])
            for group in ordered
        ]

    def rule(self, one: int, other: int) -> int:
        """Return the surest rule by which two documents are duplicates, a number of :data:`REASONS`; -1 if none."""
        fields = self.fields
        if self.contradict(one, other):
            return -1
        similarity = title_similarity(fields.title[one], fields.title[other])
        if self._same_id(one, other):
            is_related = similarity >= _RELATED_TITLES or not (fields.title[one] and fields.title[other])
            is_same = (
                is_related or self._same_text(one, other) or (self._same_place(one, other) and self._share(one, other))
            )
            if is_same:
                return _BY_DOI if fields.doi[one] and fields.doi[one] == fields.doi[other] else _BY_PMID
            return -1
        bibliographic = fields.is_bibliographic(one) and fields.is_bibliographic(other)
        if similarity == 1 and fields.title[one]:
            return self._by_title(one, other, bibliographic)
        if not bibliographic:
            return self._by_words(one, other, similarity)
        if self._has_other_page(one, other) or self._is_other_venue_of_source(one, other):
            return -1
        is_agreed = self._same_year(one, other) and self._authors_agree(one, other)
        titles = fields.title[one], fields.title[other]
        in_series = any(title in self._series or title in self._repeated_in_source for title in titles)
        if is_agreed and not in_series and is_variant(fields.title[one], fields.title[other]):
            return _BY_AUTHORS
        if similarity < _SIMILAR_TITLES:
            return -1
        if self._same_place(one, other) and self._share(one, other):
            return _BY_PLACE
        has_texts = self._has_text(one) and self._has_text(other)
        is_near = has_texts and self.sketches.overlap(one, other) >= _NEAR_TEXTS
        return _BY_TEXT if is_near and (self._same_year(one, other) or self._share(one, other)) else -1

    def contradict(self, one: int, other: int) -> bool:
        """Return whether two documents cannot be one record."""
        fields = self.fields
        if _differ(fields.doi[one], fields.doi[other]) or _differ(fields.pmid[one], fields.pmid[other]):
            return True
        if self._same_id(one, other):
            return False
        gap = abs(fields.year[one] - fields.year[other]) if fields.year[one] and fields.year[other] else 0
        if gap > 1 or (gap == 1 and not self._same_place(one, other)):
            return True
        if fields.authors[one] and fields.authors[other] and not fields.authors[one] & fields.authors[other]:
            return True
        both = fields.is_bibliographic(one) and fields.is_bibliographic(other)
        are_copies = not both and self.sketches.texts[one] == self.sketches.texts[other]  # whose names may have numbers
        have_titles = bool(fields.title[one] and fields.title[other])
        if have_titles and not are_copies and fields.numbers[one] != fields.numbers[other]:
            return True
        return not both and _differ(fields.date[one], fields.date[other])

    def _are_apart(self, one: int, other: int) -> bool:
        """Return whether two documents cannot be in one group, although others link them."""
        is_other = self._is_other_venue_of_source(one, other) and not self._same_text(one, other)
        return self.contradict(one, other) or (is_other and not self._same_place(one, other))

    def _by_title(self, one: int, other: int, bibliographic: bool) -> int:
        """Return the rule by which two documents with the same title are duplicates; -1 if none."""
        fields, sketches = self.fields, self.sketches
        has_texts = self._has_text(one) and self._has_text(other)
        is_long = fields.title[one].count(" ") + 1 >= _MIN_TITLE_WORDS or len(fields.title[one]) >= 40
        if has_texts and sketches.containment(one, other) < _OTHER_TEXTS:
            return -1
        is_elsewhere = self._has_other_page(one, other) or self._is_other_venue_of_source(one, other)
        if is_elsewhere and not self._same_text(one, other) and not self._same_place(one, other):
            return -1
        has_same_authors = self._authors_agree(one, other)
        is_specific = has_same_authors and fields.title[one].count(" ") + 1 >= _MIN_SPECIFIC_TITLE_WORDS
        in_source = fields.title[one] in self._repeated_in_source and not is_specific
        is_of_series = in_source or fields.title[one] in self._series
        has_author = has_same_authors or (is_long and self._share(one, other))
        has_evidence = self._same_text(one, other) or (has_author and not is_of_series)
        is_same_year = self._same_year(one, other) and (has_evidence or (is_long and not is_of_series))
        if bibliographic and (is_same_year or self._same_place(one, other)):
            return _BY_TITLE
        is_one_work = self._same_text(one, other) or fields.title[one] not in self._repeated
        if bibliographic and is_long and has_evidence and is_one_work:
            return _BY_TITLE_AND_TEXT
        is_from_another = _differ(fields.source[one], fields.source[other])
        agrees = self._same_text(one, other) or not has_texts
        if self._same_year(one, other) and is_long and agrees and is_from_another and not is_of_series:
            return _BY_TITLE
        return self._by_words(one, other, 1.0)

    def _by_words(self, one: int, other: int, similarity: float) -> int:
        """Return the rule for documents that are no records of literature: the same words in the same order, or none.

        Contracts and mails that are made from one template have nearly the same text, and are different documents.
        """
        sketches = self.sketches
        if sketches.texts[one] != sketches.texts[other] or sketches.n_words[one] < _MIN_TEXT_WORDS:
            return -1
        titles, numbers = self.fields.title, self.fields.numbers
        if similarity >= _SIMILAR_TITLES and numbers[one] == numbers[other]:
            return _BY_WORDS
        # The title of a whole file may be its name; rows of a table with other titles are other works.
        has_name = self._is_whole_file(one) and self._is_whole_file(other)
        may_differ = has_name or not (titles[one] and titles[other])
        is_enough = may_differ and sketches.n_words[one] >= _MIN_DOCUMENT_WORDS
        return _BY_WORDS if is_enough else -1

    def _is_whole_file(self, document: int) -> bool:
        """Return whether a document is the only one of its file."""
        source = self.fields.source[document]
        return bool(source) and self._n_of_source[source] == 1

    def _same_id(self, one: int, other: int) -> bool:
        fields = self.fields
        same_doi = bool(fields.doi[one]) and fields.doi[one] == fields.doi[other]
        return same_doi or (bool(fields.pmid[one]) and fields.pmid[one] == fields.pmid[other])

    def _same_year(self, one: int, other: int) -> bool:
        return bool(self.fields.year[one]) and self.fields.year[one] == self.fields.year[other]

    def _same_place(self, one: int, other: int) -> bool:
        fields = self.fields
        pages, volumes = fields.page[one], fields.volume[one]
        return bool(pages and volumes) and (pages, volumes) == (fields.page[other], fields.volume[other])

    def _has_other_page(self, one: int, other: int) -> bool:
        return _differ(self.fields.page[one], self.fields.page[other])

    def _is_other_venue_of_source(self, one: int, other: int) -> bool:
        """Return whether one database, which writes the name of a journal in one way, has other names for both."""
        fields = self.fields
        return fields.source[one] == fields.source[other] and _differ(fields.venue[one], fields.venue[other])

    def _share(self, one: int, other: int) -> bool:
        """Return whether two documents have an author in common."""
        return bool(self.fields.authors[one] & self.fields.authors[other])

    def _authors_agree(self, one: int, other: int) -> bool:
        first, second = self.fields.authors[one], self.fields.authors[other]
        return bool(first & second) and len(first & second) >= _SAME_AUTHORS * len(first | second)

    def _has_text(self, document: int) -> bool:
        """Return whether a document has a text beside its title, which is the text of a record without an abstract."""
        n_title_words = self.fields.title[document].count(" ") + 1
        return int(self.sketches.n_words[document]) >= max(_MIN_TEXT_WORDS, n_title_words + _MIN_TITLE_WORDS)

    def _same_text(self, one: int, other: int) -> bool:
        sketches = self.sketches
        has_texts = self._has_text(one) and self._has_text(other)
        return has_texts and sketches.containment(one, other) >= _SAME_TEXTS

    def _candidates(self) -> Iterator[tuple[int, int]]:
        """Yield each pair of documents that agree in something, once; the first one has the lower number."""
        fields, n = self.fields, len(self.fields.title)
        places = [
            f"{year} {volume} {page}" if year and volume and page else ""
            for year, volume, page in zip(fields.year, fields.volume, fields.page, strict=True)
        ]
        variants = _variant_keys(fields)
        texts = (fields.doi, fields.pmid, fields.title, places, *variants)
        pairs = [_pairs(_blocks(values), n) for values in texts]
        pairs += [_pairs(_array_blocks(keys), n) for keys in (self.sketches.texts, *self.sketches.bands())]
        for pair in np.unique(np.concatenate(pairs)).tolist():
            yield divmod(pair, n)


def title_similarity(one: str, other: str) -> float:
    """Return the share of equal characters of two titles, as normalised by ``words_of``.

    It is .9 for a title that goes on with a subtitle in the other record.

    >>> title_similarity("a trial of statins in adults", "a trial of statins in adults results after one year")
    0.9
    >>> round(title_similarity("statins in adults", "statin in adults"), 2)
    0.97
    """
    if one == other:
        return 1.0 if one else 0.0
    short, long = sorted((one, other), key=len)
    if long.startswith(f"{short} ") and short.count(" ") >= _MIN_TITLE_WORDS:
        return 0.9
    return SequenceMatcher(None, one, other, autojunk=False).ratio()


def is_variant(one: str, other: str) -> bool:
    """Return whether two titles, as normalised by ``words_of``, are one in two ways of writing.

    They may differ in spaces, in words such as articles, and in the ends of two words.

    >>> is_variant("broadcast disks for communications environments", "broadcast disks for communication environments")
    True
    >>> is_variant("risk of stroke in men", "risk of stroke in women")
    False
    """
    if one.replace(" ", "") == other.replace(" ", ""):
        return True
    first, second = (Counter(word for word in title.split() if word not in _UNIMPORTANT) for title in (one, other))
    left, right = sorted((first - second).elements()), sorted((second - first).elements())
    if len(left) != len(right) or len(left) > 2 or (first & second).total() < 2:
        return False
    return all(_differ_at_end(*pair) for pair in zip(left, right, strict=True))


def _differ_at_end(one: str, other: str) -> bool:
    n_same = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return n_same >= _MIN_STEM and max(len(one), len(other)) - n_same <= _MAX_ENDING and one.isalpha()


def _titles_of_several_works(fields: RecordFields) -> tuple[set[str], set[str], set[str]]:
    """Return titles of three years or more, those that come again in one source and year, and those of two years."""
    years: defaultdict[str, set[int]] = defaultdict(set)
    of_source: Counter[tuple[str, str, int]] = Counter()
    for title, year, source in zip(fields.title, fields.year, fields.source, strict=True):
        if title and year:
            years[title].add(year)
            of_source[title, source, year] += 1
    series = {title for title, title_years in years.items() if len(title_years) >= _MIN_YEARS_OF_SERIES}
    in_source = {title for (title, source, _), count in of_source.items() if count > 1 and source}
    return series, in_source, {title for title, title_years in years.items() if len(title_years) > 1}


def _variant_keys(fields: RecordFields) -> tuple[list[str], list[str]]:
    """Return two keys of each title with its year: the first of them is the same for many ways to write a title."""
    longest, first = [], []
    for title, year in zip(fields.title, fields.year, strict=True):
        words = [word for word in title.split() if word not in _UNIMPORTANT] if year else []
        by_length = sorted(sorted(words, key=lambda word: (-len(word), word))[:3])
        longest.append(f"{year} {' '.join(by_length)}" if len(by_length) == 3 else "")
        first.append(f"{year} {''.join(words)[:20]}" if words else "")
    return longest, first


def _differ(one: str, other: str) -> bool:
    return bool(one) and bool(other) and one != other


def _blocks(values: Sequence[str]) -> Iterator[list[int]]:
    """Yield the documents that have a value in common, rising."""
    blocks: dict[str, list[int]] = {}
    for document, value in enumerate(values):
        if value:
            blocks.setdefault(value, []).append(document)
    return (block for block in blocks.values() if len(block) > 1)


def _array_blocks(keys: np.ndarray) -> Iterator[list[int]]:
    """Yield the documents that have a key in common, rising; 0 is no key."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    edges = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1], [True]]))
    for start in np.flatnonzero(np.diff(edges) > 1).tolist():
        if ordered[edges[start]]:
            yield order[edges[start] : edges[start + 1]].tolist()


def _pairs(blocks: Iterable[list[int]], n: int) -> Ints:
    """Return the pairs within blocks as numbers: the first document times n, plus the second.

    Of a large block, each document is compared with the next one only.
    """
    pairs = (
        pair for block in blocks for pair in (combinations(block, 2) if len(block) <= _MAX_BLOCK else pairwise(block))
    )
    return np.fromiter((one * n + other for one, other in pairs), np.int64)
