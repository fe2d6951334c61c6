import pytest

# Before anything imports them, whichever comes first.
pytest.register_assert_rewrite("tests.store.contracts", "tests.store.place")
