"""What `import torch_xla` connects: the core with Python, and the device type with torch."""

import atexit
import os

import torch

from .. import _XLAC
from . import (
    copying,
    device_module,
    log,
    module_to,
    plugins,
    random,
    serialization,
    sparse,
    world,
)

_done = False


def run() -> None:
    """Registers everything, once per process."""
    global _done
    if _done:
        return
    _done = True
    world.prepare()
    _XLAC._xla_set_log_sink(log.sink)
    _XLAC._xla_set_plugin_resolver(plugins.resolve)
    _XLAC._xla_initialize()
    torch._register_device_module("xla", device_module)  # type: ignore[no-untyped-call]
    os.register_at_fork(after_in_child=device_module._after_fork_in_child)
    random.wrap_torch_seeding()
    serialization.register()
    module_to.wrap()
    copying.wrap()
    sparse.wrap()
    # Work in flight is drained and the client destroyed before static destructors run.
    atexit.register(_XLAC._xla_shutdown)
    atexit.register(world.leave)
