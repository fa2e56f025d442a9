"""Tables by pyarrow: columns of CSV and Parquet files."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from .entries import Contents, Loaded, joined, text
from .errors import FileError

_FIRST_LINE = 1 << 20
_QUOTED = re.compile(r'"[^"]*"')


@contextmanager
def contents(path: str, follow_links: bool) -> Iterator[Contents]:
    """Open a table of columns."""
    import pyarrow

    typed = path.lower().endswith(".parquet")
    try:
        table = _parquet(path) if typed else _csv(path)
        names = table.column_names
    except pyarrow.ArrowException as error:
        msg = f"it is no table: {error}"
        raise FileError(msg) from None
    except UnicodeDecodeError:
        msg = "its text is not UTF-8: save it so"
        raise FileError(msg) from None
    found = Contents()
    for name, column in zip(names, table.columns, strict=True):
        _add(found, name, column, typed)
    yield found


def _parquet(path: str) -> Any:
    from pyarrow import parquet

    # A folder or a pattern would be a data set of many files.
    with open(path, "rb") as file:
        return parquet.ParquetFile(file).read()


def _csv(path: str) -> Any:
    from pyarrow import csv

    with open(path, encoding="utf-8", errors="replace") as file:
        first, second = (file.readline(_FIRST_LINE) for _ in range(2))
    delimiter = _delimiter(first, second)
    # What numpy.savetxt writes has no names.
    options = csv.ReadOptions(autogenerate_column_names=_are_numbers(first.split(delimiter)))
    # To pyarrow a NaN is one of many words for a number that is missing.
    missing = [x for x in csv.ConvertOptions().null_values if x.strip("-").lower() != "nan"]

    def read(**convert: Any) -> Any:
        return csv.read_csv(
            path,
            read_options=options,
            parse_options=csv.ParseOptions(delimiter=delimiter),
            convert_options=csv.ConvertOptions(null_values=missing, **convert),
        )

    return _with_large_integers(read(), read)


def _with_large_integers(table: Any, read: Callable[..., Any]) -> Any:
    """Read again as uint64 what pyarrow, which tries no integers beyond int64, took for floats."""
    import pyarrow
    from pyarrow import compute

    places = [
        i
        for i, column in enumerate(table.columns)
        if pyarrow.types.is_floating(column.type) and (compute.max(column).as_py() or 0) >= 2**63
    ]
    if not places:
        return table
    words = dict.fromkeys((table.column_names[i] for i in places), pyarrow.string())
    text = read(column_types=words, strings_can_be_null=True)
    for i in places:
        with suppress(pyarrow.ArrowInvalid):  # floats indeed
            column = text.column(i).cast(pyarrow.uint64())
            table = table.set_column(i, table.column_names[i], column)
    return table


def _delimiter(first: str, second: str) -> str:
    """
    Tell what stands between the columns by the first lines of a table, the first perhaps of names.

    Where there are tabs or semicolons, commas may be those of numbers. Spaces are in names and in
    text, too: they count between numbers alone, as numpy.savetxt writes them.
    """
    unquoted = _QUOTED.sub("", first)
    for delimiter in "\t;,":
        if delimiter in unquoted:
            return delimiter
    rows = (line.split(" ") for line in (first, second))
    return " " if any(len(row) > 1 and _are_numbers(row) for row in rows) else ","


def _are_numbers(words: list[str]) -> bool:
    return all(map(_is_number, words))


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _add(found: Contents, name: str, column: Any, typed: bool) -> None:
    """Add a column, and where it has no values if it lacks some."""
    import pyarrow
    from pyarrow import types

    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_decimal(column.type):
        column = column.cast(pyarrow.string())
    if types.is_time(column.type):  # since midnight: NumPy has no times of day
        number = pyarrow.int32() if types.is_time32(column.type) else pyarrow.int64()
        span = pyarrow.duration(column.type.unit)
        column = column.cast(number).cast(pyarrow.int64()).cast(span)
    kind = column.type
    if column.null_count:
        found.add(joined(name, "nulls"), Loaded(column.is_null().to_numpy()))
        if types.is_null(kind):
            return
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        found.add(name, Loaded(text(column.fill_null("").to_pylist())))
    elif _is_plain(types, kind):
        zero = pyarrow.scalar(False if types.is_boolean(kind) else 0, kind)
        found.add(name, Loaded(np.asarray(column.fill_null(zero).to_numpy()), typed))
    else:
        found.left_out[name] = f"its type, {kind}, is not compared"


def _is_plain(types: Any, kind: Any) -> bool:
    """Tell whether NumPy has the type."""
    tests = (
        types.is_integer,
        types.is_floating,
        types.is_boolean,
        types.is_date,
        types.is_timestamp,
        types.is_duration,
    )
    return any(test(kind) for test in tests)
