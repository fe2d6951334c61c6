"""Certificates for 127.0.0.1, and the authorities that vouch for them: made anew, valid for a day."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

USES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)
"""Of a key; from Python 3.13 on a certificate has to name what RFC 5280 wants."""
DAY = datetime.timedelta(days=1)
PEM = serialization.Encoding.PEM


class _Signer:
    """An authority: a name and a key."""

    def __init__(self, name: str) -> None:
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.key = ec.generate_private_key(ec.SECP256R1())

    def certificate(self, subject: x509.Name, public: ec.EllipticCurvePublicKey, *, authority: bool) -> bytes:
        """PEM of a certificate for the key."""
        now = datetime.datetime.now(datetime.UTC)
        made = x509.CertificateBuilder().subject_name(subject).issuer_name(self.name).public_key(public)
        made = made.serial_number(x509.random_serial_number()).not_valid_before(now - DAY).not_valid_after(now + DAY)
        made = made.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), False)
        if authority:
            signs = dict.fromkeys(("key_cert_sign", "crl_sign"), True)
            made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
            made = made.add_extension(x509.KeyUsage(**dict.fromkeys(USES, False) | signs), True)
            made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), False)
        else:
            there = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
            made = made.add_extension(there, True)
        return made.sign(self.key, hashes.SHA256()).public_bytes(PEM)


def authority(folder: Path, name: str, *, between: bool = False, passphrase: str = "") -> tuple[Path, Path]:
    """The certificate of an authority, and one file with the key and the certificate that it gave 127.0.0.1.

    between: another authority stands between, whose certificate is in that file as well.
    passphrase: the key is encrypted with it.
    """
    root = signer = _Signer(name)
    key, behind = ec.generate_private_key(ec.SECP256R1()), b""
    if between:
        signer = _Signer(f"{name} between")
        behind = root.certificate(signer.name, signer.key.public_key(), authority=True)
    known, chain = folder / f"{name}.pem", folder / f"{name}-server.pem"
    known.write_bytes(root.certificate(root.name, root.key.public_key(), authority=True))
    hidden: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase:
        hidden = serialization.BestAvailableEncryption(passphrase.encode())
    chain.write_bytes(
        key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, hidden)
        + signer.certificate(x509.Name([]), key.public_key(), authority=False)
        + behind
    )
    return known, chain
