"""The cluster of the walk serves here as well."""

from tests.walk.conftest import address

__all__ = ["address"]
