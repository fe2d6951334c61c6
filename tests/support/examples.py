"""How many examples each property is tried with.

Few, since there are many properties and the suite has its time, and the same in every run, so that a run says something
of the change that it is for. INTERLINGUA_EXAMPLES=1000 tries more, and others each time, as whoever changes what they
are about should.
"""

import os
import time

MORE = "INTERLINGUA_EXAMPLES" in os.environ
EXAMPLES = int(os.environ.get("INTERLINGUA_EXAMPLES", "50"))

FUZZ_SECONDS = float(os.environ.get("INTERLINGUA_FUZZ_SECONDS", "0"))
"""How long each fuzzer of tests/fuzz goes on, with new seeds each time; without it each has one round of its first."""
FUZZ_SEED = int(os.environ.get("INTERLINGUA_FUZZ_SEED", "0")) or (time.time_ns() if FUZZ_SECONDS else 1)
"""The first seed; a fuzzer that fails names its own."""
