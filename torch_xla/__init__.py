"""PyTorch on XLA devices.

Importing this package makes the device type ``xla`` usable::

    import torch, torch_xla

    x = torch.randn(2, 2, device=torch_xla.device())
    print(x @ x)

Operations on ``xla`` tensors are recorded; when a value is needed, or when `sync` is called, what
was recorded is compiled once by XLA, cached and run.
"""

from typing import TYPE_CHECKING, Any

from ._src import checks as _checks

_checks.check_environment()

from . import _XLAC as _XLAC  # noqa: E402
from ._src import setup as _setup  # noqa: E402
from ._src.devices import device, device_count, devices, real_devices  # noqa: E402
from ._src.launch import launch  # noqa: E402
from ._src.random import manual_seed  # noqa: E402
from ._src.step import sync  # noqa: E402
from ._src.version import __version__  # noqa: E402

_setup.run()

if TYPE_CHECKING:
    from . import amp as amp
    from . import backends as backends
    from . import core as core
    from . import debug as debug
    from . import distributed as distributed
    from . import experimental as experimental
    from . import runtime as runtime
    from . import utils as utils
    from .core import xla_model as xm

__all__ = [
    "__version__",
    "device",
    "device_count",
    "devices",
    "launch",
    "manual_seed",
    "real_devices",
    "runtime",
    "sync",
    "xm",
]

_LAZY = {
    "amp": ".amp",
    "backends": ".backends",
    "core": ".core",
    "debug": ".debug",
    "distributed": ".distributed",
    "experimental": ".experimental",
    "runtime": ".runtime",
    "utils": ".utils",
    "xm": ".core.xla_model",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'torch_xla' has no attribute '{name}'")
    import importlib

    value = importlib.import_module(_LAZY[name], __name__)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
