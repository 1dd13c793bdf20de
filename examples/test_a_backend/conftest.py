"""An option for the size of the tensors."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--size", type=int, default=100, help="the length of the tensors in these tests")


@pytest.fixture
def size(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--size") or 1)
