"""The evaluator's key, here or with a signer elsewhere, and what a key may sign.

Invariant: the key is in no text, error or repr; it signs for one chain, no ether, vouched targets, needed calls, capped
fees and a capped gas of a day, counted from recorded transactions so that it survives a restart.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from clara_eval.chain.contracts.abi import Undecodable, abi, contract_version
from clara_eval.chain.remote_signers import KmsSigner, RemoteSigner, Signer
from clara_eval.chain.transaction import GWEI, Attempts, TransactionToSign, encoded, read_signed, signing_hash
from clara_eval.chain.winners import scoring_function
from clara_eval.config.settings import Settings
from clara_eval.core.address import Address, to_address
from clara_eval.core.errors import CannotPublish, ConfigError, Stalled
from clara_eval.core.private_file import write_private

MAX_FEE_PER_GAS = 50 * GWEI
"""A post of 25 winners then costs at most about 0.15 ETH; Base's usual fee is a thousandth of this."""
MAX_GAS = 8_000_000
MAX_AGENT_GAS = 30_000_000
"""A submission may carry its whole content on chain."""
MAX_WEI_PER_DAY = 5 * 10**17
"""Half an ETH of gas: hundreds of posts at Base's usual fees, and an end to any loop."""
_DAY_SECONDS = 24 * 3600
_TOKEN_CALLS = {made.selector: made for made in map(abi("TestUSDC").function, ("approve", "transfer"))}


@dataclass(slots=True)
class SigningPolicy:
    chain_id: int
    max_gas: int
    check_call: Callable[[SigningPolicy, TransactionToSign], str | None]
    """Returns why this call must not be signed, or None."""
    targets: set[Address] = field(default_factory=set)
    """Contracts that the factory knows, or that a person named."""
    spending: dict[Address, int] = field(default_factory=dict)
    """The most of each token that one transaction may approve or transfer."""
    own: Address | None = None
    """The key's own address: an empty call of zero to it fills a missing nonce."""
    max_fee_per_gas: int = MAX_FEE_PER_GAS
    max_wei_per_day: int = MAX_WEI_PER_DAY
    now: Callable[[], float] = time.time

    def check(self, tx: TransactionToSign, recorded: Attempts = ()) -> None:
        """Refuse what breaks a rule; `recorded` is what this key has signed on this chain."""
        problem = self._problem(tx)
        if problem:
            raise CannotPublish(f"The wallet does not sign this: {problem}.")
        # Of several attempts with one nonce only one is ever paid, so the dearest counts.
        since, costs = self.now() - _DAY_SECONDS, {tx.nonce: tx.gas * tx.max_fee_per_gas}
        for row in recorded:
            if row.nonce != tx.nonce and row.signed_at > since:
                cost = read_signed(row.raw).gas * row.max_fee_per_gas
                costs[row.nonce] = max(costs.get(row.nonce, 0), cost)
        today = sum(costs.values())
        if today > self.max_wei_per_day:
            over = f"gas for {today} wei in a day is above the cap of {self.max_wei_per_day}"
            raise Stalled(
                f"The wallet does not sign this now: {over}.",
                cause="gas_cap",
                remedy="It goes on when a day has passed since the oldest of them.",
            )

    def _problem(self, tx: TransactionToSign) -> str | None:
        if tx.chain_id != self.chain_id:
            return f"it is for chain {tx.chain_id}, not {self.chain_id}"
        if tx.value:
            return f"it moves {tx.value} wei"
        if max(tx.max_fee_per_gas, tx.max_priority_fee_per_gas) > self.max_fee_per_gas:
            return f"its fee of {tx.max_fee_per_gas} wei per gas is above the cap of {self.max_fee_per_gas}"
        if tx.gas > self.max_gas:
            return f"its gas limit {tx.gas} is above {self.max_gas}"
        fills_nonce = tx.to == self.own and not tx.data
        return None if fills_nonce else self.check_call(self, tx)


