"""A recurrent core: one step for who acts, whole stretches for who trains."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from learner.networks.recurrence import recur
from schemas.records import SpaceField

# Steps of a run, on average, from which torch's kernel is the faster one: measured
# with 8 to 128 rows of 64 to 512 units.
_LEAST_RUN = 4


class Lstm(nn.Module):
    """Long short-term memory, its parameters as those of ``nn.LSTM``.

    Attributes:
        features: the units of its output.
        states: the fields of its state, ``h`` and ``c``.
    """

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.features = units
        self.states = tuple(
            SpaceField(name, "box", "<f4", (units,)) for name in ("h", "c")
        )
        self.weight_ih = nn.Parameter(torch.empty(4 * units, inputs))
        self.weight_hh = nn.Parameter(torch.empty(4 * units, units))
        self.bias_ih = nn.Parameter(torch.empty(4 * units))
        self.bias_hh = nn.Parameter(torch.empty(4 * units))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -1 / math.sqrt(units), 1 / math.sqrt(units))

    def forward(
        self, inputs: Tensor, states: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Take one step: [N, inputs] -> [N, units], and the state after it."""
        # Written out: exporters know these operations, whatever the batch.
        gates = F.linear(inputs, self.weight_ih, self.bias_ih)
        gates = gates + F.linear(states["h"], self.weight_hh, self.bias_hh)
        take, keep, new, show = gates.chunk(4, 1)
        c = torch.sigmoid(keep) * states["c"] + torch.sigmoid(take) * torch.tanh(new)
        h = torch.sigmoid(show) * torch.tanh(c)
        return h, {"h": h, "c": c}

    def unroll(
        self, inputs: Tensor, states: Mapping[str, Tensor], valid: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Take L steps: [L, N, inputs] -> [L, N, units], and the state after the last.

        The state is zero before step t + 1 exactly where ``valid`` [L-1 or more, N] is
        False at t. Few and long runs of steps without any reset are one call of torch's
        kernel each; else all is one loop.
        """
        kept = valid[: len(inputs) - 1]
        ends = [*_ends(kept), len(inputs)]
        if len(inputs) < _LEAST_RUN * len(ends):
            return self._loop(inputs, states, kept)
        h, c = states["h"], states["c"]
        outputs, begin = [], 0
        for end in ends:
            if begin:
                alive = kept[begin - 1, :, None]
                h, c = h * alive, c * alive
            output, h, c = self._run(inputs[begin:end], h, c)
            outputs.append(output)
            begin = end
        return torch.cat(outputs), {"h": h, "c": c}

    def _loop(
        self, inputs: Tensor, states: Mapping[str, Tensor], kept: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        gates = F.linear(inputs, self.weight_ih, self.bias_ih + self.bias_hh)
        alive = kept[:, :, None].to(gates.dtype)
        outputs, c = recur(gates, states["h"], states["c"], self.weight_hh, alive)
        return outputs, {"h": outputs[-1], "c": c}

    def _run(self, inputs: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        weights: list[Tensor] = [
            self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh
        ]  # fmt: skip
        output, h, c = torch.lstm(
            inputs, (h[None], c[None]), weights, True, 1, 0.0, self.training, False,
            False,
        )  # fmt: skip
        return output, h[0], c[0]


def _ends(kept: Tensor) -> list[int]:
    """Return where a run of steps ends because some environment is reset behind it."""
    return [t + 1 for t in (~kept.all(1)).nonzero()[:, 0].tolist()]
