"""The EVM engine: what it measures, that it repeats itself, and what hostile Solidity comes to."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.support.compiler_bombs import COMPILER_BOMBS
from tests.support.evm import HEAD, PLAIN, submission

from clara_eval.actions.harness import check_harness
from clara_eval.core.errors import BadInput, ConfigError
from clara_eval.devnet.anvil import Anvil
from clara_eval.harness import Executed, Harness, HarnessSubmission, Machine, MissingEngine, solc
from clara_eval.harness.evm import WORLD
from clara_eval.harness.model import RunLimits
from clara_eval.harness.solc import CompileCache, compile_result, compile_solidity, find_compiler
from clara_eval.submissions.files import pack_files, read_archive

HARNESS = (
    HEAD
    + """import "./Submission.sol";
contract Harness {
    Submission s;
    uint256 public total;
    function setUp() external { s = new Submission(); total = 7; }
    function numbers(uint256 n) internal pure returns (uint256[] memory a) {
        a = new uint256[](n);
        for (uint256 i = 0; i < n; ++i) a[i] = i + 1;
    }
    function test_small() external view { require(s.sum(numbers(3)) == 6, "sum of three"); }
    function test_empty() external view { require(s.sum(numbers(0)) == 0, "sum of none"); }
    function test_writes() external { total += s.sum(numbers(2)); require(total == 10, "total"); }
    function metric_gas() external view returns (uint256) {
        uint256[] memory a = numbers(100);
        uint256 before = gasleft();
        s.sum(a);
        return before - gasleft();
    }
    function metric_error() external view returns (int256) { return int256(s.sum(numbers(4))) - 11; }
}
"""
)


CHEAP = submission("unchecked { uint256 n = xs.length; for (uint256 i; i < n; ++i) s += xs[i]; }").replace(
    "virtual", "pure"
)


@pytest.fixture(scope="module")
def machine(solc: str | None) -> Iterator[Machine]:
    """A machine whose compiler is loaded once; it gives the same code as the npm package (tested below)."""
    found = Machine(solc=solc)
    yield found
    found.close()


@pytest.fixture(scope="module")
def npm() -> Iterator[Machine]:
    """A machine with the npm package, for what is about the compiler's own process."""
    found = Machine(workers=1)
    yield found
    found.close()


def run(machine: Machine, source: str, harness: str = HARNESS, limits: RunLimits | None = None) -> Executed:
    # A view harness cannot call a function that may write; most hostile ones do more than read.
    return machine.run(Harness("solidity", harness), HarnessSubmission("solidity", source), limits)


def loose(harness: str) -> str:
    return harness.replace("external view", "external")


def test_a_run_measures_tests_metrics_and_gas(machine: Machine) -> None:
    """Tests, metrics, their gas and the facts about the code are features; cheaper code measures cheaper."""
    plain, cheap = run(machine, PLAIN), run(machine, CHEAP)
    assert plain.outcome == cheap.outcome == "passed"
    names = {"compiles", "deploy_gas", "bytecode_bytes", "runs", "tests_passed"}
    names |= {"test_small", "test_empty", "test_writes", "metric_gas", "metric_error"}
    names |= {"gas_small", "gas_empty", "gas_writes", "gas_gas", "gas_error"}
    assert set(plain.features) == names
    assert plain.features["tests_passed"] == 1.0
    assert plain.features["metric_error"] == -1
    assert plain.features["test_writes"] is True
    assert plain.features["compiles"] is plain.features["runs"] is True
    slow, fast = plain.features["metric_gas"], cheap.features["metric_gas"]
    assert slow is not None
    assert fast is not None
    assert fast < slow


def test_what_is_wrong_fails_and_still_runs(machine: Machine) -> None:
    """A wrong answer fails its tests, keeps its gas and says why in the logs."""
    wrong = run(machine, submission("s = xs.length;").replace("virtual", "pure"))
    assert wrong.outcome == "failed"
    assert wrong.features["runs"] is True
    assert (wrong.features["test_small"], wrong.features["test_empty"]) == (False, True)
    assert wrong.features["tests_passed"] == pytest.approx(1 / 3)
    assert any("sum of three" in line for line in wrong.logs)


