"""A quiet town for every test."""

from __future__ import annotations

import pytest

from tests.unit.migration.town import Town


@pytest.fixture
def town() -> Town:
    return Town()
