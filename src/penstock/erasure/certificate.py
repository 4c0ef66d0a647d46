"""The certificate of a forget: what was found where, what was done, and the proof, as a document without any name."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from penstock import __version__
from penstock.erasure.forget import order_document
from penstock.erasure.search import FORMS
from penstock.maintenance.retention import time_text

if TYPE_CHECKING:
    from penstock.erasure.forget import ErasureResult, PlaceDone
    from penstock.plan.model import Plan
    from penstock.storage.stores import Store

FORMAT = 1
HOW = (
    "Every data file in the folder of each table and quarantine was decoded, including files that no version lists and "
    "rows that are only marked as deleted; each declared place was compared with the order's keyed hash.",
    "Then every file of the lake was searched for the name itself, declared or not: all columns of all data files with "
    "their dictionaries, statistics and indexes; commits, checkpoints and checksums of the logs; change feeds; "
    "deletion vectors; positions; Spark's state, decompressed; Penstock's own files; the names of files and folders.",
    "A name that is a word counts wherever it stands as a word of its own, unless it is part of a longer name that "
    "another person has at a declared place.",
    "A name of digits alone, or of fewer than four characters, counts as text in values of rows, in statistics and "
    "partitions (fewer than five digits only as the whole text), and as a number in declared columns and in columns of "
    "the same name that are computed from them. Elsewhere, and within dates, times, fractions, addresses and UUIDs, "
    "the same digits are something else: they are counted below, and not taken for the name.",
)
_MOST = 200


def document(plan: Plan, done: ErasureResult) -> dict[str, Any]:
    return {
        "certificate": FORMAT,
        "id": done.id,
        "project": plan.name,
        "lake": plan.lake,
        "proven": done.proven,
        "problems": done.problems,
        "orders": [order_document(order) for order in done.orders],
        "began": _time(done.began_ms),
        "ended": _time(done.ended_ms),
        "command": "penstock forget",
        "versions": {"penstock": __version__, "pyspark": _version("pyspark"), "delta-spark": _version("delta-spark")},
        "tables": [_place(one) for one in done.places.values()],
        "readers": [
            {"table": one.table, "reads": one.reads, "past_version": one.version, "problem": one.problem}
            for one in done.readers
        ],
        "elsewhere": {
            "files_searched": done.elsewhere.files,
            "logs_cleaned": list(done.elsewhere.masked),
            "still_named": list(done.elsewhere.held),
            "folders_of_no_table": list(done.elsewhere.strangers),
        },
        "search": {
            "files": done.search.files,
            "bytes": done.search.bytes,
            "forms": list(FORMS),
            "left": [
                {"in": table, "where": place, "files": len(files), "file": files[0]}
                for (table, place), files in done.search.names.items()
            ],
            "unreadable": list(done.search.unreadable),
            "same_digits": [
                {"in": table, "where": place, "times": times}
                for (table, place), times in sorted(done.search.same.items())[:_MOST]
            ],
            "same_digits_places": len(done.search.same),
            "not_names": list(done.not_names),
        },
        "not_searched": list(done.undeclared),
        "outside": list(done.outside),
        "how": list(HOW),
    }


def _place(one: PlaceDone) -> dict[str, Any]:
    return {
        "table": one.name,
        "holds_names_in": list(one.where),
        "rows_found": one.rows,
        "rows_only_marked": one.marked,
        "rows_are": "redacted" if one.redacted else "deleted",
        "files_rewritten": one.files,
        "commits": [
            {"version": commit.version, "time": _time(commit.time_ms), "rows": commit.rows} for commit in one.commits
        ],
        "files_removed": one.removed_files,
        "bytes_removed": one.removed_bytes,
        "files_waiting_for": dict(one.needed),
        "log": {"files_rewritten": one.log_rewritten, "files_removed": one.log_removed},
        "proof": {
            "files_decoded": one.decoded,
            "rows_left": one.left,
            "log_files_read": one.log_files,
            "log_files_left": list(one.log_left),
        },
        "problem": one.problem,
        "clean": one.clean,
    }


def folder(plan: Plan) -> str:
    return f"{plan.system}/forget/certificates"


def states(plan: Plan, store: Store) -> dict[str, bool]:
    """By order: what the certificates that are kept in the lake say; once proven, it stays so."""
    found: dict[str, bool] = {}
    for name in store.names(folder(plan)):
        if not name.endswith(".json") or name.startswith("."):
            continue
        try:
            made = json.loads(store.read(f"{folder(plan)}/{name}") or "{}")
            for order in made["orders"]:
                found[order["id"]] = found.get(order["id"], False) or bool(made["proven"])
        except (ValueError, KeyError, TypeError):
            continue
    return found


def _time(ms: int) -> str:
    return time_text(ms).replace(" ", "T") + "Z"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
