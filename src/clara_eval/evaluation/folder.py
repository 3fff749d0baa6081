"""Rounds without a chain: a folder, list or mapping of named entries as the venue."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from clara_eval.config.eval_config import read_metadata
from clara_eval.core.address import ZERO_ADDRESS, Address
from clara_eval.core.codec import JsonCodec, to_camel_json
from clara_eval.core.errors import BadTrace
from clara_eval.core.hashing import keccak_hex, plain_json
from clara_eval.core.model import Submission
from clara_eval.evaluation.replay import Replay, replay
from clara_eval.evaluation.result import Entry, EvaluationResult, VenueRecords, entries
from clara_eval.evaluation.round import EvaluationPlan, Round
from clara_eval.evaluation.sources import Bodies, LiveSources, ModelSource, recorded_metadata
from clara_eval.evaluation.trace import Journal
from clara_eval.harness import Machine
from clara_eval.judge.port import JournalEntries
from clara_eval.submissions.model import Fetch, Fetched

NAMES = "that these are all entries, and that the named authors wrote them: only this trace commits to them"
_HASH = re.compile("0x[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class NamedContent:
    id: str
    content: bytes = field(repr=False)
    file: str = ""  # file name if it is not the id; it may tell the language
    submitted_at: int = 0  # unix seconds; 0 if unknown
    media_type: str = "text/plain"

    @property
    def uri(self) -> str:
        return f"entry:{quote(self.id)}" + (f"/{quote(self.file)}" if self.file not in {"", self.id} else "")


@dataclass(frozen=True, slots=True)
class FolderEntry:
    id: str
    account: Address  # derived from the id by `account_of`
    solution_uri: str
    solution_hash: str
    submitted_at: int


@dataclass(frozen=True, slots=True)
class Folder:
    eval_config_hash: str
    winner_count: int
    payout_bps: tuple[int, ...]
    entries: tuple[FolderEntry, ...]  # in order of account


FOLDER = JsonCodec(Folder)


def account_of(entry_id: str) -> Address:
    """Derive the account of an entry: the last 20 bytes of a hash of its id."""
    return Address("0x" + keccak_hex(b"clara-eval entry\n" + entry_id.encode())[-40:])


@dataclass(frozen=True, slots=True)
class FolderVenue:
    folder: Folder
    given: Round
    poster: Address = ZERO_ADDRESS

    @classmethod
    def of(
        cls, contents: Sequence[NamedContent], config: bytes, payout_bps: Sequence[int], title: str, problem: str
    ) -> FolderVenue:
        found = [
            FolderEntry(one.id, account_of(one.id), one.uri, keccak_hex(one.content), one.submitted_at)
            for one in contents
        ]
        entries = tuple(sorted(found, key=lambda one: one.account))
        metadata = {"title": title, "problemStatement": problem, "evalConfig": config.decode()}
        folder = Folder(keccak_hex(config), len(payout_bps), tuple(payout_bps), entries)
        return cls._build(folder, json.dumps(metadata, ensure_ascii=False).encode())

    @classmethod
    def read(cls, evidence: Bodies) -> FolderVenue:
        """Read the venue from a trace; BadTrace if it is malformed."""
        try:
            folder = FOLDER.read(evidence["folder"])
        except ValueError as bad:
            raise BadTrace(f"The folder cannot be read: {bad}", entry="folder") from bad
        accounts = [one.account for one in folder.entries]
        if accounts != sorted(set(accounts)) or any(one.account != account_of(one.id) for one in folder.entries):
            raise BadTrace("The accounts are not those of the ids, in order.", entry="folder")
        if not all(_HASH.fullmatch(one.solution_hash) for one in folder.entries):
            raise BadTrace("A solutionHash is not a hash of 32 bytes in lower case.", entry="folder")
        if not 0 < folder.winner_count <= len(folder.entries) > 1:
            raise BadTrace("There are too few entries, or more winners than entries.", entry="folder")
        return cls._build(folder, recorded_metadata(evidence, ""))

    @classmethod
    def _build(cls, folder: Folder, metadata: bytes) -> FolderVenue:
        # Hashes all contents: to know the nonces in prompts, an entry would have to contain its own hash.
        beacon = keccak_hex(plain_json(to_camel_json(folder)).encode())
        name = "0x" + beacon[-40:]
        given = Round(
            run=f"folder:{name}",
            name=name,
            beacon=beacon,
            metadata_bytes=metadata,
            metadata=read_metadata(metadata, folder.eval_config_hash),
            config_hash=folder.eval_config_hash,
            private_set_hash="0x" + "0" * 64,
            winner_count=folder.winner_count,
            payout_bps=folder.payout_bps,
            submissions=tuple(
                Submission(one.account, number, one.solution_uri, one.solution_hash, one.submitted_at, version=1)
                for number, one in enumerate(folder.entries, start=1)
            ),
        )
        return cls(folder, given)

    @property
    def ids(self) -> dict[str, str]:
        return {one.account: one.id for one in self.folder.entries}

    @property
    def run(self) -> str:
        return self.given.run

    @property
    def submission_count(self) -> int:
        return len(self.folder.entries)

    def sources(self, fetch: FolderFetch, store: JournalEntries, models: ModelSource, machine: Machine) -> LiveSources:
        return LiveSources(Journal(store, self.run), fetch, models, machine)

    def trace(self, plan: EvaluationPlan, result: EvaluationResult) -> Iterator[Entry]:
        return entries(plan, result, self.records(result))

    def records(self, _result: EvaluationResult) -> VenueRecords:
        """Return the folder as a fact; the winners are the first of `placed`, so `outcome` is empty."""
        return VenueRecords({"folder": self.given.name}, (("folder", to_camel_json(self.folder)),), (), ())


@dataclass(frozen=True, slots=True)
class FolderFetch:
    """Fetches entries from memory by URI, and other URIs with `fallback`."""

    contents: Mapping[str, NamedContent]
    fallback: Fetch

    async def fetch(self, uri: str) -> Fetched:
        if (found := self.contents.get(uri)) is not None:
            return Fetched(found.content, found.media_type, immutable=False)
        return await self.fallback.fetch(uri)


@dataclass(frozen=True, slots=True)
class CheckedFolder(Replay):
    venue: FolderVenue

    @property
    def winners(self) -> tuple[str, ...]:
        standings = self.result.ranking.standings if self.result.ranking else ()
        return tuple(self.venue.ids[one.item] for one in standings[: self.venue.folder.winner_count])

    @property
    def not_proven(self) -> tuple[str, ...]:
        return (NAMES, *self.open_points)


async def check_folder(lines: Iterable[str], machine: Machine | None = None) -> CheckedFolder:
    return await replay(CheckedFolder, lines, FolderVenue.read, machine)
