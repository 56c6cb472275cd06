"""Read pydocs, the built-in collection: the docstrings of NumPy, SciPy, scikit-learn and pandas.

haybale depends on these packages, so the collection has real texts and references without a download. A document is the
docstring of one public object. A query is a docstring without its *See Also* section, and the entries of that section
are the relevant documents. The ranking of a query excludes its own document. A hash of the query id determines the
split: 70 % train, 15 % dev, 15 % test. The content depends on the installed versions of the packages.

The headings of a docstring are its sections. No passage contains a *See Also* section. Its entries become links from
the root section, except for dev and test queries, where they are the answers.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import re
import warnings
from collections.abc import Iterator
from typing import NamedTuple

from haybale.collections.builder import CollectionBuilder
from haybale.collections.collection import Collection
from haybale.collections.reader import Reader

PACKAGES = ("numpy", "scipy", "sklearn", "pandas")

# Public modules, as listed in the reference documentation of the packages. Modules that an installed version does not
# have are skipped. None depends on another package, so that all installations read the same texts.
_MODULES = {
    "numpy": "char ctypeslib exceptions fft lib.array_utils lib.format lib.introspect lib.mixins lib.npyio "
    "lib.recfunctions lib.scimath lib.stride_tricks linalg ma ma.extras polynomial polynomial.chebyshev "
    "polynomial.hermite polynomial.hermite_e polynomial.laguerre polynomial.legendre polynomial.polynomial "
    "polynomial.polyutils random rec strings testing",
    "scipy": "cluster.hierarchy cluster.vq constants datasets differentiate fft fftpack integrate interpolate io "
    "io.arff io.matlab io.wavfile linalg linalg.interpolative ndimage odr optimize "
    "optimize.elementwise signal signal.windows sparse sparse.csgraph sparse.linalg spatial spatial.distance "
    "spatial.transform special stats stats.contingency stats.mstats stats.qmc stats.sampling",
    "sklearn": "base calibration cluster compose covariance cross_decomposition datasets decomposition "
    "discriminant_analysis dummy ensemble exceptions feature_extraction feature_extraction.image "
    "feature_extraction.text feature_selection frozen gaussian_process gaussian_process.kernels impute inspection "
    "isotonic kernel_approximation kernel_ridge linear_model manifold metrics metrics.cluster metrics.pairwise "
    "mixture model_selection multiclass multioutput naive_bayes neighbors neural_network pipeline preprocessing "
    "random_projection semi_supervised svm tree utils utils.class_weight utils.estimator_checks utils.extmath "
    "utils.graph utils.metaestimators utils.multiclass utils.random utils.sparsefuncs utils.validation",
    "pandas": "api.extensions api.indexers api.types api.typing arrays errors io.json plotting "
    "testing tseries.frequencies tseries.offsets",
}
_MERGE_UP_TO = 100  # words; adjacent shorter blocks of one section are merged into one passage
_MIN_WORDS = 12  # shorter docstrings say only "Scalar method identical to …"
# Importing sklearn.experimental makes these public, and sklearn.utils.estimator_checks imports it.
_EXPERIMENTAL = {"HalvingGridSearchCV", "HalvingRandomSearchCV", "IterativeImputer"}
_SET = re.compile(r"\{('\w+'(?:, '\w+')+)\}")  # a set, printed in hash order
# SciPy adds this text to a docstring of NumPy (sinc) when scipy.signal is imported.
_SCIPY_NOTE = re.compile(r"\n\*\*Array API Standard Support\*\*\n.*?`dev-arrayapi` for more information\.\n", re.DOTALL)
_TRAIN_PERCENT, _DEV_PERCENT = 70, 15  # of the queries; the rest is test

# numpydoc: the underline of a heading, and "name", "a, b", ":func:`name`" or "name(x, y)" at the left margin
_UNDERLINE = re.compile(r"[-=]{3,}\s*")
_ROLE = re.compile(r":\w+(?::\w+)*:`~?\.?([\w.]+)`")
_NAME = re.compile(r"[A-Za-z_][\w.]*")
_NAMES_LINE = re.compile(r"`{0,2}[A-Za-z_][\w.]*`{0,2}(?:\s*,\s*`{0,2}[A-Za-z_][\w.]*`{0,2})*\s*,?\s*")


class Section(NamedTuple):
    """A section and its blocks (the lines between blank lines); text before the first heading has the title ''."""

    title: str
    blocks: list[str]


class _Entry(NamedTuple):
    name: str
    sections: list[Section]
    see_also: list[str]


class Pydocs(Reader):
    """Reader of the built-in collection; it always includes the queries."""

    name = "pydocs"
    expected = "pydocs"

    def recognises(self, source: str) -> bool:
        return source == self.name

    def read(
        self, source: str, *, queries: bool = True, missing_judgements: str = "refuse", warn: bool = True
    ) -> Collection:
        return read_pydocs()


def read_pydocs() -> Collection:
    """Read the docstrings of the installed :data:`PACKAGES`; importing them takes a few seconds."""
    entries, aliases = _entries()
    builder = CollectionBuilder("pydocs", language="english")
    for entry in entries:
        document = builder.add_document(entry.name, title=entry.name)
        root = f"{entry.name}#"
        builder.add_section(document, root, entry.name, parent=None)
        number = 0
        for i, section in enumerate(entry.sections):
            section_number = builder.add_section(document, f"{root}{i}", section.title, parent=root)
            for text in _passages(section):
                # The name is prepended to the first passage, as a title is in the other layouts.
                text = text if number else f"{entry.name}\n{text}"
                builder.add_passage(document, text, f"{entry.name}:{number}", section_number)
                number += 1
    for entry in entries:
        targets = _resolved(entry, aliases)
        if targets:
            query_id = f"q:{entry.name}"
            split = _split(query_id)
            paragraphs = [text for section in entry.sections for text in _passages(section)]
            builder.add_query(query_id, paragraphs, own=entry.name, split=split)
        for target in targets:
            builder.add_judgement(split, query_id, target)
            if split == "train":
                builder.add_external_link(f"{entry.name}#", target)
    return builder.build()


def _entries() -> tuple[list[_Entry], dict[str, str]]:
    """Return one entry per docstring, sorted by name, and a mapping from any name of an object to its entry's name."""
    entries: list[_Entry] = []
    aliases: dict[str, str] = {}
    seen: dict[str, str] = {}  # the name of each docstring; inherited methods share docstrings
    # A docstring is named after its definition rather than after an inheriting class, then by the shortest path.
    for _, _, name, docstring in sorted(_public_docstrings()):
        if docstring in seen:
            aliases.setdefault(name, seen[docstring])
            continue
        parts = sections(docstring)
        kept = [part for part in parts if part.title.lower() != "see also"]
        if not kept:
            continue
        names = [target for part in parts if part.title.lower() == "see also" for target in see_also(part.blocks)]
        seen[docstring] = name
        aliases.setdefault(name, name)
        entries.append(_Entry(name, kept, names))
    return sorted(entries, key=lambda entry: entry.name), aliases


