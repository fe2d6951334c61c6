"""How many examples each property is tried with.

Few, since there are many properties and the suite has its time; INTERLINGUA_EXAMPLES=1000 tries more, as whoever
changes what they are about should.
"""

import os

EXAMPLES = int(os.environ.get("INTERLINGUA_EXAMPLES", "50"))
