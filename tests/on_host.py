"""What records steps on a CPU, for tests of what is captured on a GPU."""

import torch

from mmb.trees import tensors


class HostRecorder:
    """Records by remembering the function; `state` has what it changes, `fails_at` the call that fails."""

    def __init__(self, state, fails_at=None, waits=False):
        self.state, self.fails_at, self.waits, self.calls = state, fails_at, waits, 0

    def run(self, step):
        return self._call(step), self.waits

    def record(self, step):
        before = [part.detach().clone() for part in self.state()]
        found = self._call(step)
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
