"""Checks of a log: what it knows of itself after a truncation, a crash, or both."""

from tests.mutants.mutant import Edit, Mutant

FLUSH = "storage.log.flush"
LOG = "storage.log.log"
SYNCED = "tests/storage/log/test_what_is_synced.py::"

SWAPPED = (
    "tests/storage/cleaner/test_manager.py::"
    "test_segments_that_the_checkpoint_calls_clean_do_not_come_back"
)

MUTANTS = (
    Mutant(
        "a high watermark is inside its log",
        (
            Edit(
                LOG,
                "        if not self.log_start_offset <= offset <= self.local.log_end_offset:\n",
                "        if offset < 0:\n",
            ),
        ),
        without_it="a checkpoint from before the crash lies past the end: S22",
        source="KAFKA-3978",
    ),
    Mutant(
        "a truncation lowers the high watermark",
        (
            Edit(
                LOG,
                "            self._set_high_watermark(min(self.high_watermark, offset))\n",
                "",
            ),
        ),
        without_it="a high watermark past the end",
        source="UnifiedLog.truncateTo",
    ),
    Mutant(
        "a truncation removes epochs",
        (
            Edit(
                LOG,
                "            self.leader_epoch_cache.truncate_from_end(offset)\n"
                "            self._reload_producers()\n",
                "            self._reload_producers()\n",
            ),
        ),
        without_it="a follower claims an epoch that it has truncated",
        source="LeaderEpochFileCache",
    ),
    Mutant(
        "an unsynced truncation holds back the checkpointed high watermark",
        (Edit(LOG, "        if self.local.cut_unsynced:\n", "        if False:\n"),),
        without_it="old bytes come back below the high watermark",
        source="docs/found.md",
    ),
    Mutant(
        "records are deleted up to the high watermark",
        (
            Edit(
                LOG,
                "        if offset > self.high_watermark:\n"
                "            raise OffsetOutOfRangeError(\n"
                '                f"log start offset',
                "        if offset > self.log_end_offset:\n"
                "            raise OffsetOutOfRangeError(\n"
                '                f"log start offset',
            ),
        ),
        without_it="a log start past the high watermark",
        source="KIP-107",
    ),
    Mutant(
        "segments are deleted up to the high watermark",
        (
            Edit(
                "storage.log.retention",
                "    limit = _first_above(high_watermark, [*ends, log_end_offset])",
                "    limit = _first_above(log_end_offset, [*ends, log_end_offset])",
            ),
        ),
        without_it="followers delete records that they do not have yet: S43",
        source="KAFKA-5634",
    ),
    Mutant(
        "a log is recovered after an unclean shutdown",
        (
            Edit(
                "storage.manager.log_manager",
                "            clean=marker is not None,\n",
                "            clean=True,\n",
            ),
        ),
        without_it="torn batches count as records: S52",
        source="LogSegment.recover",
    ),
    Mutant(
        "a shutdown is clean only if all logs were closed",
        (
            Edit(
                "storage.manager.log_manager",
                "        if not self.clean or len(epochs) != 1:",
                "        if len(epochs) != 1:",
            ),
        ),
        without_it="a marker counts more than a log that has lost records: S51",
        source="KIP-966",
    ),
    # What is synced.
    Mutant(
        "a flush syncs names",
        (Edit(FLUSH, "        if self.directory is not None:", "        if False:"),),
        without_it="a flushed segment is gone with its name: synced records are lost",
        source="LocalLog.flush",
    ),
    Mutant(
        "a flush syncs the names of its segments",
        (
            Edit(
                FLUSH,
                "                self.file_system.sync_directory(self.directory)\n",
                "                pass\n",
            ),
        ),
        without_it="as above, for a log whose directory has its name",
        source="LocalLog.flush",
        caught_by=SYNCED + "test_a_segment_that_was_flushed_has_its_name",
    ),
    Mutant(
        "a flush syncs the name of its log",
        (
            Edit(
                FLUSH,
                "                self.file_system.sync_directory("
                'os.path.dirname(self.directory) or ".")\n',
                "                pass\n",
            ),
        ),
        without_it="a log that was created and flushed is gone as a whole",
        source="KAFKA-13787",
        caught_by=SYNCED + "test_a_log_that_was_flushed_has_its_directory",
    ),
    Mutant(
        "a truncation is synced before the next segment begins",
        (
            Edit(
                "storage.log.local_log",
                "        if self.cut_unsynced:\n            # Or a power",
                "        if False:\n            # Or a power",
            ),
        ),
        without_it="truncated records come back, and the next segment still joins them",
        source="docs/found.md",
        caught_by=SYNCED + "test_a_cut_is_synced_before_a_segment_follows_it",
    ),
    Mutant(
        "a log that starts over knows no former epoch",
        (Edit(LOG, "            self.leader_epoch_cache.clear()\n", ""),),
        without_it="a follower that starts over names epochs of a log that is gone",
        source="UnifiedLog.truncateFullyAndStartAt",
        caught_by=SYNCED + "test_a_log_that_begins_anew_knows_no_epoch_of_before",
    ),
    Mutant(
        "a truncation lowers the recovery point first",
        (
            Edit(
                LOG,
                "            self._lower_marks(base_offset, recovery_point=kept, "
                "log_start_offset=offset)\n",
                "",
            ),
        ),
        without_it="after a crash new records count as synced, which they are not",
        source="UnifiedLog.truncateTo",
        caught_by=SYNCED + "test_a_cut_lowers_the_recovery_point_for_good_before_anything_is_cut",
    ),
    Mutant(
        "a log that starts over lowers its recovery point first",
        (
            Edit(
                LOG,
                "            self._lower_marks(offset, recovery_point=recovery_point, "
                "log_start_offset=start)\n",
                "",
            ),
        ),
        without_it="as above, for a follower that starts over",
        source="UnifiedLog.truncateFullyAndStartAt",
        caught_by=SYNCED + "test_a_cut_lowers_the_recovery_point_for_good_before_anything_is_cut",
    ),
    Mutant(
        "a snapshot that a truncation deleted stays deleted",
        (
            Edit(
                "storage.producers.state",
                "            self.file_system.sync_directory(self.directory)\n"
                "            self._removal_unsynced = False",
                "            self._removal_unsynced = False",
            ),
        ),
        without_it="a log that has gone on differently takes its producers from its former state",
        source="ProducerStateManager.truncateAndReload",
        caught_by=SYNCED + "test_a_snapshot_that_a_cut_deleted_does_not_come_back",
    ),
    Mutant(
        "a compacted segment is synced before it is checkpointed as clean",
        (
            Edit(
                "storage.log.swap",
                '    _rename(file_system, directory, base_offset, SWAP_SUFFIX, "")\n'
                "    file_system.sync_directory(directory)\n",
                '    _rename(file_system, directory, base_offset, SWAP_SUFFIX, "")\n',
            ),
        ),
        without_it="a tombstone goes before the record that it deletes, which came back as clean",
        source="LocalLog.replaceSegments",
        caught_by=SWAPPED,
    ),
    Mutant(
        "later segments are gone for good before a file is cut",
        (
            Edit(
                "storage.log.local_log",
                "        if dropped:\n"
                "            self.file_system.sync_directory(self.directory)\n"
                "            self._report_deleted(DeletionCause.TRUNCATION",
                "        if dropped:\n            self._report_deleted(DeletionCause.TRUNCATION",
            ),
        ),
        without_it="a crash leaves a hole in the log",
        source="docs/found.md",
        caught_by=SYNCED + "test_a_crash_amid_a_cut_leaves_no_hole",
    ),
)
