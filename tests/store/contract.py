"""The contract of a store engine, as tests. An engine passes them unchanged:

    class TestMyStore(StoreContract, SharedContract):
        @pytest.fixture
        def place(self) -> Place: ...

`StoreContract` is for every engine, also one in memory; `SharedContract` for those that outlive a process and that
several processes may use at once.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.store.contracts", "tests.store.place")

from tests.store.contracts.duties import DutiesContract  # noqa: E402 - after the registration
from tests.store.contracts.files import FilesContract  # noqa: E402
from tests.store.contracts.life import LifeContract  # noqa: E402
from tests.store.contracts.log import LogContract  # noqa: E402
from tests.store.contracts.queue import QueueContract  # noqa: E402
from tests.store.contracts.retention import RetentionContract  # noqa: E402
from tests.store.contracts.runs import RunsContract  # noqa: E402
from tests.store.contracts.shared import SharedContract  # noqa: E402
from tests.store.contracts.threads import ThreadsContract  # noqa: E402
from tests.store.place import Place  # noqa: E402

__all__ = ["Place", "SharedContract", "StoreContract"]


class StoreContract(
    LifeContract,
    QueueContract,
    LogContract,
    RunsContract,
    ThreadsContract,
    FilesContract,
    DutiesContract,
    RetentionContract,
):
    """What every engine does."""
