"""The suppression list: who was ordered to be forgotten, as keyed hashes. The names are kept nowhere."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import Terminal, Transient, UsageError

if TYPE_CHECKING:
    from penstock.plan.subjects import ForgetPlan
    from penstock.storage.stores import Store

# An order to forget somebody: who it is, as a keyed hash. The name itself is kept nowhere.


FORMAT = 1
_LARGEST_EXPONENT = 400
"""Of a number that is written out: 1e400 and beyond stays as it is, or one record could fill the memory."""


@dataclass(frozen=True)
class Order:
    subject: str
    """What kind of name it is, as the project calls it: customer."""
    hash: str
    length: int
    """Of the name, in UTF-16 units: where a record is not JSON, only words of that length are compared."""
    time_ms: int
    key: str
    """Tells the key apart by which the hash was made."""

    @property
    def id(self) -> str:
        return f"{self.subject}-{self.hash[:20]}"


def canonical(value: object) -> str:
    """One text for one subject, however it is typed: text as it is, numbers in plain form."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | Decimal):
        return _plain(Decimal(str(value)))
    return str(value)


def _plain(number: Decimal) -> str:
    """42, 42.0 and 4.2E1 are one number."""
    if not number.is_finite():
        return str(number)
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    if not any(digits):
        return "0"
    if abs(exponent) > _LARGEST_EXPONENT:
        return str(number)
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def hashed(key: bytes, subject: str, value: object) -> str:
    return hmac.new(key, f"{subject}={canonical(value)}".encode(), hashlib.sha256).hexdigest()


def fingerprint(key: bytes) -> str:
    """Tells keys apart and says nothing of them."""
    return hmac.new(key, b"penstock forget", hashlib.sha256).hexdigest()[:16]


def order_of(key: bytes, subject: str, value: object, time_ms: int) -> Order:
    length = len(canonical(value).encode("utf-16-le")) // 2
    return Order(subject, hashed(key, subject, value), length, time_ms, fingerprint(key))


def dump(order: Order) -> str:
    return json.dumps({"penstock": FORMAT, **asdict(order)})


def parse(text: str) -> Order | None:
    """None if it is not whole: such a file was never an order."""
    try:
        found: Any = json.loads(text)
        if not isinstance(found, dict) or found.pop("penstock", None) != FORMAT:
            return None
        return Order(**found)
    except (ValueError, TypeError):
        return None


# The suppression list: who was ordered to be forgotten. It only ever grows, and every table looks at it.
#
# A document per order, in the lake's system folder. The key that their hashes are made with is the project's, or lies
# beside them, made at the first order; without it nobody can tell whom they are about, so its loss is loud.


_KEY_BYTES = 32
_DOCUMENT = ".json"


class SuppressionList:
    """Looked at in every batch: one look into a folder, and only documents that are new are read."""

    def __init__(self, plan: ForgetPlan, store: Store) -> None:
        self._plan, self._store = plan, store
        self._folder = f"{plan.folder}/orders"
        self._known: dict[str, Order] = {}
        self._key: bytes | None = None

    @property
    def folder(self) -> str:
        return self._plan.folder

    def orders(self, subjects: Iterable[str] | None = None) -> tuple[Order, ...]:
        """As of now, of these subjects; all without them. Terminal where the key is not theirs: rows that shall be
        forgotten would come back."""
        for name in self._store.names(self._folder):
            if not name.endswith(_DOCUMENT) or name.startswith(".") or name in self._known:
                continue
            order = parse(self._store.read(f"{self._folder}/{name}") or "")
            if order is None:
                trouble = Terminal if self._local else Transient  # elsewhere it may be half written yet
                raise trouble(
                    f"the order {name} in {self._folder} cannot be read",
                    hint="put the file back as it was; without it a person that was forgotten could come back",
                )
            self._fits(order)
            self._known[name] = order
        wanted = None if subjects is None else set(subjects)
        found = (one for one in self._known.values() if wanted is None or one.subject in wanted)
        return tuple(sorted(found, key=lambda one: (one.time_ms, one.id)))

    @property
    def key(self) -> bytes:
        """Terminal if there is none: only `add` makes one."""
        if self._key is None:
            self._key = self._read_key()
        if self._key is None:
            raise Terminal(
                f"the key {self._key_file} is gone, and without it nobody knows whom the orders beside it are about",
                hint="put it back from a backup; the order is the keyed hash of a name",
            )
        return self._key

    def find(self, subject: str, value: object) -> Order | None:
        if not self._store.names(self._folder):
            return None
        found = hashed(self.key, subject, value)
        return next((one for one in self.orders([subject]) if one.hash == found), None)

    def add(self, subject: str, value: object) -> Order:
        """The order, on disk for good. The one that is there already, if there is."""
        if (there := self.find(subject, value)) is not None:
            return there
        self._key = self._key or self._read_key() or self._make_key()
        order = order_of(self._key, subject, value, time.time_ns() // 1_000_000)
        name = f"{order.id}{_DOCUMENT}"
        if self._local:
            write_for_good(Path(self._folder) / name, dump(order).encode())
        else:
            self._store.write(f"{self._folder}/{name}", dump(order))
        self._known[name] = order
        return order

    @property
    def _local(self) -> bool:
        return "://" not in self._plan.folder

    @property
    def _key_file(self) -> str:
        return f"{self._plan.folder}/key"

    def _fits(self, order: Order) -> None:
        if order.key != fingerprint(self.key):
            raise Terminal(
                f"the order {order.id} was made with another key than the one at hand",
                hint="give the key that it was made with: `forget: {key: …}` in the project file, or "
                + (self._key_file if self._local else "what that stood for then"),
            )

    def _read_key(self) -> bytes | None:
        if self._plan.key is not None:
            return self._plan.key.get_secret_value().encode()
        text = self._store.read(self._key_file)
        return bytes.fromhex(text.strip()) if text else None

    def _make_key(self) -> bytes:
        if not self._local:  # two that begin at once could make two keys there, and orders by one of them say nothing
            raise UsageError(
                "on an object store the key of what is forgotten has to be given",
                hint="make one, `openssl rand -hex 32`, and write forget: {key: ${env:FORGET_KEY}} into penstock.yml",
            )
        write_for_good(Path(self._key_file), secrets.token_bytes(_KEY_BYTES).hex().encode(), mode=0o600)
        made = self._read_key()
        assert made is not None
        return made


def write_for_good(path: Path, content: bytes, mode: int = 0o644) -> None:
    """The whole file or none, and on the disk when this returns. What is there already stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    for folder in (path.parent, path.parent.parent):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
