"""An agent that waits for imports as long as a busy machine needs for all the rest."""

from infra.control import spawning
from rollstream.cli import main

if __name__ == "__main__":
    spawning.START_S = 250.0
    main()
