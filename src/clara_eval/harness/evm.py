"""Run compiled code in revm, in a world of fixed numbers (`WORLD`) without a network; each call is a transaction."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

from clara_eval.harness.model import Call, Kind, RunLimits, RunOutcome
from clara_eval.harness.workers import CompiledHarness, HarnessFunction

if TYPE_CHECKING:
    from pyrevm import EVM

MOST_BYTES = 64 * 1024 * 1024
"""Of steps that are read for one transaction."""
TRANSACTION_GAS = 21_000
_STEP = re.compile(rb'"op":(\d+),.*"depth":(\d+)')
_CREATE, _CREATE2, _CODECOPY = 0xF0, 0xF5, 0x39
_ASKED = frozenset({_CREATE, _CREATE2})


class TooManySteps(Exception):
    """Not everything was built within `MOST_BYTES`."""


def dearest_creation(evm: EVM, run: Callable[[EVM], object], code: str, built: set[str]) -> int | None:
    """Gas of the dearest transaction that builds `code` as it was built here; None if it was not."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.dup2(write, 1)
            evm.tracing = True  # type: ignore[misc] # its stub names the setter wrongly
            run(evm)
        finally:
            os._exit(0)
    os.close(write)
    try:
        with os.fdopen(read, "rb") as steps:
            reader, left, missing = _Reader(len(code) // 2), MOST_BYTES, set(built)
            while missing and (line := steps.readline(left)):
                left -= len(line)
                if left <= 0:
                    raise TooManySteps
                if found := _STEP.search(line):
                    missing.discard(reader.step(int(found[1]), int(found[2]), line) or "")
            costs = reader.sure or reader.likely
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    data = bytes.fromhex(code)
    carried = sum(16 if byte else 4 for byte in data)
    return TRANSACTION_GAS + carried + max(costs) if costs else None


@dataclass(slots=True)
class _Frame:
    copied: int | None = None
    """Where code of the submission's length was last copied to."""
    creating: tuple[int, list[int]] | None = None
    """The gas before a creation, and the list of costs that it belongs to."""


@dataclass(slots=True)
class _Reader:
    length: int
    frames: dict[int, _Frame] = field(default_factory=dict)
    sure: list[int] = field(default_factory=list)
    likely: list[int] = field(default_factory=list)
    """By their size alone: the harness moved the code before it built it."""
    others: list[int] = field(default_factory=list)

    def step(self, op: int, depth: int, line: bytes) -> str | None:
        """Take one step in; the address that it shows to be built."""
        frame = self.frames.setdefault(depth, _Frame())
        for deeper in [one for one in self.frames if one > depth]:
            del self.frames[deeper]
        if frame.creating is None and op not in _ASKED and op != _CODECOPY:
            return None
        found = json.loads(line)
        stack = [int(one, 16) for one in found["stack"][-4:]]
        built = self._ended(frame, int(found["gas"], 16), stack)
        if len(stack) < 3:  # code of a submission may ask for more than there is; the machine halts it
            return built
        if op == _CODECOPY and stack[-3] == self.length:
            frame.copied = stack[-1]
        elif op in _ASKED:
            frame.creating = int(found["gas"], 16), self._kind(frame, stack[-2], stack[-3] - self.length)
        return built

    def _kind(self, frame: _Frame, offset: int, more: int) -> list[int]:
        if frame.copied is None or more < 0 or more % 32:  # a constructor is given words of 32 bytes
            return self.others
        return self.sure if frame.copied == offset else self.likely

    def _ended(self, frame: _Frame, gas: int, stack: list[int]) -> str | None:
        if frame.creating is None:
            return None
        before, costs = frame.creating
        frame.creating = None
        if not stack or not stack[-1]:
            return None
        costs.append(before - gas)
        return f"0x{stack[-1]:040x}"


CALLER = "0x00000000000000000000000000000000c1a4a001"
BALANCE = 1_000_000 * 10**18
EVM_VERSION, CHAIN_ID, BASE_FEE = "cancun", 31337, 0
BLOCK_NUMBER, TIMESTAMP, BLOCK_GAS = 1_000_000, 1_767_225_600, 1_000_000_000
COINBASE, PREVRANDAO = "0x" + "00" * 20, "0x" + "c1a4a0" * 10 + "c1a4"
WORLD: dict[str, object] = {
    "evmVersion": EVM_VERSION,
    "chainId": CHAIN_ID,
    "blockNumber": BLOCK_NUMBER,
    "timestamp": TIMESTAMP,
    "prevrandao": PREVRANDAO,
    "coinbase": COINBASE,
    "baseFee": BASE_FEE,
    "blockGasLimit": BLOCK_GAS,
    "caller": CALLER,
    "callerBalance": str(BALANCE),
    "harnessBalance": str(BALANCE),
}
"""Everything a contract can ask about the world around it. It is part of the trace."""

MAX_LOG_CHARS = 300
CODE_BYTE_GAS = 200
BURNT_SHARE = 15 / 16
"""Who reverts after using this much of the gas has run out of it, four calls deep at most."""
_ACCOUNT = re.compile(
    r"(0x[0-9a-f]{40}): Account \{ info: AccountInfo \{ balance: (\d+), nonce: (\d+), code_hash: 0x[0-9a-f]{64}, "
    r"code: (?:Some\(Bytecode \{ bytecode: 0x([0-9a-f]*), state: (?:Analysed \{ len: (\d+), [^}]*\} \}|Raw) \}\)|None) "
    r"\}, storage: \{(.*?)\}, status: AccountStatus\(([^)]*)\) \}"
)
_SLOT = re.compile(r"(\d+): StorageSlot \{ previous_or_original_value: \d+, present_value: (\d+) \}")
_REVERT = re.compile(r"output: 0x([0-9a-f]*)")
_ERROR, _PANIC = "08c379a0", "4e487b71"
_HALTS = {
    "OutOfGas": RunOutcome.OUT_OF_GAS,
    "StackOverflow": RunOutcome.STACK_OVERFLOW,
    "CallTooDeep": RunOutcome.STACK_OVERFLOW,
}


@dataclass(frozen=True, slots=True)
class _Ended:
    outcome: RunOutcome
    gas: int
    output: bytes = b""
    log: str = ""


def engine_version() -> str:
    return f"pyrevm {version('pyrevm')}"


def deploy_cost(code: str, runtime_bytes: int, limits: RunLimits) -> int | None:
    """Gas to deploy this code alone, without arguments; None if its constructor refuses."""
    state = _State()
    evm = state.machine()
    ended, address = _deploy(evm, code, limits)
    if ended.outcome != RunOutcome.PASSED:
        return None
    state.absorb(evm)
    # A constructor can tell who deploys, and give less code here than to the harness: what the compiler made is paid.
    built = state.accounts.get(address)  # none where it destroyed itself
    missing = max(0, runtime_bytes - (len(built.code) if built else 0))
    return ended.gas + CODE_BYTE_GAS * missing


@dataclass(slots=True)
class HarnessRun:
    """Every function of a compiled harness, what was reverted with, and what building the submission cost in it."""

    code: str | None
    address: str = ""
    calls: list[Call] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)
    deploy_gas: int | None = None
    is_deploy_gas_known: bool = True
    """False where a transaction took too many steps to be looked at."""

    def transacted(self, state: _State, run: Callable[[EVM], _Ended]) -> tuple[EVM, _Ended]:
        """One transaction; if it built something, what building the submission cost."""
        evm = state.machine()
        ended = run(evm)
        built = set[str]()
        if self.code and ended.outcome == RunOutcome.PASSED:
            accounts = _ACCOUNT.finditer(evm.journal_str)
            built = {one[1] for one in accounts if "Created" in one[7]} - {self.address}
        if built and self.code:
            try:
                cost = dearest_creation(state.machine(), run, self.code, built)
            except TooManySteps:
                self.is_deploy_gas_known = False
            else:
                self.deploy_gas = max(cost or 0, self.deploy_gas or 0) or None
        return evm, ended


