"""What records steps on a CPU, for tests of what is captured on a GPU."""

from unittest import mock

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from mmb.trees import tensors


class HostRecorder:
    """Records by remembering the function; `state` has what it changes, `fails_at` the call that fails."""

    def __init__(self, state, fails_at=None, waits=False):
        self.state, self.fails_at, self.waits, self.calls = state, fails_at, waits, 0

    def run(self, step):
        return self._call(step), self.waits

    def record(self, step):
        before, random = [part.detach().clone() for part in self.state()], torch.get_rng_state()
        found = self._call(step)
        torch.set_rng_state(random)
        with torch.no_grad():
            for part, old in zip(self.state(), before, strict=True):
                part.copy_(old)

        def replay():
            for place, value in zip(tensors(found), tensors(step()), strict=True):
                place.copy_(value)

        return found, replay

    def recover(self):
        pass

    def _call(self, step):
        self.calls += 1
        found = step()
        if self.calls == self.fails_at:
            raise RuntimeError("no graphs today\nand more lines")
        return found


class TracingRecorder:
    """Records what is done to tensors, and replays that alone, as a GPU does: Python is not run again.

    It records what would be done on a GPU, where values are not looked at; `state` has all that changes.
    """

    def __init__(self, state):
        self.state = state

    def run(self, step):
        return step(), False

    def record(self, step):
        before, found = [(part, part.detach().clone()) for part in self.state()], []

        def traced():
            found.append(step())
            return list(tensors(found[0]))

        one_thread = torch.autograd.set_multithreading_enabled(False)  # others would not be recorded
        with one_thread, mock.patch("torch.compiler.is_compiling", return_value=True):
            graph = make_fx(traced)()
        with torch.no_grad():
            for part, old in before:
                part.copy_(old)

        def replay():
            with torch.no_grad():
                for place, value in zip(tensors(found[0]), graph(), strict=True):
                    place.copy_(value)

        return found[0], replay

    def recover(self):
        pass
