"""The schema that a table names: a file beside the project, or the columns themselves."""

from __future__ import annotations

from pathlib import Path

from penstock.spec.ddl import BadSchema, parse_ddl
from penstock.spec.finding import shown, wrong
from penstock.spec.json_schema import parse_json_schema
from penstock.spec.schema import Struct


def load_schema(written: str, root: Path) -> Struct:
    """A file of columns (.ddl, .sql), a JSON Schema (.json), or columns as text. Raises Wrong."""
    file = root / Path(written).expanduser()
    inline = any(sign.isspace() for sign in written.strip()) and not _is_file(file)
    if not inline and not _is_file(file):
        hint = "correct the path (a relative one starts at the project folder), or write the columns: order_id BIGINT"
        raise wrong(f"there is no file {shown(written)}", hint)
    try:
        text = written if inline else file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise wrong(f"{written} cannot be read: {error}", "make it a UTF-8 text file that you may read") from None
    try:
        return parse_json_schema(text) if file.suffix == ".json" and not inline else parse_ddl(text)
    except BadSchema as error:
        where = "" if inline else f"{written}:{error.line}:{error.column}: "
        raise wrong(f"{where}{error.message}", error.hint) from None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # columns as text can be longer than a name may be
        return False
