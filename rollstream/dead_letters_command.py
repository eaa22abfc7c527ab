"""``rollstream dead-letters``: list them, and put back what can be read by now."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from infra.clock import now_ms
from infra.control.experiments import read_experiment
from infra.kafka.dead_letters import (
    Letter,
    NoOriginal,
    iterate_letters,
    read_letters,
    whole_value,
)
from infra.kafka.reinjection import NotReinjected, Reinjector
from infra.printable import printable
from infra.settings import Settings
from rollstream.ages import age
from rollstream.dead_letter_check import Refused, Usability
from rollstream.dead_letter_details import show
from rollstream.dead_letter_names import facts, find, where
from rollstream.errors import BadInput
from rollstream.tables import table_console

EXIT_OK = 0
EXIT_REFUSED = 1
PIPE_WIDTH = 200


class BadUse(BadInput):
    """Words on the command line that do not go together."""


@dataclass(frozen=True)
class Outcome:
    """What became of a letter that was to be put back.

    Attributes:
        number: the letter's.
        state: ``reinjected``, ``would be``, ``was before`` or ``refused``.
        detail: where to, or why not.
    """

    number: int
    state: str
    detail: str

    @property
    def is_refused(self) -> bool:
        """Whether it stays a dead letter."""
        return self.state == "refused"


def dead_letters(
    settings: Settings,
    experiment: str,
    action: str,
    names: list[str],
    *,
    all_letters: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Do what the command line asks for; return the exit code.

    Raises:
        BadUse: the words do not go together.
    """
    if action == "list" and not names and not all_letters:
        list_letters(settings, experiment, as_json=as_json)
    elif action == "show" and len(names) == 1:
        show(settings, experiment, names[0], as_json=as_json)
    elif action == "reinject" and bool(names) != all_letters:
        return reinject(settings, experiment, names, dry_run=dry_run, as_json=as_json)
    else:
        raise BadUse(
            "dead-letters: expected `list`, `show N`, `reinject N...` or "
            f"`reinject --all`, found {' '.join([action, *names])!r}",
            "`rollstream dead-letters --help`",
        )
    return EXIT_OK


def list_letters(settings: Settings, experiment: str, *, as_json: bool) -> None:
    """Print the dead letters of an experiment, oldest first."""
    read_experiment(settings, experiment)
    letters = read_letters(settings, experiment)
    if as_json:
        print(json.dumps([facts(letter) for letter in letters]))
        return
    if not letters:
        print(f"{experiment}: no dead letters")
        return
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("NUMBER", "SOURCE", "AGE", "BYTES", "REINJECTED"):
        table.add_column(column, overflow="fold")
    table.add_column("ERROR", overflow="fold", ratio=1)
    for letter in letters:
        table.add_row(
            str(letter.number),
            Text(printable(where(letter))),
            age(now_ms() - letter.appended_at_ms),
            f"{letter.record.value_bytes:,}",
            Text(printable(letter.reinjected or "no")),
            Text(printable(letter.record.error)),
        )
    table_console(PIPE_WIDTH).print(table)


def reinject(
    settings: Settings,
    experiment: str,
    names: list[str],
    *,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Put letters back, all when none is named; return the exit code.

    1. Become the only process that does, unless nothing is to be written.
    2. Read the letters and the marks: nobody else can add one now.
    3. Put back each that was not before and that its reader can use now.

    Raises:
        UnknownLetter: a name means none.
        Superseded: another process has begun to do the same.
    """
    published = read_experiment(settings, experiment)
    usability = Usability(settings, published)
    partitions = published.experiment.spec.topics.partitions
    # Step 1.
    reinjector = None if dry_run else Reinjector(settings, experiment, partitions)
    if reinjector is not None:
        reinjector.begin()
    outcomes = []
    for outcome in _try_all(settings, experiment, names, usability, reinjector):
        outcomes.append(outcome)
        if not as_json:
            _say(outcome)
    if as_json:
        print(json.dumps([vars(outcome) for outcome in outcomes]))
    elif not outcomes:
        print(f"{experiment}: no dead letter to put back")
    refused = any(outcome.is_refused for outcome in outcomes)
    return EXIT_REFUSED if refused and names else EXIT_OK


def _try_all(
    settings: Settings,
    experiment: str,
    names: list[str],
    usability: Usability,
    reinjector: Reinjector | None,
) -> Iterator[Outcome]:
    letters = read_letters(settings, experiment)  # Step 2.
    wanted = find(letters, names) if names else letters
    open_numbers: dict[int, Letter] = {}
    seen: set[tuple[object, ...]] = set()
    for letter in wanted:
        if letter.reinjected:
            if names:
                yield Outcome(letter.number, "was before", letter.reinjected)
        elif letter.identity in seen:
            yield Outcome(letter.number, "was before", "the same record, buried twice")
        else:
            seen.add(letter.identity)
            open_numbers[letter.number] = letter
    # Once more, with their values: all of them may be too much for the memory.
    for letter in iterate_letters(settings, experiment) if open_numbers else ():
        if letter.number in open_numbers:  # Step 3.
            yield _try(settings, letter, usability, reinjector)


def _try(
    settings: Settings,
    letter: Letter,
    usability: Usability,
    reinjector: Reinjector | None,
) -> Outcome:
    try:
        value = whole_value(settings, letter.record)
        usability.check(letter.record.source, value)
        if reinjector is None:
            return Outcome(letter.number, "would be", where(letter))
        to = reinjector.put_back(letter, value)
    except (NoOriginal, NotReinjected, Refused) as exc:
        return Outcome(letter.number, "refused", exc.problem)
    return Outcome(letter.number, "reinjected", str(to))


def _say(outcome: Outcome) -> None:
    words = {
        "reinjected": "put back to",
        "would be": "would be put back beside",
        "was before": "was put back before:",
        "refused": "stays:",
    }
    detail = printable(outcome.detail)
    print(f"{outcome.number}  {words[outcome.state]} {detail}", flush=True)
