"""Read submitted archives (tar, tar.gz, zip) in memory and within limits, as a tree with one text."""

from __future__ import annotations

import gzip
import io
import posixpath
import re
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from clara_eval.code import language_name
from clara_eval.core.errors import BadInput, BadSubmission
from clara_eval.core.hashing import sha256_hex
from clara_eval.harness.model import ProgramText

MOST_FILES = 1_000
MOST_BYTES = 4 * 1024 * 1024
MOST_RATIO, FREE_BYTES = 100, 65_536  # unpacked bytes per packed byte (source code reaches 20) after the first 64 KB
DEEPEST, LONGEST_PATH = 16, 200
SHOWN_TOKENS = 80_000  # of the files; with the list of files the document stays within the limit of a submission
_MAGIC = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"%PDF-", b"PK\x03\x04", b"\x1f\x8b", b"\x7fELF", b"\x00asm", b"RIFF")
IGNORED = frozenset({".git", ".venv", "node_modules", "__pycache__", "__MACOSX", ".DS_Store"})
"""Names that `pack_folder` leaves out; in an archive they are read like any other file."""
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]")
_IMPORT = re.compile(r"^[ \t]*import\b[^;\"'(=]{0,500}[\"'](\.{1,2}/[^\"'\n]*)[\"'][^;\n]*;?[ \t]*$", re.MULTILINE)
_LICENSE = re.compile(r"^[ \t]*//[ \t]*SPDX-License-Identifier:.*$", re.MULTILINE)
_MAIN_NAMES = ("submission", "solution", "main", "index")
_LOADER = Path(__file__).with_name("python_tree.py")
_ENDINGS = ("py", "js", "mjs", "jsx", "ts", "tsx", "sol", "rs", "go")

FileKind = Literal["code", "text", "binary", "omitted"]


@dataclass(frozen=True, slots=True)
class SubmittedFile:
    path: str
    content: bytes
    kind: FileKind  # `code` is in the submission's language; `omitted` is text beyond SHOWN_TOKENS

    @property
    def text(self) -> str:
        return self.content.decode("utf-8", "replace")

    def to_json(self) -> dict[str, object]:
        return {"path": self.path, "bytes": len(self.content), "sha256": sha256_hex(self.content), "kind": self.kind}


@dataclass(frozen=True, slots=True)
class FileTree:
    files: tuple[SubmittedFile, ...]
    language: str | None  # from the poster's hint, else from the file extensions; None if unknown

    @property
    def document(self) -> str:
        """The text that models read: a list of all files, then those that fit, each under its path."""
        rows = [
            f"{one.path}: {len(one.content)} bytes, {one.kind}"
            + (f", sha256 {sha256_hex(one.content)}" if one.kind == "binary" else "")
            for one in self.files
        ]
        shown = [one for kind in ("code", "text") for one in self.files if one.kind == kind]
        texts = (f"=== {one.path} ===\n{_with_newline(one.text)}" for one in shown)
        return "\n".join([f"=== {len(self.files)} files ===", *rows, "".join(texts)])

    @property
    def code(self) -> str | None:
        """The text that tools measure: the files in the submission's language; None if there are none."""
        code = self._code_files()
        if len(code) < 2:
            return code[0].text if code else None
        mark = "#" if self.language == "python" else "//"
        return "".join(f"{mark} === {one.path} ===\n{_with_newline(one.text)}" for one in code)

    def program(self, language: str) -> ProgramText | None:
        code = self._code_files()
        if len(code) < 2 or language != self.language:
            return self.code
        return one_program({one.path: _with_newline(one.text) for one in code}, language)

    def _code_files(self) -> list[SubmittedFile]:
        return [one for one in self.files if one.kind == "code"]


