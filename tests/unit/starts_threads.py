"""Such a module as may not be imported before a fork: it starts a thread."""

import threading

threading.Thread(target=threading.Event().wait, daemon=True).start()
