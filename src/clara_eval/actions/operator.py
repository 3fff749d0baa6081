"""What an operator does by hand: checks, settings, keys, backups, an evaluation; nothing shows a secret."""

from __future__ import annotations

import difflib
import os
import resource
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

from clara_eval.actions.evaluate import Evaluation, EvaluationRequest, evaluate
from clara_eval.actions.published import SpendLine, spend_report
from clara_eval.app import App, check_judges, open_app
from clara_eval.chain.account import posts_covered
from clara_eval.chain.wallet import new_keystore
from clara_eval.challenges.challenge_index import read_document, summaries
from clara_eval.challenges.status import evaluation_status
from clara_eval.challenges.stored_results import ApiRecords
from clara_eval.config.settings import Settings, given_names, unknown_names
from clara_eval.core.address import ZERO_ADDRESS, Address, to_address
from clara_eval.core.errors import BadInput, ClaraError, ConfigError, NotFound
from clara_eval.core.private_file import make_private
from clara_eval.documents.results import EvalStatus, Scores, read
from clara_eval.documents.store_keys import scores_key
from clara_eval.store.open import existing_store, is_sqlite, is_there, sqlite_path
from clara_eval.store.publication.publish_documents import Publication
from clara_eval.store.sql_store import QUEUE_CONNECTIONS, STORE_CONNECTIONS

CONNECTIONS = STORE_CONNECTIONS + QUEUE_CONNECTIONS + 1
FILES = 256  # connections to nodes, judges and the database, and some tens of readers
MEMORY_BYTES = 512 * 1024**2  # a round of 300 entries takes 152 MB; eight rounds at once share most of it
ADDRESS_BYTES = 2 * 1024**3  # libraries, stacks of threads and the compiled sandboxes
_MB = 1024**2
_MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")
_FREE = (
    "SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int "
    "- (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid())"
)
SHORTEST_PASSWORD = 12
FEWEST_SIGNS = 6
FEW_POSTS = 20  # fewer than this many posts are not enough to be left alone


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    ok: bool
    detail: str


async def preflight(settings: Settings) -> list[Finding]:
    """Run every check, in the order in which an operator would fix them."""
    try:
        async with open_app(settings) as app:
            found = []
            checks = {"network": _network, "factory": _factory, "wallet": _wallet, "store": _store,
                      "resources": check_resources, "judges": _judges}  # fmt: skip
            checks |= {place.name: partial(_place, place) for place in app.places}
            for name, look in checks.items():
                try:
                    found.append(Finding(name, ok=True, detail=await look(app)))
                except ClaraError as bad:
                    found.append(Finding(name, ok=False, detail=str(bad)))
            return found
    except ClaraError as bad:
        return [Finding("settings", ok=False, detail=str(bad))]


async def _place(place: Publication, _app: App) -> str:
    await place.check()
    return "takes what is published"


async def _network(app: App) -> str:
    await app.chain.blocks.rpc.ask("eth_chainId")
    head = await app.chain.blocks.head()
    return f"{app.settings.network_name} (chain {app.chain_id}), block {head.number}"


async def _factory(app: App) -> str:
    factory = to_address(app.settings.factory)
    code = await app.chain.blocks.rpc.ask("eth_getCode", factory, "latest")
    if code in ("0x", None):
        raise ClaraError(f"No contract is at {factory}.", remedy="Check CLARA_CHALLENGE_FACTORY and CLARA_NETWORK.")
    count = await app.chain.challenges.factory(factory).one(await app.chain.blocks.head(), "getChallengeCount")
    return f"{factory}, {count} challenge{'' if count == 1 else 's'}"


