"""Certificates and keys: a small authority for one federation, and who may sign what.

One folder for each machine, to be carried there and nowhere else:

    ca.crt, ca.key                      the authority; its key belongs to the person who admits members, not to the server
    server/  ca.crt server.crt server.key nodes/NAME.crt
    NAME/    ca.crt node.crt node.key

All keys are P-384. A node's key is in OpenSSH's format because Flower's SuperNode reads no other. Holders know each other
by certificates that the authority signed: a server that invents members, to read what real ones add up, cannot sign for
them, unless it also runs the authority.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sordino.errors import BadInput, SordinoError, whole

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_RESERVED = ("server", "test")
Key = ec.EllipticCurvePrivateKey
PublicKey = ec.EllipticCurvePublicKey
Uses = Sequence[tuple[x509.ExtensionType, bool]]  # an extension, and whether it is critical
_SIGNED = ec.ECDSA(hashes.SHA384())


class Untrusted(SordinoError):
    """A certificate or a signature that does not hold; the sentence says why."""


# ---- making them -----------------------------------------------------------------------------------------


def make(folder: Path, addresses: Sequence[str], nodes: Sequence[str], days: int = 365) -> list[Path]:
    """An authority, a server reachable under `addresses`, and nodes of these names; the folders that were made."""
    whole(days=days)
    _check_names(nodes)
    if (folder / "ca.key").exists():
        raise BadInput(f"{folder} holds an authority already; leave --server out to add nodes, or give another folder.")
    key = ec.generate_private_key(ec.SECP384R1())
    subject = _name("Sordino federation authority")
    authority = _certificate(subject, key, subject, key, days, [])
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "ca.crt", _pem(authority))
    _write(folder / "ca.key", _private(key), secret=True)
    server, own = _place(folder, "server"), ec.generate_private_key(ec.SECP384R1())
    names: list[x509.GeneralName] = [_general(a) for a in dict.fromkeys([*addresses, "localhost", "127.0.0.1"])]
    uses: Uses = [
        (x509.SubjectAlternativeName(names), False),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
    ]
    _write(server / "server.crt", _pem(_certificate(_name("server"), own, subject, key, days, uses)))
    _write(server / "server.key", _private(own), secret=True)
    (server / "nodes").mkdir()
    return [server, *add_nodes(folder, nodes, days)]


def add_nodes(folder: Path, nodes: Sequence[str], days: int = 365) -> list[Path]:
    """Further nodes under the authority in `folder`; the server admits those whose certificates it is given."""
    whole(days=days)
    _check_names(nodes)
    try:
        key = cast(Key, serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None))
        authority = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    except (OSError, ValueError):
        raise BadInput(f"{folder} holds no authority yet; give --server to make one.") from None
    made = []
    for name in nodes:
        if (folder / name).exists():
            raise BadInput(f"{folder / name} exists already; choose another name.")
        at, own = _place(folder, name), ec.generate_private_key(ec.SECP384R1())
        uses: Uses = [(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), False)]
        certificate = _pem(_certificate(_name(name), own, authority.subject, key, days, uses))
        _write(at / "node.crt", certificate)
        _write(folder / "server" / "nodes" / f"{name}.crt", certificate)
        _write(at / "node.key", _private(own, serialization.PrivateFormat.OpenSSH), secret=True)
        made.append(at)
    return made


def _check_names(nodes: Sequence[str]) -> None:
    for name in nodes:
        if not NAME.fullmatch(name) or name in _RESERVED:
            raise BadInput(
                f"a node may not be called {name!r}; use letters, digits, dots and dashes, and not 'server'."
            )
    if len(set(nodes)) != len(nodes) or not nodes:
        raise BadInput("name at least one node, each once.")


def _place(folder: Path, name: str) -> Path:
    """The folder of one machine, with the authority's certificate in it."""
    (folder / name).mkdir(mode=0o700, exist_ok=True)
    _write(folder / name / "ca.crt", (folder / "ca.crt").read_bytes())
    return folder / name


