"""Claim, post, object and verify from a real browser: a provider of EIP-1193 in front of a local chain, and the real service."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from eth_account import Account
from eth_account.messages import encode_defunct
from playwright.async_api import Page, expect
from tests.support.browser import PATIENCE, chromium, launched
from tests.support.objections import by_node
from tests.support.service import posted_round
from tests.support.service_cases import FAST, free_socket

from clara_eval.actions.evaluate import evaluate
from clara_eval.actions.objections import read_draft
from clara_eval.chain.sender import SendTimeouts
from clara_eval.challenges.challenge_index import save_summary
from clara_eval.challenges.review import read_objections
from clara_eval.challenges.venue import look_at_challenge
from clara_eval.core.address import Address, to_address
from clara_eval.devnet.anvil import AnvilOptions, DevAccount, NodeRefused
from clara_eval.devnet.demo.lifecycle import local_settings
from clara_eval.devnet.demo.round import CONFIG, post_round, submit_round
from clara_eval.devnet.local_chain import DAY, HOUR, USDC, LocalChain, local_chain
from clara_eval.evaluation.trace import Journal
from clara_eval.interfaces.serve import serving
from clara_eval.service.engine import Engine

pytestmark = [pytest.mark.xdist_group("browser")]
PROVIDER = """window.ethereum = {request: async ({method, params}) => {
  const told = JSON.parse(await window.toNode(method, JSON.stringify(params ?? [])));
  if (told.error) throw told.error;
  return told.result;
}};"""


@dataclass
class Wallet:
    """A provider that signs with one account of the local chain, and what its owner does."""

    chain: LocalChain
    account: DevAccount
    chain_id: int = 31337
    can_switch: bool = True
    declines: bool = False
    is_late: bool = False
    """Somebody else's tab sends the claim first, so that this transaction reverts."""
    asked: list[str] = field(default_factory=list)

    async def answer(self, method: str, text: str) -> str:
        self.asked.append(method)
        try:
            return json.dumps({"result": await self._result(method, json.loads(text))})
        except NodeRefused as bad:
            return json.dumps({"error": {"code": -32000, "message": str(bad)}})
        except PermissionError:
            return json.dumps({"error": {"code": 4001, "message": "User rejected the request."}})

    async def _result(self, method: str, params: list[Any]) -> Any:
        match method:
            case "eth_requestAccounts":
                return [self.account.address]
            case "eth_chainId":
                return hex(self.chain_id)
            case "wallet_switchEthereumChain":
                if not self.can_switch:
                    raise PermissionError
                self.chain_id = int(params[0]["chainId"], 16)
                return None
            case "eth_sendTransaction" | "personal_sign" if self.declines:
                raise PermissionError
            case "personal_sign":
                message = encode_defunct(hexstr=params[0])
                return "0x" + Account.sign_message(message, self.account.key).signature.hex().removeprefix("0x")
            case "eth_sendTransaction" if self.is_late:
                call = {**params[0], "gas": hex(500_000)}
                await self.chain.node.rpc(method, call)
                return await self.chain.node.rpc(method, call)
            case _:
                return await self.chain.node.rpc(method, *params)


@dataclass
class Stage:
    chain: LocalChain
    engine: Engine
    url: str
    page: Page
    wallet: Wallet

    async def shown(self, address: Address) -> None:
        """Put the challenge on the list and open its page."""
        app = self.engine.app
        await save_summary(app.store, await look_at_challenge(app.chain, address), None)
        await self.page.goto(f"{self.url}/challenges/{address}")

    async def told(self, button: str, words: str) -> None:
        await self.page.get_by_role("button", name=button).click()
        await expect(self.page.get_by_role("status")).to_contain_text(words)


@pytest_asyncio.fixture(loop_scope="session")
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    chrome = chromium()
    if chrome is None:
        pytest.skip("There is no Chromium here: as root, apt-get install chromium")
    async with local_chain(AnvilOptions(accounts=16, start_at=int(time.time()) - DAY)) as chain:
        changes = {"objection_window": 6 * HOUR, "usdc_address": chain.deployment.token}
        settings = local_settings(chain, tmp_path / "store.db", tmp_path).model_copy(update=changes)
        with free_socket() as listening:
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            pace = SendTimeouts(poll_seconds=0.02)
            async with (
                serving(settings, listening, mode="all", options=FAST, pace=pace) as engine,
                launched(chrome) as browser,
            ):
                page, wallet = await browser.new_page(), Wallet(chain, chain.agents[0])
                page.set_default_timeout(PATIENCE)
                await page.expose_function("toNode", wallet.answer)
                await page.add_init_script(PROVIDER)
                yield Stage(chain, engine, url, page, wallet)


async def test_claim_post_object_and_verify_from_the_browser(stage: Stage, tmp_path: Path) -> None:
    """A winner claims, a poster posts and a submitter objects with their own wallet, and anybody checks the trace by its
    address, a CID or a URL against a node of their choice; what goes wrong is said in words.
    """
    await claims(stage)
    await posts(stage)
    await objects(stage)
    await verifies(stage, tmp_path)


