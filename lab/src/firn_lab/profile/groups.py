"""Assigns a sample to a part of the server: the server, its engine by layer, the kernel by cause.

A user-space sample belongs to its innermost frame, by file and function name. In the kernel, the
innermost function that matches a cause decides: a sync that waits counts as a switch while it
yields the processor, and as a sync otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from firn_lab.profile.perf import Frame, Sample

# Causes of time in the kernel, with patterns of function names. The innermost frame that matches
# any pattern decides; if this frame matches several causes, the first cause wins.
KERNEL = (
    ("switch", r"schedule|try_to_wake|wake_up|futex|pick_next|dequeue_|enqueue_task|finish_task|"
               r"update_curr|select_task|context_switch|switch_mm|hrtimer_nanosleep|ttwu"),
    ("sync", r"fsync|fdatasync|sync_file|flush_work|blkdev_issue_flush|jbd2|commit_transaction|"
             r"writeback|wait_on_page|file_write_and_wait"),
    ("read", r"vfs_read|ksys_read|pread|filemap_read|file_read|readahead|filemap_get_pages|preadv"),
    ("write", r"vfs_write|ksys_write|pwrite|file_write|write_iter|write_begin|write_end|fallocate|"
              r"truncate|dio_|iomap|io_submit|io_uring|aio_|blk_|submit_bio|nvme|virtio|virtblk"),
    ("network", r"sock|unix_|tcp_|inet|skb|sendto|recvfrom|sendmsg|recvmsg|do_poll|do_sys_poll|"
                r"poll_|epoll"),
    ("memory", r"page_fault|handle_mm|mmap|munmap|madvise|brk|clear_page|alloc_pages|zap_|"
               r"mprotect|do_anonymous|lru_|folio_|__alloc|charge_mem|kmem_|kmalloc|kfree"),
    ("interrupts", r"sysvec|softirq|handle_irq|irq_exit|irqentry|common_interrupt|rcu_core|tick_"),
    ("files", r"vfs_|do_sys_open|openat|path_|unlink|link_path|ext4|xfs|btrfs|fput|fdget"),
)  # fmt: skip
# Kinds of work in the shared libraries that all engines use, with patterns of function names.
LIBRARIES = (
    ("allocating", r"malloc|free|calloc|realloc|_int_|tcache|operator new|operator delete|arena|"
                   r"mi_|je_|memalign|unlink_chunk|sysmalloc"),
    ("copying, comparing", r"mem(cpy|move|set|cmp|chr)|str(len|cmp|cpy|chr|n?cmp)|_avx|_sse|_erms"),
    ("locks", r"pthread_(mutex|cond|rwlock)|lll_|mutex|__futex|cond_(wait|signal|timed)"),
)  # fmt: skip
# Layers of InnoDB, with patterns that match the beginning of its function names.
INNODB = (
    ("tree", r"btr_|page_|rec_|cmp_|dtuple|rem0|PageConverter|ibuf_"),
    ("pages and files", r"buf_|fil_|os_|fsp_|IORequest|tpool|io_|flst_|flush_"),
    ("log", r"log_|mtr_|mtr_t|recv_|log_t"),
    ("transactions, locks", r"lock_|trx_|read_|ReadView|que_|srv_|purge_|undo_"),
    ("rows", r"row_|ha_innobase|innobase|ins_|upd_|dict_|data_|build_template|convert_"),
    ("latches, memory", r"ut_|mem_|sync_|ssux|rw_lock|srw_|mem_heap|sux_lock"),
)
ROCKSDB = (
    ("handler", r"myrocks::"),
    ("log, writes", r"rocksdb::(WriteThread|WriteBatch|log::|DBImpl::(Write|Pipelined)|MemTable|"
                    r"InlineSkipList|Memtable)"),
    ("compaction", r"rocksdb::(Compaction|FlushJob|BuildTable|BlockBasedTableBuilder)"),
    ("transactions", r"rocksdb::(Pessimistic|Point|Transaction|TxnDB|WritePrepared)"),
    ("blocks, cache", r"rocksdb::(Block|LRU|Lru|ShardedCache|Cache|UncompressBlock|FilterBlock)"),
    ("reading", r"rocksdb::"),
)  # fmt: skip
_RUST = re.compile(r"(?:^|[<& ])firn::(\w+)")
KERNEL_FILES = ("[kernel.kallsyms]", "[guest.kernel.kallsyms]", "[vdso]")


# The group of samples without a function name: Debian's server is stripped, and its exported
# symbols do not include InnoDB's functions.
UNNAMED = "server, InnoDB: without names"


def group(sample: Sample, plugins: Mapping[str, str] = {}) -> str:
    """The group of a sample, such as `kernel: sync`, `firn: table`, `innodb: tree`, `server`.

    `plugins` maps a plugin file to its engine, because the file may have any name.
    """
    leaf = sample.frames[0]
    if _in_kernel(leaf):
        return f"kernel: {_cause(sample)}"
    name = Path(leaf.file).name
    engine = plugins.get(leaf.file, name.removeprefix("ha_").removesuffix(".so"))
    if engine == "firn":
        return f"firn: {_firn(leaf)}"
    if engine == "rocksdb":
        return f"rocksdb: {_first(ROCKSDB, leaf.name) or 'others'}"
    if name in ("mariadbd", "mysqld", "postgres"):
        return _server(leaf)
    return f"library: {_first(LIBRARIES, leaf.name) or _library(name)}"


def _in_kernel(frame: Frame) -> bool:
    return frame.file in KERNEL_FILES[:2] or frame.file.endswith(".ko")


def _cause(sample: Sample) -> str:
    for frame in sample.frames:
        if not _in_kernel(frame):
            break
        cause = _first(KERNEL, frame.name)
        if cause:
            return cause
    return "others"


def _firn(frame: Frame) -> str:
    """The layer of a function in FIRN's plugin: a module of the core, or the kind of other code."""
    found = _RUST.search(frame.name)
    if found:
        return found[1]
    if re.search(r"firn_capi|^firn_", frame.name):
        return "C interface"
    if re.search(r"zstd|ZSTD|HUF_|FSE_|lz4|crc32|xxh", frame.name, re.IGNORECASE):
        return "compression, checksums"
    if re.search(r"alloc|free|drop_in_place|raw_vec", frame.name):
        return "allocating"
    return "handler" if re.search(r"ha_firn|handler|Field|THD|TABLE", frame.name) else "others"


def _server(frame: Frame) -> str:
    name = re.sub(r"^(static |virtual |bool |void |int )+", "", frame.name)
    layer = _first(INNODB, name, begins=True)
    if layer:
        return f"innodb: {layer}"
    if name == "[unknown]":
        return UNNAMED
    return "server"


def _library(name: str) -> str:
    return re.split(r"[-.\d]", name)[0] or "others"


def _first(table: tuple[tuple[str, str], ...], name: str, begins: bool = False) -> str:
    """The first group whose pattern occurs in the name, or with `begins` matches its start."""
    for label, pattern in table:
        if re.match(pattern, name) if begins else re.search(pattern, name):
            return label
    return ""
