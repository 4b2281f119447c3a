"""The invariants of every run, watched from beside the cluster.

    id    rule                                                        where
    I1    log start <= high watermark <= log end; the first segment   offsets
          begins no later than the log
    I2    the epochs that a replica acts on never fall                epochs
    I2b   no replica holds a later epoch than it acts on              epochs
    I3    one replica leads in a leader epoch                         leadership
    I4    below its high watermark a replica has what was committed   committed
    I5    a joining replica has what is committed while it joins      committed
    I6    a member of the ISR or ELR has all that was committed       committed
    I7    what was committed stays; a leader's marks only grow        committed, offsets
    I8    the epoch cache is what a scan of the log derives           epochs
    I9    a leader never truncates its log, and no replica truncates  offsets
          below its own high watermark
    I10   acks=all is answered once it is committed; nothing is       committed,
          committed below min.insync.replicas                         offsets
    I11   consumers receive only what is committed                    committed
    I12   a broker that may have lost its log's end is neither in     leadership
          sync nor eligible
    I13   the algebra of ISR and ELR; the leader is in the ISR        leadership
    I14   a followed partition is in one fetcher, a led one in none   leadership
    I15   a log that has failed appends nothing more                  offsets
    I16   a follower's append continues its log                       offsets
    I17   what was synced outlives the process and a power cut        offsets
    I18   the batches of a producer follow each other                 producers
    I19   a log knows of its producers what its batches say           producers
    I20   what a log says is synced is on the platter                 platter
    I21   what was cut from a log is gone for good                    platter
    I22   a fetch session displaces none that counts more             sessions
    END   equal log ends and epochs, tidy disks, no request waits     ends
          tasks, connections and watches are as many as at first      ends
    Q1-8  controllers: one leads in an epoch, what is committed and   quorum,
          each vote that counts is synced, nothing goes back, what    admin_requests
          was answered is there, a majority makes progress

What clients observed is judged once a run is over: as Jepsen does by `anomalies`, and groups and
copies by `client_accounts` and `group_owners`.

StrongIsr, ValidHighWatermark and LeaderCandidateCompleteness of the TLA+ models are I6: all
that any leader, deposed or not, has shown below its high watermark is in `committed`, and the
members of the controller's ISR and ELR must have it.

    a message arrives, a node reports an event, a line of the story is done
        └─> watcher ──values──> rules ──violations──> InvariantViolatedError ends the run
                        └─> contract: which partitions may have lost records, and why

Rule 1: a rule is a function of values, and is tested on values made by hand. The watcher
passes the values, and contains no rule itself.

Rule 2: a checker reads, and changes nothing.

Rule 3: a replica is checked after it has changed, and only the new part of its log is read. So
the cost grows with what happens, not with what exists.
"""

from scenarios.checkers.observed import InvariantViolatedError
from scenarios.checkers.watcher import Checkers

__all__ = ["Checkers", "InvariantViolatedError"]
