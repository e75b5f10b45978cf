"""Mixed precision: `autocast`, `GradScaler` and optimizers that need no host (`syncfree`).

::

    scaler = GradScaler()
    optimizer = syncfree.AdamW(model.parameters(), lr=1e-3)
    for x, y in loader:
        optimizer.zero_grad()
        with autocast(device, dtype=torch.float16):
            loss = loss_fn(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        torch_xla.sync()

bfloat16, which `autocast` takes unless it is told otherwise, has float32's range and needs no
scaler. ``torch.autocast("xla")`` and ``torch.amp.GradScaler("xla")`` do the same.
"""

from . import syncfree as syncfree
from .autocast_mode import autocast
from .grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "syncfree"]
