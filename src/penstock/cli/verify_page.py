"""The page of `verify` that an auditor keeps: one HTML file that needs nothing else, on paper too."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

from penstock.cli.console import visible
from penstock.errors import UsageError

# The page of `verify` as a file: there whole, or not at all.


@contextmanager
def page_file(path: Path | None) -> Iterator[Callable[[dict[str, Any]], None]]:
    """What it gives writes the page of a document. That it can be written is known before anything is looked at."""
    if path is None:
        yield lambda _: None
        return
    if path.is_dir():
        raise UsageError(f"--report {path} is a folder", hint=f"write --report {path / 'report.html'}")
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    except OSError as error:
        raise UsageError(
            f"--report {path} cannot be written: {error.strerror}", hint="name a file in a folder that you may write to"
        ) from None
    os.close(handle)
    begun = Path(name)

    def write(document: dict[str, Any]) -> None:

        try:
            begun.write_text(page(document), encoding="utf-8", errors="backslashreplace")
            begun.chmod(0o666 & ~_umask())  # as any other file of the user: a temporary one is his alone
            begun.replace(path)
        except OSError as error:
            raise UsageError(f"--report {path} cannot be written: {error.strerror}") from None

    try:
        yield write
    finally:
        begun.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


# How the page of `verify` looks: on a screen, light or dark, and on paper.


RULES = """
:root {
  color-scheme: light dark;
  --paper: #fff; --ink: #1c2330; --dim: #5d6778; --line: #d8dde6; --soft: #f4f6f9;
  --good: #11703c; --bad: #b3261e; --doubt: #8a5a00;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14181f; --ink: #e4e8ee; --dim: #98a2b3; --line: #323a47; --soft: #1c222b;
    --good: #5fd08c; --bad: #ff8a80; --doubt: #f0b84c;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 2rem 1.25rem 3rem; max-width: 76rem;
  background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif;
}
h1 { font-size: 1.6rem; margin: 0 0 .5rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1.05rem; margin: 0 0 .5rem; overflow-wrap: anywhere; }
h4 { font-size: .8rem; margin: 1rem 0 .25rem; color: var(--dim); text-transform: uppercase; letter-spacing: .05em; }
section { border-top: 1px solid var(--line); padding: 1.25rem 0 .5rem; margin-top: 1.25rem; }
.sum { font-size: 1.05rem; padding: .6rem .9rem; border-left: .3rem solid; background: var(--soft); margin: 0 0 1rem; }
.sum.good { border-color: var(--good); } .sum.bad { border-color: var(--bad); }
.sum.doubt { border-color: var(--doubt); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: 0 0 .75rem; }
dt { color: var(--dim); } dd { margin: 0; overflow-wrap: anywhere; min-width: 0; }
.wide { overflow-x: auto; margin: .5rem 0; }
table { border-collapse: collapse; width: 100%; font-size: .92em; }
th { text-align: left; color: var(--dim); font-weight: 600; white-space: nowrap; }
th, td { padding: .3rem .75rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td { overflow-wrap: anywhere; min-width: 5rem; } td:first-child { overflow-wrap: break-word; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.number + td:not(.number), th.number + th:not(.number) { padding-left: 1.5rem; }
code, pre { font-family: ui-monospace, monospace; font-size: .9em; }
pre { background: var(--soft); padding: .6rem .8rem; white-space: pre-wrap; overflow-wrap: anywhere; margin: .25rem 0; }
ul { margin: .25rem 0; padding-left: 1.2rem; overflow-wrap: anywhere; }
a { color: inherit; }
.mark { font-size: .85em; font-weight: 600; white-space: nowrap; }
.mark.good { color: var(--good); } .mark.bad { color: var(--bad); } .mark.doubt { color: var(--doubt); }
.mark.none, .note { color: var(--dim); } .note { font-size: .92em; margin: .25rem 0; }
footer { margin-top: 2rem; padding-top: .75rem; border-top: 1px solid var(--line); color: var(--dim); font-size: .9em; }
@media print {
  :root { --paper: #fff; --ink: #000; --dim: #444; --line: #bbb; --soft: #f4f4f4; --good: #064; --bad: #900; }
  body { padding: 0; max-width: none; font-size: 10pt; }
  section { break-inside: auto; } tr, h3, h4 { break-inside: avoid; } h3, h4 { break-after: avoid; }
  .wide { overflow: visible; }
}
"""


# HTML of parts: whatever is a plain text is escaped, so nothing that a stranger wrote becomes a part of the page.


_EMPTY = ("br", "hr", "meta", "col")


class Html(str):
    """Text that is HTML already. Only functions of this file make it."""


Part = Html | str | int | None


def text(part: Part) -> Html:
    if isinstance(part, Html):
        return part
    return Html("") if part is None else Html(escape(visible(str(part)), quote=True))


def joined(parts: Iterable[Part]) -> Html:
    return Html("".join(text(part) for part in parts))


def el(tag: str, /, *parts: Part, **attributes: str | None) -> Html:
    """`class_` is the attribute class, `http_equiv` http-equiv."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(visible(value), quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{tag}{given}>" if tag in _EMPTY else f"<{tag}{given}>{joined(parts)}</{tag}>")


def lines(parts: Iterable[Part]) -> Html:
    """Each on a line of its own, within an element that keeps them."""
    return Html("\n".join(text(part) for part in parts))


def style(rules: str) -> Html:
    """Of our own: it is not escaped."""
    return Html(f"<style>{rules}</style>")


# What the parts of the page of `verify` have in common.


Document = dict[str, Any]
SHOWN = 50
"""Differences, ranges and partitions of a table that are named on the page; the document has all."""
WORDS = {
    "complete": "complete",
    "behind": "behind",
    "partial": "partial",
    "wrong": "WRONG",
    "not created": "not created yet",
}
OUTCOMES = {
    "same": "holds",
    "differs": "DIFFERS",
    "stale": "stale",
    "unverifiable": "not proven",
    "not made": "not made",
}
_GOOD = {"complete": "good", "wrong": "bad", "same": "good", "differs": "bad", "not made": "none"}


def mark(word: str, kind: str) -> Html:
    return el("span", word, class_=f"mark {_GOOD.get(kind, 'doubt')}")


def number(value: int | None) -> Html:
    return el("td", "" if value is None else f"{value:,}", class_="number")


def pairs(pairs: Iterable[tuple[str, Part]]) -> Html:
    return el("dl", *(joined([el("dt", name), el("dd", value)]) for name, value in pairs))


def grid(names: Iterable[str], rows: Iterable[Html], numbers: Iterable[str] = ()) -> Html:
    """`numbers` are the columns that hold such."""
    right = set(numbers)
    head = el("thead", el("tr", *(el("th", name, class_="number" if name in right else None) for name in names)))
    return el("div", el("table", head, el("tbody", *rows)), class_="wide")


# One table on the page of `verify`: what was held against what, what differs, and how to repeat it.


def table_part(one: Document, *, anchor: str) -> Html:
    known = [("reads", one["reads"]), ("defined in", one["origin"]), ("definition", _definition(one))]
    if one["version"] is not None:
        known.insert(0, ("looked at", f"version {one['version']}, batch {one['generation']}.{one['batch']}"))
    if one["summary"]:
        known.append(("proven", one["summary"]))
    if one["unread"]["count"]:
        known.append(("state", _state(one["state"])))
    if one["conserved"]:
        known.append(("rows", _conserved(one["conserved"])))
    return el(
        "section",
        el("h3", one["table"], " ", mark(WORDS[one["verdict"]], one["verdict"])),
        pairs(known),
        _proofs(one["proofs"]),
        *_wrong(one),
        *_lists(one),
        el("h4", "Repeat it"),
        el("pre", lines(one["commands"])),
        id=anchor,
    )


def _state(state: Document) -> str:
    return f"{state['state']}: {state['reason']}" if state["reason"] else str(state["state"])


def _definition(one: Document) -> Part:
    was, now = one["definition"], one["definition_now"]
    if was is None or was == now:
        return el("code", now)
    return joined([el("code", now), ", its last batch was made by ", el("code", was)])


def _conserved(counts: Document) -> str:
    words = ("read", "reshaped", "written", "rejected", "dropped", "duplicates", "superseded")
    known = {word: counts[word] for word in words if counts[word] or word in ("read", "written")}
    left = f"{known.pop('read'):,} read"
    if (made := known.pop("reshaped", 0)) != 0:
        left += f" {'+' if made > 0 else '−'} {abs(made):,} by its stages"
    return f"{left} = " + " + ".join(f"{many:,} {word}" for word, many in known.items())


def _proofs(found: list[Document]) -> Html | None:
    if not found:
        return None
    rows = [
        el(
            "tr",
            el("td", one["check"]),
            el("td", one["held"]),
            el("td", one["against"]),
            el("td", mark(OUTCOMES[one["outcome"]], one["outcome"])),
            el("td", one["said"]),
        )
        for one in found
    ]
    return grid(("check", "what", "against", "outcome", "found"), rows)


def _wrong(one: Document) -> Iterator[Html | None]:
    for check in one["checks"]:
        yield _differences(check)
        if check["remarks"]:
            yield el("p", f"{check['name']}: ", "; ".join(check["remarks"]), class_="note")
    ranges = [
        (label, f"{part['topic']}-{part['partition']} [{span[0]}, {span[1]})")
        for part in one["partitions"]
        for label, spans in _spans(part)
        for span in spans
    ]
    if ranges:
        rows = [el("tr", el("td", label), el("td", el("code", said))) for label, said in ranges[:SHOWN]]
        yield grid(("offsets", "range"), rows)
        yield _more(len(ranges))


def _spans(part: Document) -> Iterator[tuple[str, list[list[int]]]]:
    for label in ("missing", "unexpected", "unverifiable"):
        yield label, part[label]["spans"]
    for label in ("doubled", "too_few"):
        yield label.replace("_", " "), [[d["start"], d["end"]] for d in part[label]]


def _differences(check: Document) -> Html | None:
    found = check["differences"]
    if not found:
        return None
    keys = list(found[0]["keys"])
    rows = []
    for one in found[:SHOWN]:
        named = [el("td", _value(one["keys"][key])) for key in keys]
        parts = one["values"] or [None]
        for part in parts:
            told = (
                [el("td", part["column"]), el("td", _value(part["there"])), el("td", _value(part["should"]))]
                if part
                else [el("td"), el("td"), el("td")]
            )
            rows.append(el("tr", el("td", one["kind"]), *named, *told))
    return joined([grid(("difference", *keys, "column", "is", "should be"), rows), _more(check["differing"])])


def _value(value: str | None) -> Html:
    return el("em", "NULL") if value is None else el("code", value)


def _more(many: int) -> Html | None:
    return el("p", f"and {many - SHOWN:,} more: --json names them", class_="note") if many > SHOWN else None


def _lists(one: Document) -> Iterator[Html]:
    chain = one["ledger"] or {}
    groups: list[tuple[str, Iterable[Part]]] = [
        ("Problems", [*one["problems"], *chain.get("broken", [])]),
        ("Not proven", [*one["unproven"], *dict.fromkeys(r for p in one["partitions"] for r in _reasons(p))]),
        ("Accepted decisions", [_accepted(each) for each in chain.get("accepted", [])]),
        ("Commits by others", [_foreign(each) for each in chain.get("foreign", [])]),
        ("Notes", one["notes"]),
        ("Next", [one["hint"]] if one["hint"] else []),
    ]
    for title, items in groups:
        listed = [el("li", item) for item in items]
        if listed:
            yield joined([el("h4", title), el("ul", *listed)])


def _reasons(part: Document) -> list[str]:
    found: list[str] = part["unverifiable"]["reasons"]
    return found


def _accepted(one: Document) -> str:
    parts = [f"generation {one['generation']}, version {one['version']}"]
    parts += [one["note"]] if one["note"] else []
    for label in ("skipped", "again"):
        ranges = [f"{r['topic']}-{r['partition']} [{r['start']}, {r['end']})" for r in one[label][:SHOWN]]
        parts += [f"{label} {', '.join(ranges)}"] if ranges else []
    for label in ("dropped", "remade"):
        parts += [f"{label} {', '.join(one[label])}"] if one[label] else []
    return "; ".join(parts)


def _foreign(one: Document) -> str:
    accepted = f", accepted in version {one['accepted_in']}" if one["accepted_in"] is not None else ""
    return f"version {one['version']}: {one['operation']}, {one['origin']}, {one['rows']:,} rows{accepted}"


# The page of `verify` that an auditor keeps: one file of HTML that needs nothing else, on paper too.
#
# It shows the document that `--json` prints, and says where it leaves something out.


def page(document: Document) -> str:
    title = f"penstock verify: {document['project']}, {document['checked_at']}"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content="default-src 'none'; style-src 'unsafe-inline'"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="referrer", content="no-referrer"),
        el("title", title),
        style(RULES),
    )
    tables = document["tables"]
    body = el(
        "body",
        el("header", el("h1", "Verification of ", document["project"]), _verdict(document), _facts(document)),
        el("h2", "Tables"),
        _overview(tables),
        *(table_part(one, anchor=_anchor(place)) for place, one in enumerate(tables, 1)),
        el("h2", "What this does not prove"),
        el("ul", *(el("li", one) for one in document["limits"])),
        el(
            "footer", "Made by ", el("code", document["command"]), "; the same as JSON: add ", el("code", "--json"), "."
        ),
    )
    return "<!doctype html>\n" + el("html", head, body, lang="en") + "\n"


