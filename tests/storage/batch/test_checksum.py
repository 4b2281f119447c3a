"""The function is the package's own, by a shorter way."""

import crc32c as package

from storage.batch.record_batch import crc32c


def test_it_is_the_checksum_that_the_package_computes() -> None:
    for data in (b"", b"123456789", bytes(range(256)) * 300):
        assert crc32c(data) == package.crc32c(data)
    assert crc32c(memoryview(b"0123456789")[1:]) == 0xE3069283, "the check value of CRC-32C"
