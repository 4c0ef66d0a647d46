"""Where the lake lies, and whether there is room, from mounts, disks and memory written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.doctor.machine import (
    Disk,
    DiskPlace,
    MachineMemory,
    Mount,
    Newest,
    disk,
    disk_room,
    driver_memory,
    durable,
    locks,
    memory,
    mount_of,
    mounts,
    skew,
)

GIB = 1024**3
NOW = 1_800_000_000_000
MOUNTS = r"""22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:20 / /proc rw - proc proc rw
24 22 0:30 / /data rw master:3 - xfs /dev/sdb rw
25 24 0:31 / /data/shared rw - nfs4 nas:/export rw
26 22 0:32 / /mnt/with\040space rw - tmpfs tmpfs rw
27 22 0:33 / /data rw - btrfs /dev/sdc rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/me/lake", "ext4"),
        ("/data/lake", "btrfs"),  # mounted over the other one
        ("/data/shared", "nfs4"),
        ("/data/shared/x/y", "nfs4"),
        ("/data/sharedness", "btrfs"),
        ("/mnt/with space/lake", "tmpfs"),
    ],
)
def test_a_place_is_on_the_file_system_that_is_mounted_deepest(path: str, kind: str) -> None:
    found = mount_of(path, mounts(MOUNTS))
    assert found is not None and found.kind == kind


def test_a_link_is_where_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    known = [Mount("/", "ext4"), Mount(str(tmp_path / "there"), "tmpfs")]
    found = mount_of(str(tmp_path / "link" / "lake"), known)
    assert found is not None and found.kind == "tmpfs"


def test_this_machine_has_mounts_memory_and_disks(tmp_path: Path) -> None:
    assert mount_of(str(tmp_path), mounts()) is not None
    found, there = memory(), disk(str(tmp_path / "not" / "there"))
    assert found is not None and 0 < found.available <= found.total
    assert there is not None and 0 <= there.free <= there.total


@pytest.mark.parametrize(
    ("lake", "kind", "level"),
    [
        ("/srv/lake", "ext4", "ok"),
        ("/srv/lake", "nfs4", "ok"),
        ("/srv/lake", "tmpfs", "red"),
        ("/tmp/lake", "ext4", "warn"),
        ("/tmpfiles/lake", "ext4", "ok"),
        ("/srv/lake", "overlay", "warn"),
        ("s3a://bucket/lake", "tmpfs", "ok"),
    ],
)
def test_a_lake_belongs_where_it_lasts(lake: str, kind: str, level: str) -> None:
    check = durable(lake, Mount("/srv", kind), in_container=True)
    assert check.level == level
    assert bool(check.fix) == (level != "ok")


def test_a_file_system_that_cannot_be_told_is_unknown() -> None:
    assert durable("/srv/lake", None, in_container=False).level == "unknown"
    assert [check.level for check in locks("/srv/lake", None)] == ["unknown"]


@pytest.mark.parametrize(
    ("kind", "level"),
    [("ext4", "ok"), ("xfs", "ok"), ("nfs", "warn"), ("nfs4", "warn"), ("cifs", "warn"), ("fuse.sshfs", "warn")],
)
def test_shared_file_systems_may_have_no_locks(kind: str, level: str) -> None:
    assert [check.level for check in locks("/srv/lake", Mount("/srv", kind))] == [level]


def test_an_object_store_needs_no_locks() -> None:
    assert list(locks("s3a://bucket/lake", None)) == []


@pytest.mark.parametrize(
    ("total", "free", "daily", "level"),
    [
        (500, 0.9, None, "red"),  # under 1 GiB
        (500, 40, 50, "red"),  # less than came in a day
        (500, 20, None, "red"),  # under 5%, and nobody knows for how long
        (500, 20, 1, "warn"),  # under 5%, but that lasts for weeks
        (500, 100, 20, "warn"),  # less than a week
        (500, 100, 1, "ok"),
        (500, 100, None, "ok"),
    ],
)
def test_a_disk_has_room_for_what_comes(total: float, free: float, daily: float | None, level: str) -> None:
    place = DiskPlace("the lake", "/lake", None if daily is None else round(daily * GIB))
    check = disk_room(place, Disk(round(total * GIB), round(free * GIB)))
    assert check.level == level
    assert "the lake (/lake): " in check.found


def test_a_disk_without_room_for_files_is_warned_of() -> None:
    assert disk_room(DiskPlace("the lake", "/lake"), Disk(500 * GIB, 300 * GIB, 10, 1_000_000)).level == "warn"
    assert disk_room(DiskPlace("the lake", "/lake"), None).level == "unknown"


@pytest.mark.parametrize(("heap", "total", "level"), [("4g", 24, "ok"), ("4g", 5.4, "warn"), ("4g", 4.5, "red")])
def test_the_heap_has_to_fit_with_what_a_jvm_takes_beside_it(heap: str, total: float, level: str) -> None:
    check = driver_memory(heap, MachineMemory(round(total * GIB), GIB, limited=True))
    assert (check.level, "the container may have" in check.found) == (level, True)


def test_memory_that_is_not_known_is_unknown() -> None:
    assert driver_memory("4g", None).level == "unknown"
    assert driver_memory("much", MachineMemory(24 * GIB, GIB)).level == "unknown"


@pytest.mark.parametrize(("ahead", "level"), [(-60, "ok"), (3, "ok"), (30, "warn"), (600, "red")])
def test_nothing_may_have_happened_in_the_future(ahead: float, level: str) -> None:
    then = NOW + round(ahead * 1000)
    by_commit = skew({"bronze.orders": then, "bronze.new": None}, {}, NOW, None)
    by_record = skew({}, {"orders": Newest(then, by_broker=True)}, NOW, None)
    assert (by_commit.level, by_record.level) == (level, level)
    if level != "ok":
        assert "the newest commit of bronze.orders lies" in by_commit.found
        assert "the broker's clock is ahead" in by_record.found


def test_a_clock_without_anything_to_compare_with_is_unknown() -> None:
    check = skew({"bronze.orders": None}, {}, NOW, "Kafka does not answer")
    assert (check.level, check.found.endswith(": Kafka does not answer")) == ("unknown", True)
    assert "nothing is known" in skew({"bronze.orders": NOW}, {}, NOW, "Kafka does not answer").found
