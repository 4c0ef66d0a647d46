"""The page of `verify` that an auditor keeps: one file of HTML that needs nothing else, on paper too.

It shows the document that `--json` prints, and says where it leaves something out.
"""

from __future__ import annotations

from penstock.cli.html import Html, el, style
from penstock.cli.verify_page_parts import WORDS, Document, grid, mark, number, pairs
from penstock.cli.verify_page_table import table_part
from penstock.cli.verify_style import RULES


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
