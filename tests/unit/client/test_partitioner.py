import pytest

from holdfast.client.partitioner import murmur2, partition_of

# What the Java client's own function gives for these keys.
KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "signed"), KNOWN.items())
def test_hashes_are_those_of_the_java_client(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


def test_partitions_are_in_range_for_negative_hashes() -> None:
    assert {partition_of(key, 3) for key in KNOWN} <= {0, 1, 2}
    assert partition_of(b"21", 6) == (-973932308 & 0x7FFFFFFF) % 6
