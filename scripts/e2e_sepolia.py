"""Run the whole lifecycle on Base Sepolia, from escrow to claimed prize and verified trace.

Input: `CLARA_RPC_URL` and `CLARA_E2E_KEY` (or `CLARA_E2E_KEY_FILE`), a key with some test ETH.
Output: one line per step.
Invariant: every step is done once; progress is in the state folder and on chain. Run it again after a kill, or when the
deadline or the twelve hours are over; `--wait` waits for them. Evaluator and agents use keys derived from the given.

    CLARA_RPC_URL=https://… CLARA_E2E_KEY_FILE=key make e2e-sepolia
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eth_account import Account
from pydantic import SecretStr

from clara_eval.actions.amounts import show_moment
from clara_eval.actions.challenges import FINALIZATION_SECONDS, addresses, challenges_at
from clara_eval.actions.claim import claim, finalize
from clara_eval.actions.evaluate import EvaluationRequest, evaluate
from clara_eval.actions.perform import Action, perform
from clara_eval.actions.post import Posting, post
from clara_eval.actions.submit import SubmissionInput, submit
from clara_eval.actions.verify import Checked, verify_any
from clara_eval.app import App, Caller, open_app, open_caller
from clara_eval.chain.rpc import Meaning, NodeRefusal
from clara_eval.challenges.evaluate import Evaluation
from clara_eval.config.settings import Settings, listed
from clara_eval.core.address import Address, to_address
from clara_eval.core.errors import (
    CannotAct,
    ClaraError,
    ConfigError,
    NotYet,
    Temporary,
)
from clara_eval.core.hashing import keccak_hex, plain_json
from clara_eval.devnet.demo.round import CONFIG, entry
from clara_eval.documents.actions import ActResult
from clara_eval.store.leases import Busy

NETWORK = "base-sepolia"
ENTRIES = ("deque_window", "token_bucket", "nested_flags")
LEAST_ENTRIES = 2
"""The contract cancels a challenge with fewer entries."""
PRIZE_UNITS = 1_050_000
"""One test dollar and the poster's bond of 5 %."""
LEAST_WEI, GAS_UNITS = 10**15, 20_000_000
"""The funds of each derived account: a minimum, and gas at the current price."""
OWN_GAS_UNITS = 3_000_000
"""Gas that the given key uses itself, with a margin."""
LEAST_OPEN_SECONDS = 300
"""With less the entries might miss the deadline."""
NEWEST = 200
"""Number of recent challenges among which that of a killed run is searched."""
LEASE_LOOKS, LEASE_PAUSE_SECONDS = 30, 2.0
"""Longer than the lease of a killed evaluation (30 s)."""
_TRANSFER_GAS = 100_000
_WAITING = {Meaning.ALREADY_KNOWN, Meaning.NONCE_TOO_LOW, Meaning.REPLACEMENT_UNDERPRICED}


class Waiting(Exception):
    """Nothing can be done before this time."""

    def __init__(self, why: str, until: int) -> None:
        super().__init__(why)
        self.until = until


