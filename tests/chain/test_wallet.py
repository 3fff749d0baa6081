"""The key: kept, used under the policy, never shown."""

from __future__ import annotations

import copy
import json
import pickle
import stat
import traceback
from dataclasses import replace
from pathlib import Path

import pytest
from eth_account import Account
from pydantic import SecretStr

from clara_eval.chain.model import scoring_function
from clara_eval.chain.transaction import (
    MAX_FEE_PER_GAS,
    MAX_GAS,
    StoredTransaction,
    TransactionToSign,
    evaluator_policy,
    read_signed,
)
from clara_eval.chain.wallet import Wallet, new_keystore, open_wallet, read_keystore
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address, to_address
from clara_eval.core.errors import CannotPublish, ConfigError
from clara_eval.core.hashing import keccak_hex

ADVANCE_TO_SCORING, FINALIZE = (scoring_function(name).call() for name in ("advanceToScoring", "finalize"))
POST_SCORES = scoring_function("postScores").selector
KEY = "0x" + "1b" * 32
CHALLENGE = Address("0x" + "c1" * 20)
GOOD = TransactionToSign(
    chain_id=8453,
    nonce=7,
    to=CHALLENGE,
    data=FINALIZE,
    value=0,
    gas=100_000,
    max_fee_per_gas=10**9,
    max_priority_fee_per_gas=10**6,
)


OWN = to_address(Account.from_key(KEY).address)


def wallet() -> Wallet:
    return Wallet(SecretStr(KEY), replace(evaluator_policy(8453), targets={CHALLENGE}))


@pytest.mark.parametrize("data", [FINALIZE, ADVANCE_TO_SCORING, POST_SCORES + b"\x01" * 64])
async def test_it_signs_what_was_given(data: bytes) -> None:
    """The signed bytes say exactly what was asked, and recover to the wallet's address and hash."""
    tx = replace(GOOD, data=data)
    signed = await wallet().sign(tx)
    assert read_signed(signed) == tx
    assert to_address(Account.recover_transaction(signed)) == wallet().address


async def test_it_fills_a_missing_nonce() -> None:
    """An empty call of zero to the wallet's own address is signed, and counts towards the day's cap."""
    tx = replace(GOOD, to=OWN, data=b"")
    assert read_signed(await wallet().sign(tx)) == tx
    poor = Wallet(SecretStr(KEY), replace(evaluator_policy(8453), max_wei_per_day=1))
    with pytest.raises(CannotPublish, match="in a day"):
        await poor.sign(tx)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (replace(GOOD, value=1), "moves 1 wei"),
        (replace(GOOD, chain_id=1), "for chain 1, not 8453"),
        (replace(GOOD, to=Address("0x" + "99" * 20)), "not a known challenge"),
        (replace(GOOD, data=bytes.fromhex("a9059cbb") + bytes(64)), "0xa9059cbb is not postScores"),
        (replace(GOOD, data=b""), "is not postScores"),
        (replace(GOOD, data=FINALIZE + b"\0"), "is not postScores"),
        (replace(GOOD, to=OWN, data=b"", value=1), "moves 1 wei"),
        (replace(GOOD, to=OWN, data=b"\0"), "not a known challenge"),
        (replace(GOOD, to=OWN, data=b"", gas=MAX_GAS + 1), "gas limit"),
        (replace(GOOD, max_fee_per_gas=MAX_FEE_PER_GAS + 1), "above the cap"),
        (replace(GOOD, max_priority_fee_per_gas=MAX_FEE_PER_GAS + 1), "above the cap"),
        (replace(GOOD, gas=MAX_GAS + 1), "gas limit"),
    ],
)
async def test_it_signs_nothing_else(bad: TransactionToSign, reason: str) -> None:
    """Each rule of the policy refuses by itself."""
    with pytest.raises(CannotPublish, match=reason):
        await wallet().sign(bad)


