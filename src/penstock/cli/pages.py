"""The HTML pages that commands write: the report of `verify` and the certificate of `forget`.

Each shows a document that `--json` prints. The layout is in `templates`; its data is prepared here.
"""

from __future__ import annotations

import secrets
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli.console import visible
from penstock.errors import UsageError
from penstock.spec.quantity import counted

if TYPE_CHECKING:
    from jinja2 import Environment

Document = dict[str, Any]
SHOWN = 50
"""Differences and ranges shown for one table; the document has all."""
VERDICTS = {
    "complete": ("complete", "good"),
    "behind": ("behind", "doubt"),
    "partial": ("partial", "doubt"),
    "wrong": ("WRONG", "bad"),
    "not created": ("not created yet", "doubt"),
}
OUTCOMES = {
    "same": ("holds", "good"),
    "differs": ("DIFFERS", "bad"),
    "stale": ("stale", "doubt"),
    "unverifiable": ("not proven", "doubt"),
    "not made": ("not made", "none"),
}


@cache
def _templates() -> Environment:
    """Loaded with the first page, so that a command that writes none starts without jinja2."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def escaped(value: object) -> str:
        """Every value passes through here before its HTML is escaped. Markup is the output of a macro, whose own
        values have passed already."""
        if isinstance(value, Markup):
            return value
        return "" if value is None else visible(str(value))

    templates = Environment(
        loader=PackageLoader("penstock.cli"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=escaped,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    assert templates.loader is not None
    style, _, _ = templates.loader.get_source(templates, "style.css")
    digest = b64encode(sha256(style.encode()).digest()).decode()
    templates.globals |= {"style": Markup(style), "style_hash": f"sha256-{digest}", "outcomes": VERDICTS | OUTCOMES}
    templates.filters |= {"counted": counted, "number": lambda count: "" if count is None else f"{count:,}"}
    return templates


def certificate_page(document: Document) -> str:
    """`document` is that of `penstock.erasure.certificate`."""
    return _templates().get_template("certificate.html").render(document)


def verify_page(document: Document) -> str:
    """`document` is that of `penstock.verify.document`."""
    prepared = {
        **document,
        "tables": [_table(table) for table in document["tables"]],
        "verdict": _verdict(document),
        "shown": SHOWN,
    }
    return _templates().get_template("verify.html").render(prepared)


def _verdict(document: Document) -> dict[str, str]:
    verdicts = [table["verdict"] for table in document["tables"]]
    counts = [f"{verdicts.count(name)} {word}" for name, (word, _) in VERDICTS.items() if name in verdicts]
    kind, word = "doubt", "Holds as far as it goes"
    if document["complete"]:
        kind, word = "good", "Complete"
    elif "wrong" in verdicts or "not created" in verdicts:
        kind, word = "bad", "Does not hold"
    return {"kind": kind, "word": word, "tables": ", ".join(counts) or "no tables"}


def _table(table: Document) -> Document:
    from penstock.ledger.row_counts import RowBalance

    partitions, ledger = table["partitions"], table["ledger"] or {}
    counts = {name: count for name, count in (table["conserved"] or {}).items() if name != "quarantined"}
    reasons = dict.fromkeys(reason for partition in partitions for reason in partition["unverifiable"]["reasons"])
    return {
        **table,
        "checks": [{**check, "key_columns": _key_columns(check["differences"])} for check in table["checks"]],
        "row_counts": RowBalance(**counts).description if counts else None,
        "ranges": [row for partition in partitions for row in _ranges(partition)],
        "problems": [*table["problems"], *ledger.get("broken", [])],
        "unproven": [*table["unproven"], *reasons],
        "accepted": [_accepted(decision) for decision in ledger.get("accepted", [])],
        "foreign": [_foreign(commit) for commit in ledger.get("foreign", [])],
    }


def _key_columns(differences: list[Document]) -> list[str]:
    """The keys of all differences: a duplicate row may be identified by other keys than a missing row."""
    return list(dict.fromkeys(key for difference in differences[:SHOWN] for key in difference["keys"]))


def _ranges(partition: Document) -> Iterator[tuple[str, str, str]]:
    """Kind, range, and how often its rows are in the table."""
    for key, kind in (("missing", "missing"), ("unexpected", "unexpected"), ("unverifiable", "not proven")):
        for start, end in partition[key]["spans"]:
            yield kind, _range({**partition, "start": start, "end": end}), ""
    for key, kind in (("doubled", "doubled"), ("too_few", "too few")):
        for span in partition[key]:
            yield kind, _range({**partition, **span}), f"{span['times']} times instead of {span['expected']}"


def _range(span: Document) -> str:
    return f"{span['topic']}-{span['partition']} [{span['start']}, {span['end']})"


def _accepted(decision: Document) -> str:
    parts = [f"generation {decision['generation']}, version {decision['version']}"]
    parts += [decision["note"]] if decision["note"] else []
    for key, words in (("skipped", "skipped"), ("again", "read again")):
        spans = decision[key]
        more = f" and {len(spans) - SHOWN:,} more" if len(spans) > SHOWN else ""
        parts += [f"{words} {', '.join(map(_range, spans[:SHOWN]))}{more}"] if spans else []
    for key, words in (("dropped", "no longer read"), ("remade", "recreated")):
        parts += [f"{words}: {', '.join(decision[key])}"] if decision[key] else []
    return "; ".join(parts)


def _foreign(commit: Document) -> str:
    accepted = f", accepted in version {commit['accepted_in']}" if commit["accepted_in"] is not None else ""
    rows = counted(commit["rows"], "row")
    return f"version {commit['version']}: {commit['operation']}, {commit['origin']}, {rows}{accepted}"


@contextmanager
def report_file(path: Path | None) -> Iterator[Callable[[Document], None]]:
    """Yields a function that writes the report of a document to `path`, completely or not at all. A path that cannot be
    written is refused before anything is verified."""
    if path is None:
        yield lambda _: None
        return
    if path.is_dir():
        raise UsageError(f"--report {path} is a folder", hint=f"write --report {path / 'report.html'}")
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")

    def write(document: Document) -> None:
        try:
            temporary.write_text(verify_page(document), encoding="utf-8")
            temporary.replace(path)
        except OSError as error:
            raise UsageError(f"--report {path} cannot be written: {error.strerror}") from None

    try:
        temporary.touch(exist_ok=False)
    except OSError as error:
        raise UsageError(
            f"--report {path} cannot be written: {error.strerror}", hint="name a file in a folder that you may write to"
        ) from None
    try:
        yield write
    finally:
        temporary.unlink(missing_ok=True)
