"""One table on the page of `verify`: what was held against what, what differs, and how to repeat it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.cli.html import Html, Part, el, joined, lines
from penstock.cli.verify_page_parts import OUTCOMES, SHOWN, WORDS, Document, grid, mark, pairs


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
