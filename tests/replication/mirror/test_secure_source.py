"""A source that is spoken to over TLS, and asks who we are."""

from pathlib import Path
from typing import Any

import pytest
import trio

from replication.client import Admin, Producer
from replication.client.admin import (
    NewTopic,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from replication.client.config import ClientConfig
from replication.cluster.cluster import Cluster
from replication.errors import AuthenticationError
from replication.mirror import Mirror, MirrorOptions
from replication.net import production_seams
from replication.net.raising import raising_only_one
from tests.replication.net.certificates import expired_keys
from tests.replication.server.test_logins import guarded_cluster, outside


def files_in(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


async def make_and_write(**config: Any) -> None:
    async with Admin(**config) as admin:
        await admin.create_topics([NewTopic(name="t")])
    async with Producer(**config) as producer:
        await producer.send("t", b"sealed")


async def until_one_is_copied(cluster: Cluster, mirror: Mirror) -> None:
    with raising_only_one():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(mirror.run)
            await cluster.until(lambda: [each.log_end_offset for each in mirror.progress()] == [1])
            mirror.stop()


async def test_a_source_is_followed_over_tls_and_a_login_and_a_wrong_password_is_refused(
    tmp_path: Path,
) -> None:
    async with guarded_cluster() as cluster:
        await make_and_write(**outside(cluster, "PLAIN", "alice", "sesame"))

        def mirror_of(mechanism: str, user: str, password: str) -> Mirror:
            return Mirror(
                source_config=ClientConfig.of(**outside(cluster, mechanism, user, password)),
                options=MirrorOptions(topics=("t",)),
                directory=str(tmp_path / "copy"),
                seams=production_seams(),
            )

        # Nothing is made of it, and of a copy that is there not one byte is another one.
        for _ in range(2):
            before = files_in(tmp_path)
            with pytest.raises(AuthenticationError, match="Invalid username or pass") as refused:
                await mirror_of("PLAIN", "alice", "wrong").run()
            assert "\n" not in str(refused.value)
            assert files_in(tmp_path) == before
            await until_one_is_copied(cluster, mirror_of("SCRAM-SHA-256", "admin", "top"))


async def test_a_source_whose_certificate_has_expired_is_refused_in_one_line(
    tmp_path: Path,
) -> None:
    def mirror_of(cluster: Cluster) -> Mirror:
        return Mirror(
            source_config=ClientConfig.of(**outside(cluster, "PLAIN", "alice", "sesame")),
            options=MirrorOptions(topics=("t",)),
            directory=str(tmp_path / "copy"),
            seams=production_seams(),
        )

    async with guarded_cluster(keys=expired_keys()) as expired, guarded_cluster() as sound:
        await make_and_write(**outside(sound, "PLAIN", "alice", "sesame"))
        for _ in range(2):
            before = files_in(tmp_path)
            with pytest.raises(AuthenticationError, match="certificate has expired") as refused:
                await mirror_of(expired).run()
            assert "\n" not in str(refused.value)
            assert files_in(tmp_path) == before
            await until_one_is_copied(sound, mirror_of(sound))


async def test_a_login_that_is_refused_later_is_waited_out_and_shown(tmp_path: Path) -> None:
    """Logins end soon here, so that the next one is heard of."""
    bob = UserScramCredentialUpsertion("bob", "SCRAM-SHA-512", "open")
    async with guarded_cluster(connections_max_reauth_ms="300") as cluster:
        alice = outside(cluster, "PLAIN", "alice", "sesame")
        known = ("bob", "SCRAM-SHA-512")

        def is_known() -> bool:
            return known in cluster.brokers[1].metadata.image.security.credentials

        async with Admin(**alice) as admin, Producer(**alice) as producer:
            await admin.create_topics([NewTopic(name="t")])
            await admin.alter_user_scram_credentials([bob])
            await cluster.until(is_known)
            await cluster.until(lambda: cluster.leader("t", 0) is not None)
            await producer.send("t", b"before")
            mirror = Mirror(
                source_config=ClientConfig.of(
                    **outside(cluster, "SCRAM-SHA-512", "bob", "open"), metadata_max_age_ms=300
                ),
                options=MirrorOptions(topics=("t",)),
                directory=str(tmp_path / "copy"),
                seams=production_seams(),
            )

            def ends() -> list[int]:
                return [each.log_end_offset for each in mirror.progress()]

            with raising_only_one():
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(mirror.run)
                    await cluster.until(lambda: ends() == [1])
                    await admin.alter_user_scram_credentials([UserScramCredentialDeletion(*known)])
                    await cluster.until(lambda: not is_known())
                    await cluster.until(lambda: "did not let bob in" in (mirror.trouble or ""))
                    await producer.send("t", b"after")
                    await admin.alter_user_scram_credentials([bob])
                    await cluster.until(lambda: ends() == [2])
                    await cluster.until(lambda: mirror.trouble is None)
                    mirror.stop()
