"""Request answers signed inside an enclave, and verify their signatures and the keys' attestation."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from urllib.parse import quote as quoted

from clara_eval.core.codec import JsonCodec
from clara_eval.core.errors import ClaraError, Temporary
from clara_eval.core.extras import install, is_installed
from clara_eval.core.hashing import canonical_json
from clara_eval.core.strict_json import object_or_none
from clara_eval.judge.port import Answer, Prompt, Signed, Unanswered
from clara_eval.judge.provider import JudgeStore
from clara_eval.judge.providers.openai import OpenAiLlm
from clara_eval.judge.providers.wire import ModelReply
from clara_eval.judge.reading import is_request_of, read_completion


class NotAttested(ValueError):
    """The evidence does not prove what it should; the message says why."""


@dataclass(frozen=True, slots=True)
class KeyReport:
    """The attestation report of one signing key as received, with the collateral to verify its quote."""

    run: str  # the nonce is derived from the run and the judge
    judge: str
    key: str
    report: str
    collateral: str
    fetched_at: int  # Unix seconds; the collateral expires, so it is checked as of this time


@dataclass(frozen=True, slots=True)
class Enclave:
    measurements: dict[str, str]
    status: str  # Intel's TCB status of the platform; empty if the quote's signature was not checked
    advisories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key whose private half is inside an enclave."""

    name: str
    public: str  # near: an address; aci: 32 bytes of ed25519 in hex
    enclave: Enclave


INSTALL = install("attestation")
PCCS = "https://api.trustedservices.intel.com"  # Intel's service for the collateral of quotes
_REFUSED_STATUSES = ("Revoked", "Unknown")
_HEADER_BYTES, _REPORT_BYTES = 48, 584
_MEASUREMENT_OFFSETS = {"mrTd": 136, "rtMr0": 328, "rtMr1": 376, "rtMr2": 424, "rtMr3": 472}
_TEE_TYPE_TDX = 0x81


@dataclass(frozen=True, slots=True)
class Quotes:
    pccs_url: str = PCCS
    root: bytes | None = None  # root certificate in DER, if not Intel's

    async def collateral(self, quote: bytes) -> str:
        """Fetch the collateral of a quote as JSON. Raises NotAttested for an unknown platform."""
        import dcap_qvl

        try:
            async with asyncio.timeout(30):
                found = await dcap_qvl.get_collateral(self.pccs_url, quote)
        except (ValueError, TimeoutError) as bad:
            raise NotAttested(f"the quote's collateral cannot be fetched: {str(bad)[:200]}") from None
        return str(found.to_json())

    def read(self, quote: bytes, collateral: str, at: int) -> tuple[bytes, Enclave]:
        """Verify a quote, if the extra is installed, and return its report data and enclave."""
        version = int.from_bytes(quote[:2], "little")
        start = _HEADER_BYTES + (6 if version == 5 else 0)
        body = quote[start : start + _REPORT_BYTES]
        if version not in (4, 5) or len(body) < _REPORT_BYTES or int.from_bytes(quote[4:8], "little") != _TEE_TYPE_TDX:
            raise NotAttested("it is not a TDX quote of version 4 or 5")
        report_data = body[-64:]
        measurements = {name: body[start : start + 48].hex() for name, start in _MEASUREMENT_OFFSETS.items()}
        if not is_installed("attestation"):
            return report_data, Enclave(measurements, "")
        import dcap_qvl

        try:
            parts = dcap_qvl.QuoteCollateralV3.from_json(collateral)
            if self.root is None:
                report = dcap_qvl.verify(quote, parts, at)
            else:
                report = dcap_qvl.verify_with_root_ca(quote, parts, self.root, at)
            found = json.loads(report.to_json())
        except (ValueError, OverflowError) as bad:
            raise NotAttested(f"the quote does not hold: {' '.join(str(bad).split())[:200]}") from None
        if found["status"] in _REFUSED_STATUSES:
            raise NotAttested(f"the platform's state is {found['status']}")
        return report_data, Enclave(measurements, found["status"], tuple(found["advisory_ids"]))


_PARSE_ERRORS = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError)


def nonce_for(run: str, judge: str) -> str:
    return hashlib.sha256(f"clara-eval attestation\n{run}\n{judge}".encode()).hexdigest()


def key_name(interface: str, proof: str) -> str:
    found = _parse_object(proof, "the signature")
    if interface == "near":
        address = str(found.get("signing_address")).lower()
        if not re.fullmatch("0x[0-9a-f]{40}", address):
            raise NotAttested("the signature names no address")
        return address
    signature = found.get("signature")
    name = (signature if isinstance(signature, dict) else found).get("key_id")
    digest = found.get("workload_keyset_digest")
    if not isinstance(name, str) or not isinstance(digest, str):
        raise NotAttested("the receipt names no key")
    return f"{name}@{digest}"


