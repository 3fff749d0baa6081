"""Run compiled contracts in revm with a fixed environment (`WORLD`); each call is one transaction."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from clara_eval.harness.model import Call, Executed, Fact, RunLimits, RunOutcome, overall_outcome
from clara_eval.harness.solc import EVM_VERSION, Compiled, CompiledHarness

if TYPE_CHECKING:
    from pyrevm import EVM

MAX_STEP_BYTES = 512 * 1024  # of steps that are read for one run; each takes about 1 ms
TRANSACTION_GAS = 21_000
_STEP = re.compile(rb'"op":(\d+),.*"depth":(\d+)')
_CODECOPY, _CREATES = 0x39, frozenset({0xF0, 0xF5})  # CREATE and CREATE2
CALLER = "0x00000000000000000000000000000000c1a4a001"
BALANCE = 1_000_000 * 10**18
CHAIN_ID, BASE_FEE = 31337, 0
BLOCK_NUMBER, TIMESTAMP, BLOCK_GAS = 1_000_000, 1_767_225_600, 1_000_000_000
COINBASE, PREVRANDAO = "0x" + "00" * 20, "0x" + "c1a4a0" * 10 + "c1a4"
WORLD: dict[str, object] = {  # all that a contract can read of its environment; part of the trace
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
MAX_LOG_CHARS = 300
CODE_BYTE_GAS = 200
BURNT_SHARE = 15 / 16  # of the gas: a revert above it, at most four calls deep, counts as out of gas
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


class TooManySteps(Exception):
    """A run has more than `MAX_STEP_BYTES` of steps."""


def max_creation_gas(
    evm: EVM, run: Callable[[EVM], object], code: str, built: set[str], left: int
) -> tuple[int | None, int]:
    """Return the most gas that creating `code` takes in this run, if any, and how much of `left` is left.

    `left` bounds the bytes of steps that are read. Raises TooManySteps.
    """
    if left <= 0:
        raise TooManySteps
    read, write = os.pipe()  # revm prints its steps to standard output, so they are traced in a child process
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
            reader, missing = _StepReader(len(code) // 2), set(built)
            while missing and (line := steps.readline(left)):
                left -= len(line)
                if left <= 0:
                    raise TooManySteps
                if found := _STEP.search(line):
                    missing.discard(reader.step(int(found[1]), int(found[2]), line) or "")
            costs = reader.certain or reader.likely
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    calldata_gas = sum(16 if byte else 4 for byte in bytes.fromhex(code))
    return TRANSACTION_GAS + calldata_gas + max(costs) if costs else None, left


@dataclass(slots=True)
class _Frame:
    copied: int | None = None  # address to which code of the submission's length was last copied
    creating: tuple[int, list[int]] | None = None  # the gas before a creation, and the list for its cost


@dataclass(slots=True)
class _StepReader:
    length: int
    frames: dict[int, _Frame] = field(default_factory=dict)
    certain: list[int] = field(default_factory=list)
    likely: list[int] = field(default_factory=list)  # by size alone, if the harness moved the code first

    def step(self, op: int, depth: int, line: bytes) -> str | None:
        """Read one step, and return the address that it shows to be created."""
        frame = self.frames.setdefault(depth, _Frame())
        for deeper in [one for one in self.frames if one > depth]:
            del self.frames[deeper]
        if frame.creating is None and op not in _CREATES and op != _CODECOPY:
            return None
        found, built = json.loads(line), None
        gas, stack = int(found["gas"], 16), [int(one, 16) for one in found["stack"][-4:]]
        if frame.creating is not None:
            (before, costs), frame.creating = frame.creating, None
            if stack and stack[-1]:
                costs.append(before - gas)
                built = f"0x{stack[-1]:040x}"
        if len(stack) < 3:  # too few operands: the EVM halts the code
            return built
        if op == _CODECOPY and stack[-3] == self.length:
            frame.copied = stack[-1]
        elif op in _CREATES:
            more = stack[-3] - self.length  # constructor arguments are words of 32 bytes
            is_other = frame.copied is None or more < 0 or more % 32
            costs = self.certain if frame.copied == stack[-2] else self.likely
            frame.creating = gas, [] if is_other else costs
        return built


class _Receipt(NamedTuple):
    outcome: RunOutcome
    gas: int
    output: bytes = b""
    log: str = ""
    address: str = ""  # of the contract that was called or created


def run_job(compiled: Compiled, limits: dict[str, int]) -> Executed:
    """Deploy a submission alone, then run every function of its harness on it."""
    code, harness = compiled["submission"], compiled["harness"]
    run = _HarnessRun(code, RunLimits(**limits))
    alone = _deploy_cost(code, compiled["runtimeBytes"], run.limits) if code else None
    if harness:
        run.run_all(harness)
    costs = [cost for cost in (alone, run.deploy_gas) if cost is not None]
    facts: dict[str, Fact] = {
        "compiles": code is not None or compiled["outcome"] in {None, RunOutcome.DOES_NOT_FIT},
        "bytecode_bytes": len(code) // 2 if code else None,
        "deploy_gas": max(costs, default=None),
    }
    outcome = RunOutcome(compiled["outcome"]) if compiled["outcome"] else overall_outcome(run.calls)
    return Executed("solidity", outcome, compiled["detail"], tuple(run.calls), facts, tuple(run.logs))


def _deploy_cost(code: str, runtime_bytes: int, limits: RunLimits) -> int | None:
    """Return the gas to deploy this code alone, without arguments; None if its constructor reverts."""
    state = _State()
    evm = state.new_evm()
    receipt = _transact(evm, code, None, limits)
    if receipt.outcome != RunOutcome.PASSED:
        return None
    state.update_from(evm)
    # A constructor can return less code here than to the harness: charge for the code that the compiler made.
    built = state.accounts.get(receipt.address)  # None if it destroyed itself
    return receipt.gas + CODE_BYTE_GAS * max(0, runtime_bytes - (len(built.code) if built else 0))


class _HarnessRun:
    """Runs a compiled harness; collects calls, revert reasons and the gas of creating the submission."""

    def __init__(self, code: str | None, limits: RunLimits) -> None:
        self.code, self.limits, self.state = code, limits, _State()
        self.calls, self.logs = list[Call](), list[str]()
        self.deploy_gas: int | None = None
        self.step_bytes = MAX_STEP_BYTES  # that may still be read

    def run_all(self, harness: CompiledHarness) -> None:
        evm, receipt = self._run_transaction(harness["code"], None)
        address = receipt.address
        if receipt.outcome == RunOutcome.PASSED:
            self.state.update_from(evm)
            self.state.accounts[address].balance += BALANCE
            for one in harness["functions"]:
                if one["kind"] == "setUp":
                    evm, receipt = self._run_transaction(one["selector"], address)
                    self.state.update_from(evm)
        outcome = RunOutcome.SET_UP_FAILED if receipt.outcome == RunOutcome.FAILED else receipt.outcome
        self._record(Call("setUp", "setUp", outcome, receipt.gas), receipt.log)
        for one in harness["functions"] if outcome == RunOutcome.PASSED else ():
            if one["kind"] != "setUp":
                _, receipt = self._run_transaction(one["selector"], address)
                is_measured = one["kind"] == "metric" and receipt.outcome == RunOutcome.PASSED
                value = _metric_value(one["returns"], receipt.output) if is_measured else None
                found = RunOutcome.NOT_A_NUMBER if is_measured and value is None else receipt.outcome
                self._record(Call(one["name"], one["kind"], found, receipt.gas, value), receipt.log)

    def _record(self, call: Call, log: str) -> None:
        self.calls.append(call)
        self.logs += [f"{call.name}: {log}"] if log else []

    def _run_transaction(self, data: str, to: str | None) -> tuple[EVM, _Receipt]:
        """Run one transaction; if it creates contracts, measure the creation of the submission."""
        evm, run = self.state.new_evm(), partial(_transact, data=data, to=to, limits=self.limits)
        receipt = run(evm)
        if not self.code or receipt.outcome != RunOutcome.PASSED:
            return evm, receipt
        created = {one[1] for one in _ACCOUNT.finditer(evm.journal_str) if "Created" in one[7]}
        if built := created - {receipt.address}:
            try:
                cost, self.step_bytes = max_creation_gas(self.state.new_evm(), run, self.code, built, self.step_bytes)
            except TooManySteps:
                cost, self.step_bytes = receipt.gas, 0  # at most the whole transaction
            self.deploy_gas = max(cost or 0, self.deploy_gas or 0) or None
        return evm, receipt


def _metric_value(returns: list[str], output: bytes) -> int | None:
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
    """All accounts between transactions; each transaction has an EVM of its own, whose journal is read.

    pyrevm never closes a transaction: in a shared EVM later calls would find accounts warm, and cost too little.
    """

    def __init__(self) -> None:
        self.accounts = {CALLER: _Account(balance=BALANCE)}

    def new_evm(self) -> EVM:
        from pyrevm import EVM, AccountInfo, BlockEnv, CfgEnv, Env

        block = BlockEnv(
            number=BLOCK_NUMBER,
            coinbase=COINBASE,
            timestamp=TIMESTAMP,
            prevrandao=bytes.fromhex(PREVRANDAO[2:]),
            basefee=BASE_FEE,
            gas_limit=BLOCK_GAS,
        )
        evm = EVM(env=Env(cfg=CfgEnv(chain_id=CHAIN_ID), block=block), gas_limit=BLOCK_GAS, spec_id=EVM_VERSION.upper())
        for address, one in self.accounts.items():
            info = AccountInfo(balance=one.balance, nonce=one.nonce, code=one.code)  # type: ignore[call-arg] # its stub lacks one
            evm.insert_account_info(address, info)
            for slot, value in one.storage.items():
                # Writing a slot loads its account: without the revert the next slot would count as warm and changed.
                before = evm.snapshot()
                evm.insert_account_storage(address, slot, value)
                evm.revert(before)
        return evm

    def update_from(self, evm: EVM) -> None:
        """Read the accounts from the journal, a text of numbers and hex without any text of a contract."""
        journal: str = evm.journal_str
        text = journal[: journal.rindex("transient_storage: {")]
        found = list(_ACCOUNT.finditer(text))
        if len(found) != text.count(": Account {"):
            raise RuntimeError("The state of revm has another form than pyrevm 0.3.7 writes.")
        for address, balance, nonce, code, length, storage, status in (one.groups() for one in found):
            if "SelfDestructed" in status:
                self.accounts.pop(address, None)
                continue
            account = self.accounts.setdefault(address, _Account())
            account.balance, account.nonce = int(balance), int(nonce)
            account.code = bytes.fromhex(code or "")[: None if length is None else int(length)]
            account.storage |= {int(slot): int(value) for slot, value in _SLOT.findall(storage)}


def _transact(evm: EVM, data: str, to: str | None, limits: RunLimits) -> _Receipt:
    """Call a contract, or create one if `to` is None."""
    try:
        if to is None:
            to, output = evm.deploy(CALLER, bytes.fromhex(data), gas=limits.gas), b""
        else:
            output = bytes(evm.message_call(CALLER, to, calldata=bytes.fromhex(data), gas=limits.gas))
    except RuntimeError as bad:
        return _failed(evm, bad, limits)
    assert evm.result is not None, "it ran to its end"
    return _Receipt(RunOutcome.PASSED, evm.result.gas_used, output, address=to)


def _failed(evm: EVM, bad: RuntimeError, limits: RunLimits) -> _Receipt:
    result = evm.result
    if result is None or result.is_success:
        # Rejected before it started, for example code that is larger than a transaction may carry.
        return _Receipt(RunOutcome.TOO_LARGE, 0, log=str(bad)[:MAX_LOG_CHARS])
    if result.is_halt:
        outcomes = (outcome for name, outcome in _HALTS.items() if name in result.reason)
        return _Receipt(next(outcomes, RunOutcome.ILLEGAL_INSTRUCTION), result.gas_used, log=result.reason)
    # An inner call may burn all but 1/64 of the gas; its caller then reverts with the rest.
    burnt = result.gas_used >= limits.gas * BURNT_SHARE
    return _Receipt(RunOutcome.OUT_OF_GAS if burnt else RunOutcome.FAILED, result.gas_used, log=_reason(str(bad)))


def _reason(text: str) -> str:
    """Return the reason of a revert: its message, the code of a panic, or the start of its data."""
    found = _REVERT.search(text)
    data = found.group(1) if found else ""
    if data.startswith(_ERROR) and len(data) >= 136:
        length = min(int(data[72:136], 16), MAX_LOG_CHARS)
        return bytes.fromhex(data[136 : 136 + 2 * length]).decode("utf-8", "replace")
    if data.startswith(_PANIC):
        return f"panic 0x{int(data[8:72] or '0', 16):02x}"
    return f"reverted with 0x{data[:64]}" if data else "reverted"
