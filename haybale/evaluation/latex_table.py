"""The table of results for a paper: a LaTeX table whose caption explains the significance marks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from haybale.drawing import clean
from haybale.errors import InputError, UnknownNameError
from haybale.parameters import SEQUENCE, TEXT_OR_NONE

LATEX_RANGES = {"measures": [*SEQUENCE, None], "title": TEXT_OR_NONE, "label": TEXT_OR_NONE}
_MARKS = {"†": r"$^{\dagger}$", "‡": r"$^{\ddagger}$"}
# Characters that LaTeX, or its package babel, reads as commands, or that its older fonts show as others.
_ESCAPES = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "%": r"\%", "&": r"\&", "$": r"\$", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "`": r"\textasciigrave{}", '"': r"\char34{}",
}  # fmt: skip
_SPECIAL = re.compile(r"[\\{}%&$#_~^<>|`\"]|(?<=-)-|(?<=,),|(?<=')'")  # two hyphens would become a dash


def latex_table(
    heads: Sequence[str],
    rows: Mapping[str, Sequence[tuple[str, str, bool]]],
    caption: str,
    label: str | None,
) -> str:
    """Return a table in LaTeX.

    Parameters
    ----------
    heads : sequence of str
        The heads of the columns behind the first one.
    rows : mapping of str to sequence of (str, str, bool)
        The cells of each ranker: a number, its significance marks, and whether it is the best of its column.
    caption : str
        The caption in LaTeX.
    label : str, optional
        The label of the table, which is checked.
    """
    check_label(label)
    lines = [
        r"% Needs \usepackage{booktabs}.",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{caption}}}",
        *([] if label is None else [rf"\label{{{label}}}"]),
        rf"\begin{{tabular}}{{l{'r' * len(heads)}}}",
        r"\toprule",
        rf"Ranker & {' & '.join(map(escaped, heads))} \\",
        r"\midrule",
    ]
    for ranker, row in rows.items():
        values = [(rf"\textbf{{{text}}}" if best else text) + _mark(marks) for text, marks, best in row]
        lines.append(rf"{escaped(ranker)} & {' & '.join(values)} \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"])


def check_label(label: str | None) -> None:
    """Raise InputError unless the text can be the label of a table."""
    if label is not None and not re.fullmatch(r"[^\\{}%#~\s]+", label):
        raise InputError(f"label must be a LaTeX label such as 'tab:results', found {label!r}")


def _mark(marks: str) -> str:
    """Return significance marks without a width, so that the digits of a column stay aligned."""
    return rf"\rlap{{{_MARKS[marks]}}}" if marks else ""


def chosen_measures(measures: Sequence[str], measured: Sequence[str]) -> list[str]:
    """Return the measures of a table; UnknownNameError for one that was not measured, InputError if there is none."""
    for measure in measures:
        if measure not in measured:
            raise UnknownNameError("measure of the results", str(measure), measured)
    if not measures:
        raise InputError(f"to_latex needs at least one measure, found none; give some of {', '.join(measured)}")
    return list(measures)


def caption(title: str | None, n_queries: int, baseline: str, n_comparisons: int) -> str:
    """Return the caption of a table of means, in LaTeX, which explains the significance marks."""
    queries = "query" if n_queries == 1 else "queries"
    sentences = first_sentence(title)
    sentences.append(f"Means over {n_queries:,} {queries}; the best value of each measure is bold.")
    if n_comparisons:
        sentences.append(
            rf"{_MARKS['†']} $p < 0.05$, {_MARKS['‡']} $p < 0.01$ against {escaped(baseline)}, in both the paired "
            f"$t$-test and the randomisation test, Bonferroni-corrected for {n_comparisons} "
            f"comparison{'' if n_comparisons == 1 else 's'}."
        )
    return " ".join(sentences)


def first_sentence(title: str | None) -> list[str]:
    """Return the title of a caption as a sentence in LaTeX; empty without a title."""
    return [] if title is None else [f"{escaped(title.rstrip('. '))}."]


def escaped(text: str) -> str:
    r"""Return a text in one line that LaTeX shows as it is; letters of other alphabets need XeLaTeX or LuaLaTeX.

    >>> print(escaped("rrf(bm25_a,50%) -- {x}"))
    rrf(bm25\_a,50\%) -{}- \{x\}
    """
    line = " ".join(clean(text).split())
    return _SPECIAL.sub(lambda match: _ESCAPES.get(match[0], f"{{}}{match[0]}"), line)