async def _wallet(app: App) -> str:
    address = app.sender.address
    if address == ZERO_ADDRESS:
        raise ClaraError("Neither key nor evaluator address is set.", remedy="Set CLARA_EVALUATOR_KEY, or the address.")
    if not app.sender.can_sign:
        return f"{address}, no key: dry run"
    assert app.wallet is not None
    await app.wallet.signer.check()
    balance, posts = await posts_covered(app.chain, address)
    place = app.wallet.signer.what
    shown = f"{address} ({place}), {balance / 1e18:.6f} ETH: enough for {posts:,} posts at the present fee"
    waiting = Counter(
        one.evaluator
        for one in (await summaries(app.store, app.chain_id)).values()
        if one.chainStatus in {"open", "scoring"} and not one.scorePostedAt and one.evaluator != address
    )
    earlier = [f"{waiting[one]} of {one}" for one in sorted(waiting) if await app.store.pending_nonces(one)]
    shown += f"; still to be scored with an earlier key: {', '.join(earlier)}" if earlier else ""
    if (gap := await app.sender.find_gap()) is not None:
        raise ClaraError(
            f"{shown}. {gap.found}.", remedy="`clara-eval serve` fills it by itself: send nothing by hand."
        )
    if posts < FEW_POSTS:
        raise ClaraError(f"{shown}.", remedy=f"Send it enough ETH for at least {FEW_POSTS} posts.")
    return shown


async def _store(app: App) -> str:
    await app.store.entry("preflight", "nothing")
    return app.settings.database_url.split("@")[-1].split("?")[0]


