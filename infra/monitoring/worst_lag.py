"""Of more groups and partitions than can be shown, those that do worst; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from infra.monitoring.lag.model import GroupLag, PartitionLag, badness


def worst_groups(
    groups: tuple[GroupLag, ...], most: int, first: Collection[str] = ()
) -> tuple[GroupLag, ...]:
    """Return so many groups, in the order in which they come.

    Args:
        groups: of which those that read nothing are left out before any other.
        most: how many.
        first: groups that are left out last, however well they do.
    """
    if len(groups) <= most:
        return groups

    def rank(group: GroupLag) -> tuple[object, ...]:
        worst = group.worst
        doing = badness(worst) if worst else ()
        return group.group not in first, worst is None, doing

    kept = {each.group for each in sorted(groups, key=rank)[:most]}
    return tuple(each for each in groups if each.group in kept)


def worst_partitions(
    groups: Iterable[GroupLag], most: int, first: Collection[str] = ()
) -> list[PartitionLag]:
    """Return so many partitions of groups; all of them as they come, if they are few.

    Args:
        groups: that read them.
        most: how many.
        first: groups of which none is left out before one of another group.
    """
    every = [each for group in groups for each in group.partitions]
    if len(every) <= most:
        return every
    every.sort(key=lambda each: (each.place.group not in first, *badness(each)))
    return every[:most]
