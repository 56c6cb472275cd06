"""Find the documents that fulfil an SQL condition on their metadata, with DuckDB.

Only comparisons and a list of functions without side effects are accepted: the condition is parsed first, and anything
else in it is refused by name. DuckDB then runs it on a table in memory. It cannot open files or load extensions, and
its configuration is locked.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from haybale.cached import cached_property
from haybale.collections.collection import Ints
from haybale.collections.metadata import filter_table, unique_name
from haybale.errors import InputError, UnknownNameError
from haybale.extras import import_optional
from haybale.parallel import cpus

# Classes of expressions in DuckDB's syntax tree; subqueries, windows, lambdas, stars and parameters are not among them.
_EXPRESSIONS = {"BETWEEN", "CASE", "CAST", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "OPERATOR", "TYPE"}
_FUNCTION_NAMES = """
    ~~ !~~ ~~* !~~* ~~~ like_escape not_like_escape ilike_escape not_ilike_escape regexp_matches regexp_full_match
    contains starts_with ends_with prefix suffix ^@ lower upper trim ltrim rtrim length len strlen left right substring
    strip_accents list_value list_contains list_has list_has_any list_has_all array_length && @> <@
    + - * / // % abs round floor ceil trunc
    year month day quarter week dayofweek date_part date_trunc date_diff to_years to_months to_weeks to_days
"""
_ALLOWED_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())  # operators are functions, too: ~~ is LIKE
_CONFIGURATION = {
    "enable_external_access": False,
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    "python_enable_replacements": False,  # a name in a condition is never a variable of the program
    "max_expression_depth": 200,
}
_TYPE_NAMES = {pa.int64(): "integer", pa.float64(): "float", pa.date32(): "date", pa.bool_(): "boolean"}
SECONDS = 10.0  # limit for one condition; a million documents take milliseconds
_SELECT = "SELECT {} FROM documents WHERE {}"


class DocumentFilter:
    """The documents of an engine as a table of DuckDB, which is made when the first condition is run.

    A condition is what follows ``WHERE`` in DuckDB's SQL, such as ``court = 'BGH' and date >= '2015-01-01' and 'tax' in
    topics``. Names of columns that are not plain words need double quotes. A document without a value in a column
    fulfils no comparison with it.

    Parameters
    ----------
    table : pyarrow.Table
        A row for each document. A column to which documents brought values of another type later is filtered as the
        type that it had first; those values count as none.

    Examples
    --------
    >>> documents = pa.table({"id": ["a", "b", "c"], "year": [2015, None, 1999]})
    >>> DocumentFilter(documents).numbers("year > 2000 or year is null")
    array([0, 1])
    """

    def __init__(self, table: pa.Table) -> None:
        self._table = table = filter_table(table)
        self._number = unique_name("number of the document", table.column_names)
        self._names = {name.lower() for name in table.column_names}

    def numbers(self, where: str) -> Ints:
        """Return the numbers (n,) of the documents that fulfil a condition, in ascending order.

        Raises
        ------
        InputError
            If the text is not one condition, a column or a type is wrong, or it runs for more than 10 seconds; the
            message names the columns.
        """
        if not isinstance(where, str) or not where.strip():
            raise InputError(f'where must be one SQL condition, such as "year > 2015", found {where!r}')
        duckdb, tables = import_optional("duckdb", "filters"), self._tables.cursor()  # threads may share the tables
        query = _SELECT.format(f'"{self._number}"', f"({where}\n)")
        try:
            for text in (_SELECT.format(1, where), query):  # the first has no parenthesis that the condition may close
                self._check(json.loads(tables.execute("SELECT json_serialize_sql(?)", [text]).fetchone()[0]), where)
            with _interrupted_after(tables, SECONDS):
                numbers = tables.execute(query).fetchnumpy()[self._number]
        except duckdb.InterruptException:
            raise self._wrong(where, f"it takes longer than {SECONDS:g} seconds") from None
        except (duckdb.Error, RecursionError, UnicodeError) as error:
            raise self._wrong(where, str(error)) from None
        return np.sort(np.asarray(numbers, dtype=np.int64))

    @cached_property
    def _tables(self) -> Any:
        """A connection to a database in memory with the table ``documents``."""
        duckdb = import_optional("duckdb", "filters")
        connection = duckdb.connect(":memory:", config={"threads": cpus()})
        numbers = pa.array(np.arange(len(self._table)))
        connection.register("given", self._table.append_column(self._number, numbers))
        connection.execute("CREATE TABLE documents AS SELECT * FROM given")
        connection.unregister("given")
        for name, value in _CONFIGURATION.items():
            connection.execute(f"SET GLOBAL {name} = {value}")
        connection.execute("SET GLOBAL lock_configuration = true")
        return connection

    def _check(self, parsed: dict[str, Any], where: str) -> None:
        """Raise InputError if a statement has anything besides one condition of allowed expressions on the columns."""
        if parsed["error"]:
            raise self._wrong(where, parsed["error_message"])
        statements = parsed["statements"]
        select = statements[0]["node"] if len(statements) == 1 else {}
        parts = ("modifiers", "group_expressions", "group_sets", "having", "sample", "qualify")
        if select.get("type") != "SELECT_NODE" or select["cte_map"]["map"] or any(select[part] for part in parts):
            raise self._wrong(where, "it is more than one condition")
        for expression in _expressions(select["where_clause"]):
            kind, name = expression["class"], str(expression.get("function_name", "")).lower()
            if kind == "COLUMN_REF":
                column = ".".join(expression["column_names"])
                if column.lower() not in self._names:
                    raise UnknownNameError("column in where", column, self._table.column_names)
            elif kind == "FUNCTION":
                if name not in _ALLOWED_FUNCTIONS:
                    raise self._wrong(where, f"the function {name!r} is not allowed")
            elif kind not in _EXPRESSIONS:
                raise self._wrong(where, f"a {kind.lower()} is not allowed")

    def _wrong(self, where: str, reason: str) -> InputError:
        shown = f"{where[:200]}…" if len(where) > 200 else where
        columns = ", ".join(f"{field.name} ({_type_name(field.type)})" for field in self._table.schema)
        first = next(iter(reason.strip().splitlines()), "").rstrip(".")
        return InputError(f"where must be one SQL condition, found {shown!r}: {first}; columns are {columns}")


@contextmanager
def _interrupted_after(tables: Any, seconds: float) -> Iterator[None]:
    """Interrupt the query that a connection of DuckDB runs in the block if it takes more than ``seconds``."""
    timer = threading.Timer(seconds, tables.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _expressions(node: Any) -> Iterator[dict[str, Any]]:
    """Yield the expressions of a syntax tree."""
    if isinstance(node, dict):
        if "class" in node:
            yield node
        for name, value in node.items():
            if not (name == "value" and node.get("class") == "CONSTANT"):
                yield from _expressions(value)
    elif isinstance(node, list):
        for value in node:
            yield from _expressions(value)


def _type_name(kind: pa.DataType) -> str:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return "list of strings"
    return _TYPE_NAMES.get(kind, "string")
