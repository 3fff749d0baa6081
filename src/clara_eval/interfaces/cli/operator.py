"""Commands `check`, `settings`, `trace`, `spend`, `backup`, `publication sync` and `keys new`."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from pydantic import SecretStr
from rich.table import Table
from typer import Argument, Exit, Option, echo, prompt

from clara_eval.actions.operator import back_up, list_settings, new_key, preflight, spending, unknown_settings
from clara_eval.actions.publication import NotTried, publish_all
from clara_eval.actions.published import spend_document
from clara_eval.actions.verify import find_trace
from clara_eval.config.settings import Settings
from clara_eval.core.address import to_address
from clara_eval.core.codec import to_camel_json
from clara_eval.core.errors import BadInput, ConfigError, NotFound
from clara_eval.core.model import usd
from clara_eval.core.untrusted import escaped
from clara_eval.interfaces.cli import screen
from clara_eval.interfaces.cli.config import check_engines
from clara_eval.interfaces.cli.output import AddressArgument, JsonFlag, answer, code_of, emit_json, fail


def check(
    *,
    engines: Annotated[
        bool, Option("--engines", help="Only the engines of harnesses: make each ready, and run it.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Check settings, node, wallet, store and judges, and say what is ready and what is not."""
    if engines:
        check_engines(as_json=json)
    findings, warnings = asyncio.run(preflight(Settings.from_env())), unknown_settings()
    is_ready = all(finding.ok for finding in findings)
    if json:
        emit_json({"ok": is_ready, "checks": to_camel_json(findings), "warnings": warnings})
    else:
        for one in findings:
            lead = f"{'ok' if one.ok else 'no'}  {one.name:<10} "
            screen.print_wrapped(escaped(one.detail[:1000]), lead, "green" if one.ok else "red")
        screen.print_warnings(warnings)
    if not is_ready:
        raise Exit(1)


def settings(
    *,
    example: Annotated[bool, Option("--example", help="Print a file to start from, as `.env`.")] = False,
    json: JsonFlag = False,
) -> None:
    """List every setting with its value, default and source; hide secrets, and warn about unknown names."""
    if example:
        echo((files("clara_eval.config") / "env.example").read_text(encoding="utf-8"), nl=False)
        return
    rows, warnings = list_settings(Settings.from_env())
    if json:
        emit_json({"settings": rows, "warnings": warnings})
        return
    for one in rows:
        note = one["source"] if one["source"] == "default" else f"{one['source']}; default {one['default'] or '–'}"
        screen.print_text(f"{one['name']:<32} {one['value'] or '–':<28} {note}")
    screen.print_warnings(warnings)


def trace(
    address: AddressArgument,
    *,
    out: Annotated[Path | None, Option("--out", "-o", help="Write to this file.")] = None,
    json: Annotated[
        bool, Option("--json", help="With --out: print what was written as JSON; the trace itself is JSON already.")
    ] = False,
) -> None:
    """Print the trace of an evaluated challenge."""
    target = to_address(address)
    try:
        found = asyncio.run(find_trace(target, Settings.from_env()))
    except NotFound as missing:
        fail(missing, as_json=json)
    try:
        with found as lines, ExitStack() as stack:
            stream = sys.stdout.buffer if out is None else stack.enter_context(out.open("wb"))
            size = sum(stream.write(line.encode()) for line in lines)
    except OSError as bad:
        if out is None or isinstance(bad, BrokenPipeError):
            raise
        raise BadInput(f"{out} cannot be written: {bad.strerror or bad}.", remedy="Name another file.") from None
    if out is not None and json:
        emit_json({"challenge": target, "file": str(out), "bytes": size})
    elif out is not None:
        screen.print_labelled("Wrote", f"{size:,} bytes to {out}")
        screen.print_next([f"verify {shlex.quote(str(out))}"])


def spend(
    *,
    since: Annotated[str | None, Option(help="First day, YYYY-MM-DD; without it everything.")] = None,
    json: JsonFlag = False,
) -> None:
    """Report the spending on models; reservations of running evaluations count and are also shown apart."""
    try:
        first = datetime.strptime(since, "%Y-%m-%d").replace(tzinfo=UTC).timestamp() if since is not None else 0
    except ValueError:
        raise BadInput(f"--since {since!r} is not a day.", value=since, remedy="Write YYYY-MM-DD.") from None
    report = asyncio.run(spending(Settings.from_env(), int(first)))
    if json:
        emit_json(spend_document(report))
        return
    for title in ("Month", "Poster", "Challenge"):
        table = Table(title, "USD", "reserved", "evaluations", box=None, header_style="dim", pad_edge=False)
        for line in (*report[title.lower()], *report["total"]):
            style = "bold" if line is report["total"][0] else None
            table.add_row(line.name, usd(line.micro_usd), usd(line.open_micro_usd), str(line.evaluations), style=style)
        screen.console(stderr=False).print(table)


def backup(
    file: Annotated[Path, Argument(metavar="FILE", help="A new file for the copy.")], *, json: JsonFlag = False
) -> None:
    """Copy the SQLite database into FILE, also while the service runs."""
    size = back_up(Settings.from_env().database_url, file)
    text = f"{size:,} bytes to {file}"
    answer({"file": str(file), "bytes": size}, json, lambda: screen.print_labelled("Wrote", text))


def sync(
    addresses: Annotated[list[str] | None, Argument(help="Only these challenges; without: all of ours.")] = None,
    *,
    again: Annotated[
        bool, Option("--again", help="Publish everything again, for a place that lost documents.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Publish posted results to every place that lacks them.

    Exit code 0: everything is published; 1: nothing is posted; 2: a place failed. The service retries at every tick;
    you can also run the command again.
    """
    wanted = [to_address(address) for address in addresses or []]
    places, done = asyncio.run(publish_all(Settings.from_env(), wanted, again=again))
    rows = [{"place": one.place, "challenge": one.address, "problem": one.problem} for one in done]
    if json:
        emit_json({"places": places, "published": rows})
    else:
        for one in (one for one in done if not isinstance(one.error, NotTried)):
            ending = "published" if one.problem is None else screen.safe(one.problem, 1000)
            screen.print_lines(f"{one.address}  {one.place}  {ending}")
        for place, count in Counter(one.place for one in done if isinstance(one.error, NotTried)).items():
            screen.print_lines(f"{count:,} more not tried at {place}, which does not work now.")
        if not done:
            screen.print_lines(f"Nothing to do: everything that is posted is at {' and '.join(places)}.")
    if problems := [one.error for one in done if one.error is not None]:
        raise Exit(max(code_of(problem) for problem in problems))


def new(
    path: Annotated[Path, Argument(help="The keystore file to write.")] = Path("evaluator.json"),
    *,
    json: JsonFlag = False,
) -> None:
    """Create a key, encrypted with CLARA_EVALUATOR_PASSWORD or with a password asked for on the terminal."""
    password = Settings.from_env().evaluator_password
    if password is None:
        if not sys.stdin.isatty():
            remedy = "Set CLARA_EVALUATOR_PASSWORD or CLARA_EVALUATOR_PASSWORD_FILE."
            raise ConfigError("There is no terminal to ask for the password.", remedy=remedy)
        password = SecretStr(prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    address = new_key(path, password)
    place = screen.safe(str(path), 4096)
    text = f"{address} is in {place}; set CLARA_EVALUATOR_KEYSTORE={place} and its password."
    answer({"address": address, "keystore": str(path)}, json, lambda: screen.print_lines(text))
