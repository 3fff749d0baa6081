"""The CID of a file as computed here is the one that IPFS gives it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.ipfs import file_cid

from clara_eval.submissions.fetch.ipfs import LEAF_BYTES, FileCid, parse_cid, read_work

REFERENCE = {
    0: "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku",
    1: "bafkreidogqfzz75tpkmjzjke425xqcrmpcib2p5tg44hnbirumdbpl5adu",
    1000: "bafkreigqg7ims43ah5sw7mbnygno54elevfr4ckqppgrshf6aycce5ukza",
    LEAF_BYTES: "bafkreicrb5fz5e4dgl2ptc756j76vidopiphkihb3sj5fstti4n6zodgoa",
    LEAF_BYTES + 1: "bafybeid4zv4v3nbkjqkui5b766eyt23g47njwbrdpbv23uznjzb63vn5ea",
    2 * LEAF_BYTES: "bafybeie6bvak7ot4q4x4ufj5cv65cmp6yotsejwqh4km6fiapyyvujtely",
    174 * LEAF_BYTES: "bafybeiacqeddptveml4mgmb5gdzkdqyzytifrpua74kjvs6rfbujf5zja4",
    174 * LEAF_BYTES + 1: "bafybeif3ags7mrdgg6h3rdclptsjiimybe3icbbt7zvao4ruggsvy3jpgq",
}
"""By size, from the npm package ipfs-unixfs-importer 17 (raw leaves, CIDv1, chunks of 262144, at most 174 links)."""


def content(size: int) -> bytes:
    """Byte i is i * 7 + (i >> 8) * 13 + (i >> 16), modulo 256."""
    base = bytes(i * 7 & 255 for i in range(256))
    shifts = {n: base.translate(bytes((i + n) & 255 for i in range(256))) for n in range(256)}
    rows = (shifts[(row * 13 + (row >> 8)) & 255] for row in range(-(-size // 256)))
    return b"".join(rows)[:size]


@pytest.mark.parametrize("size", REFERENCE)
def test_it_is_what_the_reference_implementation_gives(size: int) -> None:
    """One block, two, a full node of links, and one more, which is a third level."""
    assert file_cid(content(size)) == REFERENCE[size]


@given(st.binary(max_size=5_000), st.integers(1, 700))
def test_the_pieces_make_no_difference(data: bytes, step: int) -> None:
    """However a file is cut into pieces, its CID is the same, and its blocks give it back."""
    blocks: dict[str, bytes] = {}
    building = FileCid(blocks.__setitem__)
    for start in range(0, len(data), step):
        building.update(data[start : start + step])
    cid = building.finish()
    assert cid == file_cid(data)
    assert read_work({parse_cid(name): block for name, block in blocks.items()}, parse_cid(cid), (), 10_000) == data


def test_a_tree_is_read_back_from_its_blocks() -> None:
    """What is built here, the reader of archives reads."""
    data, blocks = content(3 * LEAF_BYTES + 5), dict[str, bytes]()
    building = FileCid(blocks.__setitem__)
    building.update(data)
    root = parse_cid(building.finish())
    assert len(blocks) == 5
    assert read_work({parse_cid(name): block for name, block in blocks.items()}, root, (), 10**7) == data
