"""Submissions of many files: one canonical text of an archive, and a refusal in words for everything that is not one."""

from __future__ import annotations

import gzip
import io
import random
import tarfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clara_eval.core.address import Address
from clara_eval.core.errors import BadInput, BadSubmission
from clara_eval.core.hashing import keccak_hex
from clara_eval.core.model import Submission
from clara_eval.redteam.machine_attacks import ATTACKS, measure_archives, tarred, zipped
from clara_eval.submissions.copies import find_likeness
from clara_eval.submissions.files import MOST_BYTES, pack_folder, read_archive
from clara_eval.submissions.model import Fetched, Rejected, Solution, check_submission

FILES = {
    "README.md": b"# A queue\n\nIt keeps the order in which things came in.\n",
    "main.py": b"from lib.queue import Queue\n\n\ndef make() -> Queue:\n    return Queue()\n",
    "lib/queue.py": b"class Queue:\n    def __init__(self) -> None:\n        self.items: list[int] = []\n",
    "logo.png": b"\x89PNG\r\n\x1a\n\x00\x00",
}


def special(kind: bytes = tarfile.REGTYPE, target: str = "", **headers: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        entry = tarfile.TarInfo("a.py")
        entry.type, entry.linkname, entry.pax_headers = kind, target, headers
        tar.addfile(entry)
    return gzip.compress(out.getvalue())


def handed_in(content: bytes, name: str = "11") -> Submission:
    return Submission(Address("0x" + name * 20), 1, "https://example.com/work", keccak_hex(content), 1, 1)


def checked(content: bytes, name: str = "11", language: str | None = None) -> Solution | Rejected:
    return check_submission(handed_in(content, name), Fetched(content, "", immutable=False), language=language)


def accepted(content: bytes, name: str = "11") -> Solution:
    found = checked(content, name)
    assert isinstance(found, Solution), found
    return found


@pytest.mark.parametrize(
    "packed",
    [
        gzip.compress(tarred(FILES)),
        tarred(FILES),
        tarred(FILES, form=tarfile.GNU_FORMAT),
        tarred({f"a-folder/{name}": body for name, body in FILES.items()}, form=tarfile.USTAR_FORMAT),
        zipped(dict(reversed(FILES.items()))),
    ],
    ids=["tar.gz", "pax", "gnu", "in a folder", "zip"],
)
def test_every_archive_of_the_same_files_gives_the_same_text(packed: bytes) -> None:
    """Order, format, compression and a folder around everything change nothing but the committed hash."""
    found = accepted(packed)
    assert found.text == accepted(gzip.compress(tarred(FILES))).text
    assert found.content_keccak == keccak_hex(packed)
    assert found.language == "python"
    assert found.text.startswith("=== 4 files ===\nREADME.md: 55 bytes, text\nlib/queue.py: ")
    assert "logo.png: 10 bytes, binary, sha256 0x" in found.text
    assert (
        found.text.index("=== lib/queue.py ===") < found.text.index("=== main.py ===") < found.text.index("# A queue")
    )
    assert found.code.startswith("# === lib/queue.py ===\nclass Queue:")
    assert "A queue" not in found.code


def test_a_folder_is_packed_as_its_archive(tmp_path: Path) -> None:
    """What a folder holds reads like an archive of it, twice the same bytes; links and nothing else are refused."""
    for name, body in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(body)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref")
    assert accepted(pack_folder(tmp_path)).text == accepted(zipped(FILES)).text
    assert pack_folder(tmp_path) == pack_folder(tmp_path)
    (tmp_path / "link.py").symlink_to("/etc/passwd")
    with pytest.raises(BadInput, match="is a link"):
        pack_folder(tmp_path)


def negative_size() -> bytes:
    """An archive whose first header says that its file has -512 bytes, so that a reader would never move on."""
    head = bytearray(tarred({"a.py": b""})[:512])
    head[124:136], head[156:157], head[148:156] = b"-0000001000\0", b"g", b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head) + bytes(1_024)


