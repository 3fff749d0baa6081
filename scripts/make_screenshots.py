"""Write the screenshots of README and docs to `docs/images/*.png` (`make screenshots`).

Starts the demo service with its own chain and takes its pages in a real Chromium. Pictures that no page uses are
removed.
"""

from __future__ import annotations

import asyncio
import io
import re
import socket
import sys
from pathlib import Path

import aiohttp
from PIL import Image
from playwright.async_api import Browser, BrowserContext, Page
from tests.support.browser import PATIENCE, chromium, launched

from clara_eval.config.settings import Settings
from clara_eval.devnet.demo.living import Tempo, living_world
from clara_eval.interfaces.serve import serving
from clara_eval.service.due import EngineOptions

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
SHOWN = {
    name
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    for name in re.findall(r"images/([\w-]+\.png)", page.read_text(encoding="utf-8"))
}
SIZES = {"desktop": (1280, 1320), "phone": (390, 844)}
COLOURS = 128
_WAIT_SECONDS = 240
TEMPO = Tempo(answer_seconds=1.5)


async def main() -> None:
    path = chromium()
    if path is None:
        sys.exit("There is no Chromium here: apt-get install chromium")
    quick = EngineOptions(tick_cron="*/5 * * * * *", tick_seconds=5, poll_seconds=0.2)
    async with living_world(Settings.from_env({}), print, TEMPO) as settings:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            key = settings.admin_api_key.get_secret_value() if settings.admin_api_key else ""
            async with serving(settings, listening, mode="all", options=quick), launched(path) as browser:
                rounds = await until_shown(url)
                looks = [(size, scheme) for size in SIZES for scheme in ("light", "dark")]
                for size, scheme in looks:  # first, while its round is running
                    await shoot_running(browser, f"{url}/challenges/{rounds['comparing']}", size, scheme)
                for size, scheme in looks:
                    await shoot(browser, url, key, rounds, size, scheme)
    for path in IMAGES.glob("*.png"):
        if path.name not in SHOWN:
            path.unlink()


async def until_shown(url: str) -> dict[str, str]:
    """Return addresses by state, once a round is finished, one is in review and one is running."""
    async with aiohttp.ClientSession() as http:
        for _ in range(_WAIT_SECONDS):
            async with http.get(f"{url}/api/v1/challenges") as answer:
                rows = (await answer.json())["challenges"]
            found = {row["evaluation"]["status"]: row for row in rows}
            if {"complete", "review", "comparing"} <= set(found) and found["comparing"]["evaluation"]["progress"] >= 50:
                return {state: row["address"] for state, row in found.items()}
            await asyncio.sleep(1)
    sys.exit("The demo's rounds did not come so far.")


async def opened(browser: Browser, size: str, scheme: str) -> BrowserContext:
    width, height = SIZES[size]
    context = await browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",  # a page that is still scrolling would be empty
    )
    context.set_default_timeout(PATIENCE)
    return context


async def shoot_running(browser: Browser, url: str, size: str, scheme: str) -> None:
    context = await opened(browser, size, scheme)
    page = await context.new_page()
    await page.goto(url)
    save(await page.screenshot(), IMAGES / f"running-{size}-{scheme}.png")
    await context.close()


async def shoot(browser: Browser, url: str, key: str, rounds: dict[str, str], size: str, scheme: str) -> None:
    context = await opened(browser, size, scheme)
    page = await context.new_page()
    finished = f"{url}/challenges/{rounds['complete']}"

    async def keep(name: str) -> None:
        await page.wait_for_timeout(300)
        save(await page.screenshot(), IMAGES / f"{name}-{size}-{scheme}.png")

    await page.goto(f"{url}/")
    await keep("challenges")
    await page.goto(finished)
    await keep("challenge")
    for anchor in ("why", "games", "timeline"):
        await page.goto(f"{finished}#{anchor}")
        await keep(anchor)
    await page.goto(f"{finished}#verify")
    await page.get_by_role("link", name="Check it in your browser").click()
    await page.wait_for_selector("#verify-result .verdict-line")
    await keep("verify")
    await page.goto(finished)
    await page.locator(".matrix td.won a").first.click()
    await page.wait_for_selector("#drawer[open]")
    await keep("game")
    await page.goto(finished)
    await page.goto(url + (await page.locator(".board tbody tr:not(.paid) .who a").first.get_attribute("href") or ""))
    await keep("entry")
    await page.get_by_role("navigation", name="On this page").get_by_role("link", name="Agent ").click()
    await page.wait_for_selector("text=Challenges entered")
    await keep("agent")
    await page.goto(f"{url}/challenges/0x{'0' * 39}1")
    await keep("missing")
    await page.goto(f"{url}/docs")
    await keep("api")
    await page.goto(f"{url}/operator")
    await keep("sign-in")
    await operator(page, url, key)
    await keep("operator")
    await page.goto(f"{url}/operator/reviews/{rounds['review']}")
    await keep("review")
    await context.close()


async def operator(page: Page, url: str, key: str) -> None:
    await page.goto(f"{url}/operator")
    await page.fill("#key", key)
    await page.keyboard.press("Enter")
    await page.wait_for_selector("text=Reviews")


def save(picture: bytes, path: Path) -> None:
    """Save with few colours, which makes a small file."""
    if path.name not in SHOWN:
        return
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    asyncio.run(main())