async def claims(stage: Stage) -> None:
    chain, wallet = stage.chain, stage.wallet
    address = await posted_round(chain)
    await chain.move_time(12 * HOUR + 1)
    before = await chain.balance(wallet.account.address)
    await stage.shown(address)
    button = "Claim with my wallet"
    wallet.chain_id, wallet.can_switch = 1, False
    await stage.told(button, "Your wallet is on chain 1; this is on local (chain 31337)")
    wallet.can_switch = True
    winner, wallet.account = wallet.account, chain.agents[5]
    await stage.told(button, "has no prize in")
    wallet.account, wallet.declines = winner, True
    await stage.told(button, "You declined in the wallet")
    assert await chain.balance(winner.address) == before
    wallet.declines = False
    await stage.told(button, "Claimed. 300 USDC")
    assert (await chain.balance(winner.address) - before, wallet.chain_id) == (300 * USDC, 31337)
    again = "htmx.ajax('GET', location.pathname, {target: '#page', select: '#page', swap: 'outerHTML'})"
    await stage.page.evaluate(again)  # as the page does when its round ends: what was told stays, the button works
    await expect(stage.page.get_by_role("status")).to_contain_text("Claimed. 300 USDC")
    await stage.told(button, "has already been paid")
    wallet.account, wallet.is_late = chain.agents[1], True
    await stage.told(button, "reverted: it changed nothing")
    wallet.is_late = False
    await stage.page.evaluate("window.ethereum = undefined")
    await stage.told(button, "No wallet answers in this browser")


async def posts(stage: Stage) -> None:
    chain, wallet, page = stage.chain, stage.wallet, stage.page
    wallet.account = chain.agents[8]
    await chain.send(wallet.account, chain.token, "mint", wallet.account.address, 1000 * USDC)
    await page.goto(f"{stage.url}/post")
    for name, value in {"title": "From a browser", "problem_statement": "Sort it.", "prize": "100 USDC"}.items():
        await page.fill(f"#{name}", value)
    await page.fill("#eval_config", "{}")
    await stage.told("Show the plan", "version")
    await page.fill("#eval_config", json.dumps(CONFIG))
    await stage.told("Show the plan", "Will sign: Create the challenge and escrow 105 USDC")
    assert "eth_sendTransaction" not in wallet.asked[-3:]
    await page.fill("#prize", "200 USDC")  # what was changed is shown again before it is signed
    await stage.told("Sign in the wallet", "Will sign: Create the challenge and escrow 210 USDC")
    await stage.told("Sign in the wallet", "Posted.")
    made = str(await page.get_by_role("link", name="Its page").get_attribute("href")).removeprefix("/challenges/")
    contract = chain.challenge(to_address(made))
    assert await contract.read("prizePool") == 200 * USDC
    assert await chain.balance(wallet.account.address) == 790 * USDC


async def objects(stage: Stage) -> None:
    chain, wallet, page, app = stage.chain, stage.wallet, stage.page, stage.engine.app
    address = await post_round(chain)
    await submit_round(chain, address)
    await chain.move_to(int(time.time()) + 60)
    assert (await evaluate(app, address)).draft is not None
    draft = await read_draft(app.store, app.chain_id, address)
    wallet.account = next(one for one in chain.agents if one.address.lower() == draft.places[-1].address)
    await stage.shown(address)
    await page.fill("#about", "nonsense")
    await page.fill("#reason", "It is mine.")
    await stage.told("Object with my wallet", "An objection is about")
    await page.fill("#about", "rejected")
    submitter, wallet.account = wallet.account, chain.evaluator
    await stage.told("Object with my wallet", "not signed by an address that submitted")
    wallet.account = submitter
    await stage.told("Object with my wallet", "Objection received")
    kept = await read_objections(Journal(app.store, f"{app.chain_id}:{address}"), draft.digest)
    assert [(one.submitter, one.about, one.reason) for one in kept] == [
        (submitter.address.lower(), "rejected", "It is mine.")
    ]


async def verifies(stage: Stage, place: Path) -> None:
    chain, page, app = stage.chain, stage.page, stage.engine.app
    address = await post_round(chain)
    await submit_round(chain, address)
    await chain.move_time(HOUR + 1)
    await evaluate(app, address)
    await chain.move_time(6 * HOUR + 1)
    assert (await evaluate(app, address)).receipt is not None
    await page.goto(f"{stage.url}/challenges/{address}/verify")
    text = await (await page.request.get(f"{stage.url}/api/v1/challenges/{address}/eval-trace")).text()
    assert "All checks passed." in await checked(page)
    cid, forgery = "Qm" + "a" * 44, "https://traces.example/forged.json"
    forged = text.replace("rate limiter", "rate limited", 1)
    allowed = {"access-control-allow-origin": "*"}
    await page.context.route("https://ipfs.io/**", lambda route: route.fulfill(body=text, headers=allowed))
    await page.context.route(forgery, lambda route: route.fulfill(body=forged, headers=allowed))
    for source in (str(address), cid, f"ipfs://{cid}"):
        words = await checked(page, source, chain.rpc_url)
        assert ("All checks passed." in words, "with the chain" in words) == (True, True), (source, words)
    assert "This trace does not hold." in await checked(page, forgery, chain.rpc_url)
    assert await by_node(place, forged.splitlines(keepends=True)) == 1
    words = await checked(page, str(address), "http://127.0.0.1:9/")
    assert ("127.0.0.1:9 does not answer" in words, "does not hold" in words) == (True, False)


async def checked(page: Page, source: str = "", node: str = "") -> str:
    """What the verifier says; without a source about the trace of the page's address."""
    if source:
        await page.fill("#trace", source)
        await page.fill("#node", node)
        await page.evaluate("document.getElementById('verify-result').replaceChildren()")
        await page.get_by_role("button", name="Check").click()
    await page.locator("#verify-result .verdict-line").wait_for()
    return await page.locator("#verify-result").inner_text()
