"""The role that learns: replay -> policies."""

import os

# Importing onnxruntime would start a thread that reports to its makers.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
