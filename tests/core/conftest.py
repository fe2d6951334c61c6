"""Property tests are judged by what they find, not by how long a busy machine takes over it."""

from hypothesis import HealthCheck, settings

from tests.support.examples import EXAMPLES

settings.register_profile(
    "unhurried", deadline=None, max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("unhurried")