async def test_a_day_has_its_cap() -> None:
    """Gas that is recorded as signed counts for a day; raising the same nonce counts once."""
    moment = 0.0
    each = GOOD.gas * GOOD.max_fee_per_gas
    policy = replace(evaluator_policy(8453), targets={CHALLENGE}, max_wei_per_day=3 * each, now=lambda: moment)
    recorded: list[StoredTransaction] = []

    async def sign(tx: TransactionToSign) -> None:
        """As after a restart: only what is recorded is known."""
        mine = Wallet(SecretStr(KEY), policy)
        signed = await mine.sign(tx, recorded)
        fees = (tx.max_fee_per_gas, tx.max_priority_fee_per_gas)
        row = (mine.address, tx.nonce, keccak_hex(bytes.fromhex(signed[2:])), signed, *fees, int(moment))
        recorded.append(StoredTransaction("8453:x", "finalize", len(recorded), *row))

    for nonce in (1, 1, 2, 3, 3):
        await sign(replace(GOOD, nonce=nonce))
    with pytest.raises(CannotPublish, match="in a day"):
        await sign(replace(GOOD, nonce=4))
    with pytest.raises(CannotPublish, match="in a day"):
        await sign(replace(GOOD, nonce=3, max_fee_per_gas=GOOD.max_fee_per_gas + 1))
    moment = 24 * 3600 + 1
    await sign(replace(GOOD, nonce=4))


def test_the_key_is_never_shown() -> None:
    """No repr, text, copy or pickle of a wallet holds the key."""
    mine = wallet()
    assert KEY[2:] not in repr(mine) + str(mine) + f"{mine}"
    for write in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="never written"):
            write(mine)


@pytest.mark.parametrize("key", ["0x1234", "x" * 64, "0x" + "00" * 32, "0x" + "ff" * 32, "1b" * 31 + "1g"])
def test_a_bad_key_is_refused_without_being_quoted(key: str) -> None:
    """The error names the setting, and not even its traceback quotes the value."""
    with pytest.raises(ConfigError, match="CLARA_EVALUATOR_KEY is not a private key") as caught:
        Wallet(SecretStr(key), evaluator_policy(1))
    shown = "".join(traceback.format_exception(caught.value))
    assert key not in shown
    assert key.removeprefix("0x") not in str(caught.value)


def test_a_keystore_makes_the_round_trip(tmp_path: Path) -> None:
    """What `keys new` wrote opens with its password, is for its owner alone, and holds no plain key."""
    path = tmp_path / "keys" / "evaluator.json"
    address = new_keystore(path, SecretStr("correct horse"), work=1024)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    settings = Settings.model_validate(
        {"CLARA_EVALUATOR_KEYSTORE": str(path), "CLARA_EVALUATOR_PASSWORD": "correct horse"}
    )
    opened = open_wallet(settings, evaluator_policy(1))
    assert opened is not None
    assert opened.address == address
    key = read_keystore(path, SecretStr("correct horse"))
    assert key.get_secret_value()[2:] not in path.read_text()
    wrong = SecretStr("battery staple")
    with pytest.raises(ConfigError, match="password is wrong") as caught:
        read_keystore(path, wrong)
    assert "battery" not in str(caught.value)
    before = path.read_text()
    with pytest.raises(ConfigError, match="not overwritten"):
        new_keystore(path, SecretStr("other"), work=1024)
    assert path.read_text() == before


def test_what_is_no_keystore_is_named(tmp_path: Path) -> None:
    """Missing, garbled and foreign files, and a missing password, each have their sentence."""
    path = tmp_path / "k.json"
    with pytest.raises(ConfigError, match="cannot be read"):
        read_keystore(path, SecretStr("x"))
    for content in ("not json", json.dumps([1]), json.dumps({"crypto": 1}), json.dumps({"version": 9})):
        path.write_text(content)
        path.chmod(0o600)
        with pytest.raises(ConfigError, match="not a keystore file"):
            read_keystore(path, SecretStr("x"))
    with pytest.raises(ConfigError, match="CLARA_EVALUATOR_PASSWORD"):
        read_keystore(path, None)
    with pytest.raises(ConfigError, match="password is empty"):
        new_keystore(tmp_path / "n.json", SecretStr(""))


def test_no_key_is_no_wallet() -> None:
    """Without a key there is nothing to sign with; a key for another address than the one set is refused."""
    assert open_wallet(Settings.model_validate({}), evaluator_policy(1)) is None
    wrong = Settings.model_validate({"CLARA_EVALUATOR_KEY": KEY, "CLARA_EVALUATOR_ADDRESS": "0x" + "11" * 20})
    with pytest.raises(ConfigError, match="the key belongs to") as caught:
        open_wallet(wrong, evaluator_policy(1))
    assert KEY[2:] not in str(caught.value)
