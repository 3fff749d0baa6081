"""Archives that attack their reader: bombs, links, names that lead outside, twins."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable

from clara_eval.core.errors import BadSubmission
from clara_eval.redteam.report import Figure, share
from clara_eval.submissions.files import read_archive

_HUGE = b"x = 1\n" * 700_000
_LINK = 0o120777


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
    with zipfile.ZipFile(out, "w") as archive:
        for name, body in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr, entry.compress_type = mode << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, body)
    return out.getvalue()


ATTACKS: dict[str, tuple[Callable[[], bytes], str, str]] = {
    "zip bomb": (lambda: zipped({"a.py": _HUGE}), "too_large", "unpacked it has more than"),
    "gzip bomb": (lambda: gzip.compress(tarred({"a.py": _HUGE})), "too_large", "unpacked it has more than"),
    "100,000 files": (lambda: tarred({f"{n}.py": b"" for n in range(100_000)}), "too_large", "more than"),
    "link": (lambda: zipped({"a.py": b"/etc"}, mode=_LINK), "bad_archive", "is a link or no plain file"),
    "absolute name": (lambda: tarred({"/etc/cron.d/a": b"a"}), "bad_archive", "not a path inside"),
    "name outside": (lambda: gzip.compress(tarred({"a/../../b.py": b"a"})), "bad_archive", "not a path inside"),
    "twins": (lambda: zipped({"a.py": b"a", "A.py": b"b"}), "bad_archive", "only in case"),
    "duplicate": (lambda: tarred({"a.py": b"a"})[:1024] + tarred({"a.py": b"b"}), "bad_archive", "occurs twice"),
    "not UTF-8": (lambda: tarred({"b\udcff.py": b"a"}, form=tarfile.GNU_FORMAT), "bad_archive", "not UTF-8"),
    "nested": (lambda: zipped({"a.zip": zipped({"a.py": b"a"})}), "bad_archive", "is an archive too"),
}
"""By name: what makes it, the code of the refusal, and words of it."""


def measure_archives() -> list[Figure]:
    held = [name for name, attack in ATTACKS.items() if not _is_refused(*attack)]
    what = "archives with bombs, links, names outside or twins that are not refused in words"
    trials = 0 if _is_refused(lambda: zipped({"a.py": b"a"}), "", "") else len(ATTACKS)  # the honest one is read
    return [share("archive_attacks", what, len(held), trials, at_most=0.0, attacks=held)]


def _is_refused(make: Callable[[], bytes], code: str, words: str) -> bool:
    try:
        read_archive(make())
    except BadSubmission as refused:
        return code in {"", refused.code} and words in str(refused)
    return False