REFUSED: dict[str, tuple[Callable[[], bytes], str, str]] = {
    **ATTACKS,
    "symbolic link": (lambda: special(tarfile.SYMTYPE, "/etc/passwd"), "bad_archive", "is a link or no plain file"),
    "100,000 packed files": (lambda: gzip.compress(ATTACKS["100,000 files"][0](), 1), "too_large", "more than"),
    "negative size": (negative_size, "bad_archive", "damaged"),
    "two gzip streams": (lambda: gzip.compress(tarred(FILES)) + gzip.compress(b"more"), "bad_archive", "damaged"),
    "bomb of several": (lambda: zipped({f"{n}.py": b"#" * 80_000 for n in range(60)}), "too_large", "more than"),
    "too many files": (lambda: zipped({f"{n}.py": b"a" for n in range(1_001)}), "too_large", "more than 1,000 files"),
    "hard link": (lambda: special(tarfile.LNKTYPE, "b.py"), "bad_archive", "is a link or no plain file"),
    "device": (lambda: special(tarfile.CHRTYPE), "bad_archive", "is a link or no plain file"),
    "sparse file": (
        lambda: special(tarfile.REGTYPE, "", **{"GNU.sparse.major": "1", "GNU.sparse.realsize": str(2**40)}),
        "bad_archive",
        "what other readers may not read",
    ),
    "name outside in a zip": (lambda: zipped({"../b.py": b"a"}), "bad_archive", "not a path inside"),
    "drive": (lambda: zipped({"C:/b.py": b"a"}), "bad_archive", "not a path inside"),
    "backslash": (lambda: tarred({"..\\b.py": b"a"}), "bad_archive", "not a path inside"),
    "deep": (lambda: zipped({"a/" * 20 + "b.py": b"a"}), "bad_archive", "deeper than 16 folders"),
    "long name": (lambda: zipped({"a" * 300: b"a"}), "bad_archive", "longer than 200"),
    "file and folder": (lambda: zipped({"a": b"a", "a/b.py": b"b"}), "bad_archive", "is a file and a folder"),
    "line feed": (lambda: zipped({"a\nb.py": b"a"}), "bad_archive", "characters that names do not have"),
    "nested tar": (lambda: zipped({"a.tar": tarred(FILES)}), "bad_archive", "is an archive too"),
    "cut tar.gz": (lambda: gzip.compress(tarred(FILES))[:-40], "bad_archive", "damaged or cut off"),
    "cut tar": (lambda: tarred(FILES)[:1_400], "bad_archive", "damaged or cut off"),
    "cut zip": (lambda: zipped(FILES)[:-30], "bad_archive", "damaged or cut off"),
    "gzip of a text": (lambda: gzip.compress(b"print('a')\n" * 9), "bad_archive", "holds no tar archive"),
    "no files": (lambda: zipped({}), "empty", "holds no files"),
    "binaries only": (lambda: zipped({"a.png": FILES["logo.png"]}), "empty", "nothing to judge"),
}


def refusal(content: bytes) -> tuple[str, str]:
    """Code and reason; of what is too large to be submitted, those of the archive itself."""
    try:
        assert sum(len(one.content) for one in read_archive(content).files) <= MOST_BYTES
    except BadSubmission as refused:
        return refused.code, str(refused)
    found = checked(content)
    return (found.code, found.reason) if isinstance(found, Rejected) else ("accepted", "")


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_plain_tree_is_refused_in_words(name: str) -> None:
    """Bombs, links, names that lead outside, twins and damage: each has its code and its sentence, within a second."""
    make, code, sentence = REFUSED[name]
    content = make()
    started = time.process_time()
    found, why = refusal(content)
    assert (found, sentence in why) == (code, True), why
    assert time.process_time() - started < 1


def test_the_red_team_counts_every_archive_that_is_not_refused() -> None:
    """Its figure is zero of all attacks, and the honest archives beside them are read."""
    (figure,) = measure_archives()
    assert (figure.met, figure.trials, figure.detail["attacks"]) == (True, len(ATTACKS), [])


def test_two_lists_of_files_in_a_zip_must_agree() -> None:
    """A name that one reader takes from one place and another from elsewhere is refused."""
    content = zipped({"good.py": b"a = 1\n"})
    with pytest.raises(BadSubmission, match="two lists of files differ"):
        read_archive(content.replace(b"good.py", b"evil.py", 1))


@given(st.binary(max_size=3_000), st.integers(0, 2**31), st.sampled_from(["zip", "tar", "gz"]))
def test_damage_never_raises_anything_else(noise: bytes, seed: int, kind: str) -> None:
    """Whatever bytes are changed, an archive is read or refused."""
    rng = random.Random(seed)
    content = bytearray(zipped(FILES) if kind == "zip" else tarred(FILES))
    for byte in noise[: rng.randrange(1, 40)]:
        content[rng.randrange(len(content))] = byte
    packed = gzip.compress(bytes(content)) if kind == "gz" else bytes(content)
    assert refusal(packed)[0] in {"bad_archive", "too_large", "empty", "accepted"}


def test_what_does_not_fit_is_left_out_and_said() -> None:
    """Text over the readers' space is named in the map with its size, and code comes before everything else."""
    rng = random.Random(1)
    noise = "".join(f"{rng.random()}\n" for _ in range(15_000)).encode()
    found = accepted(zipped({"a.txt": noise, "z.py": FILES["main.py"], "b.md": FILES["README.md"]}))
    assert f"a.txt: {len(noise)} bytes, omitted" in found.text
    assert "=== a.txt ===" not in found.text
    assert "=== z.py ===" in found.text
    assert "=== b.md ===" in found.text


def test_copies_are_found_across_files_and_archives() -> None:
    """The same files packed at another time are a copy; one file moved into another is similar work."""
    rng = random.Random(7)
    parts = [
        f"def step_{n}(value: int) -> int:\n    total = value * {rng.randrange(99)} + {n}\n    return total % {n + 3}\n"
        for n in range(40)
    ]
    first = accepted(zipped({"a.py": "".join(parts[:20]).encode(), "b.py": "".join(parts[20:]).encode()}), "11")
    again = accepted(
        gzip.compress(tarred({one.path: one.content for one in first.tree.files} if first.tree else {})), "22"
    )
    moved = accepted(tarred({"all.py": "".join(parts).encode(), "x.py": b"a = 1\nb = 2\n"}), "33")
    found = find_likeness([first, again, moved])
    assert [len(one.copies) for one in found.clusters] == [1]
    assert found.clusters[0].copies[0].kind == "exact"
    assert [one.kind for one in found.similar] == ["tokens"]
    assert zlib.crc32(first.content) != zlib.crc32(again.content)
