"""Archives that attack their reader: bombs, links, names that lead outside, twins, damage."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable

from clara_eval.core.errors import BadSubmission
from clara_eval.redteam.report import Figure, share
from clara_eval.submissions.files import read_archive

HONEST = {"main.py": b"from lib.queue import Queue\n", "lib/queue.py": b"class Queue:\n    items = []\n"}
_HUGE = b"x = 1\n" * 700_000


def tarred(files: dict[str, bytes], *, form: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for name, body in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(body)
            tar.addfile(entry, io.BytesIO(body))
    return out.getvalue()


def zipped(files: dict[str, bytes], *, mode: int = 0) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr, entry.compress_type = mode << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, body)
    return out.getvalue()


def special(kind: bytes = tarfile.REGTYPE, target: str = "", **headers: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        entry = tarfile.TarInfo("a.py")
        entry.type, entry.linkname, entry.pax_headers = kind, target, headers
        tar.addfile(entry)
    return gzip.compress(out.getvalue())


ATTACKS: dict[str, tuple[Callable[[], bytes], str, str]] = {
    "zip bomb": (lambda: zipped({"a.py": _HUGE}), "too_large", "unpacked it has more than"),
    "gzip bomb": (lambda: gzip.compress(tarred({"a.py": _HUGE})), "too_large", "unpacked it has more than"),
    "100,000 files": (
        lambda: gzip.compress(tarred({f"{n}.py": b"" for n in range(100_000)})),
        "too_large",
        "more than",
    ),
    "symbolic link": (lambda: special(tarfile.SYMTYPE, "/etc/passwd"), "bad_archive", "is a link or no plain file"),
    "link in a zip": (lambda: zipped({"a.py": b"/etc"}, mode=0o120777), "bad_archive", "is a link or no plain file"),
    "absolute name": (lambda: gzip.compress(tarred({"/etc/cron.d/a": b"a"})), "bad_archive", "not a path inside"),
    "name outside": (lambda: gzip.compress(tarred({"a/../../b.py": b"a"})), "bad_archive", "not a path inside"),
    "twins": (lambda: zipped({"a.py": b"a", "A.py": b"b"}), "bad_archive", "only in case"),
    "duplicate": (lambda: tarred({"a.py": b"a"})[:1024] + tarred({"a.py": b"b"}), "bad_archive", "occurs twice"),
    "not UTF-8": (lambda: tarred({"b\udcff.py": b"a"}, form=tarfile.GNU_FORMAT), "bad_archive", "not UTF-8"),
    "nested": (lambda: zipped({"a.zip": zipped(HONEST)}), "bad_archive", "is an archive too"),
    "two gzip streams": (lambda: gzip.compress(tarred(HONEST)) + gzip.compress(b"more"), "bad_archive", "damaged"),
}
"""By name: what makes it, the code of the refusal, and words of it."""


def refusal(content: bytes) -> tuple[str, str]:
    """Code and reason of an archive that is not read; empty if it is."""
    try:
        read_archive(content)
    except BadSubmission as refused:
        return refused.code, str(refused)
    return "", ""


def measure_archives() -> list[Figure]:
    found = {name: refusal(make()) for name, (make, _, _) in ATTACKS.items()}
    held = [name for name, (code, why) in found.items() if code != ATTACKS[name][1] or ATTACKS[name][2] not in why]
    # If no honest archive is read, refusing the others proves nothing.
    trials = len(found) if not refusal(zipped(HONEST))[0] and not refusal(tarred(HONEST))[0] else 0
    what = "archives with bombs, links, names outside, twins or damage that are not refused in words"
    return [share("archive_attacks", what, len(held), trials, at_most=0.0, attacks=held)]
