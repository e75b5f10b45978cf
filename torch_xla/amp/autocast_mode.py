"""`torch.autocast` that takes a device."""

import torch


class autocast(torch.amp.autocast_mode.autocast):
    """Runs what suits it in a lower precision: a context manager, or a decorator.

    Args:
        device: a device or its type; by default ``"xla"``.
        enabled: False switches an outer region off.
        dtype: torch.bfloat16 (the default) or torch.float16.
        cache_enabled: whether a parameter is cast once per region.
    """

    def __init__(
        self,
        device: torch.device | str | None = None,
        enabled: bool = True,
        dtype: torch.dtype | None = None,
        cache_enabled: bool = True,
    ) -> None:
        super().__init__(
            "xla" if device is None else torch.device(device).type,
            dtype=dtype,
            enabled=enabled,
            cache_enabled=cache_enabled,
        )
