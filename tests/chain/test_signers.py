"""Keys that are kept elsewhere: what they sign is checked, what they cannot do is told, nothing of them is shown."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from eth_account import Account
from eth_account.typed_transactions.typed_transaction import TypedTransaction
from hexbytes import HexBytes
from pydantic import SecretStr
from tests.support.signers import Lie, LocalKms, LocalSigner, LocalWeb3Signer

from clara_eval.chain.model import scoring_function
from clara_eval.chain.transaction import TransactionToSign, evaluator_policy, read_signed
from clara_eval.chain.wallet import KmsSigner, LocalKey, RemoteSigner, Signer, Wallet, open_wallet, read_der
from clara_eval.config.settings import Settings
from clara_eval.core.address import CURVE_ORDER, Address, to_address
from clara_eval.core.errors import CannotPublish, ConfigError, Temporary

KEY = "0x" + "1b" * 32
ADDRESS = to_address(Account.from_key(KEY).address)
CHALLENGE = Address("0x" + "c1" * 20)
GOOD = TransactionToSign(
    chain_id=84532,
    nonce=7,
    to=CHALLENGE,
    data=scoring_function("finalize").call(),
    value=0,
    gas=100_000,
    max_fee_per_gas=10**9,
    max_priority_fee_per_gas=10**6,
)


@pytest.fixture(params=["web3signer", "kms"])
async def elsewhere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LocalSigner]:
    for name, value in {"REGION": "eu-west-1", "ACCESS_KEY_ID": "id", "SECRET_ACCESS_KEY": "s"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    async with (LocalWeb3Signer if request.param == "web3signer" else LocalKms)(KEY) as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL_KMS", running.url)
        yield running


def url_of(running: LocalSigner) -> str:
    return "aws-kms:alias/clara" if isinstance(running, LocalKms) else running.url


def signer_of(running: LocalSigner, address: Address = ADDRESS) -> Signer:
    kms = isinstance(running, LocalKms)
    return KmsSigner("alias/clara", address) if kms else RemoteSigner(running.url, address)


async def test_both_sign_as_the_key_itself_would(elsewhere: LocalSigner) -> None:
    """For many transactions: the same content, from the same address, under the hash that a node computes."""
    signer = signer_of(elsewhere)
    await signer.check()
    for nonce in range(12):
        tx = replace(GOOD, nonce=nonce)
        signed = await signer.sign(tx)
        assert read_signed(signed) == tx
        assert to_address(Account.recover_transaction(signed)) == ADDRESS
        if not isinstance(elsewhere, LocalKms):  # which chooses its own random number each time
            assert signed == await LocalKey(SecretStr(KEY), "CLARA_EVALUATOR_KEY").sign(tx)


@pytest.mark.parametrize(
    ("lie", "error"),
    [
        ("other data", ConfigError),
        ("other key", ConfigError),
        ("garbage", Temporary),
        ("broken", Temporary),
        ("busy", Temporary),
        ("empty", Temporary),
        ("endless", Temporary),
        ("nested", Temporary),
    ],
)
async def test_a_lying_signer_signs_nothing(elsewhere: LocalSigner, lie: Lie, error: type[Exception]) -> None:
    """A signature over other bytes or of another key calls a person; nonsense and outages are waited for."""
    signer = signer_of(elsewhere)
    await signer.sign(GOOD)
    elsewhere.lie = lie
    with pytest.raises(error):
        await signer.sign(GOOD)
    elsewhere.lie = ""
    assert read_signed(await signer.sign(GOOD)) == GOOD


async def test_a_refusal_is_told(elsewhere: LocalSigner) -> None:
    """Whoever runs the signer said no: a person has to look, and the challenge is not given up."""
    elsewhere.lie = "refused"
    with pytest.raises(ConfigError, match=r"refuses to sign|cannot be used"):
        await signer_of(elsewhere).sign(GOOD)


async def test_the_other_form_of_a_signature_is_put_right(elsewhere: LocalSigner) -> None:
    """The chain takes only the low s: a signer that gives the high one signs all the same, from the same address."""
    elsewhere.lie = "high s"
    raw = await signer_of(elsewhere).sign(GOOD)
    assert read_signed(raw) == GOOD
    assert to_address(Account.recover_transaction(raw)) == ADDRESS
    s = TypedTransaction.from_bytes(HexBytes(raw)).as_dict()["s"]
    assert s <= CURVE_ORDER // 2


async def test_a_redirect_of_a_signer_is_refused() -> None:
    """A redirect could lead what is to be signed to anybody: it is refused, and nobody is asked there."""
    async with LocalWeb3Signer(KEY) as running:
        running.lie = "elsewhere"
        with pytest.raises(ConfigError, match=r"redirects \(HTTP 307\).*CLARA_SIGNER_URL"):
            await RemoteSigner(running.url, ADDRESS).sign(GOOD)
        assert running.asked == ["/api/v1/eth1/publicKeys"]


async def test_a_signer_that_hangs_is_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for within a bound, and then asked again later."""
    monkeypatch.setattr("clara_eval.chain.wallet._TIMEOUT", aiohttp.ClientTimeout(total=0.3))
    async with LocalWeb3Signer(KEY) as running:
        running.lie = "hanging"
        with pytest.raises(Temporary, match=r"does not answer \(TimeoutError\)"):
            await RemoteSigner(running.url, ADDRESS).sign(GOOD)


