"""HTML of parts: whatever is a plain text is escaped, so nothing that a stranger wrote becomes a part of the page."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from penstock.cli.visible import visible

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
