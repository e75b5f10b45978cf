"""Which plugin is chosen, and what is said when there is none or it is broken."""

import importlib.util
import logging
from pathlib import Path

import pytest

from torch_xla._src import plugins

USE = "import torch, torch_xla; print(torch.ones(2, device='xla').sum().item())"


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """Installs plugins that are folders with a file each: fake(cuda="xla_cuda13", ...)."""

    def install(*names, hardware=()):
        found = []
        for name in names:
            folder = tmp_path / name
            folder.mkdir()
            (folder / "__init__.py").write_text("raise AssertionError('imported')")
            (folder / f"{name}.so").write_bytes(b"...GetPjrtApi...")
            (folder / "helper.so").write_bytes(b"other")
            found.append(plugins.Installed(name, name, f"dist-{name}"))
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setattr(plugins, "installed", lambda: found)
        monkeypatch.setattr(plugins.glob, "glob", lambda pattern: pattern in hardware and [pattern])
        return tmp_path

    return install


def test_the_default_plugin():
    platform, path, options = plugins.resolve("CPU")
    assert platform == "CPU" and Path(path).is_file() and options == {}
    assert plugins.resolve("cpu")[1] == plugins.resolve("xla_cpu_pjrt")[1] == path
    assert importlib.util.find_spec("xla_plugins.xla_cpu_pjrt") is not None


@pytest.mark.parametrize(
    ("wanted", "platform", "name"),
    [
        ("CPU", "CPU", "xla_cpu_pjrt"),
        ("my_cpu", "CPU", "my_cpu"),
        ("CUDA", "CUDA", "xla_cuda13"),
        ("GPU", "CUDA", "xla_cuda13"),
        ("XLA_CUDA13", "CUDA", "xla_cuda13"),
        ("TPU", "TPU", "tpu"),
        ("SPECIAL", "SPECIAL", "special"),
    ],
)
def test_by_name(fake, wanted, platform, name):
    folder = fake("xla_cpu_pjrt", "my_cpu", "xla_cuda13", "tpu", "special")
    assert plugins.resolve(wanted) == (platform, str(folder / name / f"{name}.so"), {})


def test_unset_prefers_hardware_that_is_there(fake, caplog):
    caplog.set_level(logging.INFO, logger="torch_xla")
    fake("xla_cpu_pjrt", "xla_cuda13", "tpu", "special", hardware=["/dev/accel[0-9]*"])
    assert plugins.resolve("")[0] == "TPU"
    assert caplog.messages == ["PJRT_DEVICE is not set: using TPU by the plugin tpu"]


def test_unset_without_hardware_is_the_cpu(fake):
    fake("xla_cpu_pjrt", "xla_cuda13", "tpu", "special")
    assert plugins.resolve("")[0] == "CPU"


def test_hardware_without_its_plugin_is_the_cpu(fake):
    fake("xla_cpu_pjrt", hardware=["/dev/nvidia[0-9]*"])
    assert plugins.resolve("")[0] == "CPU"


def test_nothing_installed(fake):
    fake()
    with pytest.raises(RuntimeError, match=r"installed: none.*run: pip install xla-cpu-pjrt"):
        plugins.resolve("")
    with pytest.raises(RuntimeError, match="run: pip install jax-cuda13-pjrt"):
        plugins.resolve("CUDA")


def test_plugin_without_a_library(fake):
    folder = fake("xla_cpu_pjrt")
    for file in (folder / "xla_cpu_pjrt").glob("*.so"):
        file.unlink()
    with pytest.raises(RuntimeError, match="force-reinstall dist-xla_cpu_pjrt"):
        plugins.resolve("CPU")


def last_line(done) -> str:
    assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)
    return done.stderr.strip().splitlines()[-1]


def test_unknown_device(run_python):
    line = last_line(run_python(USE, PJRT_DEVICE="ABACUS", timeout=30))
    assert "no installed PJRT plugin serves PJRT_DEVICE=ABACUS" in line
    assert "xla_cpu_pjrt (CPU)" in line and "pip install" in line


def test_plugin_that_is_not_installed(run_python):
    line = last_line(run_python(USE, PJRT_DEVICE="TPU", timeout=30))
    assert line.endswith("run: pip install libtpu")


@pytest.fixture
def broken(tmp_path):
    def make(kind: str) -> str:
        path = tmp_path / f"{kind}.so"
        if kind == "text":
            path.write_text("this is no shared library\n")
        elif kind == "truncated":
            path.write_bytes(Path(plugins.resolve("CPU")[1]).read_bytes()[: 1 << 20])
        elif kind == "no_plugin":  # a shared library without GetPjrtApi
            path.symlink_to(importlib.util.find_spec("_struct").origin)
        return str(path)

    return make


@pytest.mark.parametrize("kind", ["text", "truncated", "no_plugin", "missing"])
def test_library_that_is_no_plugin(run_python, broken, kind):
    path = broken(kind)
    done = run_python(USE, PJRT_DEVICE="CPU", PJRT_LIBRARY_PATH=path, timeout=30)
    line = last_line(done)
    assert path in line, line
    assert line.startswith(("RuntimeError: ", "ValueError: ")), line


def test_explicit_library(run_python):
    path = plugins.resolve("CPU")[1]
    done = run_python(USE, PJRT_DEVICE=None, PJRT_LIBRARY_PATH=path)
    assert done.stdout == "2.0\n", done.stderr


def test_the_process_survives_a_failure(run_python):
    done = run_python(
        """
        import os, torch, torch_xla
        for name in ("ABACUS", "TPU"):
            os.environ["PJRT_DEVICE"] = name
            for attempt in (lambda: torch.ones(2, device="xla"), torch_xla.device):
                try:
                    attempt()
                except RuntimeError as e:
                    assert name in str(e), e
                else:
                    raise AssertionError(name)
        os.environ["PJRT_DEVICE"] = "CPU"
        print(torch.ones(2, device="xla").sum().item())
        """,
        timeout=60,
    )
    assert done.stdout == "2.0\n", done.stderr


def test_bare_environment(run_python):
    done = run_python(USE, PJRT_DEVICE=None)
    assert (done.stdout, done.stderr) == ("2.0\n", "")