def test_without_a_harness_there_are_facts_about_the_code(machine: Machine) -> None:
    """Without a harness only compiles, deploy_gas and bytecode_bytes are measured."""
    found = machine.run(None, HarnessSubmission("solidity", PLAIN))
    assert set(found.features) == {"compiles", "deploy_gas", "bytecode_bytes"}
    assert found.features["deploy_gas"] == run(machine, PLAIN).features["deploy_gas"]
    broken = machine.run(None, HarnessSubmission("solidity", "this is no code"))
    assert broken.features == {"compiles": False, "deploy_gas": None, "bytecode_bytes": None}
    two = machine.run(None, HarnessSubmission("solidity", HEAD + "contract A {} contract B {}"))
    assert two.features == {"compiles": True, "deploy_gas": None, "bytecode_bytes": None}


def test_the_same_numbers_every_time_under_load(machine: Machine) -> None:
    """Runs from several threads while every core is busy give the same numbers; the bench does so a hundred times."""
    first = run(machine, PLAIN)
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            sum(range(10_000))

    load = [threading.Thread(target=spin) for _ in range(4)]
    for thread in load:
        thread.start()
    try:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: run(machine, PLAIN), range(8)))
    finally:
        stop.set()
        for thread in load:
            thread.join()
    assert [one for one in found if one != first] == []


