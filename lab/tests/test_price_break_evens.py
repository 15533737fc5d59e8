"""Break-evens of memory pool, memory and bucket. A month has 730 h, which are 2,628,000 s."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from firn_lab import cli
from firn_lab.price import Choice, Prices, Sizes, choices, cost
from firn_lab.price.keeping import duration, put_requests, scan_requests

ROOT = Path(__file__).resolve().parents[2]
MIB = 2**20
# A core costs 0.001 a second, an I/O 2e-6. Of the nodes' memory 95 % holds values, so a GB of
# values costs 10 a month. A GB more of memory costs 20: 1.073741824 GB for 21.47483648.
POOL = Prices(
    "pool", hour=7.2, cores=2, million_ios=2.0, memory_gb_month=9.5, more_gib=1.0,
    more_hour=21.47483648 / 730,
)  # fmt: skip
# Half of a block of 8,192 bytes: 4,096 bytes stored.
HALF = Sizes(stored=0.5)
# A GB saves 0.05 a month, so a file of 32 MiB, which is 0.033554432 GB, saves 0.0016777216.
BUCKET = Prices("bucket", gb_month=0.09, bucket_gb_month=0.04, million_gets=0.5, million_puts=5.0)


def of(prices: Prices, sizes: Sizes = HALF) -> dict[str, Choice]:
    """The choices by a short name: pool, memory, memory/pool, read, scan, move, cache."""
    names = {
        ("block", "pool, not volume alone"): "pool",
        ("block", "more memory, not volume alone"): "memory",
        ("block", "more memory, not pool"): "memory/pool",
        ("chunks read", "bucket, not volume"): "read",
        ("scanned", "bucket, not volume"): "scan",
        ("sent once", "bucket, not volume"): "move",
        ("chunk", "file cache, not bucket alone"): "cache",
    }
    found = {}
    for each in choices(prices, sizes):
        thing = each.thing.split(", ")[1] if "file" in each.thing else each.thing.split()[0]
        found[names[thing, each.places]] = each
    return found


def test_the_five_minute_rule_as_published() -> None:
    # Gray and Graefe, "The five-minute rule ten years later" (1997): a disk of 2,000 dollars with
    # 64 accesses a second, memory of 15 dollars a MB, 128 pages of 8 KiB in a MB. Their interval is
    # 128 / 64 × 2,000 / 15 = 266 s. A GiB of memory costs 15 × 1,024 = 15,360.
    then = Prices("1997", iops_month=2000 / 64, more_gib=1.0, more_hour=15360 / 730)
    found = of(then)["memory"]
    assert found.verdict == "below"
    assert found.seconds == pytest.approx(266.67, rel=1e-4)
    assert found.words() == "costs less if read again within 4.4 min"


def test_a_block_in_the_pool() -> None:
    found = of(POOL)["pool"]
    # The I/O, 2e-6, less 15 µs of a core to ask, 1.5e-8. Both places decompress.
    assert found.read == pytest.approx(-1.985e-6)
    # 4.096e-6 GB at 10.
    assert found.month == pytest.approx(4.096e-5)
    # 1.985e-6 / 4.096e-5 = 0.0484619 months = 127,358 s = 35.4 h.
    assert found.verdict == "below" and found.seconds == pytest.approx(127_358, rel=1e-5)
    assert found.words() == "costs less if read again within 35 h"
    # Without blocks: 9.5 a month buy 9.5 / 1.985e-6 = 4,785,894 reads a month = 1.82111 a second.
    assert found.rate == pytest.approx(1.82111, rel=1e-5)
    assert found.rate_words() == "more than 1.8 reads a second for each GB of nodes"


def test_a_node_by_the_hour_is_a_price_of_its_memory() -> None:
    # 2 GiB are 2.147483648 GB. 730 h at 0.02 are 14.6, which makes 6.798654 a GB.
    node = Prices("node", million_ios=2.0, node_hour=0.02, node_gib=2.0)
    memory = Prices("memory", million_ios=2.0, memory_gb_month=6.798654)
    seconds = of(node)["pool"].seconds
    # 6.798654 / 0.95 × 4.096e-6 = 2.931289e-5; 2e-6 of it are 0.0682294 months.
    assert seconds == pytest.approx(0.0682294 * 2_628_000, rel=1e-5)
    assert of(memory)["pool"].seconds == pytest.approx(seconds)


def test_more_memory_beside_volume_and_pool() -> None:
    found = of(POOL)
    # Memory holds 8.192e-6 GB at 20, which are 1.6384e-4 a month. A read saves the I/O and the
    # decompression, 10 µs of a core: 2.01e-6. That is 0.0122681 months = 32,240.5 s.
    memory = found["memory"]
    assert memory.verdict == "below" and memory.seconds == pytest.approx(32_240.5, rel=1e-5)
    # The pool costs 4.096e-5 for the same block, so memory costs 1.2288e-4 more. A read saves to
    # ask and to decompress, 2.5e-8: 2.03451e-4 months = 534.67 s.
    both = found["memory/pool"]
    assert both.verdict == "below" and both.seconds == pytest.approx(534.67, rel=1e-5)
    # A node as dear as memory keeps half of the bytes at 20 / 0.95: still less than memory.
    dear = of(replace(POOL, memory_gb_month=20.0))
    assert dear["memory/pool"].verdict == "below"
    # One of twice that price costs more to keep and more to read.
    dear = of(replace(POOL, memory_gb_month=40.0))
    assert dear["memory/pool"].words() == "always costs less"
    assert dear["pool"].verdict == "below", "it still saves I/Os"


def test_without_a_price_of_processor_time_the_pool_has_cheap_reads() -> None:
    found = of(replace(POOL, cores=None))
    assert found["pool"].read == pytest.approx(-2e-6)
    # Reads cost the same in memory and in the pool, and memory costs more to keep.
    assert found["memory/pool"].verdict == "never" and found["memory/pool"].seconds is None
    assert found["memory/pool"].rate_words() == ""


def test_a_pool_never_pays_where_ios_are_free_or_traffic_is_dear() -> None:
    assert of(replace(POOL, million_ios=0.0))["pool"].words() == "never costs less"
    # 4.096e-6 GB at 0.4 are 1.6384e-6, which leaves 3.466e-7 of 1.985e-6.
    traffic = of(replace(POOL, node_traffic_gb=0.4))["pool"]
    assert traffic.read == pytest.approx(-3.466e-7)
    # At 0.5 they are 2.048e-6: more than the I/O.
    assert of(replace(POOL, node_traffic_gb=0.5))["pool"].verdict == "never"


def test_a_large_block_takes_several_ios() -> None:
    # 16 KiB, of which 8 KiB are stored, are two I/Os of 4 KiB: 4e-6, less 1.5e-8.
    found = of(replace(POOL, io_kib=4.0), Sizes(block_kib=16.0, stored=0.5))
    assert found["pool"].read == pytest.approx(-3.985e-6)


def test_provisioned_ios_count_as_used_all_the_time() -> None:
    # 2.628 a month for one I/O a second: 1e-6 each, beside 2e-6 for each as it comes.
    provisioned = replace(POOL, iops_month=2.628)
    assert of(provisioned)["pool"].read == pytest.approx(-2.985e-6)
    # A transaction of 2 I/Os, at 1,000 a second: a million takes 1,000 s of the machine at 0.002,
    # and 2 million I/Os at 3e-6.
    assert cost(provisioned, 1000, 2, None).per_million == pytest.approx(2 + 6)
    alone = Prices("provisioned alone", iops_month=2.628)
    assert cost(alone, 1000, None, None).per_million is None, "I/Os were not measured"


def test_a_file_in_the_bucket() -> None:
    found = of(BUCKET)
    # A GET is 5e-7: 5e-7 / 0.0016777216 = 2.980232e-4 months = 783.205 s.
    read = found["read"]
    assert read.verdict == "above" and read.seconds == pytest.approx(783.205, rel=1e-5)
    assert read.words() == "costs less if read at most once in 13 min"
    # A TB saves 50 a month, which buy 1e8 GETs a month: 38.0518 a second.
    assert read.rate == pytest.approx(38.0518, rel=1e-5)
    assert read.rate_words() == "fewer than 38 reads a second for each TB"
    # A scan has 8 GETs: a chunk, pieces of 1, 2 and 4 MiB, and four of 8 MiB at most.
    assert found["scan"].seconds == pytest.approx(8 * 783.205, rel=1e-5)
    assert found["scan"].rate_words() == ""
    # The PUT costs as much as ten GETs.
    assert found["move"].seconds == pytest.approx(10 * 783.205, rel=1e-5)
    assert found["move"].words() == "costs less from 2.2 h on"
    # A chunk on the volume is 0.000262144 GB at 0.09, which are 2.359296e-5 a month; the bucket
    # has it in any case. 5e-7 of that are 0.0211928 months = 55,694.6 s.
    cache = found["cache"]
    assert cache.verdict == "below" and cache.seconds == pytest.approx(55_694.6, rel=1e-5)
    assert cache.words() == "costs less if read again within 15 h"


def test_traffic_out_of_the_bucket() -> None:
    found = of(replace(BUCKET, traffic_gb=0.1))
    # A chunk is 2.62144e-5, with its GET 2.67144e-5: 0.0159230 months = 41,845.6 s.
    assert found["read"].seconds == pytest.approx(41_845.6, rel=1e-5)
    # A file is 0.0033554432, with 8 GETs 0.0033594432: 2.002384 months = 5,262,266 s.
    assert found["scan"].seconds == pytest.approx(5_262_266, rel=1e-5)
    assert found["scan"].words() == "costs less if read at most once in 61 days"
    assert found["move"].seconds == pytest.approx(10 * 783.205, rel=1e-5), "it goes in for nothing"


def test_ios_of_the_volume_beside_the_bucket() -> None:
    found = of(replace(BUCKET, million_ios=0.2, io_kib=16.0))
    # A chunk is written to the file cache in 16 I/Os, a local block is read in one: 15 × 2e-7 more,
    # with the GET 3.5e-6.
    assert found["read"].seconds == pytest.approx(7 * 783.205, rel=1e-5)
    # A scan writes to the file cache what it reads from a local file otherwise.
    assert found["scan"].seconds == pytest.approx(8 * 783.205, rel=1e-5)
    # 2,048 I/Os read the file that is sent, 4.096e-4, with the PUT 4.146e-4: 829.2 GETs.
    assert found["move"].seconds == pytest.approx(829.2 * 783.205, rel=1e-5)
    assert found["cache"].seconds == pytest.approx(7 * 55_694.6, rel=1e-5)


def test_verdicts_on_buckets_that_cost_nothing_or_too_much() -> None:
    free = of(replace(BUCKET, million_gets=0.0, million_puts=0.0))
    assert [free[name].verdict for name in ("read", "scan", "move")] == ["always"] * 3
    assert free["cache"].verdict == "never"
    dear = of(replace(BUCKET, bucket_gb_month=0.1))
    assert [dear[name].verdict for name in ("read", "scan", "move")] == ["never"] * 3
    assert dear["cache"].verdict == "below", "what is in the bucket is read from there"
    same = of(replace(BUCKET, bucket_gb_month=0.09, million_gets=0.0))
    assert same["read"].words() == "costs the same"


def test_requests_of_files() -> None:
    # 40 MiB go in parts of 16, 16 and 8 MiB, with a request that begins and one that completes.
    assert [put_requests(size * MIB) for size in (1, 32, 33, 40, 48, 49)] == [1, 1, 5, 5, 5, 6]
    # A chunk alone; a chunk and 1 MiB at most; all up to 7.25 MiB; one of 8 MiB more.
    sizes = (0.1, 0.25, 1, 2, 7.25, 7.5, 15.25, 32, 64)
    assert [scan_requests(size * MIB) for size in sizes] == [1, 1, 2, 3, 4, 5, 5, 8, 12]
    # 5 PUTs of 5e-6 for 0.04194304 GB, which save 0.002097152 a month: 0.0119209 months.
    found = of(BUCKET, Sizes(stored=0.5, file_mib=40.0))["move"]
    assert found.seconds == pytest.approx(31_328.2, rel=1e-5)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0123, "0.012 s"), (1.5, "1.5 s"), (119.0, "120 s"), (120.0, "2 min"), (7199.0, "120 min"),
     (7200.0, "2 h"), (150_000.0, "42 h"), (172_800.0, "2 days"), (6e7, "690 days"),
     (7e7, "2.2 years"), (4e11, "13,000 years")],
)  # fmt: skip
def test_a_duration_can_be_read(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def documented() -> list[tuple[str, str]]:
    """Commands in the documentation with the output that stands below them."""
    found = []
    for page in ("pool.md", "lab.md"):
        text = (ROOT / "docs" / page).read_text()
        found += re.findall(r"^```\n\$ firn-lab (price --break-evens .*)\n([^`]*)^```$", text, re.M)
    return found


@pytest.mark.parametrize(("command", "output"), documented())
def test_the_documentation_shows_what_the_command_prints(
    command: str,
    output: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    assert cli.main(shlex.split(command)) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert printed == output.splitlines()


def test_both_pages_have_an_example() -> None:
    assert len(documented()) >= 3


def test_offers_of_a_catalogue_and_of_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(
        '[[offer]]\nname = "plain [x]"\nhour = 1\n'
        '[[offer]]\nname = "bucket"\ngb_month = 0.09\nbucket_gb_month = 0.04\nmillion_gets = 0.5\n'
    )
    words = ["--million-ios", "2", "--memory-gb-month", "9.5", "--stored", "0.5"]
    assert cli.main(["price", "--break-evens", "--catalogue", str(path), *words]) == 0
    plain, bucket, given = capsys.readouterr().out.split("\n\n")
    assert plain.startswith("plain [x]: ")
    assert plain.endswith("no price of nodes, of more memory or of a bucket")
    assert "costs less if read at most once in 13 min" in bucket and "pool" not in bucket
    # Without a price of processor time, the I/O's 2e-6 are 0.0488281 months: 35.6 h.
    assert "costs less if read again within 36 h" in given and "bucket" not in given
