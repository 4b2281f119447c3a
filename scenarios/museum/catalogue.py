"""All exhibits, by the year of their fix."""

from operator import attrgetter

from replication.config.known import nearest
from scenarios.museum import coordinators, fetching, in_sync, replicas, truncation
from scenarios.museum.exhibit import Exhibit
from scenarios.story.script import ScriptError

EXHIBITS: dict[str, Exhibit] = {
    exhibit.name: exhibit
    for exhibit in sorted(
        (
            *truncation.EXHIBITS,
            *fetching.EXHIBITS,
            *in_sync.EXHIBITS,
            *replicas.EXHIBITS,
            *coordinators.EXHIBITS,
        ),
        key=attrgetter("year", "name"),
    )
}


def find_exhibit(name: str) -> Exhibit:
    """Return an exhibit by its name or one of its other tickets; letter case does not matter.

    Raises ScriptError if there is none.
    """
    wanted = name.strip().upper()
    for exhibit in EXHIBITS.values():
        if wanted in map(str.upper, (exhibit.name, *exhibit.also)):
            return exhibit
    near = nearest(wanted, EXHIBITS)
    raise ScriptError(
        f"there is no exhibit called {name!r}{near or ';'} `understudy scenario museum` lists them all"
    )