def evaluator_policy(chain_id: int, *, contracts: str = "1", reputation: Address | None = None) -> SigningPolicy:
    """Allow three functions of known challenges, and giving feedback at one registry if there is one."""
    bare = {scoring_function(name, contracts).call() for name in ("advanceToScoring", "finalize")}
    post = scoring_function("postScores", contracts).selector
    give = abi("ReputationRegistry").function("giveFeedback").selector

    def check_call(policy: SigningPolicy, tx: TransactionToSign) -> str | None:
        if reputation is not None and tx.to == reputation:
            return None if tx.data[:4] == give else f"0x{tx.data[:4].hex()} is not giveFeedback"
        if tx.to not in policy.targets:
            return f"{tx.to} is not a known challenge"
        if tx.data in bare or tx.data[:4] == post:
            return None
        return f"0x{tx.data[:4].hex()} is not postScores, advanceToScoring or finalize"

    return SigningPolicy(chain_id, MAX_GAS, check_call)


def agent_policy(
    chain_id: int, *, factory: Address | None, evaluator: Address | None, contracts: str = "1"
) -> SigningPolicy:
    """Allow a poster or agent the calls of posting, submitting and claiming, at the contracts made for them."""
    version = contract_version(contracts)
    claims = ("submit", "claimPrize", "claimExpiredRefund", "finalize", "expire", "advanceToScoring", "postScores")
    create = version.factory.function("createChallenge").selector
    register = abi("IdentityRegistry").function("register(string)").selector
    known = {create, register, *(version.challenge.function(name).selector for name in claims), *_TOKEN_CALLS}

    def check_call(policy: SigningPolicy, tx: TransactionToSign) -> str | None:
        selector = tx.data[:4]
        if selector not in known:
            return f"0x{selector.hex()} is not a call that posting, submitting or claiming needs"
        if called := _TOKEN_CALLS.get(selector):
            try:
                to, units = called.arguments(tx.data)
            except Undecodable:
                return f"its arguments are not those of {called.name}"
            if called.name == "approve" and to != factory:
                return f"it would let {to} take tokens, which is not the challenge factory"
            if called.name == "transfer" and (evaluator is None or to != evaluator):
                return f"it would pay {to}, which is not the evaluator that CLARA_EVALUATOR_ADDRESS names"
            most = policy.spending.get(tx.to, 0)
            return None if units <= most else f"it gives away {units} units of {tx.to}, and {most} were agreed to"
        if selector == create and tx.to != factory:
            return f"{tx.to} is not the challenge factory"
        return None if tx.to in policy.targets else f"{tx.to} is not a contract of the challenge factory"

    return SigningPolicy(chain_id, MAX_AGENT_GAS, check_call, {factory} if factory else set())


KMS = "aws-kms:"
"""What CLARA_SIGNER_URL begins with if the key is in AWS KMS."""
_A_KEYSTORE = "Name a keystore file that this user can read; `clara-eval keys new` makes one."


class LocalKey(Signer):
    def __init__(self, key: SecretStr, name: str, what: str = "") -> None:
        from clara_eval.core.accounts import Account

        try:
            raw = bytes.fromhex(key.get_secret_value().strip().removeprefix("0x"))
            account: Any = Account.from_key(raw) if len(raw) == 32 else None
        except Exception:  # noqa: BLE001 - whatever the library says may quote the key
            account = None
        if account is None:
            raise ConfigError(f"{name} is not a private key.", remedy="A private key is 0x and 64 hex digits.")
        super().__init__(what or f"key of {name}", to_address(account.address))
        self._account = account

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("A key is never written anywhere.")

    async def sign(self, tx: TransactionToSign) -> str:
        made = self._account.unsafe_sign_hash(signing_hash(tx))
        return "0x" + encoded(tx, made.v - 27, made.r, made.s).hex()


class Wallet:
    def __init__(self, key: SecretStr | Signer, policy: SigningPolicy, *, name: str = "CLARA_EVALUATOR_KEY") -> None:
        self.signer: Signer = LocalKey(key, name) if isinstance(key, SecretStr) else key
        self.address: Address = self.signer.address
        self.policy = policy
        policy.own = self.address

    def __repr__(self) -> str:
        return f"Wallet({self.address})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("A wallet is never written anywhere.")

    async def sign(self, tx: TransactionToSign, recorded: Attempts = ()) -> str:
        self.policy.check(tx, recorded)
        return await self.signer.sign(tx)


