"""A batch of files could not be read: which of them is to blame, and how it is read then."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame

from penstock.engine.files.evolve import met
from penstock.engine.files.format import Unfit
from penstock.engine.files.json_lines import NEW_FIELD
from penstock.engine.files.reader import FilesReader
from penstock.engine.files.reading import Reading
from penstock.engine.files.unreadable import Trouble, find_unreadable, is_about_files, story
from penstock.errors import PenstockError, Transient

TRIES = 3
"""So often a file may be away before it is given up; between two tries the runner waits."""


def decide(
    reader: FilesReader,
    names: Sequence[str],
    reading: Reading,
    error: Exception,
    read: Callable[[Sequence[str]], DataFrame],
    keep: Callable[[Reading], None],
) -> Reading:
    """The next way to read the batch, kept before it is tried. Raises the error if no file is to blame, and Transient
    while one may come back."""
    if isinstance(error, Unfit):
        made = replace(reading, given_up={**reading.given_up, **error.reasons})
    elif isinstance(error, PenstockError):
        raise error
    elif NEW_FIELD in story(error):
        made = replace(reading, look=met(reader, names, reading.look))
    elif is_about_files(error):
        found = find_unreadable(names, read, reader.schema.format.probe, error, reader.files)
        if not found:
            raise error
        return _without(reader, reading, found, keep)
    else:
        raise error
    keep(made)
    return made


def _without(
    reader: FilesReader, reading: Reading, found: Mapping[str, Trouble], keep: Callable[[Reading], None]
) -> Reading:
    tries, given_up = dict(reading.tries), dict(reading.given_up)
    away: list[str] = []
    for name, trouble in found.items():
        tries[name] = tries.get(name, 0) + 1
        if trouble.kind != "away" or tries[name] >= TRIES:
            given_up[name] = trouble.reason
        else:
            away.append(name)
    made = replace(reading, given_up=given_up, tries=tries)
    keep(made)
    if away:
        raise Transient(f"{', '.join(away[:3])} cannot be read now: {found[away[0]].reason}", where=reader.table)
    return made
