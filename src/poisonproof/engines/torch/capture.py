"""Work that is repeated often: recorded once as a CUDA graph, replayed with one call.

On a CPU there is nothing to record, and the work itself is called: everything around it is the
same code on both devices.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

__all__ = ["Recorder", "Work", "nothing_collected"]

Work = Callable[[], None]

_free: list[torch.cuda.Stream] = []
"""Streams whose recorders were closed. Libraries keep a workspace for every stream they have seen,
so that new streams for every training would let memory grow."""


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Collect no garbage: a graph that dies while another is recorded spoils the recording."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


class Recorder:
    """A stream of the device and the graphs recorded on it.

    Parameters
    ----------
    device : torch.device
        Where the work runs.

    Examples
    --------
    >>> counter = torch.zeros(1)
    >>> replay = Recorder(torch.device("cpu")).record(lambda: counter.add_(1) and None)
    >>> replay(), replay(), counter.item()
    (None, None, 2.0)
    """

    def __init__(self, device: torch.device) -> None:
        # A graph holds addresses only: what the work refers to has to live on here.
        self._kept: list[Work] = []
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = _free.pop() if _free else torch.cuda.Stream()  # type: ignore[no-untyped-call]
            # What this waits for: buffers that were filled on the caller's stream.
            self._stream.wait_stream(torch.cuda.current_stream())
            # Graphs of one stream never run at the same time, so they may share their memory.
            self._pool = torch.cuda.graph_pool_handle()

    def here(self) -> AbstractContextManager[object]:
        """Return a context in which work goes to this stream."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def record(self, work: Work) -> Work:
        """Return what repeats `work` while the recorder lives; on CUDA it runs once before.

        The work must read and write tensors that stay where they are, and must not wait for the
        device.
        """
        if self._stream is None:
            return work
        self._stream.wait_stream(torch.cuda.current_stream())
        # The outer context gives the caller's stream back even if the recording fails.
        with self.here(), nothing_collected():
            work()  # libraries choose kernels and set themselves up; none of it may be recorded
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                work()
        self._kept.append(work)
        return graph.replay

    def close(self) -> None:
        """Forget what was recorded, and leave the stream to the next recorder."""
        self._kept.clear()
        if self._stream is not None:
            _free.append(self._stream)
            self._stream = None
