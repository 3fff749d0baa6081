"""Files named by CID, through gateways that are honest, limited, or lying."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import tarfile
from collections import Counter
from collections.abc import AsyncIterator
from io import BytesIO

import pytest
from aiohttp import web as server
from hypothesis import given
from hypothesis import strategies as st
from tests.support.hostile_web import GOOD, HostileWeb
from tests.support.ipfs import Answer, base32, base58, car, field, folder_of, gateway, raw_cid, unixfs, v0_cid

from clara_eval.core.address import Address
from clara_eval.core.errors import BadSubmission, ConfigError
from clara_eval.core.hashing import keccak_hex
from clara_eval.core.model import Submission
from clara_eval.submissions.fetch import FetchLimits, UriFetch, Web
from clara_eval.submissions.fetch.ipfs import (
    NOT_VERIFIED,
    Cid,
    parse_cid,
    parse_ipfs_uri,
    read_car,
    read_cid,
    read_work,
)
from clara_eval.submissions.files import pack_files
from clara_eval.submissions.model import Fetched, Outage, Solution, check_submission

CONTENT = GOOD.encode()


@pytest.fixture(scope="module")
async def hostile() -> AsyncIterator[HostileWeb]:
    async with HostileWeb() as running:
        yield running


async def fetch(hostile: HostileWeb, uri: str, answer: Answer) -> tuple[bytes, bool, str]:
    hostile.routes["ipfs/" + uri.removeprefix("ipfs://")] = answer
    fetched = await UriFetch(ipfs_gateway=hostile.url(""), web=hostile.web()).fetch(uri)
    return fetched.content, fetched.immutable, fetched.note


async def test_files_are_verified_from_blocks(hostile: HostileWeb) -> None:
    """Raw, single-node, many-block and nested files come out whole and verified from an archive."""
    raw = raw_cid(CONTENT)
    single = unixfs(2, CONTENT)
    parts = [CONTENT[:10], CONTENT[10:30], CONTENT[30:]]
    chunks = [(raw_cid(part), part) for part in parts]
    many = unixfs(2, links=[("", cid) for cid, _ in chunks])
    folder = unixfs(1, links=[("fee curve.py", v0_cid(many))])
    cases = [
        (f"ipfs://{base32(raw)}", car((raw, CONTENT))),
        (f"ipfs://{base58(v0_cid(single))}", car((v0_cid(single), single))),
        (f"ipfs://{base58(v0_cid(many))}", car((v0_cid(many), many), *chunks)),
        (f"ipfs://{base58(v0_cid(folder))}/fee curve.py".replace(" ", "%20"), None),
    ]
    whole = car((v0_cid(folder), folder), (v0_cid(many), many), *chunks)
    for uri, archive in cases:
        hostile.routes[f"ipfs/{base58(v0_cid(folder))}/fee curve.py"] = gateway(archive=whole)
        assert await fetch(hostile, uri, gateway(archive=archive or whole)) == (CONTENT, True, "")


async def test_a_gateway_without_archives_gives_single_blocks(hostile: HostileWeb) -> None:
    """One raw block is enough for a small file; a larger tree then stays unverified, and says so."""
    single = unixfs(2, CONTENT)
    uri = f"ipfs://{base58(v0_cid(single))}"
    assert await fetch(hostile, uri, gateway(block=single)) == (CONTENT, True, "")
    many = unixfs(2, links=[("", raw_cid(CONTENT))])
    uri = f"ipfs://{base58(v0_cid(many))}"
    assert await fetch(hostile, uri, gateway(block=many, plain=CONTENT)) == (CONTENT, False, NOT_VERIFIED)


async def test_a_gateway_without_blocks_is_not_believed(hostile: HostileWeb) -> None:
    """Plain bytes under a CID are used, but recorded as not verified and not immutable."""
    uri = f"ipfs://{base58(v0_cid(unixfs(2, CONTENT)))}"
    assert await fetch(hostile, uri, gateway(plain=b"something else")) == (b"something else", False, NOT_VERIFIED)


async def test_plain_bytes_are_held_against_a_cid_that_hashes_them(hostile: HostileWeb) -> None:
    """Right bytes without blocks are verified all the same; an error page with status 200 is an outage."""
    uri = f"ipfs://{base32(raw_cid(CONTENT))}"
    assert await fetch(hostile, uri, gateway(plain=CONTENT)) == (CONTENT, True, "")
    with pytest.raises(Outage, match="not what the CID says"):
        await fetch(hostile, uri, gateway(plain=b"<html>504 Gateway Time-out</html>"))


async def test_one_honest_gateway_is_enough(hostile: HostileWeb) -> None:
    """Beside gateways with wrong bytes, an error page, a slow drip and a name that does not resolve, one honest counts."""
    raw = raw_cid(CONTENT)
    path = f"ipfs/{base32(raw)}"

    async def drip(request: server.Request) -> server.StreamResponse:
        answer = server.StreamResponse()
        await answer.prepare(request)
        for _ in range(100):
            await answer.write(b".")
            await asyncio.sleep(0.05)
        return answer

    hostile.routes[f"wrong/{path}"] = gateway(archive=car((raw, b"forged")), block=b"forged")
    hostile.routes[f"page/{path}"] = gateway(plain=b"<html>Sorry, we are down for maintenance today.</html>")
    hostile.routes[f"slow/{path}"] = drip
    hostile.routes[f"honest/{path}"] = gateway(archive=car((raw, CONTENT)))
    bad = [*(hostile.url(name) for name in ("wrong", "page", "slow")), "https://nowhere.example"]
    web = hostile.web(FetchLimits(max_bytes=20_000, total_seconds=2.0))
    fetched = await UriFetch(ipfs_gateway=",".join([*bad, hostile.url("honest")]), web=web).fetch(
        f"ipfs://{base32(raw)}"
    )
    assert (fetched.content, fetched.immutable) == (CONTENT, True)
    with pytest.raises(Outage):
        await UriFetch(ipfs_gateway=",".join(bad), web=web).fetch(f"ipfs://{base32(raw)}")


async def test_a_lying_gateway_is_an_outage(hostile: HostileWeb) -> None:
    """Wrong, missing or cut blocks and every error status speak about the gateway, never about the submission."""
    raw = raw_cid(CONTENT)
    uri = f"ipfs://{base32(raw)}"

    async def missing(_: server.Request) -> server.StreamResponse:
        return server.Response(status=404)

    for answer in (
        gateway(archive=car((raw, b"forged"))),
        gateway(archive=car((raw_cid(b"other"), b"other"))),
        gateway(archive=car((raw, CONTENT))[:-3]),
        gateway(archive=b""),
        gateway(block=b"forged"),
        missing,
    ):
        with pytest.raises(Outage):
            await fetch(hostile, uri, answer)


async def test_the_gateway_failing_is_never_the_submitters_fault(hostile: HostileWeb) -> None:
    """A gateway with a bad certificate, a private redirect, or no answer is an outage; a wrong setting ends at start."""
    uri = f"ipfs://{base32(raw_cid(CONTENT))}"

    async def astray(_: server.Request) -> server.StreamResponse:
        return server.Response(status=302, headers={"Location": "https://169.254.169.254/"})

    with pytest.raises(Outage):
        await fetch(hostile, uri, astray)
    untrusting = Web(resolver=hostile.web().resolver, exempt=hostile.web().exempt)
    for gateway_url in (hostile.url(""), "http://127.0.0.1:9"):
        with pytest.raises(Outage):
            await UriFetch(ipfs_gateway=gateway_url, web=untrusting).fetch(uri)
    for wrong in ("ipfs.io", "", "file:///etc", "https://user@host", "https://a b"):
        with pytest.raises(ConfigError):
            UriFetch(ipfs_gateway=wrong)


async def test_an_archive_with_too_much_in_it_is_no_verdict(hostile: HostileWeb) -> None:
    """A gateway that ignores the scope is asked for the single block instead; a file that is too large is refused."""
    raw = raw_cid(CONTENT)
    more = car((raw, CONTENT), *((raw_cid(bytes([i]) * 9_000), bytes([i]) * 9_000) for i in range(20)))
    answer = gateway(archive=more, block=CONTENT)
    assert await fetch(hostile, f"ipfs://{base32(raw)}", answer) == (CONTENT, True, "")
    large = b"word " * 4_500
    uri = f"ipfs://{base32(raw_cid(large))}"
    for answer in (gateway(archive=car((raw_cid(large), large))), gateway(block=large), gateway(plain=large)):
        with pytest.raises(BadSubmission) as caught:
            await fetch(hostile, uri, answer)
        assert caught.value.code == "too_large"


async def test_what_is_no_file_is_refused(hostile: HostileWeb) -> None:
    """A link, a missing entry and a tree that names itself without end are lasting verdicts."""
    link = unixfs(4, b"/etc/passwd")
    folder = unixfs(1, links=[("a", v0_cid(link))])
    root = v0_cid(folder)
    for path, code in (("a", "unreadable"), ("b", "not_found")):
        with pytest.raises(BadSubmission) as caught:
            await fetch(
                hostile, f"ipfs://{base58(root)}/{path}", gateway(archive=car((root, folder), (v0_cid(link), link)))
            )
        assert caught.value.code == code
    blocks = [unixfs(2)]
    for _ in range(30):
        blocks.append(unixfs(2, links=[("", v0_cid(blocks[-1]))] * 2))
    top = parse_cid(base58(v0_cid(blocks[-1])))
    with pytest.raises(BadSubmission) as caught:
        read_work(read_car(car(*((v0_cid(block), block) for block in blocks))), top, (), 1_000)
    assert caught.value.code == "too_large"


FILES = {"main.py": b"import parts.fee\n", "parts/fee.py": CONTENT, "parts/deep/notes é.md": b"Words, words.\n"}


def trustless(blocks: list[tuple[bytes, bytes]]) -> Answer:
    """A gateway that gives of a directory its own block, or with the scope `all` everything below."""

    async def answer(request: server.Request) -> server.StreamResponse:
        if request.query.get("format") != "car":
            return server.Response(status=406)
        given = blocks if request.query["dag-scope"] == "all" else blocks[:1]
        return server.Response(body=car(*given), content_type="application/vnd.ipld.car")

    return answer


async def test_a_directory_is_the_archive_of_its_files(hostile: HostileWeb) -> None:
    """Nested files come out verified, as the tree and the work of a tar of them; the bytes depend on nothing else."""
    cid, blocks = folder_of(FILES)
    content, immutable, note = await fetch(hostile, f"ipfs://{base58(cid)}", trustless(blocks))
    assert (immutable, note) == (True, "")
    assert content == pack_files(dict(reversed(FILES.items())))
    out = BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for path, body in FILES.items():
            entry = tarfile.TarInfo(f"work/{path}")
            entry.size = len(body)
            tar.addfile(entry, BytesIO(body))
    packed = out.getvalue()
    checked = []
    for uri, body in ((f"ipfs://{base58(cid)}", content), ("data:,tar", packed)):
        handed = Submission(Address("0x" + "11" * 20), 1, uri, keccak_hex(uri.encode()), 1, 1)
        found = check_submission(handed, Fetched(body, "", immutable=True))
        assert isinstance(found, Solution)
        checked.append((found.text, found.work_sha256, found.language, found.pinned))
    assert checked[0] == checked[1]
    assert checked[0][2:] == ("python", True)


async def test_a_directory_is_refused_in_words_or_waited_for(hostile: HostileWeb) -> None:
    """Links, shards, names that lead outside, twins and too many parts are verdicts; missing blocks are an outage."""
    raw, link, shard = raw_cid(CONTENT), unixfs(4, b"../../etc"), unixfs(5, b"x")
    empty, twice = raw_cid(b""), [("a", raw)] * 2
    wide = unixfs(1, links=[(f"{n:x}", b"\x01\x55\x00\x01x") for n in range(3_000)])
    bomb = [wide]
    for _ in range(3):
        bomb.append(unixfs(1, links=[(f"{n:x}", v0_cid(bomb[-1])) for n in range(900)]))
    chunk = unixfs(2, links=[("", empty)] * 500)
    slow = [unixfs(2, b"%d" % n, [("", v0_cid(chunk))] * 8) for n in range(60)]
    cases: dict[str, tuple[bytes, list[bytes], str]] = {
        "link": (unixfs(1, links=[("a", v0_cid(link))]), [link], "bad_archive"),
        "shard": (shard, [], "bad_archive"),
        "shard below": (unixfs(1, links=[("a", v0_cid(shard))]), [shard], "bad_archive"),
        "outside": (unixfs(1, links=[("..", raw)]), [], "bad_archive"),
        "slash": (unixfs(1, links=[("a/b", raw)]), [], "bad_archive"),
        "no name": (unixfs(1, links=[("", raw)]), [], "bad_archive"),
        "control": (unixfs(1, links=[("a\nb", raw)]), [], "bad_archive"),
        "twins": (unixfs(1, links=twice), [], "bad_archive"),
        "not UTF-8": (field(2, field(1, raw) + field(2, b"\xff")) + field(1, field(1, 1)), [], "bad_archive"),
        "wide": (bomb[-1], bomb[:-1], "too_large"),
        "many parts": (
            unixfs(1, links=[(f"{n}", v0_cid(one)) for n, one in enumerate(slow)]),
            [*slow, chunk],
            "too_large",
        ),
    }
    for name, (root, below, code) in cases.items():
        blocks = [(v0_cid(root), root), (raw, CONTENT), (empty, b""), *((v0_cid(one), one) for one in below)]
        with pytest.raises(BadSubmission) as caught:
            await fetch(hostile, f"ipfs://{base58(v0_cid(root))}", trustless(blocks))
        assert (name, caught.value.code) == (name, code)
        assert str(caught.value).endswith(".")
    cid, blocks = folder_of({f"{n}.txt": b"%d" % n * 9_000 for n in range(10, 20)})
    with pytest.raises(BadSubmission) as caught:
        await fetch(hostile, f"ipfs://{base58(cid)}", trustless(blocks))
    assert caught.value.code == "too_large"
    cid, blocks = folder_of(FILES)
    for answer in (trustless(blocks[:-1]), gateway(block=blocks[0][1], plain=b"<html>Index of /</html>")):
        with pytest.raises(Outage):
            await fetch(hostile, f"ipfs://{base58(cid)}", answer)


def test_known_cids_are_read() -> None:
    """The same digest is read from every text form, and blocks are matched by it."""
    cid = raw_cid(CONTENT)
    forms = [
        base32(cid),
        base32(cid).upper(),
        "z" + base58(cid),
        "f" + cid.hex(),
        "u" + base64.urlsafe_b64encode(cid).decode().rstrip("="),
    ]
    assert {parse_cid(form) for form in forms} == {read_cid(cid)[0]}
    assert parse_cid(forms[0]).matches(CONTENT)
    assert not parse_cid(forms[0]).matches(CONTENT + b" ")
    # "hello" added to IPFS as one raw leaf, a value every implementation agrees on
    assert parse_cid("bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq").matches(b"hello")


@pytest.mark.parametrize(
    "uri",
    [
        "ipfs://",
        "ipfs://Qm",
        "ipfs://notacid",
        "ipfs://bafkrei0000",
        "ipfs://" + base58(v0_cid(b"x")) + "/../secret",
        "ipfs://" + base58(v0_cid(b"x")) + "/%2e%2e/secret",
        "ipfs://" + base58(v0_cid(b"x")) + "/a%2fb",
        "ipfs://" + base58(v0_cid(b"x")) + "/%ff",
        "ipfs://" + base58(v0_cid(b"x")) + "?format=car",
        "ipfs://" + base58(v0_cid(b"x")) + "#frag",
        "ipfs://" + base58(v0_cid(b"x")) + "\r\nHost: x",
        "ipfs://k51qzi5uqu5dlvj2baxnqndepeb86cbk3ng7n3i46uzyxzyqj2xjonzllnv0v8",
    ],
)
def test_malformed_ipfs_uris_are_refused(uri: str) -> None:
    """No CID, steps around, queries and control characters are refused before anything is asked."""
    with pytest.raises(BadSubmission) as caught:
        parse_ipfs_uri(uri)
    assert caught.value.code == "bad_uri"


def test_the_common_double_form_is_read() -> None:
    """`ipfs://ipfs/CID` and `ipfs:CID` mean the CID."""
    cid = base58(v0_cid(b"x"))
    assert parse_ipfs_uri(f"ipfs://ipfs/{cid}") == parse_ipfs_uri(f"ipfs:{cid}") == parse_ipfs_uri(f"IPFS://{cid}/")


@given(st.binary(max_size=200))
def test_archives_of_any_bytes_never_crash(archive: bytes) -> None:
    """Reading noise ends in blocks or in ValueError, nothing else."""
    try:
        blocks = read_car(archive)
    except ValueError:
        return
    assert all(cid.matches(block) for cid, block in blocks.items())


@given(st.binary(max_size=120))
def test_nodes_of_any_bytes_never_crash(noise: bytes) -> None:
    """A dag-pb block of noise gives bytes, a verdict about the submission, or ValueError."""
    cid = parse_cid(base58(v0_cid(noise)))
    with contextlib.suppress(ValueError, BadSubmission):
        assert isinstance(read_work({cid: noise}, cid, (), 1_000), bytes)


class _Counted(dict[Cid, bytes]):
    """Blocks that count how often each is taken."""

    def __init__(self, blocks: dict[Cid, bytes]) -> None:
        super().__init__(blocks)
        self.taken: Counter[Cid] = Counter()

    def __getitem__(self, cid: Cid) -> bytes:
        self.taken[cid] += 1
        return super().__getitem__(cid)


def test_a_block_named_many_times_is_read_once() -> None:
    """A tree of one large block a thousand times costs one reading of it, and still gives it a thousand times."""
    leaf = unixfs(2, b"ab") + field(1, field(1, 2) + field(2, b"ab") + field(4, 1) * 500)
    root = unixfs(2, links=[("", v0_cid(leaf))] * 1000)
    blocks = _Counted(read_car(car((v0_cid(root), root), (v0_cid(leaf), leaf))))
    assert read_work(blocks, read_cid(v0_cid(root))[0], (), 4096) == b"ab" * 1000
    assert set(blocks.taken.values()) == {1}


def test_half_a_surrogate_pair_in_an_ipfs_path_is_a_verdict() -> None:
    """A path that is no text is refused as malformed, not asked for."""
    with pytest.raises(BadSubmission) as refused:
        parse_ipfs_uri(f"ipfs://{base32(raw_cid(CONTENT))}/\ud800")
    assert refused.value.code == "bad_uri"
