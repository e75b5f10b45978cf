"""Messages from one replica to another one.

A message is a collective of two: both record it. Ranks that record their messages in different
orders would wait for each other for ever, so those that are known together are put into one order
that all ranks share.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

import torch

from . import collectives as _c
from . import world as _world


class Message(NamedTuple):
    """`tensor`: what the source sends, and what the target's is overwritten with."""

    source: int
    target: int
    tensor: torch.Tensor


def exchange(messages: Sequence[Message]) -> None:
    """Sends and receives; both ends have to name the same shape and dtype."""
    order = sorted(messages, key=lambda m: (min(m[:2]), max(m[:2]), m.source))
    started = []
    for m in order:
        t = m.tensor.detach()
        t = t if t.device.type == "xla" else t.to("xla")
        part = _c.Part("collective_permute", [t], pairs=[(m.source, m.target)])
        started.append(_c.start([part], sorted((m.source, m.target))))
    me = _world.current().rank
    with torch.no_grad():
        for m, s in zip(order, started, strict=True):
            (value,) = s.finish()
            if m.target == me:
                m.tensor.detach().copy_(value)


def meet(channel: int, role: str) -> int:
    """The rank at the other end of a channel: the n-th `send` meets the n-th `receive`.

    Raises:
        RuntimeError: all others have ended.
        TimeoutError: nobody came within XLA_WAIT_TIMEOUT_S seconds.
    """
    turn = _world.next_round(f"channel/{channel}/{role}")
    me, store = _world.current(), _world.store()
    other = "receive" if role == "send" else "send"
    store.set(f"channel/{channel}/{turn}/{role}", str(me.rank))
    key, what = f"channel/{channel}/{turn}/{other}", f"the other end of channel {channel} ({role})"
    limit = _world.time_limit()
    end = time.monotonic() + limit
    if not store.check([key]):
        _world.launch_collectives()  # which the other end may wait for
    while not store.check([key]):
        ranks = [r for r in range(me.size) if r != me.rank]
        if all(store.check([_world.GONE.format(r)]) for r in ranks):
            raise RuntimeError(f"waiting for {what}: all other ranks have ended")
        if time.monotonic() > end:
            raise TimeoutError(f"rank {me.rank} waited {limit:g} s for {what} (XLA_WAIT_TIMEOUT_S)")
        time.sleep(0.005)
    rank = int(bytes(store.get(key)))
    store.delete_key(key)  # meant for this end only
    return rank
