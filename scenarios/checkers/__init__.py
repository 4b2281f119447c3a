"""What must hold in every run, watched from beside the cluster.

    id    rule                                                        where
    I1    log start <= high watermark <= log end; the first segment   offsets
          begins no later than the log
    I2    the epochs that a replica acts on never fall                epochs
    I2b   no replica holds a later epoch than it acts on              epochs
    I3    one replica leads in a leader epoch                         leadership
    I4    below its high watermark a replica has what was committed   committed
    I5    a joining replica has what is committed while it joins      committed
    I6    who is in the ISR or ELR has all that was committed         committed
    I7    what was committed stays; a leader's marks only grow        committed, offsets
    I8    the epoch cache is what a scan of the log derives           epochs
    I9    a leader never cuts its log, nobody cuts below its own      offsets
          high watermark
    I10   acks=all is answered once it is committed; nothing is       acks, offsets
          committed below min.insync.replicas
    I11   consumers are given what is committed                       acks
    I12   who may have lost its tail is neither in sync nor eligible  exclusion
    I13   the algebra of ISR and ELR; the leader is in the ISR        leadership
    I14   a followed partition is in one fetcher, a led one in none   leadership
    I15   a log that has failed takes nothing more                    storage
    I16   what a follower takes continues its log                     offsets
    I17   what was synced outlives its process, and its power         storage
    END   the same ends and epochs, tidy disks, nobody left waiting   ends
          tasks, connections and watches are as many as at first      leftovers

StrongIsr, ValidHighWatermark and LeaderCandidateCompleteness of the TLA+ models are I6: all
that any leader, deposed or not, has shown below its high watermark is in `committed`, and who
is in the controller's ISR or ELR must have it.

    a message arrives, an event is told, a line of the story is done
        └─> watcher ──values──> rules ──what is wrong──> InvariantViolatedError ends the run
                        └─> contract: who is let off, and why

Rule 1: a rule is a function of values, and is tested on values made by hand. The watcher
carries them there, and knows no rule by itself.

Rule 2: a checker reads, and changes nothing.

Rule 3: a replica is looked at after it has moved, and of its log what is new: that costs as
much as has happened, not as much as there is.
"""

from scenarios.checkers.violation import InvariantViolatedError
from scenarios.checkers.watcher import Checkers

__all__ = ["Checkers", "InvariantViolatedError"]
