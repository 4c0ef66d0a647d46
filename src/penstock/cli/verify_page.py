"""The page of `verify` that an auditor keeps: one file of HTML that needs nothing else, on paper too.

It shows the document that `--json` prints, and says where it leaves something out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.cli.html import Html, Part, el, joined, style
from penstock.cli.verify_style import RULES

Document = dict[str, Any]
SHOWN = 50
"""Differences, ranges and partitions of a table that are named on the page; the document has all."""
_WORDS = {
    "complete": "complete",
    "incomplete": "NOT complete",
    "unverifiable": "unverifiable",
    "not created": "not created yet",
}
_OUTCOMES = {
    "same": "holds",
    "differs": "DIFFERS",
    "stale": "stale",
    "unverifiable": "unverifiable",
    "not made": "not made",
}
_GOOD = {"complete": "good", "incomplete": "bad", "same": "good", "differs": "bad", "not made": "none"}


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
        *(_table(one) for one in tables),
        el("h2", "What this does not prove"),
        el("ul", *(el("li", one) for one in document["limits"])),
        el(
            "footer", "Made by ", el("code", document["command"]), "; the same as JSON: add ", el("code", "--json"), "."
        ),
    )
    return "<!doctype html>\n" + el("html", head, body, lang="en") + "\n"


def _verdict(document: Document) -> Html:
    tables = document["tables"]
    counted = {word: sum(one["verdict"] == name for one in tables) for name, word in _WORDS.items()}
    said = ", ".join(f"{many} {word}" for word, many in counted.items() if many) or "no tables"
    kind = "good" if document["complete"] else "bad"
    return el(
        "p", el("strong", "Holds" if document["complete"] else "Does not hold"), f": {said}", class_=f"sum {kind}"
    )


def _facts(document: Document) -> Html:
    ran, made = document["ran_by"], document["versions"]
    numbers = "all groups and rows of copies computed again" if document["deep"] else "a sample computed again"
    return _pairs(
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
            el("td", el("a", one["table"], href=f"#{_anchor(number)}")),
            el("td", _mark(_WORDS[one["verdict"]], one["verdict"])),
            _number(one["version"]),
            el("td", f"{one['generation']}.{one['batch']}" if one["version"] is not None else "", class_="number"),
            _number(one["rows"]),
            _number((one["conserved"] or {}).get("quarantined")),
            el("td", el("code", one["definition_now"])),
        )
        for number, one in enumerate(tables, 1)
    ]
    for number, one in enumerate(tables, 1):
        one["anchor"] = _anchor(number)
    return _grid(names, rows)


def _anchor(number: int) -> str:
    return f"table-{number}"


def _table(one: Document) -> Html:
    known = [("reads", one["reads"]), ("defined in", one["origin"]), ("definition", _definition(one))]
    if one["version"] is not None:
        known.insert(0, ("looked at", f"version {one['version']}, batch {one['generation']}.{one['batch']}"))
    if one["conserved"]:
        known.append(("rows", _conserved(one["conserved"])))
    return el(
        "section",
        el("h3", one["table"], " ", _mark(_WORDS[one["verdict"]], one["verdict"])),
        _pairs(known),
        _proofs(one["proofs"]),
        *_wrong(one),
        *_lists(one),
        el("h4", "Repeat it"),
        el("pre", "\n".join(one["commands"])) if one["commands"] else None,
        id=one["anchor"],
    )


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
            el("td", _mark(_OUTCOMES[one["outcome"]], one["outcome"])),
            el("td", one["said"]),
        )
        for one in found
    ]
    return _grid(("check", "what", "against", "outcome", "found"), rows)


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
        yield _grid(("offsets", "range"), rows)
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
    return joined([_grid(("difference", *keys, "column", "is", "should be"), rows), _more(check["differing"])])


def _value(value: str | None) -> Html:
    return el("em", "NULL") if value is None else el("code", value)


def _more(many: int) -> Html | None:
    return el("p", f"and {many - SHOWN:,} more: --json names them", class_="note") if many > SHOWN else None


def _lists(one: Document) -> Iterator[Html]:
    chain = one["ledger"] or {}
    groups: list[tuple[str, Iterable[Part]]] = [
        ("Problems", [*one["problems"], *chain.get("broken", [])]),
        ("Unverifiable", [*one["doubts"], *dict.fromkeys(r for p in one["partitions"] for r in _reasons(p))]),
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


def _mark(word: str, kind: str) -> Html:
    return el("span", word, class_=f"mark {_GOOD.get(kind, 'doubt')}")


def _number(value: int | None) -> Html:
    return el("td", "" if value is None else f"{value:,}", class_="number")


def _pairs(pairs: Iterable[tuple[str, Part]]) -> Html:
    return el("dl", *(joined([el("dt", name), el("dd", value)]) for name, value in pairs))


def _grid(names: Iterable[str], rows: Iterable[Html]) -> Html:
    head = el("thead", el("tr", *(el("th", name) for name in names)))
    return el("div", el("table", head, el("tbody", *rows)), class_="wide")
