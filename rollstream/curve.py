"""A run's returns -> a PNG."""

from __future__ import annotations

from pathlib import Path

from infra.monitoring.progress import Progress


def write_curve(
    progress: Progress, name: str, target: float | None, path: Path
) -> None:
    """Write the learning curve: returns over env steps."""
    # Here, not above: it takes half a second, and only the end of a run needs it.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5), dpi=120)
    training = progress.training_curve
    axes.plot(
        progress.env_steps_at([point.at_ms for point in training]),
        [point.mean_return for point in training],
        color="#9aa5b1",
        linewidth=1,
        label="last 100 training episodes",
    )
    evaluations = progress.evaluations
    axes.plot(
        progress.env_steps_after([record.train_step for _, record in evaluations]),
        [point.mean_return for point, _ in evaluations],
        color="#1f6feb",
        marker="o",
        markersize=3,
        label="greedy evaluation",
    )
    if target is not None:
        axes.axhline(target, color="#d1242f", linestyle="--", linewidth=1)
        axes.annotate(f"target {target:g}", (0, target), va="bottom", fontsize=8)
    axes.set(title=name, xlabel="env steps", ylabel="mean return")
    axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.legend(loc="lower right", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
