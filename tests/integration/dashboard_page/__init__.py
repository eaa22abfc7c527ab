"""The dashboard's page in a real Chromium."""
