"""Names in what Penstock tells people: its logs, and the states of tables, which quote errors. In a log a name is
overwritten where it stands, in the same length: a process may be writing to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.engine.forget.needle import MASK, Needle
from penstock.engine.store import Store
from penstock.plan.model import Plan

_CHUNK = 1 << 20
_OWN = ".penstock"


@dataclass(frozen=True)
class Searched:
    files: int = 0
    masked: tuple[str, ...] = ()
    """Logs in which a name was overwritten."""
    held: tuple[str, ...] = ()
    """Files that still have one."""
    strangers: tuple[str, ...] = ()
    """Folders of the lake that belong to no table of the project."""


def search(plan: Plan, store: Store, needles: Sequence[Needle], folders: Sequence[str], *, mask: bool) -> Searched:
    """`folders` are those of the tables. What is left in files is found by the search of everything."""
    telling = [one for one in needles if one.telling]
    masked: list[str] = []
    files = 0
    for path in _files(plan, folders):
        files += 1
        spans = list(_spans(path, needles)) if path.suffix == ".log" else []
        if spans and mask:
            _overwrite(path, spans)
            masked.append(str(path))
    states = f"{plan.system}/state"
    for name in store.names(states):
        text = store.read(f"{states}/{name}") if name.endswith(".json") and mask else None
        if text is not None and any(one.in_text(text) for one in telling):
            for needle in telling:
                text = needle.masked(text)
            store.write(f"{states}/{name}", text)
            masked.append(f"{states}/{name}")
    return Searched(files, tuple(masked), (), tuple(_strangers(plan, store, folders)))


def _files(plan: Plan, folders: Sequence[str]) -> Iterator[Path]:
    """Those on this machine."""
    begin = [Path(plan.root) / _OWN]
    if plan.local:
        begin += [path for path in sorted(Path(plan.lake).glob("*")) if not _of_tables(str(path), folders)]
        begin += [path for path in sorted(Path(plan.lake).glob("*/*")) if not _of_tables(str(path), folders)]
    seen: set[Path] = set()
    for one in begin:
        for path in sorted(one.rglob("*")) if one.is_dir() else [one]:
            if path.is_file() and path not in seen:
                seen.add(path)
                yield path


def _of_tables(path: str, folders: Sequence[str]) -> bool:
    """A table, or a folder in which there is one."""
    return any(one == path or one.startswith(f"{path}/") or path.startswith(f"{one}/") for one in folders)


def _strangers(plan: Plan, store: Store, folders: Sequence[str]) -> Iterator[str]:
    for layer in store.names(plan.lake):
        if f"{plan.lake}/{layer}" == plan.system:
            continue
        for name in store.names(f"{plan.lake}/{layer}"):
            place = f"{plan.lake}/{layer}/{name}"
            if place not in folders and store.names(f"{place}/_delta_log"):
                yield place


def _spans(path: Path, needles: Sequence[Needle]) -> Iterator[tuple[int, int]]:
    """In pieces that overlap, so that none is cut in two."""
    if not needles:
        return
    overlap = max(one.longest for one in needles)
    at, tail = 0, b""
    try:
        with path.open("rb") as file:
            while piece := file.read(_CHUNK):
                content = tail + piece
                begin = at - len(tail)
                ended = len(piece) < _CHUNK
                for needle in needles:
                    for first, last in needle.spans(content):
                        if ended or last < len(content):  # else it may go on, and be another word
                            yield begin + first, begin + last
                at += len(piece)
                tail = content[-overlap:]
    except FileNotFoundError:
        return


def _overwrite(path: Path, spans: Sequence[tuple[int, int]]) -> None:
    with path.open("r+b") as file:
        for first, last in spans:
            file.seek(first)
            file.write(MASK * (last - first))