def test_the_command_in_another_process_gives_the_same_document(
    machine: Machine, solc: str | None, tmp_path: Path
) -> None:
    """`harness run --json` measures what the library measures."""
    (tmp_path / "s.sol").write_text(PLAIN, encoding="utf-8")
    (tmp_path / "h.sol").write_text(HARNESS, encoding="utf-8")
    command = [sys.executable, "-m", "clara_eval", "harness", "run", str(tmp_path / "s.sol"), "--harness"]
    env = {**os.environ, "CLARA_CACHE_DIR": str(tmp_path / "cache"), "CLARA_SOLC": solc or ""}
    command += [str(tmp_path / "h.sol"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    document = json.loads(done.stdout)
    here = run(machine, PLAIN)
    assert done.returncode == 0
    assert document["features"] == here.features
    assert document["gas"] == here.used
    assert document["machine"] == json.loads(json.dumps(here.machine))


HOSTILE = {
    "endless loop": (submission("while (true) { s++; }"), "out_of_gas"),
    "recursion": (submission("return this.sum(xs);"), "failed"),
    "recursion inside": (
        submission("s = f(1);", inside="function f(uint256 n) internal returns (uint256) { return f(n + 1) + 1; }"),
        "out_of_gas",
    ),
    "memory": (submission("assembly { mstore(shl(40, 1), 1) }"), "out_of_gas"),
    "large array": (submission("uint256[] memory a = new uint256[](type(uint64).max); s = a.length;"), "out_of_gas"),
    "endless output": (submission("while (true) emit L(xs);", inside="event L(uint256[] xs);"), "out_of_gas"),
    "large answer": (submission("assembly { return(0, 5000000) }"), "out_of_gas"),
    "invalid instruction": (submission("assembly { invalid() }"), "out_of_gas"),
    "selfdestruct when built": (
        submission("s = 1;", inside="constructor() { selfdestruct(payable(msg.sender)); }"),
        "failed",
    ),
    "refuses to be built": (submission("s = 1;", inside="constructor() { revert('no'); }"), "set_up_failed"),
    "imports the harness": (submission("s = 1;", before='import "./Harness.sol";'), "forbidden_import"),
    "imports a file": (submission("s = 1;", before='import "/etc/passwd";'), "forbidden_import"),
    "imports from the web": (submission("s = 1;", before='import "https://localhost/x.sol";'), "forbidden_import"),
    "takes the name of the harness": (submission("s = 1;", before="contract Harness {}"), "failed"),
    "has another shape": (f"{HEAD}contract Submission {{ function add() external {{}} }}", "does_not_fit"),
    "is not code": ("\x1b[31m\x00 \u202e", "does_not_compile"),
    "is empty": ("", "does_not_fit"),
    "is large": (submission("s = 1;") + "// " + "x" * 200_000, "too_large"),
}


Attacked = tuple[Executed, dict[str, Executed], Executed]


@pytest.fixture(scope="module")
def attacked(machine: Machine) -> Attacked:
    """What an honest submission measures, then every attack, then the honest one again."""
    before = run(machine, PLAIN)
    found = {name: run(machine, source, loose(HARNESS)) for name, (source, _) in HOSTILE.items()}
    return before, found, run(machine, PLAIN)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_code_ends_in_a_named_outcome(attacked: Attacked, name: str) -> None:
    """Each attack has its own measured outcome and passes no test that it should not."""
    _, by_name, _ = attacked
    found, (_, outcome) = by_name[name], HOSTILE[name]
    assert found.outcome == outcome, found
    assert found.features["test_small" if found.calls[1:] else "runs"] is False
    assert "metric_error" not in found.features or found.features["metric_error"] != -1


def test_attacks_change_nothing_for_others(attacked: Attacked) -> None:
    """After every attack an honest submission measures exactly what it measured before."""
    before, _, after = attacked
    assert after == before


def test_selfdestruct_later_leaves_the_tests_alone(machine: Machine) -> None:
    """A submission that destroys itself when asked answers the next test all the same: each starts from setUp."""
    body = "for (uint256 i = 0; i < xs.length; i++) { s += xs[i]; } this.end();"
    end = "function end() external { selfdestruct(payable(msg.sender)); }"
    assert run(machine, submission(body, inside=end), loose(HARNESS)).outcome == "passed"


def test_reading_the_gas_does_not_make_it_less(machine: Machine) -> None:
    """Code that looks at gasleft() to find the harness pays for it, and what it gives there is tested there."""
    cheat = submission(
        "if (xs.length == 100 && gasleft() > 1000000) return 5050; for (uint256 i; i < xs.length; i++) s += xs[i];"
    )
    found = run(machine, cheat, loose(HARNESS))
    call = next(one for one in found.calls if one.name == "metric_gas")
    assert isinstance(call.value, int)
    assert 0 < call.value < call.used, "the gas of the call is part of the gas of the transaction"
    strict = loose(HARNESS).replace("numbers(4)))", "numbers(100))) - 5040")
    lying = run(machine, cheat.replace("5050", "0"), strict)
    assert lying.features["metric_error"] != run(machine, cheat, strict).features["metric_error"]


def test_a_harness_must_not_be_the_submission(machine: Machine) -> None:
    """A harness that inherits from the submission is refused, and says what to write instead."""
    source = submission("s = 1;", inside="function test_mine() external {} function metric_mine() external {}")
    harness = HEAD + 'import "./Submission.sol"; contract Harness is Submission { function test_one() external {} }'
    found = run(machine, source, harness)
    assert found.outcome == "does_not_fit"
    assert "inherits from the submission. Hold it in a variable" in found.detail


def test_a_constructor_that_gives_the_scales_less_code_pays_for_all_of_it(machine: Machine) -> None:
    """Empty code for whoever deploys alone, the whole one for the harness: deploying costs no less than the whole."""
    body = "for (uint256 i = 0; i < xs.length; i++) { s += xs[i]; }"
    trick = "constructor() { if (msg.sender == tx.origin) assembly { return(0, 0) } }"
    cheat, honest = (
        machine.run(None, HarnessSubmission("solidity", submission(body, inside=one))) for one in (trick, "")
    )
    asked, due = cheat.features["deploy_gas"], honest.features["deploy_gas"]
    assert asked is not None
    assert due is not None
    assert asked > due


def test_deploying_costs_what_it_costs_where_the_harness_does_it(machine: Machine) -> None:
    """A constructor that works only for the harness is measured there; arguments do not hide what it costs."""
    body = "for (uint256 i = 0; i < xs.length; i++) { s += xs[i]; }"
    work = "for (uint256 i; i < 9; ++i) assembly { sstore(i, not(i)) }"
    asks, always = f"if (msg.sender.code.length > 0) {{ {work} }}", work
    costs = []
    for inside in (asks, always):
        source = submission(body, inside=f"constructor() {{ {inside} }}")
        found = run(machine, source, loose(HARNESS)).features["deploy_gas"]
        assert found is not None
        costs.append(found)
    assert costs[0] >= costs[1] > 9 * 20_000
    given = submission(body, inside="uint256 immutable n; constructor(uint256 a) { n = a; }")
    built = loose(HARNESS).replace("new Submission()", "new Submission(7)")
    assert run(machine, given, built).features["deploy_gas"] is not None


def test_control_characters_are_spelled_out(machine: Machine) -> None:
    """What a submission reverts with is shown in plain ASCII, capped."""
    found = run(machine, submission('revert(unicode"\\u001b[2J\\u202e\\n<script>");'), loose(HARNESS))
    text = "\n".join(found.logs)
    assert r"\x1b[2J\u202e\n<script>" in text
    assert text.replace("\n", "").isprintable()
    assert text.isascii()


def test_a_metric_that_is_no_number_has_a_name(machine: Machine) -> None:
    """A metric of another type than a number is not_a_number, and its value is unknown."""
    harness = HEAD + (
        'import "./Submission.sol"; contract Harness { function metric_x() external pure returns (string memory) '
        '{ return "1"; } }'
    )
    found = run(machine, PLAIN, harness)
    assert found.outcome == "not_a_number"
    assert found.features["metric_x"] is None


def test_a_huge_metric_is_kept_exactly_and_counts_as_the_largest_number(machine: Machine) -> None:
    """The feature is clamped to a million millions; the call keeps the exact value as text."""
    harness = HEAD + (
        'import "./Submission.sol"; contract Harness { function metric_x() external pure returns (uint256) '
        "{ return type(uint256).max; } }"
    )
    found = run(machine, PLAIN, harness)
    assert found.features["metric_x"] == 1e12
    assert found.to_json()["calls"][1]["value"] == str(2**256 - 1)


def test_the_world_is_fixed_and_empty(machine: Machine) -> None:
    """Block, chain and randomness are those of the settings; nothing of another chain can be seen."""
    checks = " && ".join(
        (
            f"block.number == {WORLD['blockNumber']}",
            f"block.timestamp == {WORLD['timestamp']}",
            f"block.chainid == {WORLD['chainId']}",
            f"block.prevrandao == uint256({WORLD['prevrandao']})",
            f"block.gaslimit == {WORLD['blockGasLimit']}",
            "block.basefee == 0 && tx.gasprice == 0",
            "address(0x00000000219ab540356cBB839Cbe05303d7705Fa).balance == 0",
            f"address(this).balance == {WORLD['harnessBalance']}",
        )
    )
    harness = (
        HEAD + f'import "./Submission.sol"; contract Harness {{ function test_x() external {{ require({checks}); }} }}'
    )
    assert run(machine, PLAIN, harness).outcome == "passed"


def test_there_is_no_world_outside(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file is read or written, no variable told, no port reached; what cannot be fixed is the same every time."""
    canary, target = tmp_path / "canary", tmp_path / "written"
    canary.write_text("canary-4711", encoding="utf-8")
    monkeypatch.setenv("CLARA_CANARY", "canary-4711")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.2)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        # What test tools give to contracts at this address: files, variables, programs, other chains.
        asked = (
            f'"readFile(string)", "{canary}"',
            f'"writeFile(string,string)", "{target}", "x"',
            '"envString(string)", "CLARA_CANARY"',
            f'"createFork(string)", "{url}"',
            f'"rpc(string,string,string)", "{url}", "eth_blockNumber", "[]"',
        )
        calls = "".join(f"none(abi.encodeWithSignature({one}));" for one in asked)
        inside = """address constant TOOLS = 0x7109709ECfa91a80626fF3989D68f67F5b1DD12D;
            function none(bytes memory asked) internal {
                (, bytes memory said) = TOOLS.call(asked);
                require(said.length == 0 && TOOLS.code.length == 0, "told");
            }"""
        world = "abi.encode(block.coinbase, blockhash(block.number - 1), block.blobbasefee, blobhash(0), tx.origin)"
        source = submission(f"{calls} s = uint256(keccak256({world})) % 1e9 + xs.length;", inside=inside)
        harness = HEAD + (
            'import "./Submission.sol"; contract Harness { function metric_world() external returns (uint256) '
            "{ return new Submission().sum(new uint256[](0)); } }"
        )
        first, second = run(machine, source, harness), run(machine, source, harness)
        with pytest.raises(TimeoutError):
            listening.accept()
    assert first.outcome == "passed", (first.detail, first.logs)
    assert first == second
    assert not target.exists()


def test_a_hard_nut_for_the_compiler_is_only_its_own_problem(npm: Machine) -> None:
    """Text made to break the compiler is the submission's own outcome, and the next one is measured as before."""
    before = run(npm, PLAIN)
    for name, source in COMPILER_BOMBS.items():
        found = run(npm, source, loose(HARNESS))
        assert (name, found.outcome) == (name, "does_not_compile")
        assert found.features["tests_passed"] == 0.0
        assert found.features["compiles"] is False
    assert run(npm, PLAIN) == before


def test_what_the_compiler_may_use_is_bounded() -> None:
    """More memory than the compiler may use, or more of the processor, is the text's own outcome, not an outage."""
    compiler = find_compiler(None)
    assert compiler is not None
    for name, value in (("MEMORY_BYTES", 32 * 1024**2), ("CPU_SECONDS", 1)):
        functions = "".join(
            f"function f{n}(uint256[] calldata a) external pure returns (uint256) {{ return a.length + {n}; }}"
            for n in range(700)
        )
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(solc, name, value)
            patched.setattr(solc, "_version", lambda _: "0.8.37")
            found = compile_solidity(compiler, submission("s = 1;", inside=functions), None)
        assert (found["outcome"], found["submission"]) == ("does_not_compile", None), found["detail"]


LOOPS = "uint256 public made; constructor() { uint256 x; for (uint256 i = 0; i < %s; ++i) x ^= i; made = x; }"


def test_a_long_constructor_costs_its_own_deploy_gas_and_no_time(machine: Machine) -> None:
    """The steps that are read of a run are bounded: beyond them a creation is charged as its whole transaction."""
    short, long = (run(machine, submission("s = 123;", inside=LOOPS % count), loose(HARNESS)) for count in (10, 4_000))
    assert (short.outcome, long.outcome) == ("failed", "failed")
    assert long.features["tests_passed"] == short.features["tests_passed"]
    cheap, dear = short.features["deploy_gas"], long.features["deploy_gas"]
    assert isinstance(cheap, int)
    assert isinstance(dear, int)
    assert dear > 2 * cheap


def test_the_clock_only_ever_says_infrastructure(machine: Machine) -> None:
    """A guard that fires gives no features at all, and the machine goes on."""
    found = run(machine, submission("s = 123;"), loose(HARNESS), RunLimits(seconds=-1_000.0))
    assert found.outcome == "infrastructure"
    assert found.features == {}
    assert run(machine, PLAIN).outcome == "passed"


def test_the_worker_has_no_secrets_and_no_files(solc: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the environment of the service nor its folder reaches the process that runs submissions."""
    monkeypatch.setenv("CLARA_EVALUATOR_KEY", "canary-4711")
    machine = Machine(solc=solc, workers=1)
    try:
        assert run(machine, PLAIN).outcome == "passed"
        (worker,) = machine._workers._idle
        folder = Path("/proc") / str(worker._process.pid)
        assert b"canary" not in (folder / "environ").read_bytes()
        assert not list((folder / "cwd").resolve().iterdir())
        assert (folder / "cwd").resolve() != Path.cwd()
    finally:
        machine.close()


def test_an_import_reads_no_file_even_where_one_is(npm: Machine, tmp_path: Path) -> None:
    """A file that exists is not found by the compiler: only the given sources are."""
    canary = tmp_path / "Canary.sol"
    canary.write_text(HEAD + "contract Canary { string public word = 'canary-4711'; }", encoding="utf-8")
    for path in (str(canary), f"file://{canary}", os.path.relpath(canary)):
        found = run(npm, submission("s = 1;", before=f'import "{path}";'), loose(HARNESS))
        assert found.outcome == "forbidden_import"
        assert "4711" not in found.detail


def test_a_missing_compiler_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No compiler means MissingEngine with the remedy; a wrong setting names itself."""
    with pytest.raises(ConfigError, match="CLARA_SOLC"):
        find_compiler(str(tmp_path / "nothing"))
    monkeypatch.setattr("clara_eval.harness.machine.find_compiler", lambda _: None)
    with pytest.raises(MissingEngine, match="npm install solc"):
        run(Machine(), PLAIN)


def test_a_native_compiler_gives_the_same_code(machine: Machine, npm: Machine, solc: str | None) -> None:
    """A program that speaks like solc, named by CLARA_SOLC, is used and gives what the npm package gives."""
    found, package = find_compiler(solc), find_compiler(None)
    assert found is not None
    assert package is not None
    assert (found.native, package.native) == (solc, None)
    for source in (PLAIN, "this is no code"):
        assert run(machine, source) == run(npm, source)


def test_the_cache_is_keyed_by_sources_compiler_and_settings() -> None:
    """Another source, harness or compiler is another entry."""
    keys = {
        CompileCache.key("a", "s", "h"),
        CompileCache.key("b", "s", "h"),
        CompileCache.key("a", "t", "h"),
        CompileCache.key("a", "s", None),
        CompileCache.key("a", "s", ""),
    }
    assert len(keys) == 5


def test_half_a_cache_file_is_compiled_again(tmp_path: Path) -> None:
    """A damaged file in the cache costs time and nothing else."""
    cache = CompileCache(tmp_path)
    cache.put("0xab", compile_result("0.8.30"))
    assert CompileCache(tmp_path).get("0xab") == compile_result("0.8.30")
    (tmp_path / "0xab.json").write_text('{"outcome"', encoding="utf-8")
    assert CompileCache(tmp_path).get("0xab") is None


def test_a_harness_is_checked_on_a_reference(machine: Machine) -> None:
    """A harness that fails on the reference, measures nothing or has ambiguous names is found."""
    good = check_harness(machine, Harness("solidity", HARNESS), PLAIN)
    assert good.problems == ()
    metrics, (types,) = good.warnings[:2], good.warnings[2:]
    assert [warning.partition(" gives")[0] for warning in metrics] == ["metric_error", "metric_gas"]
    assert "Declare an interface" in types
    assert "Check the result after the measured call" in good.warnings[0]
    wrong = check_harness(machine, Harness("solidity", HARNESS.replace("== 6", "== 7")), PLAIN)
    assert "does not pass: failed (test_small)" in wrong.problems[0]
    twice = check_harness(machine, Harness("solidity", HARNESS.replace("metric_error", "metric_small")), PLAIN)
    assert "gas_small" in twice.problems[0]
    empty = HEAD + 'import "./Submission.sol"; contract Harness { function setUp() external {} }'
    assert "measures nothing" in check_harness(machine, Harness("solidity", empty), PLAIN).problems[0]


def test_languages_must_agree(machine: Machine) -> None:
    """A harness in one language does not run a submission in another."""
    with pytest.raises(BadInput, match="same language"):
        machine.run(Harness("python", ""), HarnessSubmission("solidity", PLAIN))


async def test_gas_is_what_a_node_charges(machine: Machine, solc: str | None) -> None:
    """Deployment, setUp and every function cost on anvil exactly what is measured here."""
    compiler = find_compiler(solc)
    assert compiler is not None
    source = submission("calls += 1; for (uint256 i; i < xs.length; i++) { s += xs[i]; }", inside="uint256 calls;")
    harness = loose(HARNESS)
    made = compile_solidity(compiler, source, harness)
    assert made["submission"] is not None
    assert made["harness"] is not None
    measured = {call.name: call.used for call in run(machine, source, harness).calls}
    async with Anvil() as node:
        account = rpc(node.rpc_url, "eth_accounts")[0]

        def charged(to: str | None, data: str) -> dict[str, Any]:
            call = {"from": account, "data": data, "gas": hex(15_000_000), **({"to": to} if to else {})}
            sent = rpc(node.rpc_url, "eth_sendTransaction", call)
            while not (receipt := rpc(node.rpc_url, "eth_getTransactionReceipt", sent)):
                time.sleep(0.05)
            found: dict[str, Any] = receipt
            return found

        alone = charged(None, "0x" + made["submission"])
        assert int(alone["gasUsed"], 16) == run(machine, source, harness).features["deploy_gas"]
        address = charged(None, "0x" + made["harness"]["code"])["contractAddress"]
        selectors = {one["name"]: "0x" + one["selector"] for one in made["harness"]["functions"]}
        found = {"setUp": charged(address, selectors.pop("setUp"))}
        kept = rpc(node.rpc_url, "evm_snapshot")
        for name, selector in selectors.items():
            found[name] = charged(address, selector)
            assert rpc(node.rpc_url, "evm_revert", kept) is True
            kept = rpc(node.rpc_url, "evm_snapshot")
    assert {name: int(receipt["gasUsed"], 16) for name, receipt in found.items()} == measured


def rpc(url: str, method: str, *params: Any) -> Any:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        found = json.load(answer)
    assert "error" not in found, found
    return found["result"]


def test_the_files_of_a_tree_import_each_other(machine: Machine) -> None:
    """A contract inherits and calls what other files of its tree hold, whatever their names; a base may come later."""
    files = {
        "A_Submission.sol": HEAD + 'import {Base} from "./lib/Z.sol";\nimport "./lib/Sums.sol";\n'
        "contract Submission is Base {\n"
        "    function sum(uint256[] memory xs) external pure returns (uint256) { return Sums.all(xs) + ZERO; }\n}\n",
        "lib/Sums.sol": HEAD
        + "library Sums {\n    function all(uint256[] memory xs) internal pure returns (uint256 s) {\n"
        "        for (uint256 i; i < xs.length; ++i) s += xs[i];\n    }\n}\n",
        "lib/Z.sol": HEAD
        + 'import "./Sums.sol" ;\nabstract contract Base {\n    uint256 internal constant ZERO = 0;\n}\n',
    }
    tree = read_archive(pack_files({name: text.encode() for name, text in files.items()}))
    source = tree.program("solidity")
    assert isinstance(source, str)
    found = run(machine, source)
    assert found.outcome == "passed", found.detail
    assert found.features["tests_passed"] == 1.0
