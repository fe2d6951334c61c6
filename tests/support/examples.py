"""How many examples each property is tried with.

Few, since there are many properties and the suite has its time, and the same in every run, so that a run says something
of the change that it is for. INTERLINGUA_EXAMPLES=1000 tries more, and others each time, as whoever changes what they
are about should.
"""

import os

MORE = "INTERLINGUA_EXAMPLES" in os.environ
EXAMPLES = int(os.environ.get("INTERLINGUA_EXAMPLES", "50"))
