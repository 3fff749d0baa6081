"""The pages in a real Chromium: live progress, drawers, keyboard, hostile texts, accessibility, every width.

Chromium is the system's; as root it is installed where it is missing, else the tests are skipped with the reason.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect
from tests.support.api_service import (
    ADMIN,
    CHAIN,
    REVIEWED,
    UNKNOWN,
    Service,
    running_service,
    status,
    summary,
)
from tests.support.browser import chromium, launched
from tests.support.round_pages import account, put_round
from tests.support.statuses import request_review

from clara_eval.actions.folder import entries_of
from clara_eval.actions.judge import JudgeRequest, judge_entries
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address
from clara_eval.documents.store_keys import index_key, provisional_key, public_harness_key, status_key
from clara_eval.interfaces.serve import serve_folder

pytestmark = [pytest.mark.xdist_group("browser")]
SMALL, LARGE, RUNS, STRANGE, OPENED = (Address("0x" + digit * 40) for digit in "45678")
AXE = Path(__file__).parents[1] / "node_modules" / "axe-core" / "axe.min.js"
WIDTHS = (320, 390, 820, 1440)
CUT = """() => [...document.querySelectorAll("main *")].filter(e => {
  const style = getComputedStyle(e);
  const isPhone = innerWidth < 700 && e.matches(".scroll") && e.querySelector(".record") !== null;
  if (isPhone && e.scrollWidth > e.clientWidth + 1) return true;
  return style.overflowX === "hidden" && style.textOverflow !== "ellipsis" && !e.closest(".hidden, .clamp, progress, svg")
    && e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 1;
}).map(e => e.className || e.tagName)"""
"""Elements whose content is wider than they are and cannot be scrolled to, or on a phone need not be."""
PAYLOADS = (
    "<script>window.broken=1</script>",
    "\"><img src=x onerror='window.broken=1'>",
    "'><svg/onload=window.broken=1>",
    "javascript:window.broken=1",
    "{{ 7*7 }}${7*7}<%= 7*7 %>",
    "</textarea><script>window.broken=1</script>",
    '<a href="javascript:window.broken=1" hx-on:click="window.broken=1" hx-get="/" hx-trigger="load">x</a>',
    "<iframe srcdoc='<script>parent.broken=1</script>'></iframe>",
    "<style>*{display:none}</style><base href=//evil.example>",
    "--><!--<script>window.broken=1</script>",
    "\u202eevil\u200b\x07",
)


@dataclass
class Visit:
    """A page of the browser and everything that went wrong on it."""

    page: Page
    url: str
    troubles: list[str] = field(default_factory=list)

    async def go(self, path: str) -> None:
        await self.page.goto(self.url + path)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    async with running_service(tmp_path_factory.mktemp("browser")) as running:
        await put_round(running.store, SMALL, 8, title="Gas golf")
        await put_round(running.store, LARGE, 1000, title="A large field", winners=25)
        await put_round(running.store, STRANGE, 6, title=" ".join(PAYLOADS)[:200], strange=" ".join(PAYLOADS))
        await request_review(running.store, CHAIN, REVIEWED, "0x" + "ab" * 32, [" ".join(PAYLOADS)], 1_794_800_000)
        await say(running, "comparing", 45)
        await put_open(running, 3600, 40_000, 41_000)
        yield running


async def say(service: Service, state: str, progress: int) -> None:
    """What an evaluation writes while it runs."""
    stage = {"name": "comparing", "done": progress, "total": 100, "calls": progress, "costUsd": 0.5, "secondsLeft": 9.0}
    told = {**status(state, progress), "stage": stage if state == "comparing" else None}
    pairs = [(index_key(RUNS), summary(RUNS, "It runs", 1_794_800_000)), (status_key(RUNS), told)]
    await service.store.put_many(CHAIN, [(key, json.dumps(value)) for key, value in pairs])


async def put_open(service: Service, seconds: float, *gas: int) -> None:
    """A challenge that is open for so long, with a provisional board of these gas figures."""
    names = ("metric_gas", "duplicate_share", "documented_share_of_functions")
    features = [{"name": name, "weight": 1 / 3, "better": "lower", "source": "executed"} for name in names]
    rules = {"criteria": "The cheapest wins.", "features": features, "harness": "solidity", "maxBytes": 262_144}
    row = summary(OPENED, "Open one", int(time.time() + seconds)) | {"rules": rules}
    row["problemStatement"] = "Send a token to many addresses. " * 20
    entries = [
        {"address": account(n), "agentId": n, "hash": hex(n), "facts": {"metric_gas": gas[n]}} for n in range(len(gas))
    ]
    board = json.dumps({"at": int(time.time()), "entries": entries}) if gas else ""
    await service.store.put(CHAIN, public_harness_key(OPENED), "contract Harness {}\n" * 40)
    await service.store.put_many(CHAIN, [(index_key(OPENED), json.dumps(row)), (provisional_key(OPENED), board)])


async def pass_deadline(service: Service, page: Page) -> None:
    """The clock passes the deadline, for the service and for the page."""
    await put_open(service, -60)
    await page.evaluate(
        "document.querySelectorAll('[data-until]').forEach(one => { one.dataset.until = Date.now() / 1000 - 1 })"
    )


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    path = chromium()
    if path is None:
        pytest.skip("There is no Chromium here, and apt could not install it: as root, apt-get install chromium")
    async with launched(path) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def visit(browser: Browser, service: Service) -> AsyncIterator[Visit]:
    context = await browser.new_context(viewport={"width": 1400, "height": 900})
    found = Visit(await context.new_page(), service.url)
    watch(found)
    yield found
    await context.close()


def watch(found: Visit) -> None:
    """Remember every error of the console and every script that failed."""
    found.page.on("console", lambda told: found.troubles.append(told.text) if told.type == "error" else None)
    found.page.on("pageerror", lambda bad: found.troubles.append(str(bad)))
    found.page.on("dialog", lambda dialog: found.troubles.append(f"dialog {dialog.message}"))


async def sign_in(found: Visit) -> None:
    await found.go("/operator")
    await found.page.fill("#key", ADMIN)
    await found.page.keyboard.press("Enter")
    await expect(found.page.locator("h2", has_text="Reviews")).to_be_visible()


PAGES = (
    "/",
    f"/challenges/{SMALL}",
    f"/challenges/{LARGE}?page=2",
    f"/challenges/{RUNS}",
    f"/challenges/{SMALL}/{account(3)}",
    f"/challenges/{SMALL}/{account(1_000_000)}",
    f"/challenges/{SMALL}/games/{account(0)}/{account(1)}",
    "/post",
    "/agents",
    f"/challenges/{SMALL}/embed",
    "/agents/0",
    "/docs",
    "/operator",
    f"/operator/reviews/{REVIEWED}",
    f"/challenges/{OPENED}",
    "/verify",
)


async def test_progress_moves_before_ones_eyes(service: Service, visit: Visit) -> None:
    """The bar follows the evaluation without a reload, and when scores are posted the leaderboard comes by itself."""
    await say(service, "comparing", 45)
    await visit.go(f"/challenges/{RUNS}")
    await visit.page.evaluate("window.same = true")
    for progress in (45, 58, 71):
        await say(service, "comparing", progress)
        await expect(visit.page.locator("#progress strong")).to_have_text(f"{progress} %")
        await expect(visit.page.locator("#progress .stage")).to_contain_text(f"{progress} of 100")
    await put_round(service.store, RUNS, 5, title="It runs")
    await expect(visit.page.locator("#result")).to_be_visible()
    assert await visit.page.evaluate("window.same") is True
    assert visit.troubles == []
    await service.store.put(CHAIN, f"challenges:{RUNS}:scores", "")


async def test_an_open_page_wakes_at_its_deadline(service: Service, visit: Visit) -> None:
    """Page and card say that entries are closed within seconds of the deadline, without a reload."""
    for path, chip in (("/", f"#card-{OPENED} .chip"), (f"/challenges/{OPENED}", "#phase")):
        await put_open(service, 3600)
        await visit.go(path)
        await expect(visit.page.locator(chip)).to_have_text("Open")
        await pass_deadline(service, visit.page)
        await expect(visit.page.locator(chip)).to_have_text("Queued")
    assert visit.troubles == []


FOCUSED = "() => document.activeElement.id"


async def test_a_renewal_keeps_what_a_reader_has_open(service: Service, visit: Visit) -> None:
    """Parts that were opened, the focus and the place on the page survive the poll, the deadline and live progress."""
    page = visit.page
    await put_open(service, 3600)
    await visit.go(f"/challenges/{OPENED}")
    for part in ("#statement", "#harness"):
        await page.locator(f"{part} > summary").press("Enter")
    await page.evaluate("document.getElementById('copy-contracts-address').focus({preventScroll: true})")
    await page.evaluate("scrollTo({top: 300, behavior: 'instant'})")
    for gas in ((41_000,), (41_000, 39_500)):
        await put_open(service, 3600, *gas)
        await page.evaluate("htmx.trigger('main > [hx-trigger*=renew]', 'renew')")
        await expect(page.locator("#provisional")).to_contain_text(f"{gas[-1]:,}")
        await expect(page.locator("#provisional tbody tr")).to_have_count(len(gas))
        assert (await page.evaluate(FOCUSED), await page.evaluate("scrollY")) == ("copy-contracts-address", 300)
    await pass_deadline(service, page)
    await expect(page.locator("#phase")).to_have_text("Queued")
    for part in ("#statement", "#harness"):
        assert await page.locator(part).get_attribute("open") is not None, part
    assert await page.evaluate(FOCUSED) == "copy-contracts-address"
    await say(service, "comparing", 45)
    await visit.go(f"/challenges/{RUNS}")
    await page.locator("#copy-posters-address").focus()
    await say(service, "comparing", 46)
    await expect(page.locator("#progress strong")).to_have_text("46 %")
    assert await page.evaluate(FOCUSED) == "copy-posters-address"
    await visit.go("/")
    await page.locator(f"#to-{RUNS}").focus()
    await say(service, "comparing", 47)
    await expect(page.locator(f"#card-{RUNS}")).to_contain_text("47 %")
    assert await page.evaluate(FOCUSED) == f"to-{RUNS}"
    assert visit.troubles == []


async def test_figures_of_a_running_page_do_not_contradict(service: Service, visit: Visit) -> None:
    """Chip, timeline, money and tab title follow the progress."""
    await say(service, "pending", 0)
    await visit.go(f"/challenges/{RUNS}")
    await expect(visit.page.locator("#phase")).to_have_text("Queued")
    await say(service, "comparing", 45)
    await expect(visit.page.locator("#phase")).to_have_text("Comparing")
    await expect(visit.page.locator("#timeline")).to_contain_text("Under way")
    await expect(visit.page).to_have_title("45 % · It runs")
    assert visit.troubles == []


async def test_cards_of_the_list_move_too(service: Service, visit: Visit) -> None:
    """A card of a running evaluation shows its progress while one looks at the list."""
    await say(service, "comparing", 20)
    await visit.go("/")
    card = visit.page.locator(f"#card-{RUNS}")
    await expect(card).to_contain_text("20 %")
    await say(service, "comparing", 34)
    await expect(card).to_contain_text("34 %")
    assert visit.troubles == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_page_is_accessible_and_fits(browser: Browser, service: Service, scheme: str) -> None:
    """No page has a console error, a serious finding of axe, or a horizontal scroll bar at any width."""
    await say(service, "comparing", 45)
    await put_open(service, 3600, 40_000, 41_000)
    context = await browser.new_context(color_scheme="dark" if scheme == "dark" else "light")
    found = Visit(await context.new_page(), service.url)
    watch(found)
    await sign_in(found)
    findings: list[str] = []
    for path in PAGES:
        await found.go(path)
        for width in WIDTHS:
            await found.page.set_viewport_size({"width": width, "height": 900})
            wide = await found.page.evaluate("document.documentElement.scrollWidth")
            if wide > width:
                findings.append(f"{path} is {wide} px wide at {width}")
            cut = await found.page.evaluate(CUT)
            findings += [f"{path} cuts {name} at {width}" for name in cut]
        await found.page.evaluate(AXE.read_text(encoding="utf-8"))
        told = await found.page.evaluate(
            "async (rules) => (await axe.run(document, {resultTypes: ['violations'], ...rules}))"
            ".violations.filter(v => ['serious', 'critical'].includes(v.impact))"
            ".map(v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.target.join(' ')).join(', '))",
            # The same document in other colours: only what colours decide can differ.
            {"runOnly": ["color-contrast"]} if scheme == "dark" else {"rules": {"target-size": {"enabled": True}}},
        )
        findings += [f"{path}: {line}" for line in told]
    await context.close()
    assert not findings + found.troubles, "\n".join(findings + found.troubles)


ANSWERS = {
    f"/challenges/{OPENED}": ("#rules blockquote", "#rules dd >> nth=0", "#stats .countdown", ".jump a[href='#enter']"),
    f"/challenges/{SMALL}": (
        ".podium a >> nth=0",
        ".podium strong >> nth=0",
        ".sure dd >> nth=0",
        ".podium a[href$='#submission'] >> nth=0",
    ),
    f"/challenges/{SMALL}/{account(5)}": (".statement", "#why h2", "#why table tbody tr >> nth=0"),
    "/operator": ("text=To review", ".queue a >> nth=0", ".queue .countdown >> nth=0", ".queue p >> nth=0"),
}
"""What a newcomer asks: what wins, what is paid, until when, how; who won, how much, how sure, its code; why did I lose;
what burns, until when, what to do."""


async def test_newcomers_find_their_answers_without_scrolling(service: Service, visit: Visit) -> None:
    """Each question has its answer on the first screen of a desktop."""
    await put_open(service, 3600)
    await sign_in(visit)
    for path, places in ANSWERS.items():
        await visit.go(path)
        for place in places:
            box = await visit.page.locator(place).bounding_box()
            told = await visit.page.locator(place).inner_text()
            assert box is not None, (path, place)
            assert (box["y"] + min(box["height"], 40) <= 900, bool(told.strip())) == (True, True), (path, place, box)
    assert visit.troubles == []


async def test_a_page_on_paper_is_dark_on_white_and_whole(browser: Browser, service: Service) -> None:
    """Printed from a dark screen, text is dark, nothing to press is left, and no table is wider than the paper."""
    context = await browser.new_context(color_scheme="dark", viewport={"width": 700, "height": 990})
    page = await context.new_page()
    await page.goto(f"{service.url}/challenges/{SMALL}")
    await page.emulate_media(media="print", color_scheme="dark")
    colours = await page.evaluate("[document.body, document.querySelector('h1')].map(e => getComputedStyle(e).color)")
    assert colours == ["rgb(0, 0, 0)"] * 2
    assert await page.locator("button:visible").count() == 0
    assert await page.evaluate("document.documentElement.scrollWidth") <= 700
    await context.close()


async def test_the_drawer_of_a_game(visit: Visit) -> None:
    """A cell of the matrix opens its verdicts beside the page; Escape closes it and the page is where it was."""
    await visit.go(f"/challenges/{SMALL}")
    drawer = visit.page.locator("#drawer")
    await visit.page.locator(".matrix td.won a").first.click()
    await expect(drawer).to_be_visible()
    await expect(drawer.locator(".verdict")).to_have_count(2)
    await visit.page.keyboard.press("Escape")
    await expect(drawer).to_be_hidden()
    await visit.page.locator(".matrix td.lost a").first.press("Enter")
    await expect(drawer).to_be_visible()
    await drawer.locator("[data-close]").click()
    await expect(drawer).to_be_hidden()
    assert visit.page.url.endswith(SMALL)
    assert visit.troubles == []


async def test_every_part_that_opens_opens(visit: Visit) -> None:
    """Each closed part of the pages opens by the keyboard, and a check begins by its link and says what does not hold."""
    for path in (f"/challenges/{SMALL}", f"/challenges/{SMALL}/{account(3)}", "/docs"):
        await visit.go(path)
        closed = visit.page.locator("main details:not([open]) > summary")
        for _ in range(await closed.count()):
            await closed.first.press("Enter")
        await expect(closed).to_have_count(0)
    await visit.go(f"/challenges/{SMALL}")
    await visit.page.get_by_role("link", name="Check it in your browser").press("Enter")
    await expect(visit.page.locator("#verify-result .verdict-line")).to_have_text("This trace does not hold.")
    assert visit.troubles == []


async def test_a_review_by_the_keyboard_alone(service: Service, visit: Visit) -> None:
    """From the sign-in to the decision nothing needs a mouse, and the decision reaches the engine."""
    await visit.go("/operator")
    await visit.page.keyboard.type(ADMIN)
    await visit.page.keyboard.press("Enter")
    await expect(visit.page.locator("h2", has_text="Reviews")).to_be_visible()
    await tab_to(visit.page, "a", "Waits")
    await visit.page.keyboard.press("Enter")
    await expect(visit.page.locator("h2", has_text="Decide")).to_be_visible()
    await tab_to(visit.page, "input", "")
    await visit.page.keyboard.type("Ada")
    await tab_to(visit.page, "textarea", "")
    await visit.page.keyboard.type("checked the pay line")
    await tab_to(visit.page, "button", "Approve and post")
    await visit.page.keyboard.press("Enter")
    await expect(visit.page.locator("h2", has_text="Post this result?")).to_be_visible()
    await visit.page.keyboard.press("Enter")
    await expect(visit.page.get_by_role("status")).to_contain_text("being posted")
    assert service.engine.decided[-1] == (REVIEWED, "approve", "checked the pay line")
    assert visit.troubles == []


async def tab_to(page: Page, tag: str, text: str) -> None:
    """Press Tab until such an element has the focus."""
    for _ in range(60):
        await page.keyboard.press("Tab")
        told = await page.evaluate("[document.activeElement.tagName, document.activeElement.textContent]")
        if told[0].lower() == tag and text in told[1]:
            return
    raise AssertionError(f"Tab never reaches {tag} {text!r}.")


async def test_hostile_texts_are_texts(visit: Visit) -> None:
    """Whatever strangers write, wherever it is shown, nothing of it runs, and it can be read."""
    await sign_in(visit)
    for path in (
        "/",
        f"/challenges/{STRANGE}",
        f"/challenges/{STRANGE}/{account(1)}",
        f"/challenges/{STRANGE}/{account(1_000_000)}",
        f"/challenges/{STRANGE}/games/{account(0)}/{account(1)}",
        f"/?q={PAYLOADS[0]}",
        f"/challenges/{PAYLOADS[0]}",
        f"/operator/reviews/{REVIEWED}",
    ):
        visit.troubles.clear()
        await visit.go(path)
        assert await visit.page.evaluate("window.broken") is None
        assert await visit.page.locator("iframe, base, main style, main script, main img[onerror]").count() == 0
        assert [told for told in visit.troubles if "404" not in told] == []
    await visit.go(f"/challenges/{STRANGE}")
    body = await visit.page.locator("body").inner_text()
    for words in ("<script>window.broken=1</script>", "{{ 7*7 }}", "\\u202e"):
        assert words in body


async def test_it_is_readable_without_scripts(browser: Browser, service: Service) -> None:
    """Without JavaScript the result, the reasons and a game are there; a running page reloads itself."""
    context = await browser.new_context(java_script_enabled=False)
    page = await context.new_page()
    await page.goto(f"{service.url}/challenges/{SMALL}")
    await expect(page.locator(".board tbody tr.paid")).to_have_count(3)
    await page.locator(".matrix td.won a").first.click()
    await expect(page.locator(".verdict")).to_have_count(2)
    await say(service, "comparing", 45)
    await page.goto(f"{service.url}/challenges/{RUNS}")
    assert await page.locator("meta[http-equiv=refresh]").count() == 1
    await context.close()


async def test_the_theme_is_remembered(visit: Visit) -> None:
    """The switch changes the colours at once, and the next page has them from its first paint."""
    await visit.go("/")
    before = await visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
    await visit.page.locator("#theme").click()
    after = await visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
    await visit.go("/docs")
    assert before != after == await visit.page.evaluate("getComputedStyle(document.body).backgroundColor")


async def test_a_missing_page_is_a_page(visit: Visit) -> None:
    """What is not there is told in words, with a way back."""
    await visit.go(f"/challenges/{UNKNOWN}")
    await visit.page.get_by_role("link", name="All challenges").click()
    await expect(visit.page.locator("h1")).to_have_text("Challenges")


def written(folder: Path) -> dict[str, int]:
    """When each file of the folder was written."""
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


async def test_a_judged_folder_is_viewed_without_errors(browser: Browser, tmp_path: Path) -> None:
    """`view` shows the result by names: scripts run without errors, every link works, and nothing is asked but pages."""
    texts = {f"e{n}{PAYLOADS[n]}": f"The answer {n} says w{n * 97:x}, w{n * 13:x}.\n{PAYLOADS[n]}\n" for n in range(4)}
    program = f'def add(a, b):\n    """{PAYLOADS[0]}\n    {PAYLOADS[1]}"""\n    return a + b  # {PAYLOADS[2]}\n'
    texts["program"] = program
    lines = {"name": "words", "type": "integer", "source": "measured", "better": "lower", "min": 0, "max": 5000}
    config = json.dumps({"version": 1, "judge": "rules", "features": [lines], "criteria": "Short."})
    await judge_entries(
        JudgeRequest(entries_of(texts), config.encode(), title="Essays"), Settings.from_env({}), tmp_path
    )
    before = written(tmp_path)
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve_folder(tmp_path, 0, started.set_result))
    url = await asyncio.wait_for(started, 120)
    context = await browser.new_context(viewport={"width": 1400, "height": 900})
    found = Visit(await context.new_page(), url.rstrip("/"))
    watch(found)
    asked: set[tuple[str, str]] = set()
    found.page.on("request", lambda request: asked.add((request.method, request.url.removeprefix(found.url)[:1])))
    seen, waiting, coloured = dict[str, int](), ["/"], set[str]()
    try:
        while waiting:
            path = waiting.pop()
            if re.search(r"/api/|\.(csv|json|txt)$|/download", path):
                seen[path] = (await found.page.request.get(found.url + path)).status
                continue
            answer = await found.page.goto(found.url + path)
            assert answer is not None
            seen[path] = answer.status
            await expect(found.page.locator("main")).to_be_visible()
            if await found.page.locator(".code .c-word").count():
                coloured |= set(await found.page.locator(".code:not(.diff) li").all_text_contents())
            links = await found.page.evaluate(
                "[...document.querySelectorAll('a[href]')].map(a => a.getAttribute('href'))"
            )
            waiting += sorted(
                {link.partition("#")[0] for link in links if link[:1] == "/"} - seen.keys() - set(waiting)
            )
        assert await found.page.evaluate("window.broken") is None
    finally:
        await context.close()
        serving.cancel()
    assert set(seen.values()) == {200}
    assert len(seen) > len(texts)
    assert coloured == set(program.splitlines()), "a program has colours, and its text stays as it is"
    assert found.troubles == []
    assert asked == {("GET", "/")}
    assert written(tmp_path) == before
