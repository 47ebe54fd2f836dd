"""The authority of the local cluster and the few certificates that it needs."""

import datetime as dt
import ipaddress
from pathlib import Path
from tempfile import TemporaryDirectory

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from local.files import write_whole

VALID = dt.timedelta(days=365)
HOSTS = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
LOOPBACK, SERVICE = "127.0.0.1", "10.0.0.1"  # where clients and pods find the API server


def private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,  # the API server reads no PKCS8 here
        serialization.NoEncryption(),
    )
    write_whole(path, pem.decode())
    return key


def name(common: str, organization: str | None = None) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common)]
    if organization:
        parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(parts)


def certificate(
    path: Path,
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    authority: bool = False,
    usage: x509.ObjectIdentifier | None = None,
    hosts: tuple[str, ...] = (),
    addresses: tuple[str, ...] = (),
) -> None:
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + VALID)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
        .add_extension(
            x509.KeyUsage(
                digital_signature=True,
                key_cert_sign=authority,
                crl_sign=authority,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
    )
    if usage:
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    if hosts or addresses:
        names: list[x509.GeneralName] = [x509.DNSName(host) for host in hosts]
        names += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    signed = builder.sign(issuer_key, hashes.SHA256())
    write_whole(path, signed.public_bytes(serialization.Encoding.PEM).decode())


def serving_certificate(folder: Path, subject: str) -> tuple[str, str]:
    """Certificate and key, in PEM, of a server on loopback, signed by the folder's authority."""
    authority = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    signing = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    if not isinstance(signing, ec.EllipticCurvePrivateKey):
        raise TypeError(f"{folder / 'ca.key'} is no key of ours")
    with TemporaryDirectory() as scratch:
        certified, key = Path(scratch, "serving.crt"), Path(scratch, "serving.key")
        certificate(
            certified,
            name(subject, "system:nodes"),
            private_key(key),
            authority.subject,
            signing,
            usage=ExtendedKeyUsageOID.SERVER_AUTH,
            hosts=HOSTS[:1],
            addresses=(LOOPBACK,),
        )
        return certified.read_text(), key.read_text()


def make_certificates(folder: Path) -> None:
    """Make an authority and what it signs, unless the folder is complete already.

    ca.crt                 signs apiserver.crt; clients trust it
    apiserver.crt/.key     serves 127.0.0.1; controllers and scheduler serve with it, too
    kubelet-client.crt     with which the API server asks nodes for logs; it is its own authority,
                           so that a node can trust exactly this one client
    service-accounts.key   signs the tokens of service accounts
    """
    complete = folder / "complete"
    if complete.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    authority, authority_key = name("sluice-local"), private_key(folder / "ca.key")
    certificate(
        folder / "ca.crt", authority, authority_key, authority, authority_key, authority=True
    )
    certificate(
        folder / "apiserver.crt",
        name("kube-apiserver"),
        private_key(folder / "apiserver.key"),
        authority,
        authority_key,
        usage=ExtendedKeyUsageOID.SERVER_AUTH,
        hosts=HOSTS,
        addresses=(LOOPBACK, SERVICE),
    )
    client, client_key = (
        name("kube-apiserver", "system:masters"),
        private_key(folder / "kubelet-client.key"),
    )
    certificate(
        folder / "kubelet-client.crt",
        client,
        client_key,
        client,
        client_key,
        authority=True,
        usage=ExtendedKeyUsageOID.CLIENT_AUTH,
    )
    private_key(folder / "service-accounts.key")
    complete.touch()