def _public_docstrings() -> Iterator[tuple[bool, int, str, str]]:
    """Yield ``(inherited, number of dots, dotted name, docstring)`` of every public function, class and member."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # access to a deprecated name warns
        for package, names in _MODULES.items():
            for module_name in [package, *(f"{package}.{name}" for name in names.split())]:
                try:
                    module = importlib.import_module(module_name)
                except ImportError:
                    continue
                listed = getattr(module, "__all__", None)
                for name, thing in _members(module, listed):
                    if not _belongs(thing, package if listed else module_name):
                        continue
                    yield from _documented(False, f"{module_name}.{name}", thing)
                    if not inspect.isclass(thing):
                        continue
                    for method, member in _members(thing, None):
                        if _belongs(getattr(member, "__objclass__", member), package):
                            inherited = method not in vars(thing)
                            yield from _documented(inherited, f"{module_name}.{name}.{method}", member)


def _members(owner: object, public: list[str] | None) -> Iterator[tuple[str, object]]:
    for name in sorted(public if public is not None else dir(owner)):
        if name.startswith("_") or name in _EXPERIMENTAL:
            continue
        try:
            thing = inspect.getattr_static(owner, name) if inspect.isclass(owner) else getattr(owner, name)
        except Exception:  # a lazy attribute whose dependency is not installed
            continue
        if isinstance(thing, (staticmethod, classmethod)):
            thing = thing.__func__
        if callable(thing) or isinstance(thing, property) or inspect.ismethoddescriptor(thing):
            yield name, thing


def _belongs(thing: object, module: str) -> bool:
    """Return whether an object is defined in a module; True for ufuncs and bound methods, which name no module."""
    origin = getattr(thing, "__module__", None)
    return not isinstance(origin, str) or f"{origin}.".startswith(f"{module}.")


def _documented(inherited: bool, name: str, thing: object) -> Iterator[tuple[bool, int, str, str]]:
    docstring = getattr(thing, "__doc__", None)
    if isinstance(docstring, str) and len(docstring.split()) >= _MIN_WORDS:
        yield inherited, name.count("."), name, _stable(inspect.cleandoc(docstring), name.startswith("numpy."))


def _resolved(entry: _Entry, aliases: dict[str, str]) -> list[str]:
    """Return the entries that *See Also* names, looked up from the innermost scope of the entry outwards."""
    scopes = entry.name.split(".")[:-1]
    targets: dict[str, None] = {}
    for name in entry.see_also:
        absolute = name.replace("np.", "numpy.", 1) if name.startswith("np.") else name
        candidates = [".".join([*scopes[:depth], absolute]) for depth in range(len(scopes), 0, -1)]
        target = next((aliases[c] for c in [*candidates, absolute] if c in aliases), None)
        if target is not None and target != entry.name:
            targets[target] = None
    return list(targets)


def _passages(section: Section) -> list[str]:
    """Return the blocks of a section as passages; short neighbours are merged."""
    merged: list[str] = []
    words = 0
    for block in section.blocks:
        count = len(block.split())
        if merged and words + count <= _MERGE_UP_TO:
            merged[-1] += "\n" + block
            words += count
        else:
            merged.append(block)
            words = count
    return merged


def _split(query_id: str) -> str:
    share = int.from_bytes(hashlib.sha256(query_id.encode()).digest()[:8], "big") % 100
    return "train" if share < _TRAIN_PERCENT else "dev" if share < _TRAIN_PERCENT + _DEV_PERCENT else "test"


def _stable(docstring: str, of_numpy: bool) -> str:
    """Remove what differs between processes: random samples, the hash order of sets, and SciPy's additions."""
    docstring = _SCIPY_NOTE.sub("", docstring) if of_numpy else docstring
    lines = [line for line in docstring.split("\n") if not line.rstrip().endswith("# may vary")]
    return _SET.sub(lambda match: "{" + ", ".join(sorted(match.group(1).split(", "))) + "}", "\n".join(lines))


