"""The certificate of an erasure: what was found where, what was done, and the proof, as a document without names."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from penstock import __version__
from penstock.erasure.forget import order_document
from penstock.erasure.search import FORMS
from penstock.spec.quantity import iso_time

if TYPE_CHECKING:
    from penstock.erasure.forget import ErasedPlace, ErasureResult
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
_MAX_SAME_DIGITS = 200


def document(plan: Plan, result: ErasureResult) -> dict[str, Any]:
    return {
        "certificate": FORMAT,
        "id": result.id,
        "project": plan.name,
        "lake": plan.lake,
        "proven": result.proven,
        "problems": result.problems,
        "orders": [order_document(order) for order in result.orders],
        "began": iso_time(result.began_ms),
        "ended": iso_time(result.ended_ms),
        "command": "penstock forget",
        "versions": {"penstock": __version__, "pyspark": _version("pyspark"), "delta-spark": _version("delta-spark")},
        "tables": [_place_document(place) for place in result.places.values()],
        "readers": [
            {"table": reader.table, "reads": reader.reads, "past_version": reader.version, "problem": reader.problem}
            for reader in result.readers
        ],
        "elsewhere": {
            "files_searched": result.output_search.files,
            "logs_cleaned": list(result.output_search.masked),
            "still_named": [],  # files with a name are under `search`
            "folders_of_no_table": list(result.output_search.foreign_tables),
        },
        "search": {
            "files": result.search.files,
            "bytes": result.search.bytes,
            "forms": list(FORMS),
            "left": [
                {"in": table, "where": place, "files": len(files), "file": files[0]}
                for (table, place), files in result.search.names.items()
            ],
            "unreadable": list(result.search.unreadable),
            "same_digits": [
                {"in": table, "where": place, "times": times}
                for (table, place), times in sorted(result.search.same.items())[:_MAX_SAME_DIGITS]
            ],
            "same_digits_places": len(result.search.same),
            "not_names": list(result.not_names),
        },
        "not_searched": list(result.undeclared),
        "outside": list(result.outside),
        "how": list(HOW),
    }


def _place_document(place: ErasedPlace) -> dict[str, Any]:
    return {
        "table": place.name,
        "holds_names_in": list(place.columns),
        "rows_found": place.rows,
        "rows_only_marked": place.rows_marked_deleted,
        "rows_are": "redacted" if place.redacted else "deleted",
        "files_rewritten": place.files,
        "commits": [
            {"version": commit.version, "time": iso_time(commit.time_ms), "rows": commit.rows}
            for commit in place.commits
        ],
        "files_removed": place.removed_files,
        "bytes_removed": place.removed_bytes,
        "files_waiting_for": dict(place.needed_by),
        "log": {"files_rewritten": place.log_rewritten, "files_removed": place.log_removed},
        "proof": {
            "files_decoded": place.decoded,
            "rows_left": place.rows_left,
            "log_files_read": place.log_files,
            "log_files_left": list(place.log_left),
        },
        "problem": place.problem,
        "clean": place.clean,
    }


def folder(plan: Plan) -> str:
    return f"{plan.system}/forget/certificates"


def states(plan: Plan, store: Store) -> dict[str, bool]:
    """By order: whether a certificate in the lake proves it. An order that was proven once stays proven."""
    proven: dict[str, bool] = {}
    for name in store.names(folder(plan)):
        if not name.endswith(".json") or name.startswith("."):
            continue
        try:
            certificate = json.loads(store.read(f"{folder(plan)}/{name}") or "{}")
            for order in certificate["orders"]:
                proven[order["id"]] = proven.get(order["id"], False) or bool(certificate["proven"])
        except (ValueError, KeyError, TypeError):
            continue
    return proven


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
