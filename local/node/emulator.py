"""Access to the emulated AWS: with the environment's keys, never with those of the user's files."""

import os

import boto3


def session() -> boto3.Session:
    """An emulator without access control takes any keys."""
    return boto3.Session(
        aws_access_key_id=os.environ.get("AWS_ACCESS_KEY_ID", "test"),
        aws_secret_access_key=os.environ.get("AWS_SECRET_ACCESS_KEY", "test"),
    )
