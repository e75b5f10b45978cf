"""What must hold before the extension module is loaded, each said in one sentence."""

import importlib
import sys
from importlib import metadata

from .version import __version__


def check_environment() -> None:
    """Raises ImportError when this package cannot work here."""
    if sys.platform != "linux":
        raise ImportError(f"torch_xla supports Linux only, not {sys.platform}")
    _check_torch()
    _check_other_distributions()
    _load_extension()


def _check_torch() -> None:
    import torch

    ours = _minor(__version__)
    theirs = _minor(torch.__version__)
    if ours != theirs:
        raise ImportError(
            f"torch_xla {__version__} works with torch {ours}, but torch {torch.__version__} is "
            f'installed; run: pip install "torch-xla=={theirs}.*" (or "torch=={ours}.*")'
        )


def _check_other_distributions() -> None:
    """pytorch/xla's releases have our distribution name and install into the same package."""
    for d in metadata.distributions(name="torch-xla"):
        if d.version not in (None, __version__):  # None: broken metadata
            raise ImportError(
                f"torch-xla {d.version}, another implementation or version, is installed beside "
                f"this torch_xla {__version__}; run: pip uninstall -y torch-xla, once for each, "
                f"then pip install torch-xla=={__version__}"
            )


def _load_extension() -> None:
    try:
        importlib.import_module("torch_xla._XLAC")
    except ImportError as e:
        raise ImportError(
            f"torch_xla's extension module cannot be loaded ({e}); run: "
            f"pip install --force-reinstall torch-xla=={__version__}, or `make dev` in a clone"
        ) from e


def _minor(version: str) -> str:
    return ".".join(version.split("+")[0].split(".")[:2])
