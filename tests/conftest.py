"""Settings of all Python tests; what a test sets in its environment goes before."""

import os

os.environ.setdefault("PJRT_DEVICE", "CPU")
os.environ.setdefault("XLA_VERIFY", "1")