def quote_of(interface: str, key: str, report: str) -> bytes:
    document = _parse_object(report, "the attestation report")
    if interface == "near":
        return _parse_hex(_find_near_entry(key, document).get("intel_quote"), "the quote")
    return _parse_hex(_lookup(document, "attestation", "evidence", "quote"), "the quote")


def check_key(interface: str, report: KeyReport, quotes: Quotes) -> SigningKey:
    """Return the key if its quote is valid and binds it and the run's nonce."""
    quote = quote_of(interface, report.key, report.report)
    report_data, enclave = quotes.read(quote, report.collateral, report.fetched_at)
    document = _parse_object(report.report, "the attestation report")
    check = _check_near_binding if interface == "near" else _check_aci_binding
    public = check(report.key, document, nonce_for(report.run, report.judge), report_data)
    return SigningKey(report.key, public, enclave)


def signing(judge: str) -> tuple[str, str]:
    """Parse the model and the signing interface, if any, from a judge's name `openai:MODEL@URL#near`."""
    rest, _, interface = judge.partition("#")
    return rest.partition(":")[2].partition("@")[0], interface


def check_signed(prompt: Prompt, answer: Answer, key: SigningKey, model: str) -> None:
    """Raise NotAttested unless this key signed exactly this prompt and answer, for this model."""
    signed = answer.signed
    assert signed is not None
    if signed.key != key.name or key_name(signed.interface, signed.proof) != key.name:
        raise NotAttested("it is signed by another key than the attested one")
    request, response = _parse_base64(signed.request), _parse_base64(signed.response)
    hashes = hashlib.sha256(request).hexdigest(), hashlib.sha256(response).hexdigest()
    check = _check_near_signature if signed.interface == "near" else _check_aci_signature
    check(_parse_object(signed.proof, "the signature"), key, model, hashes)
    if not is_request_of(prompt, model, request):
        raise NotAttested("the signed request is another question")
    try:
        signed_answer = read_completion(response, prompt, model)
    except ValueError as bad:
        raise NotAttested("the signed response is not a chat completion") from bad
    if signed_answer != replace(answer, signed=None, sampling=None):
        raise NotAttested("the signed response says something else")


def _check_near_signature(proof: dict[str, object], key: SigningKey, model: str, hashes: tuple[str, str]) -> None:
    from clara_eval.core.accounts import Account, BadSignature, encode_defunct

    text = str(proof.get("text"))
    *named, request, response = ["", *text.split(":")]
    if named not in ([""], ["", model]):
        raise NotAttested("the signature is for another model")
    if (request.removeprefix("0x").lower(), response.removeprefix("0x").lower()) != hashes:
        raise NotAttested("the signed hashes are not those of the bytes sent and received")
    try:
        signer = Account.recover_message(encode_defunct(text=text), signature=proof.get("signature"))
    except (BadSignature, *_PARSE_ERRORS) as bad:
        raise NotAttested(f"the signature cannot be read: {type(bad).__name__}") from None
    if signer.lower() != key.public:
        raise NotAttested("the signature is not by the address that it names")


def _check_near_binding(key: str, document: dict[str, object], nonce: str, report_data: bytes) -> str:
    address = bytes.fromhex(key[2:])
    allowed = [address.ljust(32, b"\0"), address.rjust(32, b"\0")]
    fingerprint = _find_near_entry(key, document).get("tls_cert_fingerprint")
    if fingerprint is not None:
        allowed.append(hashlib.sha256(address + _parse_hex(fingerprint, "the certificate's fingerprint")).digest())
    if report_data[:32] not in allowed:
        raise NotAttested("the quote does not carry the signing address")
    if report_data[32:].hex() != nonce:
        raise NotAttested("the quote does not carry the nonce of this run")
    return key


def _find_near_entry(key: str, document: dict[str, object]) -> dict[str, object]:
    listed = document.get("model_attestations")
    for entry in _dicts_in(listed if isinstance(listed, list) else [document]):
        if str(entry.get("signing_address")).lower() == key:
            return entry
    raise NotAttested("the attestation report is not about the signing key")


