import errno
import os
import shutil
from unittest.mock import Mock

import numpy as np
import pytest

from archive import parts
from archive.archive_source import ArchiveSource
from archive.archiving import Archiving, Listener
from archive.errors import ArchiveDamaged, ArchiveError
from archive.manifest import GapLine, append, read_manifest
from archive.recorded import Gap
from schemas.codec import encode
from schemas.records import StreamEnd
from tests.unit.archived_records import plain_unroll, recorded
from tests.unit.memory_source import MemorySource


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """A part is cut after two unrolls or so, and has several groups."""
    monkeypatch.setattr("archive.archiving.MAX_ROWS", 12)
    monkeypatch.setattr(parts, "MAX_ROWS", 12)
    monkeypatch.setattr(parts, "GROUP_ROWS", 6)


def history(count, partitions=2, first=0):
    """Unrolls of one worker a partition, and an end of each stream."""
    rng = np.random.default_rng(first)
    found = []
    for partition in range(partitions):
        worker = f"w{partition}"
        for sequence in range(first, first + count):
            unroll = plain_unroll(rng, worker=worker, sequence=sequence)
            found.append(recorded(unroll, 2 * sequence, partition))
        end = StreamEnd("past", "r1", worker, first + 100, "", 0)
        found.append(recorded(end, 2 * (first + count), partition))
    return found


def archive(source, path, **listener):
    """Archive all there is; return what was counted."""
    archiving = Archiving(lambda: source, path, Listener(**listener))
    try:
        archiving.run()
    finally:
        archiving.close()
    return archiving.counts


def all_of(source):
    return [
        each
        for partition, (first, end) in source.bounds().items()
        for each in source.read(partition, first, end)
    ]


def by_address(records):
    found = {str(r.address): (r.appended_at_ms, encode(r.record)) for r in records}
    assert len(found) == len(records)
    return found


def test_an_archive_is_the_same_past(tmp_path):
    source = MemorySource(history(7))
    counts = archive(source, tmp_path)
    found = ArchiveSource(tmp_path)
    assert by_address(all_of(found)) == by_address(source.records)
    assert found.info == source.info
    assert found.bounds() == source.bounds()
    assert found.gaps() == []
    assert counts.records == 16
    assert counts.rows == 14 * 6
    assert counts.env_steps == sum(
        int(r.record.valid.array().sum())
        for r in source.records
        if not isinstance(r.record, StreamEnd)
    )
    names = sorted(path.name for path in (tmp_path / "steps").iterdir())
    assert names[:2] == [
        "00000-00000000000000000000-00000000000000000003.parquet",
        "00000-00000000000000000003-00000000000000000007.parquet",
    ]
    assert names == sorted(path.name for path in (tmp_path / "unrolls").iterdir())


def test_a_range_of_offsets_is_read(tmp_path):
    source = MemorySource(history(7))
    archive(source, tmp_path)
    for first, end in ((0, 1), (3, 9), (4, 5), (5, 5), (13, 99)):
        found = list(ArchiveSource(tmp_path).read(1, first, end))
        assert found == list(source.read(1, first, end))


