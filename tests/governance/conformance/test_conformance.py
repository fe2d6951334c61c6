"""What AIP-44 requires of a running gateway: every requirement, for a real one with real agents."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.governance.conformance.requirements import REQUIREMENTS
from tests.governance.conformance.room import Room, room


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    with room(tmp_path_factory.mktemp("conformance")) as running:
        yield running


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_the_gateway_conforms(there: Room, name: str) -> None:
    REQUIREMENTS[name](there)
