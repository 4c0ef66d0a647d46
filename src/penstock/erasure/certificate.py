"""The certificate of a forget: what was found where, what was done, and the proof; as JSON and as a page, without
names."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
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

# The certificate of a forget: what was found where, what was done, and the proof, as a document without any name.


FORMAT = 1
HOW = (
    "Every data file in the folder of each table and quarantine was decoded, whether a version has it or not, with "
    "rows that are only marked as deleted; each declared place was compared with the order's keyed hash.",
    "Then every file of the lake was searched for the name itself, declared or not: all columns of all data files with "
    "their dictionaries, statistics and indexes; commits, checkpoints and checksums of the logs; change feeds; "
    "deletion vectors; positions; Spark's state, decompressed; Penstock's own files; the names of files and folders.",
    "A name that is a word counts wherever it stands as a word of its own, unless it is part of a longer name that "
    "somebody else has at a declared place.",
    "A name of digits alone, or of fewer than four characters, counts as text in values of rows, in statistics and "
    "partitions; fewer than five digits only as the whole text; as a number in declared columns, and in "
    "columns of the same name that are made of them. Elsewhere, and within dates, times, fractions, addresses and "
    "UUIDs, the same digits are another thing: they are counted below, and not taken for the name.",
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


# The certificate as a page of its own: nothing is loaded from anywhere, and every text is escaped.


_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.verdict { display: inline-block; padding: .3rem .8rem; border-radius: .4rem; font-weight: 600; color: #fff; }
.yes { background: #1a7f37; } .no { background: #b42318; }
table { border-collapse: collapse; width: 100%; } .wide { overflow-x: auto; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #8884; vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
code { font: 13px ui-monospace, monospace; overflow-wrap: anywhere; } .quiet { opacity: .7; }
@media print { body { margin: 0; max-width: none; } }
"""


def page(document: Mapping[str, Any]) -> str:
    """`document` is that of the certificate."""
    verdict = ("yes", "Proven: nowhere in the lake") if document["proven"] else ("no", "Not complete")
    body = [
        f"<h1>Certificate of erasure</h1><p class=quiet>{escape(str(document['project']))}, "
        f"{escape(str(document['ended']))}, <code>{escape(str(document['id']))}</code></p>",
        f'<p><span class="verdict {verdict[0]}">{verdict[1]}</span></p>',
        _list("What is left to do", document["problems"]),
        "<h2>Who</h2><p>The names themselves are kept nowhere, only their keyed hashes.</p>",
        _table(
            ["subject", "keyed hash", "ordered"],
            [[one["subject"], _code(one["hash"]), one["time"]] for one in document["orders"]],
        ),
        "<h2>What was found, and what was done</h2>",
        _table(
            ["table", "names are in", "#rows", "", "#files rewritten", "commits", "#files removed", "#log files"],
            [_done(one) for one in document["tables"]],
        ),
        "<h2>Proof</h2>",
        _table(
            ["table", "#files decoded", "#rows left", "#log files read", "#with a name", "files that readers need"],
            [_proof(one) for one in document["tables"]],
        ),
        f"<p>Every file of the lake was searched for the name: {document['search']['files']:,} files, "
        f"{document['search']['bytes']:,} bytes; "
        f"{len(document['elsewhere']['logs_cleaned']):,} logs had a name, which was overwritten.</p>",
        _list("How it was searched", document["how"]),
        _list("Forms of the name", document["search"]["forms"]),
        _same(document["search"]["same_digits"], document["search"]["same_digits_places"]),
        _list("Said to hold no names, by whoever gave the command", document["search"]["not_names"]),
        "<h2>Readers</h2>" if document["readers"] else "",
        _table(
            ["table", "reads", "#past version", ""],
            [[one["table"], one["reads"], one["past_version"], one["problem"] or "yes"] for one in document["readers"]],
        )
        if document["readers"]
        else "",
        _list("Tables that declare no such subject: searched, and no row was taken out", document["not_searched"]),
        _list("Folders of the lake that belong to no table", document["elsewhere"]["folders_of_no_table"]),
        _list("Outside: not reached by this command", document["outside"]),
        "<p class=quiet>Made by "
        + escape(", ".join(f"{name} {number}" for name, number in document["versions"].items()))
        + f"; began {escape(str(document['began']))}. Lake: <code>{escape(str(document['lake']))}</code></p>",
    ]
    head = f"<!doctype html><html lang=en><meta charset=utf-8><title>Certificate {escape(str(document['id']))}</title>"
    view = '<meta name=viewport content="width=device-width">'
    return f"{head}{view}<style>{_STYLE}</style><body>{''.join(body)}</body></html>\n"


def _done(one: Mapping[str, Any]) -> list[Any]:
    rows = one["rows_found"] + one["rows_only_marked"]
    commits = ", ".join(f"v{commit['version']} ({commit['rows']:,})" for commit in one["commits"])
    log = one["log"]["files_rewritten"] + one["log"]["files_removed"]
    what = one["problem"] or (one["rows_are"] if rows or one["commits"] else "")
    places = _code(", ".join(one["holds_names_in"]))
    return [one["table"], places, rows, what, one["files_rewritten"], commits, one["files_removed"], log]


def _proof(one: Mapping[str, Any]) -> list[Any]:
    proof, waits = one["proof"], one["files_waiting_for"]
    needed = ", ".join(f"{who}: {count}" for who, count in waits.items())
    left = len(proof["log_files_left"])
    return [one["table"], proof["files_decoded"], proof["rows_left"], proof["log_files_read"], left, needed]


class _Code(str):
    """Shown in letters of one width."""


def _code(text: object) -> _Code:
    return _Code(text)


def _table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A column that begins with # has numbers."""
    classes = [' class="n"' if name.startswith("#") else "" for name in columns]
    head = "".join(f"<th{kind}>{escape(name.lstrip('#'))}</th>" for name, kind in zip(columns, classes, strict=True))
    lines = [
        "".join(f"<td{kind}>{_cell(value)}</td>" for value, kind in zip(row, classes, strict=True)) for row in rows
    ]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<div class=wide><table><tr>{head}</tr>{body}</table></div>"


def _cell(value: Any) -> str:
    if isinstance(value, _Code):
        return f"<code>{escape(value)}</code>"
    return f"{value:,}" if isinstance(value, int) else escape(str(value))


def _same(found: Sequence[Mapping[str, Any]], places: int) -> str:
    if not found:
        return ""
    more = f"<p>and {places - len(found):,} more places</p>" if places > len(found) else ""
    rows = [[one["in"], _code(one["where"]), one["times"]] for one in found]
    title = "<h2>Numbers with the same digits, not taken for the name</h2>"
    return title + _table(["table or folder", "where", "#times"], rows) + more


def _list(title: str, items: Sequence[str]) -> str:
    if not items:
        return ""
    return f"<h2>{escape(title)}</h2><ul>{''.join(f'<li>{escape(str(one))}</li>' for one in items)}</ul>"
