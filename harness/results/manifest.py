"""Digests of a run's files, which show every later change, and their signature.

    <run>/manifest.json    SHA-256 of `run.yaml`, `records.jsonl` and each log, and short digests of lines
    <run>/manifest.sig     ed25519 signature of `manifest.json`; only of a signed run

Trusted side. `RunStore.close` writes the manifest and `harness.results.verify` compares it. The digest of a file
decides; the digests of its lines only tell which line differs. Signing needs the package `cryptography`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from harness.core.atomic_file import replace_whole
from harness.results.evidence import mapping, text
from harness.results.reader import StoreError

MANIFEST, SIGNATURE = "manifest.json", "manifest.sig"
MANIFEST_FORMAT = 1
"""Version of the manifest, and of the formulas in `core/stats.py` by which `verify` computes statistics again."""

BY_LINE = ("records.jsonl", "run.yaml")
"""Files whose lines have digests."""

NO_CRYPTOGRAPHY = "signatures need the package cryptography: pip install 'kernel-harness[sign]'"

_BLOCK_BYTES = 2**20

MOST_LINES = 20
"""Most differing lines of a file that are named."""


class SigningKey:
    """A private ed25519 key.

    Args:
        path: PEM file without a passphrase, as `openssl genpkey -algorithm ed25519` writes it.

    Raises:
        StoreError: The package `cryptography` is missing, or the file is no such key.
    """

    def __init__(self, path: Path) -> None:
        try:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
            from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
        except ImportError:
            raise StoreError(NO_CRYPTOGRAPHY) from None
        make = f"make one by: openssl genpkey -algorithm ed25519 -out {path}"
        try:
            key = load_pem_private_key(path.read_bytes(), password=None)
        except OSError as error:
            raise StoreError(f"{path}: can't be read: {error.strerror or error}; {make}") from error
        except (ValueError, TypeError) as error:
            raise StoreError(f"{path}: not a private key in PEM form without a passphrase; {make}") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise StoreError(f"{path}: not an ed25519 key; {make}")
        self._key = key
        self.public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex()
        """The public key, 64 hex digits."""

    def sign(self, data: bytes) -> str:
        """Return the signature of `data`, 128 hex digits."""
        return self._key.sign(data).hex()


def public_key(path: Path) -> str:
    """Return the public key in a PEM file of a public or private ed25519 key, in hex.

    Raises:
        StoreError: The package `cryptography` is missing, or the file holds no such key.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key
    except ImportError:
        raise StoreError(NO_CRYPTOGRAPHY) from None
    with suppress(OSError, ValueError):
        key = load_pem_public_key(path.read_bytes())
        if isinstance(key, Ed25519PublicKey):
            return key.public_bytes(Encoding.Raw, PublicFormat.Raw).hex()
    return SigningKey(path).public


def describe(folder: Path, signed_by: str | None = None) -> dict[str, Any]:
    """Return the manifest of a run as its files are now.

    Args:
        folder: The run's folder.
        signed_by: Public key of the signature, in hex; None for an unsigned run.

    Raises:
        OSError: A file can't be read.
    """
    files, lines = {}, {}
    for path in _files(folder):
        name, whole = path.relative_to(folder).as_posix(), hashlib.sha256()
        parts: list[str] = []
        with path.open("rb") as stream:  # a file of a long run may be larger than the memory
            for block in stream if name in BY_LINE else iter(lambda: stream.read(_BLOCK_BYTES), b""):
                whole.update(block)
                if name in BY_LINE:
                    parts += [hashlib.sha256(line).hexdigest()[:16] for line in block.splitlines(keepends=True)]
        files[name] = whole.hexdigest()
        if name in BY_LINE:
            lines[name] = parts
    return {"format": MANIFEST_FORMAT, "signed_by": signed_by, "files": files, "lines": lines}


def _files(folder: Path) -> Iterator[Path]:
    yield from (path for name in BY_LINE if (path := folder / name).is_file())
    yield from sorted(path for path in (folder / "logs").rglob("*") if path.is_file())


def write_manifest(folder: Path, key: SigningKey | None = None) -> None:
    """Write a run's manifest, and its signature if there is a key.

    Raises:
        OSError: A file can't be read or written.
    """
    remove_manifest(folder)
    data = _encoded(describe(folder, None if key is None else key.public))
    if key is not None:
        signature = {"algorithm": "ed25519", "public_key": key.public, "signature": key.sign(data)}
        replace_whole(folder / SIGNATURE, _encoded(signature))
    replace_whole(folder / MANIFEST, data)


