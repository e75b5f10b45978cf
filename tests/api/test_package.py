"""The package itself: versions, what an import refuses, what it costs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torch_xla
from torch_xla._src import checks

from .conftest import environment

ROOT = Path(__file__).parents[2]


def test_version_is_written_once_more_only_here():
    declared = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.M)
    assert torch_xla.__version__ == declared[1]
    assert checks._minor(torch_xla.__version__) == checks._minor(torch.__version__)


def test_other_torch_minor(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.14.1+cpu")
    with pytest.raises(ImportError, match=r"torch 2\.14\.1\+cpu is installed; run: pip install"):
        checks.check_environment()


def test_other_distribution(monkeypatch, tmp_path):
    info = tmp_path / "torch_xla-2.9.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-xla\nVersion: 2.9.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ImportError, match=r"torch-xla 2\.9\.0, another.*pip uninstall"):
        checks.check_environment()


def test_other_platform(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(ImportError, match="Linux only"):
        checks.check_environment()


def test_import_makes_no_client(run_python):
    done = run_python(
        """
        import torch, torch_xla
        assert torch.xla.device_count() == 1
        torch.manual_seed(0)
        print(torch_xla._XLAC._xla_runtime_created())
        """
    )
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_import_time():
    def seconds(modules: str) -> float:
        code = f"import {modules}, time; print(time.process_time())"
        command = [sys.executable, "-c", code]
        return min(
            float(subprocess.run(command, env=environment(), capture_output=True, text=True).stdout)
            for _ in range(3)
        )

    cost = seconds("torch, torch_xla, torch_xla.core.xla_model") - seconds("torch")
    assert cost < 1, f"{cost:.2f} s over torch"


def test_logger_is_quiet(run_python):
    done = run_python("import torch, torch_xla; torch.ones(1, device='xla').cpu()")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = run_python(
        """
        import logging
        logging.basicConfig(level=logging.INFO)
        logging.getLogger("torch_xla").setLevel(logging.INFO)
        import torch, torch_xla
        torch.ones(1, device="xla").cpu()
        """,
        PJRT_DEVICE=None,
    )
    assert "INFO:torch_xla:PJRT_DEVICE is not set: using" in done.stderr


def test_every_view_is_ours():
    """None computes `as_strided` of a dense tensor: what is left is sparse, nested or a test's."""
    others = ("sparse", "nested", "indices", "values", "test_autograd", "slice_inverse")
    refused = torch_xla._XLAC._xla_refused_views()
    assert [v for v in refused if not any(o in v for o in others)] == []


def test_stub_names_what_is_there():
    stub = (ROOT / "torch_xla/_XLAC.pyi").read_text()
    assert set(re.findall(r"^def (\w+)", stub, re.M)) == {
        name for name in dir(torch_xla._XLAC) if name.startswith("_xla_")
    }


def test_generated_docs_are_current():
    done = subprocess.run(
        [sys.executable, ROOT / "tools/gen_docs.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
