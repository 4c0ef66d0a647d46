"""`${env:X}`, `${env:X:-default}` and `${file:path}` in the values of a project file. `$${` stays a plain `${`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from penstock.spec.finding import Referenced, Wrong, did_you_mean, nearest, wrong

_REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LARGEST_FILE = 1_000_000
_WAYS = "write ${env:NAME}, ${env:NAME:-default} or ${file:path}; $${ is a plain ${"


def resolve(text: str, *, env: Mapping[str, str], folder: Path) -> str:
    """The text with its references replaced: a `Referenced` if there were any. Raises Wrong.

    Paths are relative to `folder`; a trailing newline of a file is not part of its value.
    """
    if "${" not in text:
        return text
    referenced = False

    def replace(match: re.Match[str]) -> str:
        nonlocal referenced
        if match[0] == "$${":
            return "${"
        referenced = True
        if not match[2]:
            raise wrong(f"the reference '{match[0]}' is not closed", "end it with }; " + _WAYS)
        return _value(match[1], env, folder)

    resolved = _REFERENCE.sub(replace, text)
    return Referenced(resolved, text) if referenced else resolved


def _value(inside: str, env: Mapping[str, str], folder: Path) -> str:
    kind, colon, rest = inside.partition(":")
    if kind == "env" and colon:
        return _variable(rest, env)
    if kind == "file" and colon:
        return _file(rest, folder)
    hint = f"did you mean ${{env:{inside}}}?" if _VARIABLE.fullmatch(inside) else _WAYS
    if colon and nearest(kind, ("env", "file")):
        hint = did_you_mean(kind, ("env", "file"))
    raise wrong(f"'${{{inside}}}' is not a reference that Penstock knows", hint)


def _variable(rest: str, env: Mapping[str, str]) -> str:
    name, has_default, default = rest.partition(":-")
    if not _VARIABLE.fullmatch(name):
        raise wrong(f"'${{env:{rest}}}' does not name a variable", _WAYS)
    if has_default:
        return env.get(name) or default  # as in a shell: set but empty takes the default
    if name not in env:
        raise wrong(
            f"the environment variable {name} is not set",
            f"export {name}=..., or give it a default: ${{env:{name}:-...}}",
        )
    return env[name]


def _file(written: str, folder: Path) -> str:
    if not written.strip():
        raise wrong("'${file:}' does not name a file", _WAYS)
    path = folder / Path(written.strip()).expanduser()
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise wrong(f"the file {written} is larger than 1 MB", "a reference reads one small value")
        content = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise _unreadable(written, "does not exist", folder) from None
    except IsADirectoryError:
        raise _unreadable(written, "is a folder", folder) from None
    except UnicodeDecodeError:
        raise _unreadable(written, "is not text", folder) from None
    except (OSError, ValueError) as error:
        if isinstance(error, Wrong):
            raise
        reason = getattr(error, "strerror", None) or "its path is not one"
        raise _unreadable(written, f"cannot be read: {reason}", folder) from None
    return content.removesuffix("\n").removesuffix("\r")


def _unreadable(written: str, why: str, folder: Path) -> Wrong:
    where = "" if Path(written).is_absolute() else " (a relative path starts at the project folder)"
    return wrong(f"the file {written} {why}", f"create it, or correct the path{where}")
