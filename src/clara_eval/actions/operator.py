"""Operator commands: checks, settings, keys, backups, one evaluation; no output shows a secret."""

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
FILES = 256  # connections to nodes, judges, database, and some tens of readers
MEMORY_BYTES = 512 * 1024**2  # a round of 300 entries takes 152 MB; eight rounds at once share most of it
ADDRESS_BYTES = 2 * 1024**3  # libraries, thread stacks and compiled sandboxes
_MB = 1024**2
_MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")
_FREE_CONNECTIONS = (
    "SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int "
    "- (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid())"
)
MIN_PASSWORD_CHARS = 12
MIN_DISTINCT_CHARS = 6
MIN_POSTS = 20  # that the balance must pay for, so that the service can run unattended


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
            checks = {"network": _check_network, "factory": _check_factory, "wallet": _check_wallet,
                      "store": _check_store, "resources": check_resources, "judges": _check_jury}  # fmt: skip
            checks |= {place.name: partial(_check_place, place) for place in app.places}
            for name, look in checks.items():
                try:
                    found.append(Finding(name, ok=True, detail=await look(app)))
                except ClaraError as bad:
                    found.append(Finding(name, ok=False, detail=str(bad)))
            return found
    except ClaraError as bad:
        return [Finding("settings", ok=False, detail=str(bad))]


async def _check_place(place: Publication, _app: App) -> str:
    await place.check()
    return "takes what is published"


async def _check_network(app: App) -> str:
    await app.chain.blocks.rpc.ask("eth_chainId")
    return f"{app.settings.network_name} (chain {app.chain_id}), block {(await app.chain.blocks.head()).number}"


async def _check_factory(app: App) -> str:
    factory = to_address(app.settings.factory)
    if await app.chain.blocks.rpc.ask("eth_getCode", factory, "latest") in ("0x", None):
        raise ClaraError(f"No contract is at {factory}.", remedy="Check CLARA_CHALLENGE_FACTORY and CLARA_NETWORK.")
    count = await app.chain.challenges.factory(factory).one(await app.chain.blocks.head(), "getChallengeCount")
    return f"{factory}, {count} challenge{'' if count == 1 else 's'}"


async def _check_wallet(app: App) -> str:
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
    if posts < MIN_POSTS:
        raise ClaraError(f"{shown}.", remedy=f"Send it enough ETH for at least {MIN_POSTS} posts.")
    return shown


async def _check_store(app: App) -> str:
    await app.store.entry("preflight", "nothing")
    url = app.settings.database_url
    return url if is_sqlite(url) else _host_of(url)


async def check_resources(app: App) -> str:
    """Return one sentence on the resources that the service needs; ClaraError if it has less."""
    found = [  # name, needed, allowed, remedy
        ("file descriptors", FILES, _hard_limit(resource.RLIMIT_NOFILE), "Raise `ulimit -n` or LimitNOFILE."),
        ("MB of memory", MEMORY_BYTES // _MB, _memory_limit() / _MB, "Raise the memory limit."),
        ("MB of address space", ADDRESS_BYTES // _MB, _hard_limit(resource.RLIMIT_AS) / _MB, "Raise `ulimit -v`."),
    ]
    if not is_sqlite(app.settings.database_url):
        ((free,),) = await app.store.driver.fetch(_FREE_CONNECTIONS)
        found.append(("Postgres connections", CONNECTIONS, free, "Raise max_connections, or end other clients."))
    needs = ", ".join(
        f"{needed:,} {name} ({'no limit' if allowed == float('inf') else f'{allowed:,.0f} allowed'})"
        for name, needed, allowed, _ in found
    )
    if short := [remedy for _, needed, allowed, remedy in found if allowed < needed]:
        raise ClaraError(f"The service needs {needs}.", remedy=" ".join(short))
    return f"needs {needs}"


def _memory_limit() -> float:
    text = _MEMORY_LIMIT.read_text(encoding="ascii").strip() if _MEMORY_LIMIT.is_file() else "max"
    return float(text) if text.isdigit() else float("inf")


def _hard_limit(kind: int) -> float:
    """Return the hard limit, to which the service raises the soft one."""
    _, hard = resource.getrlimit(kind)
    return float("inf") if hard == resource.RLIM_INFINITY else float(hard)


async def _check_jury(app: App) -> str:
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
    async with open_app(settings) as app:
        done = await evaluate(app, address, request)
        scores = await read_document(app.store, app.chain_id, scores_key(address)) or {}
    return done, {"challenge": address, "status": done.outcome, **scores}


def list_settings(settings: Settings) -> tuple[list[dict[str, str | None]], list[str]]:
    """Return every setting, and a warning for each CLARA_… name that is not one.

    Secrets are hidden; of a URL that may hold one, only the host is shown.
    """
    given, rows = given_names(), list[dict[str, str | None]]()
    for name, field in Settings.model_fields.items():
        value, alias = getattr(settings, name), str(field.alias)
        source = given.get(alias) or (f"{alias}_FILE" if f"{alias}_FILE" in given else "default")
        if isinstance(value, SecretStr):
            value = "(hidden)"
        elif not field.repr and value and source != "default":
            value = _host_of(value)
        values = {"value": value, "default": field.default}
        shown = {key: None if one is None else str(one) for key, one in values.items()}
        rows.append({"name": alias, **shown, "source": source})
    return rows, unknown_settings()


def _host_of(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(not a URL)"
    return f"{parts.scheme}://{parts.hostname or ''}/…"


def unknown_settings() -> list[str]:
    """Return a warning for each CLARA_… name that is not a setting, with the closest one."""
    warnings, known = [], [str(field.alias) for field in Settings.model_fields.values()]
    for name in unknown_names(given_names()):
        close = difflib.get_close_matches(name, known, n=1)
        warnings.append(f"{name} is not a setting.{f' Did you mean {close[0]}?' if close else ''}")
    return warnings


def new_key(path: Path, password: SecretStr) -> Address:
    """Write a new keystore; a weak password is refused, because it can be guessed offline."""
    text = password.get_secret_value()
    if len(text) < MIN_PASSWORD_CHARS or len(set(text)) < MIN_DISTINCT_CHARS:
        raise ConfigError(
            f"The password of the keystore is weak: fewer than {MIN_PASSWORD_CHARS} characters, or fewer than "
            f"{MIN_DISTINCT_CHARS} different ones.",
            remedy="Choose several random words.",
        )
    return new_keystore(path, password)


def back_up(database_url: str, target: Path) -> int:
    """Copy all committed data, including the write-ahead log; return the size in bytes."""
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
