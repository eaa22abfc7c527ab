"""The steps of an LSTM one after the other, with resets between: fast there and back.

Autograd by itself adds up the weight's gradient step by step, which takes most of the
time. Here the way back keeps the gradient of the gates, and multiplies once.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def recur(
    gates: Tensor, h: Tensor, c: Tensor, weight: Tensor, kept: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the outputs of all steps [L, N, U], and ``c`` after the last [N, U].

    Args:
        gates: what inputs and biases add to the gates, [L, N, 4U], in torch's order:
            input, forget, cell, output.
        h: the output before, [N, U].
        c: the cells before, [N, U].
        weight: of the output to the gates, [4U, U].
        kept: what h and c are multiplied by before step t + 1, [L-1, N, 1].
    """
    outputs, cells = _Recurrence.apply(gates, h, c, weight, kept)  # type: ignore[no-untyped-call]
    return outputs, cells


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, gates: Tensor, h: Tensor, c: Tensor, weight: Tensor, kept: Tensor
    ) -> tuple[Tensor, Tensor]:
        steps, units = len(gates), h.shape[1]
        opened = torch.empty_like(gates)
        h_before, c_before, tanh_c, outputs = gates.new_empty(4, steps, *h.shape)
        h_before[0], c_before[0] = h, c
        for t in range(steps):
            if t:
                torch.mul(h, kept[t - 1], out=h_before[t])
                torch.mul(c, kept[t - 1], out=c_before[t])
            gate = torch.addmm(gates[t], h_before[t], weight.t(), out=opened[t])
            gate[:, : 2 * units].sigmoid_()
            take, keep, new, show = gate.chunk(4, 1)
            new.tanh_()
            show.sigmoid_()
            c = torch.mul(keep, c_before[t]).addcmul_(take, new)
            torch.tanh(c, out=tanh_c[t])
            h = torch.mul(show, tanh_c[t], out=outputs[t])
        ctx.save_for_backward(opened, h_before, c_before, tanh_c, weight, kept)
        return outputs, c

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_outputs: Tensor, d_c: Tensor) -> tuple[Tensor | None, ...]:
        opened, h_before, c_before, tanh_c, weight, kept = ctx.saved_tensors
        of_c, of_h, c_of_h = _slopes(opened, c_before, tanh_c)
        steps, rows, units = d_outputs.shape
        d_gates = torch.empty_like(opened)
        keep = opened[:, :, units : 2 * units]
        d_h = d_outputs[-1]
        for t in reversed(range(steps)):
            d_c = torch.addcmul(d_c, d_h, c_of_h[t])
            inner = d_gates[t, :, : 3 * units].view(rows, 3, units)
            torch.mul(of_c[t], d_c[:, None], out=inner)
            torch.mul(of_h[t], d_h, out=d_gates[t, :, 3 * units :])
            d_h, d_c = d_gates[t] @ weight, d_c * keep[t]
            if t:
                d_h = torch.addcmul(d_outputs[t - 1], d_h, kept[t - 1])
                d_c = d_c * kept[t - 1]
        d_weight = d_gates.flatten(0, 1).t() @ h_before.flatten(0, 1)
        return d_gates, d_h, d_c, d_weight, None


def _slopes(
    opened: Tensor, c_before: Tensor, tanh_c: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return dc/dgates [L, N, 3, U], dh/d(output gate), and dh/dc [L, N, U]."""
    take, keep, new, show = opened.chunk(4, 2)
    of_c = torch.stack(
        [
            take * (1 - take) * new,
            keep * (1 - keep) * c_before,
            (1 - new * new) * take,
        ],
        2,
    )
    return of_c, show * (1 - show) * tanh_c, show * (1 - tanh_c * tanh_c)
