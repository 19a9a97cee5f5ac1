"""Where random numbers come from: seeded streams for what must repeat, a secure source for noise that must not.

A *stream* is a pure function of (seed, round, client, purpose). The four are hashed (BLAKE2b) into the key and the
counter of a Philox generator (Salmon et al. 2011), so that a result depends neither on the number of workers, nor on
the order in which clients are visited, nor on whether a run was resumed. Two different keys give streams that are
independent for every practical purpose: two of them coincide anywhere with a probability below 2^-128.

The *secure source* is ChaCha20 (RFC 8439) under a key drawn from the operating system. It cannot be seeded, copied or
saved, because a reader who knows the noise can subtract it. A forked process and a long draw get a new key.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
import os
import threading
from typing import NoReturn, overload

import numpy as np
from numpy.typing import NDArray

from sordino.errors import BadInput, NotPrivate, positive

SERVER = -1  # the `client` of streams that belong to the server

_REKEY_AFTER = 1 << 30  # bytes under one key; far below the 256 GiB that one nonce allows
_CHUNK = 1 << 14  # pairs of normals per step: the working set stays in the cache
_ZEROS = bytes(1 << 18)

Size = int | tuple[int, ...] | None


def stream(seed: int, t: int, client: int, purpose: str) -> np.random.Generator:
    """The generator of this (seed, round, client, purpose): same key, same bits, wherever and whenever it is asked for.

    >>> bool(stream(1, 2, 3, "cohort").random() == stream(1, 2, 3, "cohort").random())
    True
    """
    key = [_whole("seed", seed), _whole("round", t), _whole("client", client), purpose]
    if not isinstance(purpose, str) or not purpose:
        raise BadInput(f"purpose must name what a stream is for, not {purpose!r}.")
    digest = hashlib.blake2b(json.dumps(key).encode(), digest_size=32, person=b"sordino.stream").digest()
    low, high = int.from_bytes(digest[:16], "little"), int.from_bytes(digest[16:], "little")
    # The upper half of the counter is hashed too; Philox counts up from the lower half, which starts at zero.
    return np.random.Generator(np.random.Philox(key=low, counter=high << 128))


def source(seed: int | None, t: int, client: int, purpose: str, secure: bool) -> Source:
    """A secure source, or the seeded stream of a simulation."""
    if secure:
        return SecureSource()
    if seed is None:
        raise BadInput("A run without a seed must draw from the secure source; give a seed or ask for secure noise.")
    return stream(seed, t, client, purpose)


class SecureSource:
    """Random numbers that nobody can repeat. Calls are named as in `numpy.random.Generator` where both have them.

    Normals come from the Box-Muller transform of 64-bit uniforms: tails reach 9.4 standard deviations, beyond which
    a normal falls with a probability of 5e-21. Laplace variates come from the logarithm of a 64-bit uniform.
    """

    __slots__ = ("_cipher", "_left", "_lock", "_owner")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rekey()

    def _rekey(self) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

        algorithm = algorithms.ChaCha20(os.urandom(32), bytes(16))
        self._cipher = Cipher(algorithm, mode=None).encryptor()
        self._left = _REKEY_AFTER
        self._owner = os.getpid()

    def _fill(self, out: memoryview) -> None:
        """Key stream into `out`; at most `_REKEY_AFTER` bytes under one key, and never the key of a parent process."""
        with self._lock:
            for start in range(0, len(out), len(_ZEROS)):
                piece = out[start : start + len(_ZEROS)]
                if self._owner != os.getpid() or self._left < len(piece):
                    self._rekey()
                self._cipher.update_into(_ZEROS[: len(piece)] if len(piece) < len(_ZEROS) else _ZEROS, piece)
                self._left -= len(piece)

    def bytes(self, n: int) -> bytes:
        """`n` random bytes."""
        out = bytearray(n)
        self._fill(memoryview(out))
        return bytes(out)

    @overload
    def integers64(self, size: None = None) -> np.uint64: ...
    @overload
    def integers64(self, size: int | tuple[int, ...]) -> NDArray[np.uint64]: ...
    def integers64(self, size: Size = None) -> np.uint64 | NDArray[np.uint64]:
        """Uniform over all unsigned 64-bit integers."""
        out = np.empty(_shape(size), dtype=np.uint64)
        self._fill(out.reshape(-1).view(np.uint8).data)
        return out[0] if size is None else out

    @overload
    def integers(self, low: int, high: int | None = None, size: None = None) -> int: ...
    @overload
    def integers(self, low: int, high: int | None, size: int | tuple[int, ...]) -> NDArray[np.int64]: ...
    @overload
    def integers(self, low: int, high: int | None = None, *, size: int | tuple[int, ...]) -> NDArray[np.int64]: ...
    def integers(self, low: int, high: int | None = None, size: Size = None) -> int | NDArray[np.int64]:
        """Uniform over [low, high) (or [0, low)), without bias: draws that would favour small residues are rejected."""
        low, high = (0, low) if high is None else (low, high)
        span = int(high) - int(low)
        if not 0 < span <= 1 << 63:
            raise BadInput(f"integers needs low < high, not {low} and {high}.")
        out = self.integers64(_shape(size))
        fair = (1 << 64) - (1 << 64) % span  # a multiple of span
        while fair < 1 << 64 and (late := out >= np.uint64(fair)).any():
            out[late] = self.integers64(int(late.sum()))
        fitted = (out % np.uint64(span)).astype(np.int64) + np.int64(low)
        return int(fitted[0]) if size is None else fitted

    @overload
    def random(self, size: None = None) -> float: ...
    @overload
    def random(self, size: int | tuple[int, ...]) -> NDArray[np.float64]: ...
    def random(self, size: Size = None) -> float | NDArray[np.float64]:
        """Uniform on [0, 1), multiples of 2^-53."""
        out = (self.integers64(_shape(size)) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return float(out[0]) if size is None else out

    @overload
    def standard_normal(self, size: None = None) -> float: ...
    @overload
    def standard_normal(self, size: int | tuple[int, ...]) -> NDArray[np.float64]: ...
    def standard_normal(self, size: Size = None) -> float | NDArray[np.float64]:
        """Independent standard normals."""
        shape = _shape(size)
        count = math.prod(shape)
        out = np.empty(count)
        for start in range(0, count, 2 * _CHUNK):
            stop = min(start + 2 * _CHUNK, count)
            half = (stop - start + 1) // 2
            bits = self.integers64(2 * half)
            radius = np.sqrt(2.0 * _exponential(bits[:half]))
            angle = (bits[half:] >> np.uint64(11)).astype(np.float64) * (2 * math.pi * 2.0**-53)
            np.multiply(radius, np.cos(angle), out=out[start : start + half])
            np.multiply(radius, np.sin(angle), out=angle)
            out[start + half : stop] = angle[: stop - start - half]
        return float(out[0]) if size is None else out.reshape(shape)

    @overload
    def laplace(self, loc: float = 0.0, scale: float = 1.0, size: None = None) -> float: ...
    @overload
    def laplace(self, loc: float = 0.0, scale: float = 1.0, *, size: int | tuple[int, ...]) -> NDArray[np.float64]: ...
    @overload
    def laplace(self, loc: float, scale: float, size: int | tuple[int, ...]) -> NDArray[np.float64]: ...
    def laplace(self, loc: float = 0.0, scale: float = 1.0, size: Size = None) -> float | NDArray[np.float64]:
        """Laplace variates of the given centre and scale."""
        positive(scale=scale)
        shape = _shape(size)
        bits = self.integers64((2, math.prod(shape)))
        sign = np.where(bits[1] >> np.uint64(63), 1.0, -1.0)
        out = (loc + scale * sign * _exponential(bits[0])).reshape(shape)
        return float(out[0]) if size is None else out

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise NotPrivate("A secure source cannot be copied or saved; make a new one where it is needed.")

    def __copy__(self) -> SecureSource:
        return self.__reduce_ex__(2)

    def __deepcopy__(self, memo: dict) -> SecureSource:
        return self.__reduce_ex__(2)


Source = np.random.Generator | SecureSource


def _exponential(bits: np.ndarray) -> np.ndarray:
    """Standard exponentials -log(u), u = (k + 1/2) 2^-64: the tail is as fine as 64 bits allow."""
    uniform = bits.astype(np.float64)
    uniform += 0.5
    uniform *= 2.0**-64
    np.log(uniform, out=uniform)
    np.abs(uniform, out=uniform)  # log(1) is 0 and stays 0
    return uniform


def _shape(size: Size) -> tuple[int, ...]:
    if size is None:
        return (1,)
    return tuple(int(n) for n in size) if isinstance(size, tuple) else (int(size),)


def _whole(name: str, value: int) -> int:
    try:
        if not isinstance(value, (bool, np.bool_)):
            return operator.index(value)
    except TypeError:
        pass
    raise BadInput(f"{name} must be a whole number, not {value!r}.")
