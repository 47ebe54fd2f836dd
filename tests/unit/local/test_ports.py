"""Ports are free, distinct, and the same again for a resumed state."""

import socket

import pytest

from local.ports import choose_ports

NAMES = ("aws", "ec2", "etcd")


def test_ports_are_distinct(tmp_path) -> None:
    ports = choose_ports(tmp_path / "ports.json", NAMES, {})

    assert set(ports) == set(NAMES)
    assert len(set(ports.values())) == len(NAMES)


def test_a_resumed_state_gets_its_old_ports(tmp_path) -> None:
    first = choose_ports(tmp_path / "ports.json", NAMES, {})

    assert choose_ports(tmp_path / "ports.json", NAMES, {}) == first


def test_a_port_in_use_is_named(tmp_path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]

        with pytest.raises(OSError, match=rf"port {taken} for aws is in use"):
            choose_ports(tmp_path / "ports.json", NAMES, {"aws": taken})
