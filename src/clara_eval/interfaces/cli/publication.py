"""`publication sync`: posted results go to every place of publication that lacks them."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Annotated

import typer

from clara_eval.actions.publication import NotTried, Published, publish_missing, publish_named
from clara_eval.app import open_app
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address, to_address
from clara_eval.core.errors import ConfigError
from clara_eval.interfaces.cli.options import JsonFlag
from clara_eval.interfaces.cli.output import code_of, emit_json
from clara_eval.interfaces.cli.screen import console, safe


def sync(
    addresses: Annotated[list[str] | None, typer.Argument(help="Only these challenges; without: all of ours.")] = None,
    *,
    again: Annotated[
        bool, typer.Option("--again", help="Write what should be there, too: for a place that lost it.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Publish posted results at every place that lacks them; what is there already is not written again.

    Ends with 0 when everything is there, 1 where nothing is posted, 2 where a place does not take it: it is tried again
    at every tick of the service, or by the same command.
    """
    wanted = [to_address(address) for address in addresses or []]
    places, done = asyncio.run(_sync(Settings.from_env(), wanted, again=again))
    if json:
        rows = [{"place": one.place, "challenge": one.address, "problem": one.problem} for one in done]
        emit_json({"places": places, "published": rows})
    else:
        _tell(places, done)
    if problems := [one.error for one in done if one.error is not None]:
        raise typer.Exit(max(code_of(problem) for problem in problems))


def _tell(places: list[str], done: list[Published]) -> None:
    """A line for each; those that were not tried are counted."""
    out = console(stderr=False)
    for one in done:
        if not isinstance(one.error, NotTried):
            said = "published" if one.problem is None else safe(one.problem, 1000)
            out.print(f"{one.address}  {one.place}  {said}", soft_wrap=True)
    for place, count in Counter(one.place for one in done if isinstance(one.error, NotTried)).items():
        out.print(f"{count:,} more not tried at {place}, which does not work now.", soft_wrap=True)
    if not done:
        out.print(f"Nothing to do: everything that is posted is at {' and '.join(places)}.", soft_wrap=True)


async def _sync(settings: Settings, wanted: list[Address], *, again: bool) -> tuple[list[str], list[Published]]:
    async with open_app(settings) as app:
        if not app.places:
            raise ConfigError(
                "No place of publication is set.",
                remedy="Set CLARA_KV_ACCOUNT, _NAMESPACE and _TOKEN, or CLARA_IPFS_API.",
            )
        found = publish_named(app, wanted, again=again) if wanted else publish_missing(app, again=again)
        return [place.name for place in app.places], [one async for one in found]
