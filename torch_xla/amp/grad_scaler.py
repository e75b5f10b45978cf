"""`torch.amp.GradScaler` for XLA devices."""

import torch


class GradScaler(torch.amp.GradScaler):
    """Scales the loss, so that the gradients of float16 do not vanish; steps that overflow are
    skipped and the scale is halved.

    `scale`, `unscale_` and `update` are part of the graph. `step` waits for the device once, to
    learn whether to skip, unless the optimizer decides on the device as those of
    `torch_xla.amp.syncfree` do.

    The arguments are those of `torch.amp.GradScaler`.
    """

    def __init__(
        self,
        device: str | torch.device = "xla",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__(
            torch.device(device).type,
            init_scale=init_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
            enabled=enabled,
        )
