"""`penstock jars`: fetch now the jars that the first use would fetch, list them, or check them."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from penstock.cli.console import err, out, print_json
from penstock.cli.options import AsJson

group = typer.Typer(
    help="The jars of Spark's connectors, of the development broker and of Debezium.", no_args_is_help=True
)


@group.command()
def fetch(
    install_java: Annotated[
        bool, typer.Option("--install-java", help="If Java is missing and this is root on Debian: install it.")
    ] = False,
    connect: Annotated[
        bool, typer.Option("--connect", help="Also those of a Connect worker with Debezium: few need them.")
    ] = False,
) -> None:
    """Fetch what is missing into the user's cache, and verify it."""
    from penstock.spark.jars import DEFAULT_SETS, SETS, fetch
    from penstock.spark.java import ensure_java, find_java

    java = ensure_java(err.print) if install_java else find_java()
    if java.warning:
        err.print(Text.assemble(("warning:", "yellow"), f" {java.warning}"), soft_wrap=True)
    fetch(SETS if connect else DEFAULT_SETS)


@group.command("list")
def show(as_json: AsJson = False) -> None:
    """The jars, where they are and their SHA-256."""
    from penstock.spark.jars import SETS, jar_folder, jar_hashes

    jars = [(name, jar_folder(name) / jar, digest) for name in SETS for jar, digest in jar_hashes()[name].items()]
    if as_json:
        print_json([{"set": n, "path": str(p), "sha256": d, "fetched": p.exists()} for n, p, d in jars])
        return
    for name, path, digest in jars:
        note = "" if path.exists() else "  (not fetched)"
        out.print(f"{name:7}  {digest}  {path}{note}", soft_wrap=True)


@group.command()
def check() -> None:
    """Hash every jar again and compare it with the list."""
    from penstock.spark.jars import DEFAULT_SETS, SETS, jar_folder, jar_hashes, verify

    for name in SETS:
        if not jar_folder(name).is_dir():
            if name not in DEFAULT_SETS:
                err.print(f"{name}: not fetched; its first use does it, or penstock jars fetch --connect")
                continue
            err.print(f"{name}: not fetched yet; penstock jars fetch")
            raise typer.Exit(1)
        verify(name, thorough=True)
        err.print(f"{name}: {len(jar_hashes()[name])} jars, all as listed")
