"""The local cluster's certificates do what their readers need."""

import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from local.certificates import make_certificates


@pytest.fixture
def folder(tmp_path):
    make_certificates(tmp_path / "certs")
    return tmp_path / "certs"


def load(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_clients_that_trust_the_authority_trust_the_api_server(folder) -> None:
    server, authority = load(folder / "apiserver.crt"), load(folder / "ca.crt")

    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    assert addresses == ["127.0.0.1", "10.0.0.1"]
    ssl.create_default_context(cafile=folder / "ca.crt")
    ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
        folder / "apiserver.crt", folder / "apiserver.key"
    )


def test_the_authority_may_sign_and_the_server_may_not(folder) -> None:
    def may_sign(name):
        extension = load(folder / name).extensions.get_extension_for_class(x509.BasicConstraints)
        return extension.value.ca

    assert may_sign("ca.crt")
    assert not may_sign("apiserver.crt")


def test_nodes_can_trust_the_api_server_as_client_and_nobody_else(folder) -> None:
    client = load(folder / "kubelet-client.crt")

    client.verify_directly_issued_by(client)
    assert client.subject.rfc4514_string() == "CN=kube-apiserver,O=system:masters"


def test_keys_are_for_their_owner_only(folder) -> None:
    for key in folder.glob("*.key"):
        assert key.stat().st_mode & 0o077 == 0
        load_pem_private_key(key.read_bytes(), None)


def test_a_second_call_changes_nothing(folder) -> None:
    before = (folder / "ca.crt").read_bytes()

    make_certificates(folder)

    assert (folder / "ca.crt").read_bytes() == before


def test_a_folder_left_half_made_is_made_again(folder) -> None:
    (folder / "complete").unlink()
    (folder / "apiserver.crt").unlink()

    make_certificates(folder)

    load(folder / "apiserver.crt").verify_directly_issued_by(load(folder / "ca.crt"))
