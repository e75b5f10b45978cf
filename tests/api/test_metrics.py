"""Counters, metrics and their reports."""

import re

import pytest
import torch

import torch_xla
from torch_xla.debug import env, metrics


@pytest.fixture
def some_work(device):
    metrics.clear_all()
    x = torch.arange(6.0).to(device)
    y = (x * 2 + 1).relu()
    torch_xla.sync(wait=True)
    y.cpu()


def test_counters(some_work):
    assert metrics.counter_value("xla::mul") == 1
    assert metrics.counter_value("xla::relu") == 1
    assert metrics.counter_value("MarkStep") == 1
    assert metrics.counter_value("nothing") is None
    assert set(metrics.counter_names()) >= {"xla::mul", "xla::add", "xla::relu", "MarkStep"}
    assert metrics.executed_fallback_ops() == []


def test_metrics(some_work):
    total, accumulator, samples = metrics.metric_data("ExecuteTime")
    assert total == 1 and accumulator > 0
    assert len(samples) == 1 and samples[0][1] == accumulator and samples[0][0] > 1.7e9
    assert metrics.metric_data("OutboundData")[1] == 24
    assert metrics.metric_data("InboundData")[1] == 24
    assert metrics.metric_data("nothing") is None
    assert "TensorsGraphSize" in metrics.metric_names()


def test_clear(some_work):
    metrics.clear_counters()
    assert metrics.counter_names() == [] and metrics.metric_names() != []
    metrics.clear_metrics()
    assert metrics.metric_names() == [] and metrics.metrics_report() == ""


def test_reports(some_work, device):
    torch.arange(3.0).to(device).mul(2).cpu()
    report = metrics.metrics_report()
    assert re.search(
        r"^Metric: ExecuteTime\n  TotalSamples: 2\n  Accumulator: [\dms.]+us\n"
        r"  ValueRate: [\dms.]+us / second\n  Rate: [\d.e+]+ / second\n"
        r"  Percentiles: 1%=\S+; 5%=.*; 99%=\S+$",
        report,
        re.MULTILINE,
    )
    assert "Counter: xla::mul\n  Value: 2\n" in report
    short = metrics.short_metrics_report()
    assert "Metric: ExecuteTime" in short and "Counter: MarkStep" in short
    assert "xla::mul" not in short
    only = metrics.short_metrics_report(counter_names=["xla::relu"], metric_names=[])
    assert only == "Counter: xla::relu\n  Value: 1\n"


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (1500, "1.500us"),
        (2_003_004.5, "002ms003.005us"),
        (61e9, "01m01s000ms000.000us"),
        (86400e9 + 1e3, "1d00h00m00s000ms001.000us"),
    ],
)
def test_time_format(ns, text):
    assert metrics._format_ns(ns) == text


def test_byte_format():
    assert metrics._format(1536, "bytes") == "1.50KB"
    assert metrics._format(5 * 2**40, "bytes") == "5.00TB"
    assert metrics._format(7, "number") == "7.00"


def test_environment_report(device):
    text = env.report()
    assert f"torch {torch.__version__}" in text
    assert "xla_cpu_pjrt (CPU, xla_cpu_pjrt)" in text.replace("xla-cpu-pjrt", "xla_cpu_pjrt")
    assert "xla:0" in text
    assert "PJRT_DEVICE=CPU" in text
    assert "CPU_NUM_DEVICES (default: 1)" in text


def test_environment_report_without_a_plugin(run_python):
    done = run_python(
        "import runpy; runpy.run_module('torch_xla.debug.env', run_name='__main__')",
        PJRT_DEVICE="ABACUS",
    )
    assert done.returncode == 0, done.stderr
    assert "cannot be made: no installed PJRT plugin serves PJRT_DEVICE=ABACUS" in done.stdout
