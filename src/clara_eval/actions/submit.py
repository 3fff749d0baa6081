"""Plan a submission, which is a URI and a hash on chain, and measure a draft before it."""

# ruff: noqa: N815 - the fields are named as in the documents

from __future__ import annotations

import base64
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from clara_eval.actions.amounts import show_moment, show_wait
from clara_eval.actions.challenges import COOLDOWN_SECONDS, challenge_at, submission_of
from clara_eval.actions.harness import measure_public
from clara_eval.actions.perform import Action, Plan, require_text, sender_of, transaction, with_gas
from clara_eval.app import Caller, open_machine
from clara_eval.chain.contracts.abi import abi
from clara_eval.chain.model import Challenge, ChallengeStatus
from clara_eval.config.eval_config import compile_schema, read_metadata
from clara_eval.core.address import Address
from clara_eval.core.errors import BadInput, BadSubmission, CannotAct, NotYet
from clara_eval.core.hashing import keccak_hex
from clara_eval.core.untrusted import Untrusted, fence
from clara_eval.documents.results import Document
from clara_eval.submissions.files import is_archive, is_binary, pack_folder, read_archive

DATA_URI_BYTES = 16_000  # of content in a URI on chain: at 22,100 gas per 32 bytes it must fit one transaction
FILE_BYTES = 5_000_000
UNPINNED = (
    "This hash covers only the address, not what stands there: the submission is unpinned. It never counts as the "
    "original of anything, and near a paid place it waits for a person. Leave out the hash to commit to the content."
)
MUTABLE = (
    "An https URL can change after the deadline. If its content no longer has this hash, the submission is rejected: "
    "ipfs: or data: are safer."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionInput:
    """A submission of an agent: exactly one of content, file and uri."""

    challenge: str
    content: str = ""
    file: str = ""
    uri: str = ""
    solution_hash: str = ""  # only with `uri`: keccak256 of its content, so that it is not fetched here
    agent_id: int | None = None
    register: bool = False  # register the sender as an agent first if it is not one yet


@dataclass(frozen=True, slots=True)
class _Solution:
    uri: str
    content_hash: str
    warnings: tuple[str, ...] = ()
    publishes: bytes | None = None


def submit(given: SubmissionInput, sender: str | None = None) -> Action:
    async def plan(caller: Caller, registered: int | None) -> Plan:
        return await plan_submit(caller, given if registered is None else replace(given, agent_id=registered), sender)

    return Action.of("submit", given, plan)


async def plan_submit(caller: Caller, given: SubmissionInput, sender: str | None = None) -> Plan:
    agent = sender_of(caller, sender)
    challenge = await challenge_at(caller, given.challenge)
    await _check_can_submit(caller, challenge, agent)
    agent_id = await _agent_id(caller, challenge, given, agent)
    solution = await _build_solution(caller, given)
    network, at = caller.settings.network_name, challenge.address
    what = f"the content of the file {given.file[:200]!r}" if given.file else "this solution"
    if agent_id is None:
        data = abi("IdentityRegistry").function("register(string)").call("")
        return Plan(
            action="challenge_submit",
            sender=agent,
            transactions=await with_gas(
                caller, agent, transaction(challenge.identity_registry, data, "Register as an agent")
            ),
            question=f"Register {agent} as an agent on {network} and submit {what} to {at}? It costs gas, and the "
            "solution becomes public.",
            summary=f"{agent} is not an agent yet: this registers it. The submission follows.",
            challenge=at,
            details={"agentId": None, "solutionURI": None, "solutionHash": None, "deadline": challenge.deadline},
            is_first_part=True,
        )
    data = caller.chain.challenges.contract(at).encode("submit", agent_id, solution.uri, solution.content_hash)
    return Plan(
        action="challenge_submit",
        sender=agent,
        transactions=await with_gas(caller, agent, transaction(at, data, f"Submit a solution as agent {agent_id}")),
        question=f"Submit {what} to {at} on {network} as agent {agent_id}? It costs gas, becomes public, and can be "
        "replaced once an hour until the deadline.",
        summary=f"Submission to {at} as agent {agent_id}, content hash {solution.content_hash}.",
        challenge=at,
        warnings=solution.warnings,
        publishes=solution.publishes,
        place=solution.uri,
        details={
            "agentId": str(agent_id),
            "solutionURI": solution.uri if len(solution.uri) <= 300 else solution.uri[:300] + "…",
            "solutionHash": solution.content_hash,
            "deadline": challenge.deadline,
        },
    )


async def _check_can_submit(caller: Caller, challenge: Challenge, agent: Address | None) -> None:
    """Refuse a challenge that is not open, or not open to this agent now."""
    now = challenge.block.timestamp
    if challenge.status is not ChallengeStatus.OPEN:
        message = f"The challenge {challenge.address} is {challenge.status.name.lower()}, not open."
        raise CannotAct(message, see="open_ones")
    if now >= challenge.deadline:
        raise CannotAct(
            f"The deadline of {challenge.address} passed {show_moment(challenge.deadline)}.",
            remedy="Submissions are accepted only before it.",
            see="open_ones",
        )
    if agent is None:
        return
    last = await caller.chain.challenges.contract(challenge.address).last_submission_time(challenge.block, agent)
    free_at = last + COOLDOWN_SECONDS
    if last and now < free_at:
        late = " That is after the deadline." if free_at >= challenge.deadline else ""
        raise NotYet(
            f"You submitted at {show_moment(last)}; only one submission per hour and address is accepted "
            "(SubmissionCooldown).",
            remedy=f"Try again at {show_moment(free_at)}, in {show_wait(free_at - now)}.{late}",
        )
    if not last and 0 < challenge.max_participants <= challenge.submission_count:
        raise CannotAct(
            f"The challenge {challenge.address} has all of its {challenge.max_participants} participants.",
            remedy="Only those who have already submitted can submit again.",
        )


async def _agent_id(caller: Caller, challenge: Challenge, given: SubmissionInput, agent: Address | None) -> int | None:
    """Return the agent id to submit with; None if the sender must be registered first."""
    registry, agent_id = challenge.identity_registry, given.agent_id
    identity = caller.chain.agents.identity(registry)
    if agent_id is not None:
        if not 0 <= agent_id < 2**256:
            raise BadInput(f"{agent_id} is not an agent id.", path="agentId")
        (owner,) = await identity.owners_of(await caller.chain.blocks.head(), [agent_id])
        if owner is None:
            raise CannotAct(f"No agent has the id {agent_id}.", remedy="Register first, or give the id that you own.")
        if agent is not None and owner != agent:
            raise CannotAct(
                f"Agent {agent_id} belongs to {owner}, not to {agent}.",
                remedy="Submit with the id that your wallet owns (NotRegisteredAgent).",
            )
        return agent_id
    if agent is None:
        raise BadInput(
            "Neither an agent id nor a sender is given.",
            path="agentId",
            remedy="Give the id that your wallet owns in the identity registry, or your address as sender.",
        )
    before = await submission_of(caller, challenge, agent)
    if before is not None:
        return before.agent_id
    head = await caller.chain.blocks.head()
    if not await identity.one(head, "balanceOf", agent):
        if given.register:
            return None
        raise CannotAct(f"{agent} owns no agent in the identity registry {registry}.", see="register")
    owned = await caller.chain.agents.agents_of(registry, agent, head)
    if not owned:
        raise BadInput(
            f"{agent} owns an agent, but neither events nor the registry {registry} tell which.",
            path="agentId",
            remedy="Give the agent id. It stands in the receipt of the registration, as the tokenId of its Transfer.",
        )
    return owned[-1]


async def _build_solution(caller: Caller, given: SubmissionInput) -> _Solution:
    kinds = [name for name in ("content", "file", "uri") if getattr(given, name)]
    if len(kinds) != 1:
        raise BadInput(
            f"Exactly one of content, file and uri is needed; given: {', '.join(kinds) or 'none'}.",
            path="content",
            remedy="Give the solution's text as content.",
        )
    require_text(given.uri or given.content, kinds[0])
    if given.uri:
        return await _solution_from_uri(caller, given)
    if given.solution_hash:
        raise BadInput("The hash of given content is computed here.", path="solutionHash", remedy="Omit it.")
    content = _read_file(caller, given.file) if given.file else given.content.encode()
    place = await caller.contents.place_of(content) if caller.is_local else None
    if place is not None:
        return _Solution(place, keccak_hex(content), publishes=content)
    if len(content) > DATA_URI_BYTES:
        raise BadInput(
            f"The content has {len(content):,} bytes; at most {DATA_URI_BYTES:,} can be stored on chain itself.",
            path="content",
            remedy="Set CLARA_IPFS_API to pin it, or publish it and give its ipfs: or https: URI.",
        )
    if is_archive(content):
        try:
            read_archive(content)
        except BadSubmission as bad:
            raise BadInput(bad.message, path="file", remedy=bad.remedy) from None
    elif is_binary(content):
        raise BadInput("The content is not UTF-8 text.", path="content", remedy="Submit text, or an archive of files.")
    kind = "application/octet-stream" if is_archive(content) else "text/plain;charset=utf-8"
    uri = f"data:{kind};base64," + base64.b64encode(content).decode()
    costly = f"{len(content):,} bytes are stored on chain; an ipfs: URI would cost less gas."
    return _Solution(uri, keccak_hex(content), (costly,) if len(content) > 2_000 else ())


def draft_text(caller: Caller, content: str, file: str) -> str:
    if bool(content) == bool(file):
        raise BadInput("Give the draft either as content or as a file.", path="content")
    try:
        return _read_file(caller, file).decode("utf-8") if file else content
    except UnicodeDecodeError:
        raise BadInput(f"The file {file[:200]!r} is not UTF-8 text.", path="file") from None


def _read_file(caller: Caller, name: str) -> bytes:
    if not caller.is_local:
        raise BadInput("Files are read only from the caller's own machine.", path="file", remedy="Give the content.")
    try:
        if (path := Path(name).expanduser()).is_dir():
            return pack_folder(path)
        with path.open("rb") as file:
            content = file.read(FILE_BYTES + 1)
    except (OSError, ValueError, RuntimeError) as bad:  # ValueError: a null byte; RuntimeError: an unknown ~user
        message = f"The file {name[:200]!r} cannot be read: {getattr(bad, 'strerror', None) or bad}."
        raise BadInput(message, path="file", remedy="Name a file that you can read.") from None
    if len(content) > FILE_BYTES:
        raise BadInput(f"The file {name[:200]!r} is larger than {FILE_BYTES:,} bytes.", path="file")
    if not content:
        raise BadInput(f"The file {name[:200]!r} is empty.", path="file")
    return content


async def _solution_from_uri(caller: Caller, given: SubmissionInput) -> _Solution:
    scheme = given.uri.partition(":")[0].lower()
    if scheme not in {"data", "https", "ipfs"} or len(given.uri) > 30_000:
        raise BadInput(
            f"{given.uri[:80]!r} is not a URI that the evaluator reads.",
            path="uri",
            remedy="Use data:, https: or ipfs:.",
        )
    warnings = (MUTABLE,) if scheme == "https" else ()
    if given.solution_hash:
        digits = given.solution_hash.strip().lower().removeprefix("0x")
        if len(digits) != 64 or not set(digits) <= set("0123456789abcdef"):
            message = f"{given.solution_hash[:80]!r} is not a hash."
            raise BadInput(message, path="solutionHash", remedy="0x and 64 hex digits (keccak256).")
        solution_hash = "0x" + digits
        if scheme != "data" and solution_hash == keccak_hex(given.uri.encode()):
            warnings = (UNPINNED,)
        return _Solution(given.uri, solution_hash, warnings)
    if not caller.is_local and scheme != "data":
        raise BadInput(
            "This server does not fetch URIs for its callers.",
            path="solutionHash",
            remedy="Give solutionHash: keccak256 of the content behind the URI.",
        )
    return _Solution(given.uri, keccak_hex(await caller.contents.fetch(given.uri)), warnings)


class TryResult(Document):
    challengeAddress: str
    harness: str  # `public`, `none`, or `hidden`: then only its public part, if any, was run
    outcome: str | None  # how the run ended; null if nothing was run
    detail: str
    features: dict[str, float | int | bool | str | None]  # what would be measured, by the names of the config
    readByModel: list[str]  # features that no tool measures
    used: int | None
    unit: str | None
    calls: list[dict[str, object]]
    logs: Untrusted | None


async def try_draft(caller: Caller, address: str, text: str) -> TryResult:
    if not caller.is_local:
        raise BadInput(
            "A draft is measured on your own machine, not by this server.", remedy="Run it at your own machine."
        )
    challenge = await challenge_at(caller, address)
    config = read_metadata(await caller.contents.fetch(challenge.challenge_uri), challenge.eval_config_hash).config
    schema, _ = compile_schema(config)
    with closing(open_machine(caller.settings)) as machine:
        executed, values = await measure_public(machine, config, schema, text)
    logs = "\n".join(executed.logs) if executed else ""
    return TryResult(
        challengeAddress=challenge.address,
        harness="none" if config.harness is None else "hidden" if config.harness.hidden else "public",
        outcome=executed.outcome.value if executed else None,
        detail=executed.detail if executed else "",
        features={one.name: values.get(one.name) for one in schema.features if one.source == "measured"},
        readByModel=[one.name for one in schema.features if one.source != "measured"],
        used=executed.used if executed else None,
        unit=executed.unit if executed else None,
        calls=[dict(call.to_json()) for call in executed.calls] if executed else [],
        logs=fence(logs, "the draft") if logs else None,
    )
