"""Networks computed slowly, number by number, in NumPy and float64."""

import numpy as np


def weights(module):
    """A module's parameters by name."""
    return {n: p.detach().numpy().astype(float) for n, p in module.named_parameters()}


def convolve(image, kernel, bias, stride=1, padding=0):
    """[C, H, W] and [O, C, K, K] -> [O, H', W']."""
    image = np.pad(image, ((0, 0), (padding, padding), (padding, padding)))
    size = kernel.shape[-1]
    height, width = ((n - size) // stride + 1 for n in image.shape[1:])
    out = np.empty((len(kernel), height, width))
    for y in range(height):
        for x in range(width):
            top, left = y * stride, x * stride
            patch = image[:, top : top + size, left : left + size]
            out[:, y, x] = (kernel * patch).sum((1, 2, 3)) + bias
    return out


def largest_of_three(image):
    """The maximum of each 3 x 3 field, every second pixel, with a border of one."""
    image = np.pad(image, ((0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    height, width = ((n - 3) // 2 + 1 for n in image.shape[1:])
    return np.array(
        [
            [
                [
                    plane[2 * y : 2 * y + 3, 2 * x : 2 * x + 3].max()
                    for x in range(width)
                ]
                for y in range(height)
            ]
            for plane in image
        ]
    )


def relu(values):
    return np.maximum(values, 0)


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def lstm(own, inputs, h, c, valid):
    """Each environment on its own, step by step; [L, N, U], and h and c at the end."""
    units = h.shape[1]
    outputs = np.empty((*inputs.shape[:2], units))
    h, c = h.astype(float).copy(), c.astype(float).copy()
    for n in range(inputs.shape[1]):
        for t in range(len(inputs)):
            if t and not valid[t - 1, n]:
                h[n], c[n] = 0, 0
            gates = own["weight_ih"] @ inputs[t, n] + own["bias_ih"]
            gates = gates + own["weight_hh"] @ h[n] + own["bias_hh"]
            take, keep, new, show = np.split(gates, 4)
            c[n] = sigmoid(keep) * c[n] + sigmoid(take) * np.tanh(new)
            h[n] = outputs[t, n] = sigmoid(show) * np.tanh(c[n])
    return outputs, h, c
