"""Checks of fetch sessions, of throttled replication, and of who may do what."""

from tests.mutants.mutant import Edit, Mutant

SESSION = "replication.leader.rules.fetch_session.session"
CONTEXT = "replication.leader.rules.fetch_session.context"
CACHE = "replication.leader.rules.fetch_session.cache"
FETCH = "replication.replica_manager.fetch"
QUOTA = "replication.leader.rules.quota"
ACLS = "replication.security.rules.acls"
SCRAM = "replication.security.rules.scram"

MUTANTS = (
    # Fetch sessions.
    Mutant(
        "a high watermark that has moved is news",
        (
            Edit(
                SESSION,
                "            or answer.high_watermark != self.high_watermark\n",
                "",
            ),
        ),
        without_it="a follower without new records never learns what is committed",
        source="KIP-227, CachedPartition.maybeUpdateResponseData",
    ),
    Mutant(
        "a log start that has moved is news",
        (
            Edit(
                SESSION,
                "            or answer.log_start_offset != self.log_start_offset\n",
                "",
            ),
        ),
        without_it="a follower keeps records that were deleted",
        source="KIP-227, CachedPartition.maybeUpdateResponseData",
    ),
    Mutant(
        "an error is news each time",
        (
            Edit(
                SESSION,
                "            or answer.error is not ErrorCode.NONE\n",
                "",
            ),
        ),
        without_it="a follower does not learn that its leader is deposed, and waits",
        source="KIP-227, CachedPartition.maybeUpdateResponseData",
    ),
    Mutant(
        "a divergence is news each time",
        (
            Edit(
                SESSION,
                "            or answer.diverging_epoch is not None\n",
                "",
            ),
        ),
        without_it="a follower does not learn that it has to truncate, and waits",
        source="KIP-595, CachedPartition.maybeUpdateResponseData",
    ),
    Mutant(
        "the answer after an error tells the high watermark",
        (
            Edit(
                SESSION,
                "            self.high_watermark = NO_OFFSET\n",
                "            pass\n",
            ),
        ),
        without_it="a follower that did not take it beside an error never learns it",
        source="KIP-227, CachedPartition.maybeUpdateResponseData",
    ),
    Mutant(
        "a session goes on from its last request",
        (
            Edit(
                CONTEXT,
                "        if session.epoch != session_epoch:\n",
                "        if session.epoch < session_epoch:\n",
            ),
        ),
        without_it="what a lost response said is never said again",
        source="KIP-227, FetchManager.newContext",
    ),
    Mutant(
        "a request that was overtaken is refused",
        (
            Edit(
                CONTEXT,
                "        if self.session.epoch != self.epoch:\n",
                "        if self.session.epoch < self.epoch:\n",
            ),
        ),
        without_it="two responses of one session say what has changed, and each is half of it",
        source="KIP-227, IncrementalFetchContext.updateAndGenerateResponseData",
    ),
    Mutant(
        "a full fetch ends the session of before",
        (
            Edit(
                CONTEXT,
                "            if session_id != INVALID_SESSION_ID:\n"
                "                self.cache.remove(session_id)\n",
                "",
            ),
        ),
        without_it="slots are taken by sessions that nobody continues",
        source="KIP-227, FetchManager.newContext",
    ),
    Mutant(
        "a newcomer displaces no larger session",
        (
            Edit(
                CACHE,
                "            if idlest is None or newcomer < idlest.eviction_key:\n",
                "            if idlest is None:\n",
            ),
        ),
        without_it="consumers of one partition take the slots of followers of thousands",
        source="KIP-227, FetchSessionCacheShard.tryEvict",
    ),
    Mutant(
        "a partition that is forgotten is not answered",
        (
            Edit(
                SESSION,
                "            gone.release()\n            self.unsettled.pop(key, None)\n",
                "            gone.release()\n",
            ),
        ),
        without_it="a follower gets records of a partition that it follows elsewhere by now",
        source="KIP-227, FetchSession.update",
    ),
    # Throttled replication.
    Mutant(
        "a replica in sync is not throttled",
        (
            Edit(
                FETCH,
                "            and params.replica_id not in partition.isr\n",
                "",
            ),
        ),
        without_it="a rate that is too low shrinks every ISR, and acks=all waits for it",
        source="KIP-73, ReplicaManager.shouldLeaderThrottle",
    ),
    Mutant(
        "a throttled replica waits while the rate is exceeded",
        (
            Edit(
                QUOTA,
                "        return self.is_throttled(partition) and self.is_exceeded(now_ms=now_ms)\n",
                "        return False\n",
            ),
        ),
        without_it="replicas that are moved starve the others",
        source="KIP-73, ReplicationQuotaManager.isQuotaExceeded",
    ),
    Mutant(
        "only throttled replicas are counted",
        (
            Edit(
                QUOTA,
                "        total = sum(size for each, size in sizes.items()"
                " if self.is_throttled(each))\n",
                "        total = sum(sizes.values())\n",
            ),
        ),
        without_it="ordinary replication uses up the rate of those that are moved",
        source="KIP-73, ReplicationQuotaManager.record",
    ),
    Mutant(
        "a rate is over the time since its oldest sample",
        (
            Edit(
                QUOTA,
                "        return total * 1000 / max(elapsed_ms, self.sample_ms)\n",
                "        return total * 1000 / self.sample_ms\n",
            ),
        ),
        without_it="replicas are held back at a tenth of the rate that was given",
        source="SimpleRate.windowSize",
    ),
    # Logins and ACLs.
    Mutant(
        "a denial counts more than any permission",
        (
            Edit(
                ACLS,
                "                    if acl.denies(operation):\n"
                "                        return False\n",
                "",
            ),
        ),
        without_it="somebody who is denied a topic reads it by an ACL for everybody",
        source="StandardAuthorizerData.authorize",
        caught_by="tests/replication/security/test_acls.py::test_what_acls_add_up_to",
    ),
    Mutant(
        "an ACL is for its host",
        (
            Edit(
                ACLS,
                "        return self.principal in (principal, ANYBODY)"
                " and self.host in (host, WILDCARD)\n",
                "        return self.principal in (principal, ANYBODY)\n",
            ),
        ),
        without_it="what is allowed from one host is allowed from all",
        source="StandardAuthorizerData.findResult",
        caught_by="tests/replication/security/test_acls.py::test_what_acls_add_up_to",
    ),
    Mutant(
        "a proof is of the stored key",
        (
            Edit(
                SCRAM,
                "        if not hmac.compare_digest(_hash(self.mechanism, client_key),"
                " credential.stored_key):\n",
                "        if not hmac.compare_digest(client_key, client_key):\n",
            ),
        ),
        without_it="any password is right",
        source="RFC 5802, ScramSaslServer.verifyClientProof",
        caught_by="tests/replication/security/test_scram.py::test_a_login_needs_the_password",
    ),
    Mutant(
        "a proof is for this login",
        (
            Edit(
                SCRAM,
                "        if nonce != self._whole_nonce or _bytes(binding)"
                " != self._header.encode():\n",
                "        if _bytes(binding) != self._header.encode():\n",
            ),
        ),
        without_it="an eavesdropper repeats a login",
        source="RFC 5802, ScramSaslServer.evaluateResponse",
        caught_by="tests/replication/security/test_scram.py"
        "::test_a_final_message_that_proves_nothing_is_refused",
    ),
)
