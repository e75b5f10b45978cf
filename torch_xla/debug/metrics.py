"""Counters and metrics of the process.

Counters named ``aten::x`` count operators that left the device and ran on the host; ``xla::x``
operators that were recorded. The other names are in docs/metrics.md.
"""

from collections.abc import Iterable

from .. import _XLAC

Samples = list[tuple[float, float]]  # (seconds since the epoch, value), oldest first

_PERCENTILES = (0.01, 0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 0.95, 0.99)
_SHORT_METRICS = ("CompileTime", "ExecuteTime", "TransferToDeviceTime", "TransferFromDeviceTime")
_SHORT_COUNTERS = ("CachedCompile", "UncachedCompile", "MarkStep", "ExecuteComputation")


def counter_names() -> list[str]:
    """Names of the counters that are not 0."""
    return _XLAC._xla_counter_names()


def counter_value(name: str) -> int | None:
    """The value of a counter, None while it is 0."""
    return _XLAC._xla_counter_value(name)


def metric_names() -> list[str]:
    """Names of the metrics that have samples."""
    return _XLAC._xla_metric_names()


def metric_data(name: str) -> tuple[int, float, Samples] | None:
    """(number of samples ever, their sum, the latest samples), None when there was none.

    Times are nanoseconds.
    """
    data = _XLAC._xla_metric_data(name)
    return None if data is None else data[:3]


def clear_counters() -> None:
    """Sets all counters to 0."""
    _XLAC._xla_clear_counters()


def clear_metrics() -> None:
    """Forgets all samples."""
    _XLAC._xla_clear_metrics()


def clear_all() -> None:
    """`clear_counters` and `clear_metrics`."""
    clear_counters()
    clear_metrics()


def executed_fallback_ops() -> list[str]:
    """Operators that ran on the host since the last clear: ``["aten::nonzero"]``."""
    return [n for n in counter_names() if n.startswith("aten::")]


def metrics_report() -> str:
    """All metrics and counters as text."""
    parts = [_metric_text(n) for n in metric_names()]
    parts += [_counter_text(n) for n in counter_names()]
    return "".join(parts)


def short_metrics_report(
    counter_names: Iterable[str] | None = None, metric_names: Iterable[str] | None = None
) -> str:
    """The given metrics and counters as text; by default what a step costs, and the fallbacks."""
    if counter_names is None:
        counter_names = [*_SHORT_COUNTERS, *executed_fallback_ops()]
    if metric_names is None:
        metric_names = _SHORT_METRICS
    return "".join([*map(_metric_text, metric_names), *map(_counter_text, counter_names)])


def _counter_text(name: str) -> str:
    value = counter_value(name)
    return "" if value is None else f"Counter: {name}\n  Value: {value}\n"


def _metric_text(name: str) -> str:
    data = _XLAC._xla_metric_data(name)
    if data is None:
        return ""
    total, accumulator, samples, unit = data
    lines = [
        f"Metric: {name}",
        f"  TotalSamples: {total}",
        f"  Accumulator: {_format(accumulator, unit)}",
    ]
    seconds = samples[-1][0] - samples[0][0]
    if seconds > 0:
        in_window = sum(v for _, v in samples)
        lines.append(f"  ValueRate: {_format(in_window / seconds, unit)} / second")
        lines.append(f"  Rate: {len(samples) / seconds:g} / second")
    values = sorted(v for _, v in samples)
    percentiles = (f"{p:.0%}={_format(_percentile(values, p), unit)}" for p in _PERCENTILES)
    lines.append(f"  Percentiles: {'; '.join(percentiles)}")
    return "\n".join(lines) + "\n"


def _percentile(ordered: list[float], p: float) -> float:
    return ordered[min(int(p * len(ordered)), len(ordered) - 1)]


def _format(value: float, unit: str) -> str:
    """``01m02s003ms004.500us``, ``1.50MB`` or ``1.50``."""
    if unit == "ns":
        return _format_ns(value)
    if unit == "bytes":
        for suffix in ("B", "KB", "MB", "GB"):
            if value < 1024:
                return f"{value:.2f}{suffix}"
            value /= 1024
        return f"{value:.2f}TB"
    return f"{value:.2f}"


def _format_ns(ns: float) -> str:
    us = ns / 1e3
    out = ""
    for size, width, suffix in (
        (86400e6, 1, "d"),
        (3600e6, 2, "h"),
        (60e6, 2, "m"),
        (1e6, 2, "s"),
        (1e3, 3, "ms"),
    ):
        if us >= size or out:
            out += f"{int(us // size):0{width}d}{suffix}"
            us %= size
    return f"{out}{us:07.3f}us" if out else f"{us:.3f}us"
