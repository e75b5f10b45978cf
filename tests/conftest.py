"""Settings of all Python tests; what a test sets in its environment goes before."""

import os
import signal

os.environ.setdefault("PJRT_DEVICE", "CPU")
os.environ.setdefault("XLA_VERIFY", "1")
# A shell's background job starts with Ctrl-C ignored, and so would the programs that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