def one_program(files: Mapping[str, str], language: str) -> ProgramText:
    """Make one program: Python and JavaScript files become modules, others are joined in import order."""
    if language == "python":
        return f"{_LOADER.read_text('utf-8')}\nload({dict(files)!r}, {_main_file(files, 'py')!r}, globals())\n"
    if language == "javascript":
        first = _main_file(files, "js", "mjs")
        return {first: files[first], **files}
    joined = "".join(_without_imports(files, path) for path in _import_order(files))
    licenses = _LICENSE.findall(joined)
    return f"{licenses[0]}\n{_LICENSE.sub('', joined)}" if licenses else joined


def _main_file(files: Mapping[str, str], *endings: str) -> str:
    """Return the file to run: one with a usual name, else the first at the top, else the first."""
    tops = [path for path in files if "/" not in path]
    usual = [path for name in _MAIN_NAMES for ending in endings if (path := f"{name}.{ending}") in tops]
    return next(iter(usual or tops or files))


def _import_order(files: Mapping[str, str]) -> Iterator[str]:
    """Yield every path after those that its file imports; a cycle is broken in order of the paths."""
    seen, yielded, waiting = set[str](), set[str](), [*files][::-1]
    while waiting:
        path = waiting[-1]
        if path not in seen:
            seen.add(path)
            names = _IMPORT.findall(files[path])
            waiting += [
                found for name in reversed(names) if (found := _imported_path(files, path, name)) and found not in seen
            ]
            continue
        waiting.pop()
        if path not in yielded:
            yielded.add(path)
            yield path


def _imported_path(files: Mapping[str, str], path: str, name: str) -> str:
    """Return the path of the file that an import names; empty if it is not in the tree."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
    return target if target in files else ""


def _without_imports(files: Mapping[str, str], path: str) -> str:
    """Return the text of a file without imports from the tree; the harness refuses any other import."""
    return _IMPORT.sub(lambda found: "" if _imported_path(files, path, found[1]) else found[0], files[path])


def is_archive(content: bytes) -> bool:
    return content.startswith((b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b")) or content[257:262] == b"ustar"


def text_of(content: bytes) -> str:
    if b"\x00" in content or content.startswith(_MAGIC):
        raise BadSubmission("The content is binary, not text.", code="binary", remedy="Submit UTF-8 text.")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as bad:
        raise BadSubmission(f"Byte {bad.start} is not valid UTF-8 ({bad.reason}).", code="not_utf8") from None
    controls = len(_CONTROL.findall(text))
    if controls * 100 > len(text):
        raise BadSubmission(f"The content has {controls} control characters: binary, not text.", code="binary")
    return text


def is_binary(content: bytes) -> bool:
    try:
        text_of(content)
    except BadSubmission:
        return True
    return False


def read_archive(content: bytes, language: str | None = None) -> FileTree:
    """Read the files of an archive; `language` is the poster's hint. Raises BadSubmission."""
    found: dict[str, bytes] = {}
    most = min(MOST_BYTES, MOST_RATIO * len(content) + FREE_BYTES)
    size, seen = 0, set[str]()
    try:
        raw = _inflate(content, most + 1024 * (MOST_FILES + 20), 31) if content.startswith(b"\x1f\x8b") else content
        for number, (name, body) in enumerate(_zip_files(raw, most) if content.startswith(b"PK") else _tar_files(raw)):
            path = checked_path(name)
            size += len(body)
            if number >= MOST_FILES:
                raise bad_archive(f"it holds more than {MOST_FILES:,} files", "too_large")
            if size > most:
                raise bad_archive(f"unpacked it has more than {most:,} bytes", "too_large")
            if is_archive(body):
                raise bad_archive(f"{path!r} in it is an archive too")
            if path.casefold() in seen:
                raise bad_archive(f"the name {path!r} occurs twice, or differs from another only in case")
            seen.add(path.casefold())
            found[path] = body
    except (struct.error, zlib.error, ValueError, IndexError) as bad:
        raise bad_archive(f"it is damaged or cut off ({bad})") from None
    folders = {str(parent).casefold() for path in found for parent in PurePosixPath(path).parents}
    if both := folders & seen:
        raise bad_archive(f"{min(both)!r} is a file and a folder")
    if not found:
        raise BadSubmission("The archive holds no files.", code="empty")
    return _make_tree(found, language)