def _certificate(subject: x509.Name, key: Key, issuer: x509.Name, by: Key, days: int, uses: Uses) -> x509.Certificate:
    now, ca = datetime.datetime.now(datetime.UTC), key is by
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=0 if ca else None), True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(by.public_key()), False)
        .add_extension(x509.KeyUsage(not ca, False, False, False, False, ca, ca, False, False), True)
    )
    for extension, critical in uses:
        builder = builder.add_extension(extension, critical)
    return builder.sign(by, hashes.SHA384())


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general(address: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(address))
    except ValueError:
        return x509.DNSName(address)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private(key: Key, form: serialization.PrivateFormat = serialization.PrivateFormat.PKCS8) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _write(path: Path, content: bytes, secret: bool = False) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644)
    with os.fdopen(fd, "wb") as file:
        file.write(content)


# ---- using them ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Own:
    """A machine's own key and certificate, and the authority it trusts."""

    name: str
    key: Key
    certificate: str  # PEM
    authority: str  # PEM

    @classmethod
    def node(cls, folder: Path) -> Own:
        """The certificate and key of a data holder."""
        return cls._load(folder, "node", ExtendedKeyUsageOID.CLIENT_AUTH)

    @classmethod
    def server(cls, folder: Path) -> Own:
        """The certificate and key of a server."""
        return cls._load(folder, "server", ExtendedKeyUsageOID.SERVER_AUTH)

    @classmethod
    def _load(cls, folder: Path, kind: str, usage: x509.ObjectIdentifier) -> Own:
        try:
            authority = (folder / "ca.crt").read_text()
            certificate = (folder / f"{kind}.crt").read_text()
            read = serialization.load_ssh_private_key if kind == "node" else serialization.load_pem_private_key
            key = cast(Key, read((folder / f"{kind}.key").read_bytes(), None))
        except (OSError, ValueError) as error:
            raise BadInput(f"{folder} has no usable keys ({error}); make them with: sordino certs.") from None
        try:
            name, public = check(certificate, authority, usage)
        except Untrusted as error:
            raise Untrusted(f"the folder {folder} cannot be used: {error}") from None
        if _spki(public) != _spki(key.public_key()):
            raise BadInput(f"{folder}/{kind}.key is not the key of {folder}/{kind}.crt; take both from one folder.")
        return cls(name, key, certificate, authority)

    def sign(self, text: bytes) -> bytes:
        """A signature of this text by the own key."""
        return self.key.sign(text, _SIGNED)


def check(certificate: str, authority: str, usage: x509.ObjectIdentifier | None = None) -> tuple[str, PublicKey]:
    """The name and public key of a certificate that the authority signed, if it holds now."""
    try:
        held, above = (x509.load_pem_x509_certificate(pem.encode()) for pem in (certificate, authority))
        name = str(held.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
        held.verify_directly_issued_by(above)
        found = held.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (ValueError, TypeError, IndexError, InvalidSignature, x509.ExtensionNotFound):
        raise Untrusted("a certificate was not issued by this federation's authority.") from None
    now = datetime.datetime.now(datetime.UTC)
    for one in (held, above):
        if not one.not_valid_before_utc <= now <= one.not_valid_after_utc:
            until = one.not_valid_after_utc.date()
            raise Untrusted(f"the certificate of {name} is not valid now (it ends on {until}); make new ones.")
    if usage is not None and usage not in found:
        raise Untrusted(f"the certificate of {name} was issued for another use.")
    return name, cast(PublicKey, held.public_key())


def verify(public: PublicKey, text: bytes, signature: bytes) -> bool:
    """Whether the signature of this text is by the owner of this key."""
    try:
        public.verify(signature, text, _SIGNED)
        return True
    except InvalidSignature:
        return False


def ssh_public(certificate: str) -> bytes:
    """A certificate's public key in the form that Flower registers."""
    public = x509.load_pem_x509_certificate(certificate.encode()).public_key()
    return public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)


def _spki(public: PublicKey) -> bytes:
    return public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
