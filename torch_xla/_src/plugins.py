"""Which PJRT plugin serves the platform that PJRT_DEVICE names.

Plugins are Python packages under the entry point groups ``xla_plugins`` and ``jax_plugins``, each a
folder with a shared library that exports ``GetPjrtApi``; and `libtpu`. Nothing of theirs is
imported here: the core opens the library.
"""

import glob
import importlib.metadata
import importlib.util
import mmap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import world
from .log import logger

Resolved = tuple[str, str, dict[str, Any]]  # platform, path of the library, client options

GROUPS = ("xla_plugins", "jax_plugins")

# The accelerators that can be recognised, in the order in which they are tried: platform, part of
# the plugin's name, device files that show the hardware, what to install.
_ACCELERATORS = (
    ("CUDA", "cuda", ("/dev/nvidia[0-9]*", "/dev/dxg"), "pip install jax-cuda13-pjrt"),
    ("TPU", "tpu", ("/dev/accel[0-9]*", "/dev/vfio/[0-9]*"), "pip install libtpu"),
    ("ROCM", "rocm", ("/dev/kfd",), "pip install jax-rocm7-pjrt"),
)
_PIP = {"CPU": "pip install xla-cpu-pjrt", **{p: pip for p, _, _, pip in _ACCELERATORS}}


@dataclass(frozen=True)
class Installed:
    """An installed plugin."""

    name: str  # of the entry point: "xla_cpu_pjrt"
    module: str  # folder of the library, as a module name
    distribution: str

    @property
    def platform(self) -> str:
        """``CPU``, ``CUDA``, ... or the plugin's own name in upper case."""
        name = self.name.lower()
        if "cpu" in name:
            return "CPU"
        for platform, part, _, _ in _ACCELERATORS:
            if part in name:
                return platform
        return self.name.upper()

    def library(self) -> str:
        """Path of the shared library; raises RuntimeError when the package has none."""
        spec = importlib.util.find_spec(self.module)
        folders = list(spec.submodule_search_locations or ()) if spec else []
        candidates = sorted(p for folder in folders for p in Path(folder).glob("*.so"))
        if len(candidates) > 1:
            candidates = [p for p in candidates if _contains(p, b"GetPjrtApi")]
        if not candidates:
            raise RuntimeError(
                f"the PJRT plugin '{self.name}' ({self.distribution}) has no shared library with "
                f"GetPjrtApi in {folders or self.module}; run: "
                f"pip install --force-reinstall {self.distribution}"
            )
        return str(candidates[0])


def installed() -> list[Installed]:
    """All installed plugins, the default CPU one first."""
    found = [
        Installed(e.name, e.value.split(":")[0], e.dist.name if e.dist else e.module)
        for group in GROUPS
        for e in importlib.metadata.entry_points(group=group)
    ]
    if importlib.util.find_spec("libtpu") is not None:
        found.append(Installed("tpu", "libtpu", "libtpu"))
    return sorted(found, key=lambda p: (p.name != "xla_cpu_pjrt", p.name))


def resolve(platform: str) -> Resolved:
    """(platform, path of the library, client options) for a value of PJRT_DEVICE.

    Args:
        platform: CPU, CUDA (or GPU), TPU, ..., or a plugin's own name, in any case. Empty: the
            first accelerator whose plugin is installed and whose device files are there, else CPU.

    Raises:
        RuntimeError: nothing installed serves it; says what is installed and what to install.
    """
    wanted = {"GPU": "CUDA"}.get(platform.upper(), platform.upper())
    plugins = installed()
    if not wanted:
        return _choose(plugins)
    for matches in (_is_named(wanted), _is_for(wanted)):
        for p in filter(matches, plugins):
            return p.platform, p.library(), world.client_options(p.platform)
    raise RuntimeError(_not_found(wanted, plugins))


def _choose(plugins: list[Installed]) -> Resolved:
    for platform, _, device_files, _ in _ACCELERATORS:
        if any(glob.glob(pattern) for pattern in device_files):
            for p in filter(_is_for(platform), plugins):
                logger.info("PJRT_DEVICE is not set: using %s by the plugin %s", platform, p.name)
                return p.platform, p.library(), world.client_options(p.platform)
    for p in filter(_is_for("CPU"), plugins):
        logger.info("PJRT_DEVICE is not set: using CPU by the plugin %s", p.name)
        return p.platform, p.library(), {}
    raise RuntimeError(_not_found("CPU", plugins))


def _is_named(wanted: str) -> Callable[[Installed], bool]:
    return lambda p: p.name.upper() == wanted


def _is_for(platform: str) -> Callable[[Installed], bool]:
    return lambda p: p.platform == platform


def _not_found(wanted: str, plugins: list[Installed]) -> str:
    there = ", ".join(f"{p.name} ({p.platform})" for p in plugins) or "none"
    known = "; ".join(f"{platform}: {pip}" for platform, pip in _PIP.items())
    mend = _PIP.get(wanted)
    return f"no installed PJRT plugin serves PJRT_DEVICE={wanted} (installed: {there}); " + (
        f"run: {mend}" if mend else f"choose one of them or install one ({known})"
    )


def _contains(path: Path, needle: bytes) -> bool:
    with path.open("rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as m:
        return m.find(needle) >= 0
