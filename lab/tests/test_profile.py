"""Samples of perf, and the part of a server to which each belongs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from firn_lab import cli
from firn_lab.errors import LabError
from firn_lab.profile import page, perf
from firn_lab.profile.groups import UNNAMED, group
from firn_lab.profile.page import Profile, ordered, to_json
from firn_lab.profile.perf import Frame, Sample, parse

KERNEL = "[kernel.kallsyms]"
SERVER = "/usr/sbin/mariadbd"
# The output of perf: lines of frames begin with a tab, the first line of a sample with a space.
SCRIPT = "\n".join(
    (
        "  501    1003009 ",
        f"\tffffffff8140b475 finish_task_switch.isra.0 ({KERNEL})",
        f"\tffffffff8140783d __schedule ({KERNEL})",
        f"\tffffffff8140783d unix_stream_recvmsg ({KERNEL})",
        "\t    7f331121f820 [unknown] ([unknown])",
        "",
        "  502    2006018 ",
        "\t         8aef63e <firn::table::fetch::Rows<T> as Iterator>::next (/tmp/b/ha_firn.so)",
        "\t    7f331121f820 [unknown] ([unknown])",
    )
)


def of(*frames: tuple[str, str]) -> Sample:
    return Sample(1, 1.0, tuple(Frame(16, name, file) for name, file in frames))


def test_what_perf_prints_is_read() -> None:
    one, two = parse(SCRIPT.splitlines())
    assert (one.pid, one.weight, len(one.frames)) == (501, 1003009, 4)
    assert one.frames[1] == Frame(0xFFFFFFFF8140783D, "__schedule", KERNEL)
    assert two.frames[0].name == "<firn::table::fetch::Rows<T> as Iterator>::next"
    assert (two.pid, two.frames[0].file, two.weight) == (502, "/tmp/b/ha_firn.so", 2006018)
    assert list(parse(["nothing of the kind", ""])) == []


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        # The innermost function with a cause counts: one reader yields the processor, another one
        # copies.
        (["__schedule", "unix_stream_read_generic", "__x64_sys_recvfrom"], "kernel: switch"),
        (["copy_user_generic", "unix_stream_read_generic"], "kernel: network"),
        (["_raw_spin_unlock_irqrestore", "try_to_wake_up", "sock_def_readable"], "kernel: switch"),
        (["submit_bio_noacct", "ext4_sync_file", "do_fsync"], "kernel: write"),
        (["jbd2_log_wait_commit", "ext4_sync_file"], "kernel: sync"),
        (["filemap_read", "vfs_read", "ksys_pread64"], "kernel: read"),
        (["clear_page_erms", "alloc_pages_vma", "do_user_addr_fault"], "kernel: memory"),
        (["asm_sysvec_apic_timer_interrupt"], "kernel: interrupts"),
        (["nobody_knows"], "kernel: others"),
    ],
)
def test_the_kernel_is_grouped_by_cause(frames: list[str], expected: str) -> None:
    # Frames outside the kernel give no cause.
    stack = [(name, KERNEL) for name in frames]
    assert group(of(*stack, ("fsync", "/lib/libc.so.6"))) == expected


@pytest.mark.parametrize(
    ("name", "file", "expected"),
    [
        ("firn::txn::lock::LockTable::grant", "/x/ha_firn.so", "firn: txn"),
        ("<firn::wal::Log as core::ops::Drop>::drop", "/x/ha_firn.so", "firn: wal"),
        ("ha_firn::index_read_map", "/x/ha_firn.so", "firn: handler"),
        ("firn_cursor_seek", "/x/ha_firn.so", "firn: C interface"),
        ("ZSTD_decompressBlock", "/x/ha_firn.so", "firn: compression, checksums"),
        ("rocksdb::BlockIter::Next", "/x/ha_rocksdb.so", "rocksdb: blocks, cache"),
        ("rocksdb::DBImpl::WriteImpl", "/x/ha_rocksdb.so", "rocksdb: log, writes"),
        ("myrocks::ha_rocksdb::index_read_map", "/x/ha_rocksdb.so", "rocksdb: handler"),
        ("btr_cur_search_to_nth_level", SERVER, "innodb: tree"),
        ("static void buf_page_get_low", SERVER, "innodb: pages and files"),
        ("row_search_mvcc", SERVER, "innodb: rows"),
        ("lock_rec_lock", SERVER, "innodb: transactions, locks"),
        ("JOIN::exec", SERVER, "server"),
        ("[unknown]", SERVER, UNNAMED),
        ("__libc_malloc", "/lib/libc.so.6", "library: allocating"),
        ("pthread_mutex_lock", "/lib/libc.so.6", "library: locks"),
        ("inflate", "/lib/libz.so.1", "library: libz"),
    ],
)
def test_servers_are_grouped_by_layer(name: str, file: str, expected: str) -> None:
    assert group(of((name, file))) == expected


def test_a_plugin_may_be_called_anything() -> None:
    sample = of(("firn::read::view::pin", "/tmp/before.so"))
    assert group(sample) == "library: before"
    assert group(sample, {"/tmp/before.so": "firn"}) == "firn: read"


def profiles() -> list[Profile]:
    innodb, firn = Profile("innodb"), Profile("firn")
    server, engine = of(("JOIN::exec", SERVER)), of(("firn::wal::append", "/x/ha_firn.so"))
    wait = of(("schedule", KERNEL))
    innodb.add([server, server, wait, wait], 400.0, 20.0, 10)
    # A round counts by its processor time, not by its number of samples.
    firn.add([server], 300.0, 5.0, 10)
    firn.add([engine] * 50, 100.0, 5.0, 10)
    return [innodb, firn]


def test_groups_are_microseconds_of_a_transaction() -> None:
    innodb, firn = profiles()
    assert (innodb.each("server"), innodb.each("kernel: switch")) == (20, 20)
    assert (firn.each("server"), firn.each("firn: wal")) == (15, 5)
    assert ordered([innodb, firn]) == ["server", "firn: wal", "kernel: switch"]
    text = page.page("case", [innodb, firn], "x.png")
    assert "| server | 20.00 | 15.00 |" in text and "| firn: wal | 0.00 | 5.00 |" in text
    assert "| all | 40.00 | 20.00 |" in text and "| context switches | 2.00 | 0.50 |" in text
    assert "`firn::wal::append` 5.00" in text
    found = to_json("case", [innodb, firn])["targets"]["firn"]
    assert found["cpu_us_per_transaction"] == 20 and found["us_by_group"]["firn: wal"] == 5
    json.dumps(found)


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    page.draw("case", profiles(), tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes()[:4] == b"\x89PNG"


def test_without_perf_it_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(perf.shutil, "which", lambda name: None)
    assert cli.main(["profile", "oltp_point_select"]) == 1
    assert "apt-get install linux-perf" in capsys.readouterr().err
    monkeypatch.setattr(perf.shutil, "which", lambda name: f"/bin/{name}")
    said = "Error:\nNo permission to enable cycles event.\n"
    monkeypatch.setattr(perf.processes, "run", lambda command: (255, said))
    with pytest.raises(LabError, match=r"No permission.*perf_event_paranoid"):
        perf.require()
    assert list(tmp_path.iterdir()) == [], "nothing was begun"


@pytest.mark.skipif(shutil.which("perf") is None, reason="no perf")
def test_a_server_is_profiled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("firn_lab.profile.record.ROUNDS", 1)
    try:
        perf.require()
    except LabError as error:
        pytest.skip(str(error))
    words = ["profile", "oltp_point_select:tables=1,rows=1000", "--targets", "engine:innodb",
             "--seconds", "1", "--threads", "2", "--memory", "32", "--dir", str(tmp_path / "data"),
             "--out", str(tmp_path / "out")]  # fmt: skip
    assert cli.main(words) == 0
    assert "| server |" in capsys.readouterr().out
    found = json.loads((tmp_path / "out" / "oltp_point_select.json").read_text())
    innodb = found["targets"]["innodb"]
    assert sum(innodb["us_by_group"].values()) == pytest.approx(innodb["cpu_us_per_transaction"])
    assert any(name.startswith("kernel: ") for name in innodb["us_by_group"])
    assert list((tmp_path / "data").iterdir()) == []
