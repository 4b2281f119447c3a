"""Incremental fetch sessions (KIP-227): both sides send only what has changed.

Without a session a fetch names every partition each time, and a follower of a thousand partitions
sends the same twelve kilobytes again and again. With one the leader remembers what was requested.

    follower (fetch_session_handler)              leader (cache)
      (0, 0)  full, all partitions      ->       creates session S, epoch 1
      (S, 1)  only what changed         ->       touches it, epoch 2
      (S, 2)  nothing has changed       ->       33 bytes instead of 12,043
      any error: (S, 0) close S, start anew

An epoch counts the requests of a session. It detects a lost, repeated or reordered one: the side
that meets a wrong epoch gives the session up.
"""

INVALID_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_EPOCH = 2**31 - 1


def next_epoch(epoch: int) -> int:
    """Return the epoch of the request after one at `epoch` (FetchMetadata.nextEpoch)."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == _MAX_EPOCH else epoch + 1