def test_a_second_run_adds_only_what_is_new(tmp_path):
    source = MemorySource(history(5))
    archive(source, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    manifest = (tmp_path / "manifest.jsonl").read_bytes()
    assert archive(source, tmp_path).records == 0
    assert (tmp_path / "manifest.jsonl").read_bytes() == manifest
    source.records += history(4, first=6)
    assert archive(source, tmp_path).records == 10
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    assert before.items() <= after.items()
    found = all_of(ArchiveSource(tmp_path))
    assert by_address(found) == by_address(source.records)


class Killed(BaseException):
    """As kill -9: nothing cleans up."""


def test_a_kill_at_any_write_leaves_every_record_once(tmp_path, monkeypatch):
    source = MemorySource(history(5, partitions=1))
    real = {name: getattr(os, name) for name in ("fsync", "rename")}
    calls = 0
    kill_at = 0

    def dying(name):
        def call(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls == kill_at:
                raise Killed
            return real[name](*args, **kwargs)

        return call

    for name in real:
        monkeypatch.setattr(os, name, dying(name))
    # Nothing tidies up behind a process that was killed.
    monkeypatch.setattr(parts.PartWriter, "abandon", lambda self: None)
    survived = 0
    while not survived:
        kill_at, calls = kill_at + 1, 0
        path = tmp_path / str(kill_at)
        try:
            archive(source, path)
            survived = calls
        except Killed:
            calls = -1_000
            # Parts are cut elsewhere now: names of before do not come again.
            with monkeypatch.context() as patch:
                patch.setattr(parts, "MAX_ROWS", 18)
                archive(source, path)
        found = all_of(ArchiveSource(path))
        assert by_address(found) == by_address(source.records), kill_at
        manifest = ArchiveSource(path).manifest
        for place in ("steps", "unrolls"):
            names = {each.name for each in (path / place).iterdir()}
            assert names == {part.name for part in manifest.parts}
        shutil.rmtree(path)
    # 3 for the folders, 3 for the header; 7 for each of 3 parts: two files, their
    # directories, a line.
    assert survived == 3 + 3 + 3 * 7


def test_a_torn_line_is_cut_off(tmp_path):
    source = MemorySource(history(5, partitions=1))
    archive(source, tmp_path)
    path = tmp_path / "manifest.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    for torn in (1, len(lines[-1]) // 2, len(lines[-1]) - 1):
        path.write_bytes(b"".join(lines[:-1]) + lines[-1][:torn])
        # A reader passes it over; the next writer makes the part again.
        assert len(ArchiveSource(tmp_path).manifest.parts) == len(lines) - 2
        archive(source, tmp_path)
        found = all_of(ArchiveSource(tmp_path))
        assert by_address(found) == by_address(source.records)


def test_a_repeat_is_left_out_and_a_hole_is_filled_late(tmp_path):
    rng = np.random.default_rng(0)
    first, second, third = (plain_unroll(rng, sequence=s) for s in range(3))
    source = MemorySource([recorded(first, 0), recorded(third, 1), recorded(first, 2)])
    assert archive(source, tmp_path).repeats == 1
    # In another run: what is known comes from the manifest.
    source.records += [recorded(second, 3), recorded(third, 4), recorded(second, 5)]
    counts = archive(source, tmp_path)
    assert (counts.records, counts.repeats) == (1, 2)
    found = all_of(ArchiveSource(tmp_path))
    assert [r.address.offset for r in found] == [0, 1, 3]
    other = plain_unroll(rng, sequence=0, incarnation=6)
    source.records.append(recorded(other, 6))
    assert archive(source, tmp_path).records == 1


def test_offsets_of_others_are_passed_over_once(tmp_path):
    source = MemorySource(history(2, partitions=1))
    source.ends[0] = 50  # of another run, or marks of transactions
    archive(source, tmp_path)
    assert ArchiveSource(tmp_path).bounds() == {0: (0, 50)}
    source.ends[0] = 60
    assert archive(source, tmp_path).records == 0
    assert ArchiveSource(tmp_path).bounds() == {0: (0, 60)}
    last = ArchiveSource(tmp_path).manifest.parts[-1]
    assert (last.first, last.next, last.records, last.steps) == (50, 60, 0, None)
    assert not (tmp_path / "steps" / last.name).exists()


def test_what_expired_before_is_written_down(tmp_path):
    told = []
    source = MemorySource(history(8, partitions=1))
    source.records = source.records[2:]
    source.starts[0], source.lost = 4, [(0, 0, 4)]
    archive(source, tmp_path, on_gap=told.append)
    source.records = history(4, partitions=1, first=20)
    source.starts[0], source.lost = 40, [(0, 0, 40)]
    counts = archive(source, tmp_path, on_gap=told.append)
    assert ArchiveSource(tmp_path).gaps() == [Gap(0, 0, 4), Gap(0, 17, 40)]
    assert ArchiveSource(tmp_path).bounds() == {0: (4, 49)}
    assert counts.gap_records == 23
    assert told[1].endswith(
        "[0]: offsets 17 to 39 had expired before they were archived"
    )


def test_what_expires_while_it_is_read_is_a_gap(tmp_path):
    class Expiring(MemorySource):
        def read(self, partition, first, end):
            yield next(super().read(partition, first, end))
            self.starts[0] = 6
            yield from super().read(partition, first, end)

    source = Expiring(history(8, partitions=1))
    archive(source, tmp_path)
    assert ArchiveSource(tmp_path).gaps() == [Gap(0, 1, 6)]
    found = all_of(ArchiveSource(tmp_path))
    assert [r.address.offset for r in found] == [0, *range(6, 17, 2)]


def test_told_to_stop_it_keeps_what_it_has_read(tmp_path):
    source, read = MemorySource(history(8, partitions=1)), []
    counts = archive(
        source,
        tmp_path,
        on_record=lambda: read.append(1),
        must_stop=lambda: len(read) >= 3,
    )
    assert counts.records == 3
    assert archive(source, tmp_path).records == 6


def test_a_full_disk_is_told_and_nothing_is_lost(tmp_path, monkeypatch):
    source = MemorySource(history(5))
    with monkeypatch.context() as patch:
        full = OSError(errno.ENOSPC, "No space left on device")
        patch.setattr(os, "fsync", Mock(side_effect=[None] * 9 + [full]))
        with pytest.raises(ArchiveError, match="No space left.*make room on the disk"):
            archive(source, tmp_path)
    archive(source, tmp_path)
    found = all_of(ArchiveSource(tmp_path))
    assert by_address(found) == by_address(source.records)


def test_without_a_description_columns_are_those_of_the_first_unroll(tmp_path):
    source = MemorySource([], env=None)
    assert archive(source, tmp_path / "none").records == 0
    assert not (tmp_path / "none").exists()
    source.records = history(3, partitions=1)
    archive(source, tmp_path / "a")
    found = ArchiveSource(tmp_path / "a")
    assert found.info.env is None
    assert by_address(all_of(found)) == by_address(source.records)


def test_the_archive_of_another_past_is_refused(tmp_path):
    archive(MemorySource(history(2)), tmp_path)
    with pytest.raises(ArchiveError, match="expected the archive of past/r1@t2"):
        archive(MemorySource(history(2), topic_id="t2"), tmp_path)
    shorter = MemorySource(history(1))
    with pytest.raises(ArchiveError, match="go on at offset 5, found that it ends at"):
        archive(shorter, tmp_path)


def test_one_process_writes(tmp_path):
    source = MemorySource(history(1))
    archive(source, tmp_path)
    archiving = Archiving(lambda: source, tmp_path, Listener())
    with pytest.raises(ArchiveError, match=f"nobody else .* process {os.getpid()}"):
        archive(source, tmp_path)
    archiving.close()
    archive(source, tmp_path)


def test_damage_names_the_file_and_both_hashes(tmp_path):
    archive(MemorySource(history(3, partitions=1)), tmp_path)
    part = ArchiveSource(tmp_path).manifest.parts[0]
    path = tmp_path / "steps" / part.name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArchiveDamaged) as caught:
        all_of(ArchiveSource(tmp_path))
    assert f"{path}: expected the hash {part.steps.sha256}, found " in str(caught.value)
    assert "restore the file" in str(caught.value)
    path.write_bytes(data[:-1])
    with pytest.raises(ArchiveDamaged, match=f"expected {len(data)} bytes, found"):
        all_of(ArchiveSource(tmp_path))
    path.unlink()
    with pytest.raises(ArchiveDamaged, match="No such file"):
        all_of(ArchiveSource(tmp_path))


@pytest.mark.parametrize("place", ["steps", "unrolls"])
def test_no_link_leads_out_of_the_folder(tmp_path, place):
    path = tmp_path / "a"
    archive(MemorySource(history(1, partitions=1)), path)
    (file,) = (path / place).iterdir()
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ArchiveDamaged):
        all_of(ArchiveSource(path))
    file.unlink()
    (tmp_path / "elsewhere").rename(file)
    (path / place).rename(tmp_path / "directory")
    (path / place).symlink_to(tmp_path / "directory")
    with pytest.raises(ArchiveDamaged):
        all_of(ArchiveSource(path))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b'{"format": 2}', "expected format 1, found '2'"),
        (b"[]", "expected format 1, found 'None'"),
        (b'{"format": 1}', "line 1: expected a header"),
    ],
)
def test_a_header_that_is_none_is_refused(tmp_path, line, says):
    (tmp_path / "manifest.jsonl").write_bytes(line + b"\n")
    with pytest.raises(ArchiveError, match=says):
        ArchiveSource(tmp_path)


