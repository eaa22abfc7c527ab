"""A past -> trajectories: ``python -m archive.replayer EXPERIMENT``."""

from __future__ import annotations

from contextlib import closing
from typing import NoReturn

from archive.pacing import Pace
from archive.past_source import missing, prepare, records_of, source_of
from archive.progress_log import Standing
from archive.recorded import Source
from archive.replay import Counts, replay
from archive.replay_report import REPORT_S, ReplayReport
from archive.selection import Selection
from archive.transactions import Superseded, Unsure
from infra.control.desired import PublishedExperiment, SpecFollower
from infra.control.role import EXIT_OK, RoleContext, StopRequest, role_main
from infra.errors import DeliveryError, Hopeless, KafkaUnavailable, RollstreamError

# Tried again, it may come about; anything else stays as it is.
_PASSING = (Superseded, Unsure, KafkaUnavailable, DeliveryError)


class Replayer:
    """Replays what the spec names, says how far it is, and waits to be told to stop."""

    def __init__(
        self,
        context: RoleContext,
        stop: StopRequest,
        source: Source,
        report: ReplayReport,
    ) -> None:
        self._context = context
        self._stop = stop
        self._source = source
        self._report = report
        self._pace = Pace.parse(context.spec.past.rate)
        self._specs = SpecFollower(context.settings, only=context.experiment.name)

    def run(self) -> int:
        """Work until told to stop; return the exit code.

        Raises:
            ToldToStop: before it was done; what is committed stays.
            RollstreamError: it cannot be replayed.
        """
        with closing(self._specs):
            self._replay()
            while not self._stop.wait(REPORT_S):
                self._report.tell()
        return EXIT_OK

    def _replay(self) -> None:
        context, source, report = self._context, self._source, self._report
        target = PublishedExperiment(
            context.experiment, context.run_id, context.spec_offset
        )
        for line in missing(source):
            report.event("past-incomplete", "warning", line)
        selection = Selection.of(context.spec.past)
        found = prepare(context.settings, source, selection, target, self._tell)
        standing, ends = replay(
            context.settings,
            target,
            found.past,
            records_of(source, found.plan),
            pace=self._pace,
            watch=self._watch,
        )
        report.done(ends)
        steps = f"{standing.env_steps:,} env steps"
        report.event("replayed", "info", f"{found.past.source}: {steps} are in")

    def _tell(self, what: str, done: int, total: int) -> None:
        """Go on to find out what is wanted, unless told to stop."""
        self._stop.check()
        self._report.note(offsets_found=float(done), offsets=float(total))

    def _watch(self, standing: Standing, counts: Counts) -> None:
        """Go on to replay, unless told to stop; wait while the experiment does."""
        self._stop.check()
        if self._report.is_due:
            self._specs.poll(0.0)
            known = self._specs.desired.of(self._context.experiment.name).accepted
            state = known.experiment.spec.state if known else "running"
            self._pace.is_paused = state == "paused"
        self._report.watch(standing, counts, not self._pace.is_paused)


def run(context: RoleContext, stop: StopRequest) -> int:
    """Replay until told to stop; return the exit code.

    Raises:
        Hopeless: it can never be replayed as the spec says.
        Superseded: another process has begun to replay into this experiment.
    """
    try:
        source = source_of(context.settings, context.spec.past)
        with closing(source), ReplayReport(context, source.info, stop) as report:
            try:
                return Replayer(context, stop, source, report).run()
            except RollstreamError as exc:
                report.event("replay-failed", "alert", str(exc))
                raise
    except _PASSING:
        raise
    except RollstreamError as exc:
        raise Hopeless(exc.problem, exc.mend) from exc


def main(argv: list[str] | None = None) -> NoReturn:
    """Run the process; ``argv``: its arguments, those of the command line when None."""
    role_main("replayer", run, argv)


if __name__ == "__main__":
    main()