async def check_resources(app: App) -> str:
    """Say in one sentence what the service needs; ClaraError if it has less."""
    files, space, memory = _allowed(resource.RLIMIT_NOFILE), _allowed(resource.RLIMIT_AS) / _MB, _memory() / _MB
    # Name, needed, allowed, remedy.
    found = [
        ("file descriptors", FILES, files, "Raise `ulimit -n` or LimitNOFILE."),
        ("MB of memory", MEMORY_BYTES // _MB, memory, "Raise the memory limit."),
        ("MB of address space", ADDRESS_BYTES // _MB, space, "Raise `ulimit -v`."),
    ]
    if not is_sqlite(app.settings.database_url):
        ((free,),) = await app.store.driver.fetch(_FREE)
        found.append(("Postgres connections", CONNECTIONS, free, "Raise max_connections, or end other clients."))
    words = ", ".join(
        f"{needed:,} {name} ({'no limit' if allowed == float('inf') else f'{allowed:,.0f} allowed'})"
        for name, needed, allowed, _ in found
    )
    if short := [remedy for _, needed, allowed, remedy in found if allowed < needed]:
        raise ClaraError(f"The service needs {words}.", remedy=" ".join(short))
    return f"needs {words}"


def _memory() -> float:
    text = _MEMORY_LIMIT.read_text(encoding="ascii").strip() if _MEMORY_LIMIT.is_file() else "max"
    return float(text) if text.isdigit() else float("inf")


def _allowed(kind: int) -> float:
    """The hard limit: the service raises the soft one to it."""
    _, hard = resource.getrlimit(kind)
    return float("inf") if hard == resource.RLIM_INFINITY else float(hard)


async def _judges(app: App) -> str:
    models = await check_judges(app.settings)
    return app.settings.judges.replace(",", ", ") + (
        "" if models else "; no model: a challenge whose config needs one cannot be evaluated"
    )


async def known_status(settings: Settings, address: Address) -> tuple[EvalStatus | None, Scores | None]:
    """Read status and scores from the store, else from the service of CLARA_API_URL."""
    async with existing_store(settings.database_url) as store:
        chain_id = settings.network.chain_id
        ours = Address(settings.evaluator_address) if settings.evaluator_address else None
        if store is not None and (status := await evaluation_status(store, chain_id, address, ours)) is not None:
            return status, await read(store, chain_id, Scores, scores_key(address))
    if settings.api_url is None:
        return None, None
    service = ApiRecords(settings.api_url, settings.network.chain_id)
    return await service.status(address), await service.scores(address)


async def spending(settings: Settings, since: int) -> dict[str, list[SpendLine]]:
    async with existing_store(settings.database_url) as store:
        return spend_report(await store.spends(since=since) if store else [])


async def evaluate_now(
    settings: Settings, address: Address, request: EvaluationRequest
) -> tuple[Evaluation, dict[str, object]]:
    """Evaluate a challenge: how that ended, and the document about it."""
    async with open_app(settings) as app:
        done = await evaluate(app, address, request)
        scores = await read_document(app.store, app.chain_id, scores_key(address)) or {}
    return done, {"challenge": address, "status": done.outcome, **scores}


def list_settings(settings: Settings) -> tuple[list[dict[str, str | None]], list[str]]:
    """Every setting, and a warning for each CLARA_… name that is none.

    A secret's value is hidden, and of an address that may hold one only the host is shown.
    """
    given, rows = given_names(), list[dict[str, str | None]]()
    for name, field in Settings.model_fields.items():
        value, alias = getattr(settings, name), str(field.alias)
        source = given.get(alias) or (f"{alias}_FILE" if f"{alias}_FILE" in given else "default")
        if isinstance(value, SecretStr):
            value = "(hidden)"
        elif not field.repr and value and source != "default":
            value = _host_of(value)
        told = {"value": value, "default": field.default}
        shown = {key: None if one is None else str(one) for key, one in told.items()}
        rows.append({"name": alias, **shown, "source": source})
    return rows, unknown_settings()


def _host_of(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(not a URL)"
    return f"{parts.scheme}://{parts.hostname or ''}/…"


def unknown_settings() -> list[str]:
    """A warning for each CLARA_… name that is no setting, with the one that may be meant."""
    warnings, known = [], [str(field.alias) for field in Settings.model_fields.values()]
    for name in unknown_names(given_names()):
        close = difflib.get_close_matches(name, known, n=1)
        warnings.append(f"{name} is not a setting.{f' Did you mean {close[0]}?' if close else ''}")
    return warnings


def new_key(path: Path, password: SecretStr) -> Address:
    """Write a new key; its password is long and varied, because a keystore can be tried offline."""
    text = password.get_secret_value()
    if len(text) < SHORTEST_PASSWORD or len(set(text)) < FEWEST_SIGNS:
        raise ConfigError(
            f"The password of the keystore is weak: fewer than {SHORTEST_PASSWORD} characters, or fewer than "
            f"{FEWEST_SIGNS} different ones.",
            remedy="Choose several random words.",
        )
    return new_keystore(path, password)


def back_up(database_url: str, target: Path) -> int:
    """Write everything that is committed, also what is still in the write-ahead log, and return the bytes."""
    if not is_sqlite(database_url):
        raise ConfigError(
            "CLARA_DATABASE_URL is a Postgres database, which its own tool backs up.",
            remedy='Run `pg_dump --format=custom --file FILE "$CLARA_DATABASE_URL"`.',
        )
    source = Path(sqlite_path(database_url))
    if not is_there(database_url):
        raise NotFound(f"There is no database {source} to back up.", remedy="Check CLARA_DATABASE_URL.")
    if target.exists():
        raise BadInput(f"{target} exists already.", remedy="Choose another name, or remove it.")
    part = target.with_name(target.name + ".part")
    try:
        make_private(part)
        with closing(sqlite3.connect(source)) as live, closing(sqlite3.connect(part)) as copy:
            live.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")
            (found,) = copy.execute("PRAGMA quick_check").fetchone()
        if found != "ok":
            raise BadInput(f"The copy of {source} is damaged: {found}.", remedy="Is the database damaged?")
        with part.open("rb+") as written:
            os.fsync(written.fileno())
        part.rename(target)
    except (OSError, sqlite3.Error) as bad:
        raise BadInput(f"{target} cannot be written: {bad}.", remedy="Name another file.") from bad
    finally:
        part.unlink(missing_ok=True)
    return target.stat().st_size
