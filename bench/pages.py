"""Measure size and first paint of a challenge page with 25, 100 and 1,000 entries in Chromium.

Targets: a first visit transfers less than 150 kB, and the first paint with 1,000 entries takes at most twice as long as
with 25. Medians of some fresh visits; times are of this machine, ratios of one run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.async_api import Browser
from tests.support.api_service import Service, running_service
from tests.support.browser import chromium, launched
from tests.support.round_pages import put_round

from clara_eval.core.address import Address

SIZES = (25, 100, 1000)
MOST_BYTES = 150_000
MOST_RATIO = 2.0
_PAINT = (  # a page may be loaded before it is painted
    "new Promise(done => new PerformanceObserver(list => list.getEntriesByName('first-contentful-paint')"
    ".forEach(one => done(one.startTime))).observe({type: 'paint', buffered: true}))"
)
_BYTES = (
    "[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]"
    ".reduce((sum, one) => sum + one.encodedBodySize, 0)"
)


async def measure(browser: Browser, service: Service, entries: int, visits: int) -> dict[str, Any]:
    address = Address(f"0x{entries:040x}")
    await put_round(service.store, address, entries, title=f"{entries} entries")
    path = f"/challenges/{address}"
    started = time.perf_counter()
    _, _, body = await service.get(path)
    served = time.perf_counter() - started
    paints, weight = [], 0
    for _ in range(visits):
        context = await browser.new_context(viewport={"width": 1280, "height": 900})
        page = await context.new_page()
        await page.goto(service.url + path, wait_until="load")
        paints.append(float(await page.evaluate(_PAINT)))
        weight = int(await page.evaluate(_BYTES))
        await context.close()
    return {
        "entries": entries,
        "htmlBytes": len(body),
        "allBytes": weight,
        "servedMs": round(1000 * served, 1),
        "firstPaintMs": round(statistics.median(paints), 1),
    }


async def bench(visits: int) -> dict[str, Any]:
    path = chromium()
    if path is None:
        sys.exit("There is no Chromium here: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        async with running_service(Path(folder)) as service, launched(path) as browser:
            rows = [await measure(browser, service, entries, visits) for entries in SIZES]
    ratio = round(rows[-1]["firstPaintMs"] / rows[0]["firstPaintMs"], 2)
    return {
        "rows": rows,
        "targets": {"allBytes": MOST_BYTES, "firstPaintRatio": MOST_RATIO},
        "firstPaintRatio": ratio,
        "ok": all(row["allBytes"] < MOST_BYTES for row in rows) and ratio <= MOST_RATIO,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few visits, for a first look")
    asked = parser.parse_args()
    print(json.dumps(asyncio.run(bench(3 if asked.quick else 9)), indent=2))


if __name__ == "__main__":
    main()