def run_harness(harness: CompiledHarness, limits: RunLimits, code: str | None) -> HarnessRun:
    functions = harness["functions"]
    state, found = _State(), HarnessRun(code)
    start = _set_up(state, found, harness["code"], functions, limits)
    found.logs += [f"setUp: {start.log}"] if start.log else []
    failed = RunOutcome.SET_UP_FAILED if start.outcome == RunOutcome.FAILED else start.outcome
    found.calls.append(Call("setUp", "setUp", failed, start.gas))
    for one in functions if failed == RunOutcome.PASSED else ():
        if one["kind"] != "setUp":
            _, ended = found.transacted(state, partial(_transact, address=found.address, one=one, limits=limits))
            found.calls.append(_call(one["name"], one["kind"], one["returns"], ended))
            found.logs += [f"{one['name']}: {ended.log}"] if ended.log else []
    return found


def _set_up(state: _State, found: HarnessRun, code: str, functions: list[HarnessFunction], limits: RunLimits) -> _Ended:
    def deploy(evm: EVM) -> _Ended:
        ended, found.address = _deploy(evm, code, limits)
        return ended

    evm, ended = found.transacted(state, deploy)
    if ended.outcome != RunOutcome.PASSED:
        return ended
    state.absorb(evm)
    state.accounts[found.address].balance += BALANCE
    for one in functions:
        if one["kind"] == "setUp":
            evm, ended = found.transacted(state, partial(_transact, address=found.address, one=one, limits=limits))
            state.absorb(evm)
    return ended


def _call(name: str, kind: Kind, returns: list[str], ended: _Ended) -> Call:
    if kind == "test" or ended.outcome != RunOutcome.PASSED:
        return Call(name, kind, ended.outcome, ended.gas)
    value = _number(returns, ended.output)
    outcome = RunOutcome.NOT_A_NUMBER if value is None else RunOutcome.PASSED
    return Call(name, kind, outcome, ended.gas, value)


def _number(returns: list[str], output: bytes) -> int | None:
    if len(returns) != 1 or not re.fullmatch(r"u?int\d*|bool", returns[0]) or len(output) != 32:
        return None
    return int.from_bytes(output, "big", signed=returns[0].startswith("int"))