def _check_aci_binding(key: str, document: dict[str, object], nonce: str, report_data: bytes) -> str:
    name, _, digest = key.rpartition("@")
    exact = _lookup(document, "attestation", "workload_keyset_b64")
    parsed = _lookup(document, "attestation", "workload_keyset")
    content = _parse_base64(exact) if isinstance(exact, str) else _canonical_bytes(parsed)
    keyset = _parse_object(content.decode(errors="replace"), "the keyset")
    if document.get("workload_keyset_digest") != digest or f"sha256:{hashlib.sha256(content).hexdigest()}" != digest:
        raise NotAttested("the attestation report is about other keys")
    statement = {"purpose": "aci.report_data.v1", "workload_keyset_digest": digest, "nonce": nonce}
    stated = [statement, {**statement, "workload_id": document.get("workload_id")}]
    if report_data not in [hashlib.sha256(_canonical_bytes(one)).digest().ljust(64, b"\0") for one in stated]:
        raise NotAttested("the quote does not carry these keys and the nonce of this run")
    for entry in _dicts_in(keyset.get("receipt_signing_keys")):
        if entry.get("key_id") == name:
            if entry.get("algo") != "ed25519":
                raise NotAttested(f"the key is of the kind {str(entry.get('algo'))[:40]!r}; only ed25519 is read")
            return _parse_hex(entry.get("public_key"), "the public key").hex()
    raise NotAttested("the attested keys do not hold the one that signed")


def _check_aci_signature(receipt: dict[str, object], key: SigningKey, model: str, hashes: tuple[str, str]) -> None:
    events = {str(event.get("type")): event for event in _dicts_in(receipt.get("event_log"))}
    exchanged = [events.get(name, {}) for name in ("request.received", "response.returned")]
    named = (str(event.get("body_hash") or event.get("wire_hash")) for event in exchanged)
    if tuple(text.removeprefix("sha256:").lower() for text in named) != hashes:
        raise NotAttested("the hashes in the receipt are not those of the bytes sent and received")
    if receipt.get("model") not in (None, model):
        raise NotAttested("the receipt is for another model")
    if events.get("upstream.verified", {}).get("result") not in (True, "verified"):
        raise NotAttested("the gateway did not verify the model's own enclave")
    _check_ed25519(receipt, key.public)


def _check_ed25519(receipt: dict[str, object], public: str) -> None:
    """Check a signature over the canonical receipt without its `signature`, or without that one's value."""
    from Crypto.Signature import eddsa

    value = entry = receipt.get("signature")
    forms = [{name: part for name, part in receipt.items() if name != "signature"}]
    if isinstance(entry, dict):
        value = entry.get("value")
        forms.append({**receipt, "signature": {name: part for name, part in entry.items() if name != "value"}})
    signature = _parse_hex(value, "the signature")
    try:
        verifier = eddsa.new(eddsa.import_public_key(bytes.fromhex(public)), "rfc8032")
    except ValueError as bad:
        raise NotAttested("the public key is not one of ed25519") from bad
    for form in forms:
        with suppress(ValueError):
            verifier.verify(_canonical_bytes(form), signature)
            return
    raise NotAttested("the receipt's signature is wrong")


def _parse_object(text: str, what: str) -> dict[str, object]:
    found = object_or_none(text)
    if found is None:
        raise NotAttested(f"{what} is not a JSON object")
    return found


def _canonical_bytes(value: object) -> bytes:
    try:
        return canonical_json(value)
    except _PARSE_ERRORS:
        raise NotAttested("the document has no canonical form") from None


def _lookup(value: object, *names: str) -> object:
    """Look up a path of names in nested objects; None if one is missing."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _dicts_in(value: object) -> list[dict[str, object]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _parse_hex(value: object, what: str) -> bytes:
    try:
        return bytes.fromhex(str(value).removeprefix("0x"))
    except ValueError:
        raise NotAttested(f"{what} is not hex") from None


def _parse_base64(encoded: str) -> bytes:
    try:
        found = base64.b64decode(encoded, validate=True)
    except ValueError:
        raise NotAttested("the recorded bytes are not base64") from None
    if base64.b64encode(found).decode() != encoded:
        raise NotAttested("the recorded bytes are base64 in another form than ours")
    return found


REPORT = JsonCodec(KeyReport)
PROOF_TRIES = 3
PROOF_PAUSE_SECONDS = 0.3  # a signature may be a moment later than its answer
_JOURNAL = "attestation"
"""Journal of the reports of all runs. It is not a run's own, so that a restart does not delete them."""


@contextmanager
def _as_unanswered(what: str) -> Iterator[None]:
    """Raise Unanswered, an outage of the endpoint, for evidence that does not hold."""
    try:
        yield
    except NotAttested as bad:
        raise Unanswered(f"{what}: {bad}.") from None


