"""Tables by pyarrow: columns of CSV and Parquet files."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from . import FileError
from .contents import Contents, Loaded, joined, text

_FIRST_LINE = 1 << 20  # characters of a line that are read to recognize the delimiter
_INTEGER = re.compile(r"\s*[+-]?[0-9]+\s*", re.ASCII)
# Below, floats hold all integers: 2**53 has 16 digits.
_LONG_INTEGER = r"^\s*[+-]?[0-9]{16,}\s*$"
# Of a field whose text is numbers that pyarrow has no type for.
_NUMBERS = {b"calipers": b"numbers"}
_QUOTED = re.compile(r'"[^"]*"')


@contextmanager
def contents(path: str, follow_links: bool) -> Iterator[Contents]:
    """Open a table of columns."""
    import pyarrow

    typed = path.lower().endswith(".parquet")
    try:
        table = _parquet(path) if typed else _csv(path)
        fields = list(table.schema)
    except pyarrow.ArrowException as error:
        msg = f"it is not a table: {error}"
        raise FileError(msg) from None
    except UnicodeDecodeError:
        msg = "its text is not UTF-8: save it as UTF-8"
        raise FileError(msg) from None
    contents = Contents()
    for field, column in zip(fields, table.columns, strict=True):
        _add(contents, field.name, field, column, typed)
    yield contents


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
    """
    Read columns again that pyarrow took for floats, and that hold integers which floats round.

    Integers become uint64 where that holds them. Else they stay text in the table, since no type of
    pyarrow holds them, or them and floats; the field says so.
    """
    import pyarrow
    from pyarrow import compute

    indices = [
        i
        for i, column in enumerate(table.columns)
        if pyarrow.types.is_floating(column.type)
        and any(abs(x or 0) >= 2**53 for x in compute.min_max(column).as_py().values())
    ]
    if not indices:
        return table
    words = dict.fromkeys((table.column_names[i] for i in indices), pyarrow.string())
    text = read(column_types=words, strings_can_be_null=True)
    for i in indices:
        column = text.column(i)
        if compute.any(compute.match_substring_regex(column, _LONG_INTEGER)).as_py():
            with suppress(pyarrow.ArrowInvalid):
                column = column.cast(pyarrow.uint64())
            field = pyarrow.field(table.column_names[i], column.type, metadata=_NUMBERS)
            table = table.set_column(i, field, column)
    return table


def _delimiter(first: str, second: str) -> str:
    """
    Return the delimiter of columns, from the first two lines of a table.

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


def _add(contents: Contents, name: str, field: Any, column: Any, typed: bool) -> None:
    """Add a column; of lists their lengths and values, of structs each field."""
    import pyarrow
    from pyarrow import compute, types

    column = _as_supported(column)
    kind = column.type
    nulls = Loaded(column.is_null().to_numpy()) if column.null_count else None
    if types.is_struct(kind):
        if nulls is not None:
            contents.add_structure(joined(name, "nulls"), nulls.load())
        for i, part in enumerate(kind.fields):
            _add(contents, joined(name, part.name), part, compute.struct_field(column, [i]), typed)
    elif any(test(kind) for test in (types.is_list, types.is_large_list, types.is_fixed_size_list)):
        lengths = compute.list_value_length(column).fill_null(0).to_numpy()
        contents.add_structure(joined(name, "lengths"), lengths, nulls)
        values = compute.list_flatten(column)
        _add(contents, joined(name, "values"), kind.value_field, values, typed)
    elif types.is_string(kind):
        is_text = field.metadata != _NUMBERS
        words = column.fill_null("" if is_text else "0").to_pylist()
        numbers = None if is_text else _numbers(words)
        values = text(words) if numbers is None else numbers
        contents.add(name, Loaded(values, typed), nulls)
    elif types.is_large_binary(kind):  # written so that no text is equal to bytes
        contents.add(name, Loaded(text([repr(x or b"") for x in column.to_pylist()])), nulls)
    elif types.is_null(kind):
        contents.add(name, Loaded(np.zeros(len(column), bool), False), nulls)
    elif _is_plain(types, kind):
        zero = pyarrow.scalar(False if types.is_boolean(kind) else 0, kind)
        contents.add(name, Loaded(np.asarray(column.fill_null(zero).to_numpy()), typed), nulls)
        if typed and types.is_timestamp(kind):  # instants as of UTC, or times of any place
            contents.attributes[name] = {"timezone": "UTC"} if kind.tz else {}
    else:
        contents.left_out[name] = f"its type, {kind}, is not compared"


def _numbers(words: list[str]) -> Any:
    """Return words as Python numbers; None if an integer has more digits than Python reads."""
    try:
        numbers = [(int if _INTEGER.fullmatch(word) else float)(word) for word in words]
    except ValueError:
        return None
    return np.array(numbers, object)


def _as_supported(column: Any) -> Any:
    """Cast a column to a type that NumPy or the rules below support."""
    import pyarrow
    from pyarrow import compute, types

    kind = column.type
    if isinstance(kind, pyarrow.BaseExtensionType):
        storage = [chunk.storage for chunk in column.chunks]
        return _as_supported(pyarrow.chunked_array(storage, kind.storage_type))
    if types.is_dictionary(kind):
        return _as_supported(column.cast(kind.value_type))
    if types.is_run_end_encoded(kind):
        return _as_supported(compute.run_end_decode(column))
    if types.is_map(kind):
        return column.cast(pyarrow.list_(pyarrow.struct([kind.key_field, kind.item_field])))
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        return column.cast(pyarrow.large_list(kind.value_field))
    if types.is_decimal(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return column.cast(pyarrow.string())
    if types.is_binary(kind) or types.is_fixed_size_binary(kind) or types.is_binary_view(kind):
        return column.cast(pyarrow.large_binary())
    if types.is_time(kind):  # since midnight: NumPy has no times of day
        number = pyarrow.int32() if types.is_time32(kind) else pyarrow.int64()
        return column.cast(number).cast(pyarrow.int64()).cast(pyarrow.duration(kind.unit))
    return column


def _is_plain(types: Any, kind: Any) -> bool:
    """Return True if NumPy has the type."""
    tests = (
        types.is_integer,
        types.is_floating,
        types.is_boolean,
        types.is_date,
        types.is_timestamp,
        types.is_duration,
    )
    return any(test(kind) for test in tests)
