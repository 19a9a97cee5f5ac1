"""Keys, masks and sealed letters, from the primitives of `cryptography`.

Two members agree on a key by X25519 (RFC 7748) and derive from it, by HKDF-SHA256 (RFC 5869), one key for each
purpose; what the key is for is part of the derivation, so that no two uses share one. A mask is the ChaCha20 key stream
(RFC 8439) of a full 256-bit key, read as 64-bit integers and added modulo 2^64. Letters are sealed with
ChaCha20-Poly1305; each key seals one letter.
"""

from __future__ import annotations

import struct

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY = 32  # bytes of every key, public or secret
_CHUNK = 1 << 15  # integers masked at a time: the working set stays in the cache
_ZEROS = bytes(8 * _CHUNK)


class Unsealable(Exception):
    """A letter that was changed on its way, or sealed by someone else."""


def new_secret() -> bytes:
    """A fresh private key for one exchange."""
    return X25519PrivateKey.generate().private_bytes_raw()


def public_of(secret: bytes) -> bytes:
    """The public key that belongs to a private one."""
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def agree(secret: bytes, public: bytes, salt: bytes, purpose: str, *numbers: int) -> bytes:
    """The key of two members for one purpose. A public key of low order, which would fix the key, raises ValueError."""
    exchanged = X25519PrivateKey.from_private_bytes(secret).exchange(X25519PublicKey.from_public_bytes(public))
    return derive(exchanged, salt, purpose, *numbers)


def derive(secret: bytes, salt: bytes, purpose: str, *numbers: int) -> bytes:
    """A key for one purpose, from a shared secret (HKDF)."""
    info = f"sordino {purpose}".encode() + struct.pack(f"<{len(numbers)}Q", *numbers)
    return HKDF(hashes.SHA256(), KEY, salt, info).derive(secret)


def add_mask(total: np.ndarray, key: bytes, sign: int) -> None:
    """Add (or subtract) the mask of `key` to a vector of uint64, in place, modulo 2^64."""
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    buffer = bytearray(8 * _CHUNK)
    mask = np.frombuffer(buffer, "<u8")
    step = np.add if sign > 0 else np.subtract
    for start in range(0, total.size, _CHUNK):
        piece = total[start : start + _CHUNK]
        stream.update_into(_ZEROS[: 8 * piece.size], memoryview(buffer)[: 8 * piece.size])
        step(piece, mask[: piece.size], out=piece)


def seal(key: bytes, text: bytes) -> bytes:
    """`key` must never seal anything else."""
    return ChaCha20Poly1305(key).encrypt(bytes(12), text, None)


def unseal(key: bytes, letter: bytes) -> bytes:
    """The text of a sealed letter; `Unsealable` if it was changed or is from someone else."""
    try:
        return ChaCha20Poly1305(key).decrypt(bytes(12), letter, None)
    except InvalidTag:
        raise Unsealable("the letter was changed, or is from someone else") from None