class SigningOpenAi(OpenAiLlm):
    """An endpoint that signs: keeps the exact bytes and fetches the signature, which `Attested` checks."""

    async def _read_answer(self, prompt: Prompt, sent: bytes, reply: ModelReply, sampling: str) -> Answer:
        answer = await super()._read_answer(prompt, sent, reply, sampling)
        path, params = self._proof_request(reply.content, reply.headers.get("x-receipt-id"))
        proof = await self._fetch_document(path, params, "signature")
        with _as_unanswered(f"{self.name}: the answer's signature cannot be used"):
            key = key_name(self.interface, proof)
        request_text, response_text = (base64.b64encode(part).decode() for part in (sent, reply.content))
        return replace(answer, signed=Signed(self.interface, key, request_text, response_text, proof))

    def _proof_request(self, content: bytes, receipt: str | None) -> tuple[str, dict[str, str]]:
        if self.interface == "aci":
            if not receipt:
                raise Unanswered(f"{self.name}: the answer came without a receipt.")
            return f"/aci/receipts/{quoted(receipt, safe='')}", {}
        name = json.loads(content).get("id")
        if not isinstance(name, str) or not name:
            raise Unanswered(f"{self.name}: the answer came without an id, so its signature cannot be found.")
        return f"/signature/{quoted(name, safe='')}", {"model": self.model, "signing_algo": "ecdsa"}

    async def report(self, key: str, nonce: str) -> str:
        if self.interface == "aci":
            return await self._fetch_document("/aci/attestation", {"nonce": nonce}, "attestation")
        params = {"model": self.model, "nonce": nonce, "signing_algo": "ecdsa", "signing_address": key}
        return await self._fetch_document("/attestation/report", params, "attestation")

    async def _fetch_document(self, path: str, params: dict[str, str], what: str) -> str:
        """Fetch a document with retries. Raises Unanswered for any failure."""
        for attempt in range(PROOF_TRIES):
            await asyncio.sleep(attempt * PROOF_PAUSE_SECONDS)
            try:
                reply = await self.get(path, params)
                if reply.is_ok:
                    return reply.content.decode()
                reason = self.refusal(reply).message
            except UnicodeDecodeError:
                raise Unanswered(f"{self.name}: its {what} is not text.") from None
            except ClaraError as bad:
                reason = bad.message
        raise Unanswered(f"{self.name} gave no {what}: {reason}")


@dataclass(frozen=True, slots=True)
class Attested:
    """A signing model for one run; an `Llm` that checks the evidence of each answer."""

    llm: SigningOpenAi
    run: str
    store: JudgeStore
    quotes: Quotes = field(default_factory=Quotes)
    _keys: dict[str, tuple[KeyReport, SigningKey]] = field(default_factory=dict)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def name(self) -> str:
        return self.llm.name

    async def complete(self, prompt: Prompt) -> Answer:
        answer = await self.llm.complete(prompt)
        assert answer.signed is not None
        _, key = await self._attested_key(answer.signed.key)
        with _as_unanswered(f"{self.name}: the answer's signature does not hold"):
            check_signed(prompt, answer, key, self.llm.model)
        return answer

    async def key_report(self, key: str) -> KeyReport:
        """Return the attestation report of one key of this judge, for the trace."""
        return (await self._attested_key(key))[0]

    async def _attested_key(self, key: str) -> tuple[KeyReport, SigningKey]:
        async with self._lock:
            if key not in self._keys:
                report = await self._load_report(key)
                self._keys[key] = report, self._check_report(report)
            return self._keys[key]

    async def _load_report(self, key: str) -> KeyReport:
        """Return this run's report of a key; if none can be fetched, the latest of an earlier run."""
        name = f"{self.name}/{key}/{self.run}"
        text = await self.store.entry(_JOURNAL, name)
        if text is None:
            try:
                report = await self._fetch_report(key)
            except Temporary:
                earlier = await self.store.entries(_JOURNAL, f"{self.name}/{key}/")
                if not earlier:
                    raise
                return REPORT.read_text(earlier[-1][1])
            text = await self.store.add_entry(_JOURNAL, name, REPORT.text(report))
        return REPORT.read_text(text)

    async def _fetch_report(self, key: str) -> KeyReport:
        text = await self.llm.report(key, nonce_for(self.run, self.name))
        with _as_unanswered(f"{self.name}: the key {key} is not attested"):
            collateral = await self.quotes.collateral(quote_of(self.llm.interface, key, text))
        report = KeyReport(self.run, self.name, key, text, collateral, int(time.time()))
        self._check_report(report)
        return report

    def _check_report(self, report: KeyReport) -> SigningKey:
        with _as_unanswered(f"{self.name}: the key {report.key} is not attested"):
            return check_key(self.llm.interface, report, self.quotes)