def _verdict(document: Document) -> Html:
    tables = document["tables"]
    counted = {word: sum(one["verdict"] == name for one in tables) for name, word in WORDS.items()}
    said = ", ".join(f"{many} {word}" for word, many in counted.items() if many) or "no tables"
    wrong = any(one["verdict"] in ("wrong", "not created") for one in tables)
    kind = "good" if document["complete"] else "bad" if wrong else "doubt"
    word = "Complete" if document["complete"] else "Does not hold" if wrong else "Holds as far as it goes"
    return el("p", el("strong", word), f": {said}", class_=f"sum {kind}")


def _facts(document: Document) -> Html:
    ran, made = document["ran_by"], document["versions"]
    numbers = "all groups and rows of copies computed again" if document["deep"] else "a sample computed again"
    return pairs(
        [
            ("when", document["checked_at"]),
            ("command", el("code", document["command"])),
            ("by", f"{ran['user']} on {ran['host']}"),
            ("project", el("code", document["folder"])),
            ("lake", el("code", document["lake"])),
            ("versions", ", ".join(f"{name} {found}" for name, found in made.items())),
            ("numbers", numbers if document["recomputed"] else "not computed again (--no-recompute)"),
        ]
    )


def _overview(tables: list[Document]) -> Html:
    names = ("table", "verdict", "version", "batch", "rows", "in quarantine", "definition")
    rows = [
        el(
            "tr",
            el("td", el("a", one["table"], href=f"#{_anchor(place)}")),
            el("td", mark(WORDS[one["verdict"]], one["verdict"])),
            number(one["version"]),
            el("td", f"{one['generation']}.{one['batch']}" if one["version"] is not None else "", class_="number"),
            number(one["rows"]),
            number((one["conserved"] or {}).get("quarantined")),
            el("td", el("code", one["definition_now"])),
        )
        for place, one in enumerate(tables, 1)
    ]
    return grid(names, rows, numbers=names[2:6])


def _anchor(place: int) -> str:
    return f"table-{place}"