def remove_manifest(folder: Path) -> None:
    """Remove a run's manifest and signature, because its files are about to change.

    Raises:
        OSError: They can't be removed.
    """
    for name in (MANIFEST, SIGNATURE):
        (folder / name).unlink(missing_ok=True)


def changes_since(folder: Path) -> tuple[list[str], str | None]:
    """Compare a run's files with its manifest, and the manifest with its signature.

    Returns:
        A line for each difference, and the public key that the manifest names.
    """
    path = folder / MANIFEST
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [
            f"{MANIFEST}: is missing: the run did not end, is of an older harness, or the file was removed; nothing "
            f"shows whether its files were changed, and its statistics are not computed again"
        ], None
    except OSError as error:
        return [f"{MANIFEST}: can't be read: {error.strerror or error}"], None
    try:
        recorded = json.loads(data)
    except (ValueError, RecursionError):
        recorded = None
    if not isinstance(recorded, dict) or recorded.get("format") != MANIFEST_FORMAT:
        return [f"{MANIFEST}: not a manifest of format {MANIFEST_FORMAT}: the file was changed"], None
    signer = recorded.get("signed_by")
    now = describe(folder, signer)
    found: list[str] = []
    if data != _encoded(now):
        found = list(_differences(folder, recorded, now))
        found = found or [f"{MANIFEST}: was changed after it was written; the other files are as it says"]
    return [*found, *_faults_of_signature(folder, data, signer)], text(recorded, "signed_by") or None


def _differences(folder: Path, recorded: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each file, or line of a file, that differs from the manifest."""
    was, held = mapping(recorded, "files"), mapping(now, "files")
    for name in sorted({*was, *held}):
        if name not in held:
            yield f"{name}: is missing; {MANIFEST} lists it"
        elif name not in was:
            yield f"{name}: is not in {MANIFEST}: it was added later"
        elif was[name] != held[name]:
            before, after = mapping(recorded, "lines").get(name), now["lines"].get(name)
            places = list(_places(before, after)) if isinstance(before, list) and after is not None else []
            yield from (f"{name}{place}" for place in places or [f": differs from its digest in {MANIFEST}"])


def _places(before: list[Any], after: list[str]) -> Iterator[str]:
    """Yield `, line 3: …` for lines that differ, by their digests."""
    told = 0
    for _, a, b, c, d in SequenceMatcher(None, list(map(str, before)), after, autojunk=False).get_opcodes():
        if before[a:b] == after[c:d]:
            continue
        for number in range(max(b - a, d - c)):
            told += 1
            if told > MOST_LINES:
                yield f": more lines differ from {MANIFEST}"
                return
            if number >= d - c:
                yield f", what was line {a + number + 1}: is missing; {MANIFEST} lists it"
            elif number >= b - a:
                yield f", line {c + number + 1}: is not in {MANIFEST}: it was added later"
            else:
                yield f", line {c + number + 1}: differs from its digest in {MANIFEST}"


def _faults_of_signature(folder: Path, manifest: bytes, signer: object) -> Iterator[str]:
    """Yield why the signature does not hold; nothing if it does or there is none."""
    path = folder / SIGNATURE
    if signer is None:
        if path.exists():
            yield f"{SIGNATURE}: was added, or the manifest was changed: it names no signer"
        return
    try:
        data = path.read_bytes()
        held = json.loads(data)
    except FileNotFoundError:
        yield f"{SIGNATURE}: is missing: {MANIFEST} says that the run was signed"
        return
    except (OSError, ValueError, RecursionError):
        held, data = None, b""
    try:
        public, signature = bytes.fromhex(str(signer)), bytes.fromhex(text(held, "signature"))
    except ValueError:
        public = signature = b""
    if data != _encoded({"algorithm": "ed25519", "public_key": signer, "signature": signature.hex()}):
        yield f"{SIGNATURE}: not a signature by the key that {MANIFEST} names: one of them was changed"
        return
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        raise StoreError(NO_CRYPTOGRAPHY) from None
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, manifest)
    except (ValueError, InvalidSignature):
        yield f"{SIGNATURE}: the signature does not fit {MANIFEST}: one of them was changed"


def _encoded(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()
