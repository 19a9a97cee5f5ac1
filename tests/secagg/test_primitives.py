"""The field, the shares and the masks, against slow and obvious versions of themselves."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from hypothesis import given, settings
from hypothesis import strategies as st

from sordino.errors import BadInput
from sordino.secagg import field, masks, shamir

elements = st.integers(0, field.ORDER)


def slow_multiply(a: int, b: int) -> int:
    """Shift and add, reduced bit by bit."""
    product = 0
    while b:
        if b & 1:
            product ^= a
        a, b = a << 1, b >> 1
        if a >> 16:
            a ^= 0x1100B
    return product


@given(elements, elements, elements)
def test_the_field_multiplies_as_polynomials_do(a, b, c):
    assert int(field.multiply(a, b)) == slow_multiply(a, b)
    assert field.multiply(a, b ^ c) == field.multiply(a, b) ^ field.multiply(a, c)


def test_x_generates_every_element_but_zero():
    powers, logs = field._tables()
    assert len(set(powers[: field.ORDER].tolist())) == field.ORDER and powers[0] == 1
    assert all(powers[logs[a]] == a for a in (1, 2, 3, 255, 256, 65535))


@given(st.lists(st.tuples(st.integers(1, field.ORDER), st.integers(1, field.ORDER)), min_size=1, max_size=6))
def test_quotients_undo_products(pairs):
    a, b = (np.array(side, np.uint16) for side in zip(*pairs))
    quotient = field.quotients(a[None], b[None])[0]
    top, bottom = 1, 1
    for x, y in pairs:
        top, bottom = slow_multiply(top, x), slow_multiply(bottom, y)
    assert slow_multiply(int(quotient), bottom) == top


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_threshold_of_shares_restores_the_secret(data):
    n = data.draw(st.integers(1, 12))
    threshold = data.draw(st.integers(1, n))
    points = data.draw(st.lists(st.integers(1, field.ORDER), min_size=n, max_size=n, unique=True))
    secret = data.draw(st.binary(min_size=2, max_size=64).filter(lambda s: len(s) % 2 == 0))
    shares = shamir.split(secret, threshold, points)
    chosen = data.draw(st.permutations(range(n)))[:threshold]
    assert shamir.combine([shares[i] for i in chosen], [points[i] for i in chosen]) == secret


def test_every_subset_of_the_right_size_restores_and_no_smaller_one_does():
    secret = os.urandom(32)
    shares = shamir.split(secret, 3, [1, 2, 3, 4, 5])
    for size in (1, 2, 3, 4, 5):
        for chosen in itertools.combinations(range(5), size):
            found = shamir.combine([shares[i] for i in chosen], [i + 1 for i in chosen])
            assert (found == secret) == (size >= 3)


def test_fewer_shares_than_the_threshold_are_uniform_whatever_the_secret():
    """With a threshold of 2, the share at one point is the secret plus a uniform element: count where it falls."""
    for secret in (b"\x00\x00", b"\xff\x7f"):
        first = np.array([np.frombuffer(shamir.split(secret, 2, [1, 2])[0], "<u2")[0] for _ in range(8000)])
        counts = np.bincount(first >> 12, minlength=16)
        assert ((counts - 500) ** 2 / 500).sum() < 45  # chi-square with 15 degrees: beyond it once in 10^4


def test_bad_points_and_thresholds_are_refused():
    for points in ([], [1, 1], [0, 1], [65536]):
        with pytest.raises(BadInput):
            shamir.split(b"ab", 1, points)
    for threshold in (0, 3):
        with pytest.raises(BadInput):
            shamir.split(b"ab", threshold, [1, 2])
    with pytest.raises(BadInput):
        shamir.split(b"abc", 1, [1])
    with pytest.raises(BadInput):
        shamir.combine([b"ab"], [1, 2])


def test_two_members_agree_on_a_key_and_others_do_not():
    a, b, c = masks.new_secret(), masks.new_secret(), masks.new_secret()
    one = masks.agree(a, masks.public_of(b), b"salt", "mask", 1, 2)
    assert one == masks.agree(b, masks.public_of(a), b"salt", "mask", 1, 2) and len(one) == 32
    others = [
        masks.agree(a, masks.public_of(c), b"salt", "mask", 1, 2),
        masks.agree(a, masks.public_of(b), b"pepper", "mask", 1, 2),
        masks.agree(a, masks.public_of(b), b"salt", "letter", 1, 2),
        masks.agree(a, masks.public_of(b), b"salt", "mask", 2, 1),
    ]
    assert len({one, *others}) == 5


def test_a_public_key_that_would_fix_the_outcome_is_refused():
    with pytest.raises(ValueError):
        masks.agree(masks.new_secret(), bytes(32), b"", "mask")


@pytest.mark.parametrize("length", [0, 1, 7, (1 << 15) - 1, 1 << 15, (1 << 15) + 3])
def test_a_mask_is_the_key_stream_and_comes_off_again(length):
    key = os.urandom(32)
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(8 * length))
    values = np.frombuffer(os.urandom(8 * length), np.uint64).copy()
    total = values.copy()
    masks.add_mask(total, key, +1)
    np.testing.assert_array_equal(total, values + np.frombuffer(stream, "<u8"))
    masks.add_mask(total, key, -1)
    np.testing.assert_array_equal(total, values)


def test_a_changed_letter_does_not_open():
    key = os.urandom(32)
    letter = masks.seal(key, b"shares")
    assert masks.unseal(key, letter) == b"shares"
    for wrong in (letter[:-1], letter + b"\x00", bytes([letter[0] ^ 1]) + letter[1:]):
        with pytest.raises(masks.Unsealable):
            masks.unseal(key, wrong)
    with pytest.raises(masks.Unsealable):
        masks.unseal(os.urandom(32), letter)