def test_lines_that_do_not_follow_each_other_are_refused(tmp_path):
    archive(MemorySource(history(5, partitions=1)), tmp_path)
    path = tmp_path / "manifest.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, lines[-1]]))
    with pytest.raises(ArchiveDamaged, match="expected partition 0 to go on at"):
        ArchiveSource(tmp_path)
    path.write_bytes(b"".join([lines[0], b'{"kind":"part"}\n']))
    with pytest.raises(ArchiveDamaged, match="line 2: expected a part or gap"):
        ArchiveSource(tmp_path)


def test_a_folder_that_is_none_says_what_to_name(tmp_path):
    with pytest.raises(ArchiveError, match="folder that `rollstream archive` made"):
        ArchiveSource(tmp_path)


def test_a_folder_of_links_and_pipes_harms_nobody(tmp_path):
    source, victim = MemorySource(history(3)), tmp_path / "victim"
    victim.write_text("precious")
    folder = tmp_path / "linked"
    folder.mkdir()
    (folder / ".lock").symlink_to(victim)
    with pytest.raises(ArchiveError, match="expected a file to write"):
        archive(source, folder)
    assert victim.read_text() == "precious"
    archive(source, tmp_path / "real")
    for name, make in (
        ("manifest.jsonl", lambda path: path.symlink_to(tmp_path / "real" / path.name)),
        ("manifest.jsonl", os.mkfifo),
    ):
        other = tmp_path / f"other-{make.__name__}"
        other.mkdir()
        make(other / name)
        with pytest.raises(ArchiveError, match="expected the manifest"):
            ArchiveSource(other)
    part = next((tmp_path / "real" / "steps").iterdir())
    part.unlink()
    os.mkfifo(part)
    with pytest.raises(ArchiveDamaged, match="expected .* bytes, found"):
        all_of(ArchiveSource(tmp_path / "real"))


