"""``python -m torch_xla.debug.env``: versions, plugins, devices, and every environment variable."""

import os
import platform
import sys

import torch

import torch_xla
from torch_xla import _XLAC
from torch_xla._src import plugins


def report() -> str:
    """What to put into a bug report. Makes the client; when that fails, says why."""
    sections = [
        ("Versions", _versions()),
        ("Installed plugins", _plugins()),
        ("Client", _client()),
        ("Environment variables", _flags()),
    ]
    return "\n".join(
        f"{title}\n" + "".join(f"  {line}\n" for line in lines) for title, lines in sections
    )


def _versions() -> list[str]:
    return [
        f"torch_xla {torch_xla.__version__} ({os.path.dirname(torch_xla.__file__)})",
        f"torch {torch.__version__}",
        f"python {platform.python_version()} ({sys.executable})",
        f"{platform.platform()}, {platform.libc_ver()[0]} {platform.libc_ver()[1]}",
    ]


def _plugins() -> list[str]:
    lines = []
    for p in plugins.installed():
        try:
            path = p.library()
        except RuntimeError as e:
            path = f"unusable: {e}"
        lines.append(f"{p.name} ({p.platform}, {p.distribution}): {path}")
    return lines or ["none"]


def _client() -> list[str]:
    try:
        count = _XLAC._xla_num_devices()
    except Exception as e:
        return [f"cannot be made: {e}"]
    lines = [f"{name}: {_text(value)}" for name, value in _XLAC._xla_client_info().items()]
    for i in range(count):
        info = _XLAC._xla_device_info(i)
        lines.append(f"xla:{i}: {info['debug_string']} ({info['kind']})")
    return lines


def _text(value: object) -> str:
    return ".".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _flags() -> list[str]:
    lines = []
    for name, default, help_text in _XLAC._xla_flags():
        value = os.environ.get(name)
        shown = f"{name}={value}" if value else f"{name} (default: {default or 'unset'})"
        lines += [shown, f"    {help_text}"]
    return lines


if __name__ == "__main__":
    print(report(), end="")
