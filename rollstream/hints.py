"""What several commands tell a person to do."""

from __future__ import annotations

NO_AGENT = "no agent runs: start one with `rollstream agent`"
