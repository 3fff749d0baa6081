"""A real Chromium for tests, screenshots and the bench: found on this machine, or installed where that is possible."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache

from playwright.async_api import Browser, async_playwright, expect
from tests.support.debian import program

PATIENCE = 60_000
"""Milliseconds until what a test waits for counts as missing, also on a busy machine."""
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@cache
def chromium() -> str | None:
    """The path of a Chromium; as root it is installed by apt where it is missing. None where there is none."""
    return program(_NAMES, "chromium")


@asynccontextmanager
async def launched(path: str) -> AsyncIterator[Browser]:
    """A headless browser that asks nothing of the network by itself."""
    expect.set_options(timeout=PATIENCE)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        await browser.close()