def test_who_has_lost_the_lock_cuts_nothing_off(tmp_path):
    """As when somebody removed the lock: two write, and the second one notices."""
    source = MemorySource(history(3))
    archive(source, tmp_path)
    late = read_manifest(tmp_path)
    source.records.extend(history(3, first=3))
    archive(source, tmp_path)
    before = (tmp_path / "manifest.jsonl").read_bytes()
    line = GapLine(partition=7, first=0, next=1, found_at_ms=0)
    with pytest.raises(ArchiveError, match="expected nobody else to write it"):
        append(tmp_path, late, line)
    assert (tmp_path / "manifest.jsonl").read_bytes() == before


def test_records_without_rows_fill_groups_and_parts_too(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "MAX_RECORDS", 40)
    monkeypatch.setattr(parts, "_GROUP_RECORDS", 8)
    ends = [
        recorded(StreamEnd("past", "r1", "w0", number, "", 0), number, 0)
        for number in range(100)
    ]
    unroll = plain_unroll(np.random.default_rng(0), worker="w0", sequence=0)
    source = MemorySource([*ends, recorded(unroll, 100, 0)])
    archive(source, tmp_path)
    found = ArchiveSource(tmp_path)
    assert [part.records for part in found.manifest.parts] == [40, 40, 21]
    assert by_address(all_of(found)) == by_address(source.records)
