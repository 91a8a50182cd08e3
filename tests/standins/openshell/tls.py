"""A certificate authority for one run of the stand-in, and the TLS of its listener."""
import datetime
import ipaddress
import os
import pathlib
import ssl

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


def _name(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _issue(subject, issuer=None, key_of_issuer=None, san=(), usage=None, is_ca=False, days=2, begins=0):
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=begins)
    builder = (x509.CertificateBuilder().subject_name(_name(subject)).issuer_name(issuer.subject if issuer else _name(subject)).public_key(key.public_key())
               .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + datetime.timedelta(days=days))
               .add_extension(x509.BasicConstraints(is_ca, None), True)
               .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
               .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key((key_of_issuer or key).public_key()), False))
    if is_ca:
        builder = builder.add_extension(x509.KeyUsage(True, False, False, False, False, True, True, False, False), True)
    if san:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(n)) if n[0].isdigit() or ":" in n else x509.DNSName(n) for n in san]), False)
    if usage:
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), False)
    return builder.sign(key_of_issuer or key, hashes.SHA256()), key


def _write(folder, name, certificate, key):
    (folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    path = folder / f"{name}.key"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as f:
        f.write(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))


def make(folder, names=("127.0.0.1", "::1", "localhost")):
    """ca.crt, server.crt/key, client.crt/key; and for refusals other-ca.crt, stranger.crt/key (of another authority) and wrong-host.crt/key."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    ca, ca_key = _issue("OpenShell stand-in CA", is_ca=True)
    (folder / "ca.crt").write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    _write(folder, "server", *_issue("openshell", ca, ca_key, names, ExtendedKeyUsageOID.SERVER_AUTH))
    _write(folder, "client", *_issue("plimsoll", ca, ca_key, (), ExtendedKeyUsageOID.CLIENT_AUTH))
    _write(folder, "wrong-host", *_issue("openshell", ca, ca_key, ("other.test",), ExtendedKeyUsageOID.SERVER_AUTH))
    other, other_key = _issue("another CA", is_ca=True)
    (folder / "other-ca.crt").write_bytes(other.public_bytes(serialization.Encoding.PEM))
    _write(folder, "stranger", *_issue("stranger", other, other_key, (), ExtendedKeyUsageOID.CLIENT_AUTH))


def context(certificate, key, client_ca, client="required", alpn=("h2", "http/1.1"), least=ssl.TLSVersion.TLSv1_2, most=ssl.TLSVersion.MAXIMUM_SUPPORTED):
    """The listener's: TLS 1.2 and 1.3, ALPN h2 before http/1.1, a client's certificate asked for."""
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    c.minimum_version, c.maximum_version = least, most
    c.load_cert_chain(certificate, key)
    c.load_verify_locations(client_ca)
    c.verify_mode = {"required": ssl.CERT_REQUIRED, "optional": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}[client]
    if alpn:
        c.set_alpn_protocols(list(alpn))
    return c
