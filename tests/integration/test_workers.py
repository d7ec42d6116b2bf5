"""What the workers of pytest-xdist are told: tests that share what takes long to make are one worker's."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("told")
def test_a_group_is_told_with_the_name_of_the_test(request: pytest.FixtureRequest) -> None:
    """Where it is not, as with pytest 9.2 and pytest-xdist 3.8, nothing fails: each worker makes all of it anew."""
    if not request.config.getoption("loadgroup", False):
        pytest.skip("needs several workers and --dist loadgroup, as make test has them")
    assert request.node.nodeid.endswith("@told")
