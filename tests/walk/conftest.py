"""The address of the cluster, and a path of imports for each test."""

import sys

import pytest


@pytest.fixture(scope="session")
def address(cluster):
    return cluster.address


@pytest.fixture
def own_path(monkeypatch):
    """Let each test extend its own copy of sys.path."""
    monkeypatch.setattr(sys, "path", list(sys.path))
