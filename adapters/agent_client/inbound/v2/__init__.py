"""Version 2 (a draft): what its clients are told of sessions and runs, and when their prompts are answered."""