def open_wallet(settings: Settings, policy: SigningPolicy) -> Wallet | None:
    """Open the evaluator's wallet from the settings; None without a key, which means dry run."""
    ways = {
        "CLARA_EVALUATOR_KEY": settings.evaluator_key,
        "CLARA_EVALUATOR_KEYSTORE": settings.evaluator_keystore,
        "CLARA_SIGNER_URL": settings.signer_url,
    }
    given = [name for name, value in ways.items() if value is not None]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} are both set.", remedy="Say in one way where the evaluator's key is.")
    signer = _signer(settings)
    if signer is None:
        return None
    if settings.evaluator_address not in {None, signer.address}:
        raise ConfigError(
            f"CLARA_EVALUATOR_ADDRESS is {settings.evaluator_address}, but the key belongs to {signer.address}.",
            remedy="Give the matching key, or leave the address out.",
        )
    return Wallet(signer, policy)


def _signer(settings: Settings) -> Signer | None:
    if settings.evaluator_key is not None:
        return LocalKey(settings.evaluator_key, "CLARA_EVALUATOR_KEY")
    if settings.evaluator_keystore is not None:
        key = read_keystore(settings.evaluator_keystore, settings.evaluator_password)
        return LocalKey(key, "CLARA_EVALUATOR_KEYSTORE", f"keystore {settings.evaluator_keystore}")
    if settings.signer_url is None:
        return None
    url = settings.signer_url.get_secret_value()
    if not settings.evaluator_address:
        raise ConfigError(
            "CLARA_SIGNER_URL is set without CLARA_EVALUATOR_ADDRESS.",
            remedy="Set the address whose key the signer holds: a signer may hold several.",
        )
    address = to_address(settings.evaluator_address)
    if url.startswith(KMS) and url != KMS:
        return KmsSigner(url.removeprefix(KMS), address)
    if not url.startswith(("http://", "https://")):
        raise ConfigError(
            "CLARA_SIGNER_URL is neither http(s)://host nor aws-kms:KEY.",  # not shown: it may hold a password
            remedy="Write a web3signer's address, or aws-kms: and a key's id, ARN or alias.",
        )
    return RemoteSigner(url, address)


def read_keystore(path: Path, password: SecretStr | None) -> SecretStr:
    if password is None:
        raise ConfigError(
            "CLARA_EVALUATOR_KEYSTORE is set without a password.",
            remedy="Set CLARA_EVALUATOR_PASSWORD, or CLARA_EVALUATOR_PASSWORD_FILE.",
        )
    from clara_eval.core.accounts import Account

    shown = f"CLARA_EVALUATOR_KEYSTORE={str(path)!r}"
    try:
        mode, text = path.stat().st_mode, path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as bad:
        raise ConfigError(f"{shown} cannot be read: {type(bad).__name__}.", remedy=_A_KEYSTORE) from None
    if os.name == "posix" and mode & 0o077:  # passwords can be tried offline on a file that others can copy
        raise ConfigError(
            f"{shown} can be read by other users (mode {mode & 0o777:o}).", remedy=f"Run `chmod 600 {path}`."
        )
    try:
        key = Account.decrypt(json.loads(text), password.get_secret_value())
    except Exception as bad:  # noqa: BLE001 - the library raises what it likes about a file that is no keystore
        reason, remedy = "it is not a keystore file", _A_KEYSTORE
        if "MAC" in str(bad):
            reason, remedy = "the password is wrong", "Correct CLARA_EVALUATOR_PASSWORD, or the file it comes from."
        raise ConfigError(f"{shown} cannot be opened: {reason}.", remedy=remedy) from None
    return SecretStr("0x" + bytes(key).hex())


def new_keystore(path: Path, password: SecretStr, *, work: int | None = None) -> Address:
    """Make a key, write it encrypted with mode 600, and return its address; refuse an existing file.

    `work` is scrypt's cost, a power of two; without it the library's own, which takes about a second.
    """
    if not password.get_secret_value():
        raise ConfigError("The keystore's password is empty.", remedy="Set CLARA_EVALUATOR_PASSWORD.")
    from clara_eval.core.accounts import Account

    account = Account.create()
    content = json.dumps(account.encrypt(password.get_secret_value(), iterations=work))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, content.encode())
    except FileExistsError:
        raise ConfigError(f"{path} exists already and is not overwritten.", remedy="Choose another file.") from None
    except OSError as bad:
        raise ConfigError(f"{path} cannot be written: {type(bad).__name__}.") from None
    return to_address(account.address)
