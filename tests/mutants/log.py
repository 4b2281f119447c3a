"""Checks of a log: what it knows of itself after a truncation, a crash, or both; its epochs."""

from tests.mutants.mutant import Edit, Mutant

FLUSH = "storage.log.flush"
LOG = "storage.log.log"
SEGMENT = "storage.log.segment"
EPOCHS = "storage.log.leader_epoch_cache"
LOADER = "storage.log.recovery.loader"
SCAN = "storage.log.recovery.scan"


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
    ),
    Mutant(
        "a log that starts over knows no former epoch",
        (Edit(LOG, "            self.leader_epoch_cache.clear()\n", ""),),
        without_it="a follower that starts over names epochs of a log that is gone",
        source="UnifiedLog.truncateFullyAndStartAt",
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
    ),
    # Leader epochs.
    Mutant(
        "a later epoch than all has no end here",
        (
            Edit(
                EPOCHS,
                "        if higher == len(self._entries):\n            return UNDEFINED\n",
                "        if higher == len(self._entries):\n"
                "            return OffsetAndEpoch(offset=log_end_offset, leader_epoch=epoch)\n",
            ),
        ),
        without_it="a follower keeps records of an epoch that its leader has never seen",
        source="KIP-101, LeaderEpochFileCache.endOffsetFor",
    ),
    Mutant(
        "an unknown epoch is answered with the one before it",
        (
            Edit(
                EPOCHS,
                "        floor_epoch = self._entries[higher - 1].epoch if higher else epoch\n",
                "        floor_epoch = epoch\n",
            ),
        ),
        without_it="a follower takes the end of another epoch for that of its own",
        source="KIP-279, LeaderEpochFileCache.endOffsetFor",
    ),
    Mutant(
        "an epoch ends where the next one begins",
        (
            Edit(
                EPOCHS,
                "        return OffsetAndEpoch(offset=self._entries[higher].start_offset,"
                " leader_epoch=floor_epoch)\n",
                "        return OffsetAndEpoch(offset=log_end_offset, leader_epoch=floor_epoch)\n",
            ),
        ),
        without_it="a follower keeps what other leaders have written over",
        source="KIP-101, LeaderEpochFileCache.endOffsetFor",
    ),
    Mutant(
        "an epoch that begins replaces those at its offset",
        (
            Edit(
                EPOCHS,
                "            or self._entries[keep - 1].start_offset >= entry.start_offset\n",
                "",
            ),
        ),
        without_it="two epochs begin at one offset, and a search finds either",
        source="LeaderEpochFileCache.truncateFromEndFlushes",
    ),
    Mutant(
        "the epoch of the log start begins there",
        (
            Edit(
                EPOCHS,
                "            self._replace(0, count, [EpochEntry(self._entries[count - 1].epoch,"
                " offset)])\n",
                "            self._replace(0, count, [])\n",
            ),
        ),
        without_it="the epoch of the first records is forgotten with the deleted ones",
        source="LeaderEpochFileCache.truncateFromStartAsyncFlush",
    ),
    Mutant(
        "an epoch that begins at the new end is truncated",
        (
            Edit(
                EPOCHS,
                "        count = bisect_left(self._entries, offset, key=_start_offset)\n",
                "        count = bisect_right(self._entries, offset, key=_start_offset)\n",
            ),
        ),
        without_it="a follower claims an epoch of which it has no record",
        source="LeaderEpochFileCache.truncateFromEnd",
    ),
    # Recovery.
    Mutant(
        "recovery checks every checksum",
        (
            Edit(
                SCAN,
                "                or _CRC_OF(window[at + CRC_COVERS_FROM : end]) != crc\n",
                "",
            ),
        ),
        without_it="a batch of which a power cut has left a half is served",
        source="LogSegment.recover",
    ),
    Mutant(
        "recovery takes no batch of an earlier epoch than the one before it",
        (
            Edit(
                SCAN,
                "                or NO_LEADER_EPOCH != epoch < latest\n",
                "",
            ),
        ),
        without_it="old bytes behind a truncation that was not synced are the log's again",
        source="KAFKA-18723, docs/departures.md",
    ),
    Mutant(
        "recovery takes no offset twice",
        (
            Edit(
                SCAN,
                "                or first < following\n",
                "",
            ),
        ),
        without_it="old bytes behind a truncation that was not synced are the log's again",
        source="LogSegment.recover",
    ),
    Mutant(
        "epochs that recovery has not seen are forgotten",
        (
            Edit(
                LOADER,
                "                self.epochs.truncate_from_end(segment.base_offset)\n",
                "                pass\n",
            ),
        ),
        without_it="a follower claims an epoch whose records its disk has lost",
        source="LogLoader.load",
        covered="the batches that are read again replace later epochs, those before them are"
        " completed from the batches, and what begins past the end is cut when the log is loaded",
    ),
    Mutant(
        "segments behind a gap are removed",
        (
            Edit(
                LOADER,
                '                self._drop_from(loaded, index, "it does not join what is before it",'
                " keep=True)\n",
                "                pass\n",
            ),
        ),
        without_it="a log has a hole where its disk has lost the end of a segment",
        source="LogLoader.recoverLog, docs/storage.md",
    ),
    Mutant(
        "what follows a cut is removed",
        (
            Edit(
                LOADER,
                '        self._drop_from(loaded, index + 1, "it follows what was cut", keep=keep)\n',
                "",
            ),
        ),
        without_it="a log has a hole where a batch was torn",
        source="LogLoader.recoverLog",
    ),
    Mutant(
        "a log that ends before its start begins anew",
        (
            Edit(
                LOADER,
                "        if loaded.segments and loaded.next_offset < marks.log_start_offset:\n",
                "        if loaded.segments and loaded.next_offset < 0:\n",
            ),
        ),
        without_it="the log end is below the log start",
        source="LogLoader.load",
    ),
    Mutant(
        "an index that leads astray is passed over",
        (
            Edit(
                SEGMENT,
                "        if start == 0 or self._begins_before(start, offset):\n",
                "        if start >= 0:\n",
            ),
        ),
        without_it="records are skipped, or a replica fails, where an index has rotted",
        source="docs/departures.md",
        caught_by="tests/scenarios/test_stories.py::test_a_story_gives_its_recorded_answers"
        "[an-index-that-rots]",
    ),
    Mutant(
        "a time counts if the batch at its offset has it",
        (
            Edit(
                SEGMENT,
                "        return header is not None and header.max_timestamp == entry.timestamp\n",
                "        return True\n",
            ),
        ),
        without_it="a segment is deleted too early where its time index has rotted",
        source="docs/departures.md",
        caught_by="tests/storage/log/test_rotten_indexes.py"
        "::test_whatever_rots_in_an_index_times_and_bounds_stay_true",
    ),
)
