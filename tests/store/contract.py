"""The contract of a store engine, as tests. An engine passes them unchanged:

    class TestMyStore(StoreContract, SharedContract):
        @pytest.fixture
        def place(self) -> Place: ...

`StoreContract` is for every engine, also one in memory; `SharedContract` for those that outlive a process and that
several processes may use at once.
"""

from __future__ import annotations

from tests.store.contracts.allowances import AllowancesContract
from tests.store.contracts.duties import DutiesContract
from tests.store.contracts.files import FilesContract
from tests.store.contracts.life import LifeContract
from tests.store.contracts.log import LogContract
from tests.store.contracts.queue import QueueContract
from tests.store.contracts.retention import RetentionContract
from tests.store.contracts.runs import RunsContract
from tests.store.contracts.shared import SharedContract
from tests.store.contracts.threads import ThreadsContract
from tests.store.place import Place

__all__ = ["Place", "SharedContract", "StoreContract"]


class StoreContract(
    LifeContract,
    QueueContract,
    LogContract,
    RunsContract,
    ThreadsContract,
    FilesContract,
    DutiesContract,
    AllowancesContract,
    RetentionContract,
):
    """What every engine does."""
