"""One text in several Unicode forms is one text; ids, names of files and options stay as they are."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Callable
from functools import partial
from itertools import count

import numpy as np
from hostile.target import CORRECT, Cases, Target, command
from support.processes import forked

import haybale
from haybale import Engine, Run
from haybale.normalisation import normalise, normalised_spans

WORDS = (
    *(
        "Bürger",
        "Ångström",
        "final",
        "office",
        "naïve",
        "nghiệp",
        "λόγος",
        "Ἀθήνη",
        "йод",
        "كتاب",
        "مدرسة",
        "سؤال",
        "Ⅳ",
    ),
    *(
        "שָׁלוֹם",
        "हिन्दी",
        "ภาษาไทย",
        "한국어",
        "データベース",
        "が",
        "東京都",
        "½",
        "\u0378",
        "\ue000",
        "𝐀𝐁",
        "Straße",
        "ά",
    ),
    *(
        "İstanbul",
        "ſtreet",
        "ǆ",
        "ﬃ",
        "㎏",
        "Ω",
        "Å",
        "क़",
        "ⓐⓑ",
        "ﷺ",
        "x\u0301\u0323",
        "K",
        "statute",
        "appeal",
        "court",
    ),
)
UNSEEN = "\u00ad\u200b\u200c\u200d\u2060\ufeff\u200e\u202a\u2066\ufe0f\u034f"
RANKERS = ("bm25", "bm25-doc", "knn", "knn-doc", "parm-rrf", "parm-vrrf", "rrf(bm25-doc,knn)", "bm25-parm-combsum")
POOLS = (
    (0, 0x250),
    (0x300, 0x370),
    (0x590, 0x700),
    (0x900, 0x1200),
    (0x1F00, 0x2100),
    (0xAC00, 0xAD00),
    (0xF900, 65536),
)
POOLS += ((0x1D400, 0x1D500), (0x1F300, 0x1F700), (0xE0000, 0xE0200), (0, 0x110000))
FORMS: dict[str, Callable[[str, random.Random], str]] = {
    **{form: lambda text, rng, form=form: unicodedata.normalize(form, text) for form in ("NFC", "NFD", "NFKC", "NFKD")},  # type: ignore[misc, arg-type]
    "unseen": lambda text, rng: "".join(each + rng.choice(UNSEEN) * each.isalpha() for each in text),
    "wide": lambda text, rng: "".join(chr(ord(each) + 0xFEE0) if "!" <= each <= "~" else each for each in text),
    "ligatures": lambda text, rng: text.replace("ffi", "ﬃ").replace("fi", "ﬁ").replace("st", "ﬆ"),
    "vowels": lambda text, rng: "".join(each + "\u064e" * ("\u0621" <= each <= "\u063f") for each in text),
}


def unicode_forms(target: Target, rng: random.Random) -> Cases:
    texts = {f"d{n}": [" ".join(rng.choices(WORDS, k=12)) for _ in range(rng.randint(1, 3))] for n in range(14)}
    engine = _engine(texts).prepare()
    kinds = [partial(_query, engine)] * 8 + [partial(_documents, texts)] * 2 + [_laws_of_normalise] * 3
    kinds += [partial(_ids, target)] * 4 + [partial(_paths, target)] * 2 + [partial(_argument, target)]
    for number in count():
        case = rng.choice(kinds)
        yield f"{getattr(case, 'func', case).__name__} {number}", partial(case, random.Random(rng.randrange(2**32)))


def _engine(texts: dict[str, list[str]]) -> Engine:
    return Engine(texts, encoder=haybale.TfidfEncoder(min_df=1), language="english")


def _query(engine: Engine, rng: random.Random) -> str:
    """A query in another form has the same ranking and scores."""
    ranker, form = haybale.parse(rng.choice(RANKERS)).fit(engine), rng.choice(list(FORMS))
    paragraphs = [" ".join(rng.choices(WORDS, k=4)) for _ in range(rng.randint(1, 3))]
    other = [FORMS[form](each, rng) for each in paragraphs]
    found = [ranker.rank({"q": each}, depth=20)["q"] for each in (paragraphs, other)]
    assert found[0] == found[1], f"{form} of {paragraphs} ranks differently by {ranker}"
    return CORRECT


def _documents(texts: dict[str, list[str]], rng: random.Random) -> str:
    """Documents in other forms have the same ranking and scores, and keep their texts."""
    other = {doc_id: [rng.choice(list(FORMS.values()))(each, rng) for each in parts] for doc_id, parts in texts.items()}
    query, name, engines = " ".join(rng.choices(WORDS, k=5)), rng.choice(RANKERS), [_engine(texts), _engine(other)]
    found = [haybale.parse(name).fit(engine).rank({"q": query}, depth=20)["q"] for engine in engines]
    assert found[0] == found[1], f"{name} ranks the same documents in another form differently"
    kept = engines[1].collection.passages.texts.to_pylist()
    assert kept == [part for parts in other.values() for part in parts], "a stored text has changed"
    return CORRECT


def _any_text(rng: random.Random, n: int) -> str:
    """Return characters of all scripts, with marks, joiners, unassigned and private ones, but no surrogates."""
    found = (chr(rng.randrange(*rng.choice(POOLS))) for _ in range(n))
    return "".join(each for each in found if not "\ud800" <= each <= "\udfff")


def _laws_of_normalise(rng: random.Random) -> str:
    for _ in range(40):
        text = _any_text(rng, rng.randint(0, 12)) + rng.choice(WORDS)
        once, (spanned, spans) = normalise(text), normalised_spans(text)
        assert once == normalise(once) == spanned, f"not the same twice, or with spans: {text!r}"
        assert once == normalise(unicodedata.normalize("NFD", text)), f"depends on the form: {text!r}"
        assert (spans[:, 0] < spans[:, 1]).all(), f"empty span: {text!r}"
        assert (np.diff(spans[:, 0]) >= 0).all(), f"spans out of order: {text!r}"
    return CORRECT


def _ids(target: Target, rng: random.Random) -> str:
    """Ids that look alike are two ids, byte for byte, from the collection through a folder to a file."""
    one = rng.choice((rng.choice(WORDS), _any_text(rng, 5)))
    ids = list(dict.fromkeys([one, *(form(one, rng) for form in FORMS.values()), _any_text(rng, 8)]))
    texts = {doc_id: f"babax kox {n}" for n, doc_id in enumerate(ids)}
    engine = Engine.build(texts, target.new(), encoder=haybale.TfidfEncoder(min_df=1), language="english")
    engine.remove([ids[0]])
    engine.add({"new": "babax"})
    run = haybale.BM25().fit(Engine.open(engine.folder or "")).rank({ids[-1]: "babax"}, depth=20)
    found = [doc_id for doc_id, _ in run[ids[-1]]]
    assert set(found) == {*ids[1:], "new"}, "a document is not found under its id"
    run.to_trec(path := target.new().with_suffix(".trec"))
    assert [doc_id for doc_id, _ in Run.from_trec(path)[ids[-1]]] == found, "the run changed in a file"
    return CORRECT


def _paths(target: Target, rng: random.Random) -> str:
    """Folders and files get exactly the name that was given."""
    name = rng.choice(("-x", "~", "a b", "%s", "'", "x")) + _any_text(rng, 6).replace("/", "").replace("\0", "")
    folder = target.new()
    folder.mkdir()
    found = forked(["index", str(target.data), "--out", f"{folder}/{name}"]).judged()
    if found == CORRECT:
        assert [path.name for path in folder.iterdir()] == [name], "another name"
        done = forked(["rank", f"{folder}/{name}", "paragraph", "--out", f"{folder}/{name}.tsv", "--k", "2"])
        assert done.judged() == CORRECT, done.err
        assert (folder / f"{name}.tsv").is_file(), "another name of a file"
    return found


def _argument(target: Target, rng: random.Random) -> str:
    text, engine = _any_text(rng, 8).replace("\0", ""), str(target.folder / "engine")
    places = ([engine, text], [engine, "ba", "--ranker", text], [engine, "ba", "--set", f"{text}=1"], [text, "ba"])
    return command("rank", *rng.choice(places))