def sections(docstring: str) -> list[Section]:
    """Split a docstring at its underlined headings.

    >>> sections("Adds.\\n\\nLonger.\\n\\nNotes\\n-----\\nFast.")
    [Section(title='', blocks=['Adds.', 'Longer.']), Section(title='Notes', blocks=['Fast.'])]
    """
    lines = inspect.cleandoc(docstring).split("\n")
    titled_bodies: list[tuple[str, list[str]]] = [("", [])]
    rule = -1
    for i, line in enumerate(lines):
        if i == rule:
            continue
        heading = line.strip()
        # The rule of a table follows a row of cells; a heading has only a few words, at the left margin.
        is_heading = heading and not line.startswith(" ") and len(heading.split()) <= 4 and "  " not in heading
        if is_heading and i + 1 < len(lines) and _UNDERLINE.fullmatch(lines[i + 1].strip()):
            titled_bodies.append((heading, []))
            rule = i + 1
        else:
            titled_bodies[-1][1].append(line)
    parts = ((title, re.split(r"\n\s*\n", "\n".join(body))) for title, body in titled_bodies)
    kept = (Section(title, [block.strip("\n") for block in blocks if block.strip()]) for title, blocks in parts)
    return [section for section in kept if section.blocks]


def see_also(blocks: list[str]) -> list[str]:
    """Return the names in a *See Also* section, in order and without duplicates."""
    names: list[str] = []
    for line in "\n".join(blocks).split("\n"):
        if not line.strip() or line.startswith(" "):
            continue  # indented lines are descriptions
        head = re.split(r"\s:\s|\s:$|\s--?\s", line, maxsplit=1)[0].removesuffix(":")
        if roles := _ROLE.findall(head):
            names += roles
        elif _NAMES_LINE.fullmatch(head):
            names += _NAME.findall(head)
        elif match := re.match(r"([A-Za-z_][\w.]*)\(", head):
            names.append(match.group(1))
    return list(dict.fromkeys(name.strip(".") for name in names))
