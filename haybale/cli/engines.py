"""``haybale index``, ``add``, ``remove`` and ``train``: an engine's life in a folder."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import haybale
from haybale.cli import options
from haybale.cli.options import ENGINES, RANKING, RESULTS, app, argument, given, option
from haybale.cli.terminal import reporter, resumable, show, size_on_disk
from haybale.errors import FileFormatError, InputError

if TYPE_CHECKING:
    from haybale import Chunking, Collection, Ranker


@app.command(rich_help_panel=ENGINES)
def index(
    collection: options.Source,
    out: Annotated[Path, option("The engine's folder: new, or one to go on with.", RESULTS)],
    encoder: options.Encoder = None,
    n_components: options.Components = None,
    store: options.Store = None,
    query_prompt: options.QueryPrompt = None,
    passage_prompt: options.PassagePrompt = None,
    layout: options.Layout = None,
    missing_judgements: options.MissingJudgements = None,
    language: options.Language = None,
    paragraphs: options.Paragraphs = None,
    pieces: options.Pieces = None,
    stride: options.Stride = None,
    device: options.Device = None,
    random_state: options.RandomState = None,
) -> None:
    """Build an engine: a collection with its encoder and all its indexes, in one folder that opens in a moment.

    Interrupted, the same command goes on where it was.
    """
    from haybale.folders import check_file
    from haybale.timing import record_timings, timed

    start = time.perf_counter()
    check_file(out / "engine.json")
    settings = settings_of(encoder=encoder, store=store, language=language, paragraphs=paragraphs, device=device)
    settings |= given(query_prompt=query_prompt, passage_prompt=passage_prompt, chunking=chunking_of(pieces, stride))
    settings |= given(n_components=n_components, random_state=random_state)
    with resumable(), record_timings(reporter()):
        with timed("read collection"):
            read = haybale.open_collection(collection, layout, **given(missing_judgements=missing_judgements))
        engine = haybale.Engine.build(read, out, **settings).prepare()
    show(f"{engine!r}; language: {engine.language}; {time.perf_counter() - start:.1f} s, {size_on_disk(out)} on disk")


@app.command(rich_help_panel=ENGINES)
def add(
    engine: options.EngineFolder,
    files: Annotated[
        list[Path], argument("Folders of collections; .jsonl with _id, text (a line a passage); .txt, each a document.")
    ],
) -> None:
    """Add documents, which can be found at once; models need not be trained anew. All of them, or none."""
    from haybale.timing import record_timings

    start = time.perf_counter()
    with record_timings(reporter()):
        grown = haybale.Engine.open(engine)
        added = _documents_of(files)
        grown.add(added)
        grown.prepare()  # so that the first ranking need not wait for their vectors
    counts = f"{added.n_documents:,} documents and {added.n_passages:,} passages"
    show(f"added {counts} in {time.perf_counter() - start:.1f} s; {grown!r}")


@app.command(rich_help_panel=ENGINES)
def remove(engine: options.EngineFolder, ids: Annotated[list[str], argument("Of the documents.")]) -> None:
    """Remove documents: they are not found from now on. Their texts stay in the folder until it is built anew."""
    shrunk = haybale.Engine.open(engine)
    shrunk.remove(ids)
    show(f"removed {len(set(ids)):,} documents; {shrunk!r}")


@app.command(rich_help_panel=ENGINES)
def train(
    engine: options.EngineFolder,
    ranker: Annotated[
        str, option("Its name, such as learned, svr or learned(bm25,knn,svr), or a YAML or JSON file.", RANKING)
    ],
    out: Annotated[Path, option("The model's folder: new or empty.", RESULTS)],
    split: options.Split = None,
    set_values: options.SetValues = None,
    device: options.Device = None,
    dask: options.Dask = None,
) -> None:
    """Train a ranker on an engine's judged queries, and keep it in a folder, for rank and compare."""
    from haybale.folders import check_output, write_or_rescue
    from haybale.timing import record_timings

    start = time.perf_counter()
    chosen = ranker_of(ranker, set_values)
    check_output(out)
    opened = haybale.Engine.open(engine, device=device)
    with nullcontext() if dask is None else haybale.on_cluster(dask), record_timings(reporter()):
        chosen.fit(opened, split)
        write_or_rescue(chosen.save, out)
    show(f"{chosen}: {time.perf_counter() - start:.1f} s, {size_on_disk(out)} in {out}")
    for line in _what_was_learned(chosen):
        show(line)