@dataclass(slots=True)
class _Account:
    balance: int = 0
    nonce: int = 0
    code: bytes = b""
    storage: dict[int, int] = field(default_factory=dict)


class _State:
    """All accounts between two transactions, each of which has a machine of its own and is read out of its journal.

    revm's binding keeps one transaction open for ever: later calls would find accounts warm, and cost too little.
    """

    def __init__(self) -> None:
        self.accounts = {CALLER: _Account(balance=BALANCE)}

    def machine(self) -> EVM:
        from pyrevm import EVM, AccountInfo, BlockEnv, CfgEnv, Env

        block = BlockEnv(
            number=BLOCK_NUMBER,
            coinbase=COINBASE,
            timestamp=TIMESTAMP,
            prevrandao=bytes.fromhex(PREVRANDAO[2:]),
            basefee=BASE_FEE,
            gas_limit=BLOCK_GAS,
        )
        environment = Env(cfg=CfgEnv(chain_id=CHAIN_ID), block=block)
        evm = EVM(env=environment, gas_limit=BLOCK_GAS, spec_id=EVM_VERSION.upper())
        for address, one in self.accounts.items():
            info = AccountInfo(balance=one.balance, nonce=one.nonce, code=one.code)  # type: ignore[call-arg] # its stub lacks one
            evm.insert_account_info(address, info)
            for slot, value in one.storage.items():
                # Writing a slot loads its account, and the next slot would then be written as warm and changed.
                before = evm.snapshot()
                evm.insert_account_storage(address, slot, value)
                evm.revert(before)
        return evm

    def absorb(self, evm: EVM) -> None:
        """The journal's text, made by revm from numbers and hex only: nobody's words are in it."""
        journal: str = evm.journal_str
        text = journal[: journal.rindex("transient_storage: {")]
        found = 0
        for one in _ACCOUNT.finditer(text):
            found += 1
            self._absorb_account(*one.groups())
        if found != text.count(": Account {"):
            raise RuntimeError("The state of revm has another form than pyrevm 0.3.7 writes.")

    def _absorb_account(
        self, address: str, balance: str, nonce: str, code: str | None, length: str | None, storage: str, status: str
    ) -> None:
        if "SelfDestructed" in status:
            self.accounts.pop(address, None)
            return
        raw = bytes.fromhex(code or "")
        account = self.accounts.setdefault(address, _Account())
        account.balance, account.nonce = int(balance), int(nonce)
        account.code = raw if length is None else raw[: int(length)]
        account.storage |= {int(slot): int(value) for slot, value in _SLOT.findall(storage)}


def _deploy(evm: EVM, code: str, limits: RunLimits) -> tuple[_Ended, str]:
    try:
        address = evm.deploy(CALLER, bytes.fromhex(code), gas=limits.gas)
    except RuntimeError as bad:
        return _failed(evm, bad, limits), ""
    return _Ended(RunOutcome.PASSED, _gas_used(evm)), address


def _transact(evm: EVM, address: str, one: HarnessFunction, limits: RunLimits) -> _Ended:
    try:
        output = evm.message_call(CALLER, address, calldata=bytes.fromhex(one["selector"]), gas=limits.gas)
    except RuntimeError as bad:
        return _failed(evm, bad, limits)
    return _Ended(RunOutcome.PASSED, _gas_used(evm), bytes(output))


def _gas_used(evm: EVM) -> int:
    assert evm.result is not None, "it ran to its end"
    return evm.result.gas_used


def _failed(evm: EVM, bad: RuntimeError, limits: RunLimits) -> _Ended:
    result = evm.result
    if result is None or result.is_success:
        # Refused before it began, for example code that is larger than a transaction may carry.
        return _Ended(RunOutcome.TOO_LARGE, 0, log=str(bad)[:MAX_LOG_CHARS])
    if result.is_halt:
        outcome = next(
            (found for name, found in _HALTS.items() if name in result.reason), RunOutcome.ILLEGAL_INSTRUCTION
        )
        return _Ended(outcome, result.gas_used, log=result.reason)
    # A call inside may burn all but a 64th of the gas; whoever called it then reverts with the little that is left.
    burnt = result.gas_used >= limits.gas * BURNT_SHARE
    return _Ended(RunOutcome.OUT_OF_GAS if burnt else RunOutcome.FAILED, result.gas_used, log=_reason(str(bad)))


def _reason(text: str) -> str:
    """What a revert says: its message, the number of a panic, or the start of its data."""
    found = _REVERT.search(text)
    data = found.group(1) if found else ""
    if data.startswith(_ERROR) and len(data) >= 136:
        length = min(int(data[72:136], 16), MAX_LOG_CHARS)
        return bytes.fromhex(data[136 : 136 + 2 * length]).decode("utf-8", "replace")
    if data.startswith(_PANIC):
        return f"panic 0x{int(data[8:72] or '0', 16):02x}"
    return f"reverted with 0x{data[:64]}" if data else "reverted"