def pack_files(files: Mapping[str, bytes]) -> bytes:
    """Pack files as an uncompressed zip whose bytes depend on nothing but the files."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path in sorted(files, key=str.encode):
            entry = zipfile.ZipInfo(path)
            entry.create_system, entry.external_attr = 3, 0o644 << 16
            archive.writestr(entry, files[path])
    return packed.getvalue()


def pack_folder(folder: Path) -> bytes:
    """Pack the files of a folder as a tar.gz in canonical order. Raises BadInput for links or excess data."""
    packed = io.BytesIO()
    paths = sorted(path for path in folder.rglob("*") if not IGNORED & set(path.relative_to(folder).parts))
    files = [path for path in paths if path.is_symlink() or not path.is_dir()]
    if len(files) > MOST_FILES or sum(path.lstat().st_size for path in files) > MOST_BYTES:
        raise BadInput(
            f"The folder {str(folder)!r} has more than {MOST_FILES:,} files or {MOST_BYTES:,} bytes.",
            remedy="Remove files that are not part of the solution.",
        )
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in files:
            if path.is_symlink() or not path.is_file():
                raise BadInput(f"{str(path)!r} is a link or no plain file.", remedy="Put the file itself there.")
            entry = tarfile.TarInfo(path.relative_to(folder).as_posix())
            entry.size = path.stat().st_size
            with path.open("rb") as content:
                tar.addfile(entry, content)
    return gzip.compress(packed.getvalue(), mtime=0)


def _make_tree(found: dict[str, bytes], language: str | None) -> FileTree:
    tops = {path.partition("/")[0] for path in found}
    if len(tops) == 1 and all("/" in path for path in found):
        found = {path.partition("/")[2]: body for path, body in found.items()}
    texts = {path: body for path, body in found.items() if not is_binary(body)}
    sizes = Counter[str]()
    for path, body in texts.items():
        if (written := _language_of(path)) is not None:
            sizes[written] += len(body)
    main = language_name(language) if language else min(sizes, key=lambda one: (-sizes[one], one), default=None)
    left, kinds = SHOWN_TOKENS, dict[str, FileKind]()
    for path in sorted(texts, key=lambda path: (_language_of(path) != main, path.encode())):
        cost = most_tokens(texts[path].decode())
        kinds[path] = "omitted" if cost > left else "code" if main and _language_of(path) == main else "text"
        left -= cost if cost <= left else 0
    files = (SubmittedFile(path, found[path], kinds.get(path, "binary")) for path in sorted(found, key=str.encode))
    return FileTree(tuple(files), main)


def _language_of(path: str) -> str | None:
    ending = path.rpartition(".")[2].lower()
    return language_name(ending) if ending in _ENDINGS and "." in path else None


def _with_newline(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"


def checked_path(name: bytes) -> str:
    try:
        path = name.decode("utf-8")
    except UnicodeDecodeError:
        raise bad_archive(f"the name {name[:80]!r} is not UTF-8") from None
    path = path.removeprefix("./")
    parts = path.split("/")
    if path.startswith("/") or "\\" in path or re.match(r"[A-Za-z]:", path) or {"", ".", ".."} & set(parts):
        raise bad_archive(f"the name {path[:80]!r} is not a path inside it")
    if _CONTROL.search(path) or re.search(r"[\t\n\r]", path) or not unicodedata.is_normalized("NFC", path):
        raise bad_archive(f"the name {path[:80]!a} holds characters that names do not have")
    if len(parts) > DEEPEST or len(path) > LONGEST_PATH:
        raise bad_archive(
            f"the name {path[:80]!r}… is deeper than {DEEPEST} folders or longer than {LONGEST_PATH} characters"
        )
    return path


def _inflate(raw: bytes, most: int, window: int) -> bytes:
    unpacker = zlib.decompressobj(window)
    found = unpacker.decompress(raw, most + 1)
    if len(found) > most:
        raise bad_archive(f"unpacked it has more than {most:,} bytes", "too_large")
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("the compressed data ends too early, or something follows it")
    return found


def _tar_files(raw: bytes) -> Iterator[tuple[bytes, bytes]]:
    at, name = 0, b""
    while head := raw[at : at + 512]:
        if not any(head):
            return
        size, kind = _tar_size(head), head[156:157]
        body, at = raw[at + 512 : at + 512 + size], at + 512 + -(-size // 512) * 512
        if len(body) < size:
            raise ValueError("a file is cut")
        if kind == b"L":
            name = body.rstrip(b"\0")
        elif kind == b"x":
            name = _pax_path(body) or name
        elif kind not in b"g5":
            own, folder = head[:100].partition(b"\0")[0], head[345:500].partition(b"\0")[0]
            if kind not in b"0\0":
                raise bad_archive(f"{(name or own)[:80]!r} in it is a link or no plain file")
            yield name or (folder + b"/" + own if folder and head[257:263] == b"ustar\0" else own), body
        name = name if kind in b"Lxg" else b""
    raise ValueError("its end is missing")


def _tar_size(head: bytes) -> int:
    """Return the size of the file after a header. Raises ValueError for a bad format or checksum."""
    if head[257:262] != b"ustar" or len(head) < 512:
        raise ValueError("it holds no tar archive")
    check, size = (int(field.strip(b" \0") or b"0", 8) for field in (head[148:156], head[124:136]))
    if size < 0 or sum(head) - sum(head[148:156]) + 8 * 32 != check:
        raise ValueError("a size or a check sum is wrong")
    return size


def _pax_path(body: bytes) -> bytes:
    found, at = b"", 0
    while at < len(body):
        length = int(body[at : body.index(b" ", at)])
        key, _, value = body[body.index(b" ", at) + 1 : at + length - 1].partition(b"=")
        if length < 5 or key == b"size" or key.startswith(b"GNU.sparse"):
            raise ValueError("a header says what other readers may not read")
        found, at = value if key == b"path" else found, at + length
    return found


def _zip_files(raw: bytes, most: int) -> Iterator[tuple[bytes, bytes]]:
    count, _, at = struct.unpack_from("<HII", raw, raw.rindex(b"PK\x05\x06") + 10)
    for _ in range(count):
        start, flags, method, crc, packed, size, named, extra, comment, mode, offset = struct.unpack_from(
            "<4s4xHH4xIIIHHH6xHI", raw, at
        )
        name, at = raw[at + 46 : at + 46 + named], at + 46 + named + extra + comment
        local, own_named, own_extra = struct.unpack_from("<4s22xHH", raw, offset)
        data = offset + 30 + own_named + own_extra
        if start != b"PK\x01\x02" or local != b"PK\x03\x04" or raw[offset + 30 : offset + 30 + own_named] != name:
            raise ValueError("its two lists of files differ")
        if flags & 1 or method not in {0, 8}:
            raise bad_archive(f"{name[:80]!r} in it is encrypted, or packed in a way that is not read")
        if mode & 0xF000 not in {0, 0x4000, 0x8000}:
            raise bad_archive(f"{name[:80]!r} in it is a link or no plain file")
        if name.endswith(b"/"):
            continue
        body = raw[data : data + packed] if method == 0 else _inflate(raw[data : data + packed], most, -15)
        if len(body) != size or zlib.crc32(body) != crc:
            raise ValueError("a file is cut or changed")
        yield name, body


def most_tokens(text: str) -> int:
    """Return the larger estimate of the text and of its NFKC form, which is what models read."""
    folded = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return max(estimate_tokens(text), estimate_tokens(folded))


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text, at most: a third per ASCII character, one per byte of others."""
    size = len(text.encode())
    plain = sum(map("\x80".__gt__, text)) if size != len(text) else size
    return (plain + 2) // 3 + (size - plain)


def bad_archive(why: str, code: str = "bad_archive") -> BadSubmission:
    return BadSubmission(
        f"The archive is not read: {why}.", code=code, remedy="Pack plain files, for example `tar czf`."
    )
