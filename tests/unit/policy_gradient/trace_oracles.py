"""V-trace and GAE by their sums, row by row, in plain Python floats."""


def episode_end(valid, t):
    """The first row behind t that does not continue it."""
    end = t + 1
    while end < len(valid) and valid[end]:
        end += 1
    return end


def delta(returns, discounts, values, t):
    behind = values[t + 1] if discounts[t] else 0.0
    return returns[t] + discounts[t] * behind - values[t]


def slow_gae(returns, discounts, values, valid, trace):
    """A_t = sum over k of (product of gamma lambda) delta_k, of one environment."""
    advantages = []
    for t in range(len(valid)):
        total, weight = 0.0, 1.0
        for k in range(t, episode_end(valid, t) if valid[t] else t):
            total += weight * delta(returns, discounts, values, k)
            weight *= discounts[k] * trace
        advantages.append(total)
    return advantages


def slow_v_trace(
    returns, discounts, values, valid, ratios, trace, rho_clip, c_clip
):  # fmt: skip
    """(targets, advantages) by the sum of arXiv:1802.01561, of one environment."""
    targets = []
    for t in range(len(valid)):
        total, weight = values[t], 1.0
        for k in range(t, episode_end(valid, t) if valid[t] else t):
            rho = min(rho_clip, ratios[k])
            total += weight * rho * delta(returns, discounts, values, k)
            weight *= discounts[k] * trace * min(c_clip, ratios[k])
        targets.append(total if valid[t] else 0.0)
    advantages = []
    for t in range(len(valid)):
        if not valid[t]:
            advantages.append(0.0)
            continue
        behind = values[t + 1] if discounts[t] else 0.0
        if t + 1 < len(valid) and valid[t + 1]:
            behind = (1 - trace) * values[t + 1] + trace * targets[t + 1]
        error = returns[t] + discounts[t] * behind - values[t]
        advantages.append(min(rho_clip, ratios[t]) * error)
    return targets, advantages