@pytest.mark.parametrize("lie", ["nested", "endless", "broken"])
async def test_the_check_before_going_live_takes_no_nonsense(elsewhere: LocalSigner, lie: Lie) -> None:
    """A list of keys without end, or nested without end, is an outage in a sentence."""
    elsewhere.lie = lie
    with pytest.raises(Temporary, match=r"does not answer|gave no list|answers HTTP|gave an answer without PublicKey"):
        await signer_of(elsewhere).check()


@pytest.mark.parametrize("elsewhere", ["kms"], indirect=True)
async def test_another_kind_of_key_is_named(elsewhere: LocalSigner) -> None:
    """A key of another curve has a public key of the same length: it is told apart by its kind."""
    elsewhere.lie = "kind of key"
    with pytest.raises(ConfigError, match=r"of the kind ECC_NIST_P256, and the chain knows only ECC_SECG_P256K1"):
        await signer_of(elsewhere).check()


@pytest.mark.parametrize("der", ["", "30", "3000", "300102", "3003020002", "300602010102", "300602010102017f00"])
def test_what_is_no_der_signature_is_refused(der: str) -> None:
    """Every shortened or lengthened form is nonsense, never an error of ours."""
    assert read_der(bytes.fromhex(der)) is None


async def test_a_key_that_is_not_there_is_told(elsewhere: LocalSigner) -> None:
    """The check before going live finds a signer without our key."""
    with pytest.raises(ConfigError, match="CLARA_EVALUATOR_ADDRESS"):
        await signer_of(elsewhere, Address("0x" + "42" * 20)).check()


async def test_a_signer_that_is_away_is_an_outage() -> None:
    """Nothing listens there: it is asked again, and no user or password of the URL is shown."""
    signer = RemoteSigner("http://user:hunter2@127.0.0.1:9", ADDRESS)
    with pytest.raises(Temporary, match=r"remote signer 127\.0\.0\.1:9 does not answer") as caught:
        await signer.sign(GOOD)
    assert "hunter2" not in f"{caught.value} {signer!r} {signer.what}"


async def test_the_policy_stands_before_the_signer(elsewhere: LocalSigner) -> None:
    """What the policy forbids is never shown to whoever holds the key."""
    settings = Settings.from_env({"CLARA_SIGNER_URL": url_of(elsewhere), "CLARA_EVALUATOR_ADDRESS": ADDRESS})
    wallet = open_wallet(settings, replace(evaluator_policy(84532), targets={CHALLENGE}))
    assert wallet is not None
    with pytest.raises(CannotPublish, match="moves 1 wei"):
        await wallet.sign(replace(GOOD, value=1))
    assert elsewhere.asked == []
    assert to_address(Account.recover_transaction(await wallet.sign(GOOD))) == ADDRESS


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"CLARA_SIGNER_URL": "http://h:1"}, "without CLARA_EVALUATOR_ADDRESS"),
        ({"CLARA_SIGNER_URL": "ftp://u:pw@h", "CLARA_EVALUATOR_ADDRESS": ADDRESS}, "neither http"),
        ({"CLARA_SIGNER_URL": "http://h:1", "CLARA_EVALUATOR_KEY": KEY}, "are both set"),
        ({"CLARA_SIGNER_URL": "aws-kms:", "CLARA_EVALUATOR_ADDRESS": ADDRESS}, "aws-kms: and a key's id"),
        ({"CLARA_SIGNER_URL": "http://u:pw/x@h", "CLARA_EVALUATOR_ADDRESS": ADDRESS}, "is not http.*%2F"),
        ({"CLARA_SIGNER_URL": "http://u:pw@h:99999", "CLARA_EVALUATOR_ADDRESS": ADDRESS}, "is not http"),
        ({"CLARA_SIGNER_URL": "http://[::1", "CLARA_EVALUATOR_ADDRESS": ADDRESS}, "is not http"),
        ({"CLARA_SIGNER_URL": "http://u:pw@", "CLARA_EVALUATOR_ADDRESS": ADDRESS}, "is not http"),
        ({"CLARA_SIGNER_URL": "https://h/?token=pw", "CLARA_EVALUATOR_ADDRESS": ADDRESS}, "without . and #"),
    ],
)
def test_settings_that_leave_the_key_open_are_refused(settings: dict[str, str], said: str) -> None:
    """One way to the key, with its address; what was given is not shown."""
    with pytest.raises(ConfigError, match=said) as caught:
        open_wallet(Settings.from_env(settings), evaluator_policy(1))
    assert "pw" not in str(caught.value)


def test_a_keystore_that_others_can_read_is_refused(tmp_path: Path) -> None:
    """Whoever can copy the file can try passwords on it for ever."""
    path = tmp_path / "evaluator.json"
    path.write_text("{}")
    path.chmod(0o644)
    settings = Settings.from_env({"CLARA_EVALUATOR_KEYSTORE": str(path), "CLARA_EVALUATOR_PASSWORD": "x"})
    with pytest.raises(ConfigError, match=r"can be read by other users \(mode 644\).*chmod 600"):
        open_wallet(settings, evaluator_policy(1))


def test_a_wallet_of_any_key_is_never_written() -> None:
    """Nor shown beyond its address."""
    wallet = Wallet(RemoteSigner("http://u:hunter2@h", ADDRESS), evaluator_policy(1))
    assert f"{wallet} {wallet.signer!r}" == f"Wallet({ADDRESS}) RemoteSigner(remote signer h, {ADDRESS})"