class State:
    """The finished steps, in a file that is replaced atomically."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "state.json"
        self._facts: dict[str, Any] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if self._path.exists():
                self._facts = dict(json.loads(self._path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as bad:
            raise ConfigError(
                f"The state in {folder} cannot be used: {type(bad).__name__}.", remedy="Give another --state folder."
            ) from None

    def get(self, name: str) -> Any:
        return self._facts.get(name)

    def keep(self, name: str, value: Any) -> Any:
        """Save the value, print it, and return it."""
        self._facts[name] = value
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(self._facts, indent=1))
        new.replace(self._path)
        print(f"{name:<12} {value if isinstance(value, str | int) else plain_json(value)}", flush=True)
        return value


class Lifecycle:
    """The steps in order; each checks first whether it is done."""

    def __init__(self, base: Settings, key: str, state: State, open_seconds: int) -> None:
        self._base, self._key, self._state, self._open_seconds = base, key, state, open_seconds
        self._evaluator = self._derived("evaluator")
        self._agents = [self._derived(f"agent {name}") for name in ENTRIES]

    def _derived(self, role: str) -> str:
        return keccak_hex(bytes.fromhex(self._key.removeprefix("0x")) + f"clara-eval e2e {role}".encode())

    def _settings(self, wallet: str | None = None, **changes: Any) -> Settings:
        key = SecretStr(wallet) if wallet else None
        evaluator = _address(self._evaluator)
        return self._base.model_copy(update={"wallet_key": key, "evaluator_address": evaluator, **changes})

    async def run(self) -> None:
        await self._fund()
        challenge = await self._post()
        await self._submit(challenge)
        await self._evaluate(challenge)
        await self._finalize(challenge)
        await self._claim(challenge)
        await self._verify(challenge)

    async def _fund(self) -> None:
        """Send gas to the derived accounts, and mint test dollars for the poster if the token allows it."""
        me, funded = _address(self._key), self._state.get("funded")
        if funded not in {None, me}:
            raise ConfigError(
                f"The state folder belongs to a run of {funded}, not of {me}.",
                remedy="Give that key, or another --state folder.",
            )
        if funded:
            return
        async with open_caller(self._settings(self._key)) as caller:
            price = int(await caller.chain.blocks.rpc.ask("eth_gasPrice"), 16)
            need = max(LEAST_WEI, GAS_UNITS * price)
            everyone = [_address(one) for one in (self._evaluator, *self._agents)]
            poor = [one for one in everyone if await caller.chain.blocks.balance(one) < need // 2]
            has, wanted = await caller.chain.blocks.balance(me), need * len(poor) + 2 * OWN_GAS_UNITS * price
            if has < wanted:
                raise ConfigError(
                    f"{me}, the address of CLARA_E2E_KEY, has {has / 1e18:.6f} ETH on {NETWORK}; the run needs "
                    f"{wanted / 1e18:.6f} ETH.",
                    remedy="Send it test ETH, from a faucet for example, and run this again.",
                )
            for one in poor:
                await self._transfer(caller, one, b"", need)
            token = to_address(caller.settings.network.usdc or "")
            if await _units(caller, token, me) < PRIZE_UNITS:
                mint = bytes.fromhex("40c10f19") + bytes(12) + bytes.fromhex(me[2:]) + (10**8).to_bytes(32, "big")
                try:
                    await self._transfer(caller, token, mint, 0)
                except ClaraError as bad:
                    raise ConfigError(
                        f"{me} holds less than {PRIZE_UNITS} units of {token}, which does not mint: {bad}",
                        remedy="Send it 1.05 test USDC.",
                    ) from None
        self._state.keep("funded", me)

    async def _transfer(self, caller: Caller, to: Address, data: bytes, wei: int) -> None:
        """Send ether from the given key: the wallets of the product never send ether."""
        me, rpc = _address(self._key), caller.chain.blocks.rpc
        await rpc.ask("eth_call", {"from": me, "to": to, "data": "0x" + data.hex(), "value": hex(wei)}, "latest")
        price = int(await rpc.ask("eth_gasPrice"), 16)
        fields = {
            "type": 2,
            "chainId": caller.chain_id,
            "nonce": int(await rpc.ask("eth_getTransactionCount", me, "latest"), 16),
            "to": bytes.fromhex(to[2:]),
            "data": data,
            "value": wei,
            "gas": _TRANSFER_GAS,
            "maxFeePerGas": 2 * price,
            "maxPriorityFeePerGas": min(price, 10**7),
        }
        signed = Account.sign_transaction(fields, self._key)
        try:
            sent = await rpc.ask("eth_sendRawTransaction", "0x" + signed.raw_transaction.hex())
        except NodeRefusal as refused:
            if refused.meaning not in _WAITING:
                raise
            raise Temporary(f"An earlier transaction of {me} waits to be mined.", remedy="Run this again.") from None
        for _ in range(120):
            receipt = await rpc.ask_maybe("eth_getTransactionReceipt", sent)
            if receipt is not None:
                if receipt["status"] != "0x1":
                    raise CannotAct(f"The transaction {sent} was reverted.")
                return
            await caller.pace.sleep(caller.pace.poll_seconds)
        raise Temporary(f"The transaction {sent} is not mined yet.", remedy="Run this again.")

    async def _act(self, key: str, action: Action) -> ActResult:
        async with open_caller(self._settings(key)) as caller:
            return await perform(caller, action, confirmed="yes")

    async def _now(self) -> int:
        async with open_caller(self._settings()) as caller:
            return (await caller.chain.blocks.head()).timestamp

    async def _post(self) -> Address:
        """Post the challenge; its deadline is saved first, so that a run after a kill repeats it."""
        if self._state.get("challenge"):
            return Address(self._state.get("challenge"))
        deadline, now = self._state.get("deadline"), await self._now()
        if deadline and (found := await self._posted(deadline)):
            return Address(self._state.keep("challenge", found))
        if not deadline or deadline < now + self._open_seconds // 2:  # saved by a run that was killed long ago
            deadline = self._state.keep("deadline", now + self._open_seconds)
        posting = Posting(
            title=f"Clara Eval end to end {deadline}",
            problem_statement="A sliding-window rate limiter, posted by the end-to-end run.",
            prize="1",
            deadline=str(deadline),
            eval_config=plain_json(CONFIG),
            payout=(10_000,),
            allow_duplicate=True,  # a challenge of an earlier run may be open; that of this run was searched
        )
        done = await self._act(self._key, post(posting))
        return Address(self._state.keep("challenge", done.challenge))

    async def _posted(self, deadline: int) -> Address | None:
        """Find the challenge that a killed run posted, by its poster and deadline."""
        async with open_caller(self._settings(self._key)) as caller:
            newest = (await addresses(caller))[-NEWEST:]
            posters = await caller.chain.challenges.posters_of(newest)
            own = [one for one, poster in zip(newest, posters, strict=True) if poster == _address(self._key)]
            return next((one.address for one in await challenges_at(caller, own) if one.deadline == deadline), None)

    async def _entries(self, challenge: Address) -> set[str]:
        """Return the names of the entries that the contract has."""
        async with open_caller(self._settings()) as caller:
            contract, head = caller.chain.challenges.contract(challenge), await caller.chain.blocks.head()
            handed = [await contract.submission_of(head, _address(key)) for key in self._agents]
        return {name for name, entered in zip(ENTRIES, handed, strict=True) if entered is not None}

    async def _submit(self, challenge: Address) -> None:
        missing = [name for name in ENTRIES if not self._state.get(f"entry {name}")]
        entered = await self._entries(challenge) if missing else set()
        is_closed = bool(missing) and await self._now() >= self._state.get("deadline")
        if is_closed and len(entered) < LEAST_ENTRIES:
            raise CannotAct(
                f"The challenge {challenge} closed with {len(entered)} of {len(ENTRIES)} entries: it cannot be scored.",
                remedy="Start a new run with another --state folder.",
            )
        for name, key in zip(ENTRIES, self._agents, strict=True):
            if name not in missing or is_closed:
                continue
            if name in entered:
                self._state.keep(f"entry {name}", "on chain")
                continue
            submission = SubmissionInput(challenge=challenge, content=entry(name), register=True)
            done = await self._act(key, submit(submission))
            self._state.keep(f"entry {name}", done.sent[-1].hash)

    async def _evaluate(self, challenge: Address) -> None:
        if self._state.get("posted"):
            return
        if await self._now() <= self._state.get("deadline"):
            raise Waiting("The challenge is open.", self._state.get("deadline") + 1)
        settings = self._settings(evaluator_key=SecretStr(self._evaluator))
        async with open_app(settings) as app:
            try:
                done = await self._evaluate_alone(app, challenge)
            except NotYet as soon:
                raise Waiting(str(soon), int(time.time()) + 60) from None
        if done.receipt is None or done.receipt.tx_hash is None:
            raise CannotAct(f"Nothing was posted: {done.review.reasons if done.review else done.receipt}")
        self._state.keep("digest", done.digest)
        self._state.keep("posted_at", await self._now())
        self._state.keep("posted", done.receipt.tx_hash)

    async def _evaluate_alone(self, app: App, challenge: Address) -> Evaluation:
        """Evaluate once the lease of a run that was killed has expired."""
        for _ in range(LEASE_LOOKS):
            try:
                return await evaluate(app, challenge, EvaluationRequest(is_named=True))
            except Busy:
                await asyncio.sleep(LEASE_PAUSE_SECONDS)
        return await evaluate(app, challenge, EvaluationRequest(is_named=True))

    async def _finalize(self, challenge: Address) -> None:
        if self._state.get("finalized"):
            return
        try:
            done = await self._act(self._key, finalize(challenge))
            self._state.keep("finalized", done.sent[-1].hash)
        except NotYet as soon:
            raise Waiting(str(soon), self._state.get("posted_at") + FINALIZATION_SECONDS) from None
        except CannotAct as done_by_others:
            if "finalized already" not in str(done_by_others):
                raise
            self._state.keep("finalized", "by somebody else")

    async def _claim(self, challenge: Address) -> None:
        if self._state.get("claimed"):
            return
        for name, key in zip(ENTRIES, self._agents, strict=True):
            try:
                done = await self._act(key, claim(challenge))
            except CannotAct as lost:
                if "has already been paid" in str(lost):  # by a run that was killed before it saved this
                    self._state.keep("claimed", {"winner": name, "hash": None})
                elif "has no prize" not in str(lost):
                    raise
                continue
            self._state.keep("claimed", {"winner": name, "hash": done.sent[-1].hash})

    async def _verify(self, challenge: Address) -> None:
        """Verify as a third party: only from the trace and the node."""
        checked = await verify_any(challenge, self._settings(), rpc=listed(self._base.rpc_url)[0])
        if not isinstance(checked, Checked) or checked.digest != self._state.get("digest") or checked.posted is None:
            raise CannotAct(f"The trace {checked.digest} is not the one that was posted.")
        self._state.keep("verified", checked.digest)


async def _units(caller: Caller, token: Address, owner: Address) -> int:
    data = "0x70a08231" + "00" * 12 + owner[2:]
    held = await caller.chain.blocks.rpc.ask("eth_call", {"to": token, "data": data}, "latest")
    if held in {None, "0x"}:
        raise CannotAct(f"No token is at {token}.", remedy=f"Check that CLARA_RPC_URL is a node of {NETWORK}.")
    return int(held, 16)


def _address(key: str) -> Address:
    return to_address(Account.from_key(key).address)


def _key() -> str:
    given, file = os.environ.get("CLARA_E2E_KEY"), os.environ.get("CLARA_E2E_KEY_FILE")
    if not given and not file:
        raise ConfigError("CLARA_E2E_KEY is not set.", remedy="Set it, or CLARA_E2E_KEY_FILE: a key with test ETH.")
    if given and file:
        raise ConfigError("CLARA_E2E_KEY and CLARA_E2E_KEY_FILE are both set.", remedy="Unset one of them.")
    try:
        key = (given or Path(file or "").read_text(encoding="utf-8")).strip()
    except (OSError, UnicodeDecodeError) as bad:
        raise ConfigError(
            f"CLARA_E2E_KEY_FILE={file!r} cannot be read: {type(bad).__name__}.", remedy="Write the key into it."
        ) from None
    try:
        Account.from_key(key)
    except Exception:  # noqa: BLE001 - any message of the library may contain the key
        raise ConfigError("CLARA_E2E_KEY is not a private key.", remedy="It is 0x and 64 hex digits.") from None
    return key


async def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--state", type=Path, default=Path("var/e2e-sepolia"), help="folder that remembers the run")
    parser.add_argument("--open-seconds", type=int, default=900, help="how long the challenge takes submissions")
    parser.add_argument("--wait", action="store_true", help="stay until the end instead of being run again")
    chosen = parser.parse_args(words)
    if chosen.open_seconds < LEAST_OPEN_SECONDS:
        parser.error(f"--open-seconds {chosen.open_seconds} is less than {LEAST_OPEN_SECONDS}")
    environ = {"CLARA_NETWORK": NETWORK, "CLARA_RPC_URL": os.environ.get("CLARA_RPC_URL", "")}
    if not environ["CLARA_RPC_URL"]:
        raise ConfigError("CLARA_RPC_URL is not set.", remedy="Set it to a node of Base Sepolia.")
    state = State(chosen.state)
    environ["CLARA_DATABASE_URL"] = f"sqlite:///{chosen.state.resolve()}/store.db"
    life = Lifecycle(Settings.from_env(environ), _key(), state, chosen.open_seconds)
    while True:
        try:
            await life.run()
        except Waiting as waiting:
            print(f"waiting      {waiting} It goes on at {show_moment(waiting.until)}.", flush=True)
            if not chosen.wait:
                print("run again    the same command goes on from here", flush=True)
                return 0
            await asyncio.sleep(max(15.0, waiting.until - time.time()))
        else:
            print("done         the whole lifecycle, on the network's own contracts", flush=True)
            return 0


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main(sys.argv[1:])))
    except ClaraError as bad:
        print(f"e2e-sepolia: {bad}", file=sys.stderr)
        sys.exit(2 if isinstance(bad, ConfigError) else 1)