def ranker_of(text: str, values: Sequence[str] | None) -> Ranker:
    """A ranker by its name or by the file that describes it, with the values of ``--set``.

    >>> ranker_of("rrf(bm25,bm25-doc)", ["k1=0.9"])
    RRF(BM25(k1=0.9), BM25(unit='document', k1=0.9))
    """
    from haybale.rankers import read_yaml, set_values

    is_file = Path(text).suffix in (".yaml", ".yml", ".json")
    return set_values(read_yaml(Path(text)) if is_file else haybale.parse(text), values_of(values))


def values_of(texts: Sequence[str] | None, *, rankers: bool = True) -> dict[str, Any]:
    """``name=value`` of ``--set``; a name that comes twice has its last value.

    ``rankers``: whether a ranker's name is that ranker, or a word as others are.

    >>> values_of(["k1=0.9", "strategy=rows", "gamma=[8,2.5]", "match=bm25"], rankers=False)
    {'k1': 0.9, 'strategy': 'rows', 'gamma': (8, 2.5), 'match': 'bm25'}
    """
    from haybale.rankers import Ranker, parse_value

    values = {}
    for text in texts or ():
        name, _, value = text.partition("=")
        if not name.strip() or not value.strip():
            raise InputError(f"--set takes name=value, found {text!r}")
        found = parse_value(value)
        values[name.strip()] = value.strip() if isinstance(found, Ranker) and not rankers else found
    return values


def settings_of(language: str | None, **settings: Any) -> dict[str, Any]:
    """Settings of an engine; folders of store and encoder as they are found from anywhere."""
    from haybale.analysis import Analyzer
    from haybale.embeddings.encoder import LEXICAL, model_name

    if language is not None:
        Analyzer(language)  # refuses an unknown one
    for name in ("store", "encoder"):
        value = settings[name]
        if value is not None and value not in LEXICAL and Path(model_name(value)).is_dir():
            folder = model_name(value)
            settings[name] = value.removesuffix(folder) + str(Path(folder).absolute())
    return given(language=language, **settings)


def chunking_of(length: int | None, stride: int | None, **how: Any) -> Chunking | None:
    """Pieces of passages, if passages are to be cut."""
    for name in given(stride=stride, **how):
        if length is None:
            raise InputError(f"{name} is of pieces: say how long with --pieces")
    return None if length is None else haybale.Chunking(length, stride, **how)


def _documents_of(files: Sequence[Path]) -> Collection:
    """The documents of folders and files, as one collection; an error names the file."""
    from haybale.collections.lines import read_text
    from haybale.collections.readers.beir import add_beir_file

    builder = haybale.CollectionBuilder("added documents")
    plain = [path for path in files if not path.is_dir()]
    for path in plain:
        if not path.exists():
            raise InputError(f"{path}: no such file or folder")
        if path.name.removesuffix(".gz").endswith(".jsonl"):
            add_beir_file(builder, path)
        elif path.suffix == ".txt":
            passages = [part.text for part in haybale.find_splitter("blank-lines")(read_text(path))]
            if not passages:
                raise FileFormatError(path, None, "the text is empty")
            builder.add_document(path.stem, passages, at=(path, 1))
        else:
            raise InputError(f"{path}: expected a folder, or a file that ends in .jsonl or .txt")
    parts = [builder.build()] if plain else []
    parts += [haybale.open_collection(path) for path in files if path.is_dir()]
    return reduce(lambda one, other: one.extended(other), parts)


def _what_was_learned(ranker: Ranker, indent: str = "  ") -> Iterator[str]:
    """Lines of the facts of a ranker and of those within."""
    for name, value in ranker.fit_report_.items():
        yield f"{indent}{name}: {value:,.4g}" if isinstance(value, float) else f"{indent}{name}: {value}"
    for inner in ranker.rankers_:
        below = list(_what_was_learned(inner, f"{indent}  "))
        yield from [f"{indent}{inner}", *below] if below else []
