"""A whole round of submissions of many files on chain: judged, posted, traced, and verified by both verifiers."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from tests.support.ipfs_gateway import LocalGateway
from tests.support.large_round import program
from tests.support.rounds import opened, run
from tests.support.verifiers import node_refusals

from clara_eval.challenges.replay import check_trace
from clara_eval.config.eval_config import build_metadata, config_hash
from clara_eval.core.hashing import keccak_hex
from clara_eval.devnet.demo.lifecycle import write_trace
from clara_eval.devnet.demo.round import data_uri
from clara_eval.devnet.local_chain import DAY, Handed, LocalChain, PostedTerms
from clara_eval.evaluation.trace import read_entries
from clara_eval.redteam.machine_attacks import tarred, zipped

LINES = {"name": "lines", "type": "integer", "source": "measured", "better": "lower", "min": 0, "max": 5000}
CONFIG = json.dumps({"version": 1, "judge": "rules", "features": [LINES], "criteria": "Short.", "language": "python"})


def work(number: int) -> dict[str, bytes]:
    """As many modules like no other's beside the main one, and a binary."""
    parts = {f"lib/part_{n}.py": program(10 * number + n).encode() for n in range(number)}
    return {"main.py": program(100 + number).encode(), **parts, "logo.png": b"\x89PNG\x00\x01"}


async def test_a_round_of_archives_and_a_directory_on_chain(local_chain: LocalChain, tmp_path: Path) -> None:
    """Zip, tar, tar.gz and an IPFS directory are ranked by their files, a copy in other packing and a bomb are refused,
    the result is posted, and both verifiers hold its trace, ours also against the chain.
    """
    metadata = build_metadata(title="Archives", problem_statement="Write.", skills=(), config_text=CONFIG)
    terms = PostedTerms(
        challenge_uri=metadata,
        eval_config_hash=config_hash(CONFIG.encode()),
        payout_bps=(10_000,),
        prize_pool=500_000_000,
    )
    address = await local_chain.post_challenge(terms)
    packed = {
        1: tarred(work(1)),
        3: zipped(work(3)),
        4: gzip.compress(tarred({f"work/{path}": body for path, body in work(4).items()})),
    }
    async with LocalGateway() as gateway:
        await gateway.start()
        folder = gateway.add_folder(work(2))
        copy, bomb = zipped(work(1)), zipped({"main.py": b"x = 1\n" * 700_000})
        uris = {name: (data_uri(body), keccak_hex(body)) for name, body in packed.items()}
        uris |= {2: (folder, keccak_hex(folder.encode()))}
        uris |= {5: (data_uri(copy), keccak_hex(copy)), 6: (data_uri(bomb), keccak_hex(bomb))}
        agents = {name: local_chain.agents[n] for n, name in enumerate(uris)}
        for name, (uri, committed) in uris.items():  # one after the other: who was first is not in doubt
            await local_chain.submit_all(address, [Handed(agents[name], uri, committed)])
            await local_chain.move_time(120)
        await local_chain.move_time(DAY + 1)
        async with opened(local_chain, tmp_path, ipfs_gateway=gateway.url) as app:
            done = await run(app, address)
            assert done.receipt is not None, [flag.sentence for flag in done.result.flags]
            trace = await write_trace(app, address)
            lines = trace.read_text(encoding="utf-8").splitlines(keepends=True)
            assert (await check_trace(lines, app.chain)).digest == done.digest
    assert done.result.ranking is not None
    assert [one.item for one in done.result.ranking.standings] == [agents[name].address for name in (1, 2, 3, 4)]
    assert [(one.submission.submitter, one.code) for one in done.result.rejected] == [
        (agents[5].address, "copy"),
        (agents[6].address, "too_large"),
    ]
    bodies: dict[str, Any] = {entry.key: entry.body for entry in read_entries(lines)}
    solution = bodies[f"solution/{agents[2].address}"]
    assert (solution["hashKind"], solution["pinned"], solution["received"]["immutable"]) == ("uri", True, True)
    assert [one["path"] for one in solution["files"]] == ["lib/part_0.py", "lib/part_1.py", "logo.png", "main.py"]
    assert node_refusals({"archives": lines}, tmp_path) == {"archives": ""}
