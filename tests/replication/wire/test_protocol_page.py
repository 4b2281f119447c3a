"""docs/protocol.md lists what apis.py says, no more and no less."""

from pathlib import Path

from replication.wire.apis import API, NEVER, ApiKey

PAGE = Path(__file__).parents[3] / "docs" / "protocol.md"


def rows() -> list[list[str]]:
    """The cells of the page's first table, without its head."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("|---"))
    table = []
    for line in lines[first + 1 :]:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in line.strip("|").split("|")])
    return table


def test_the_page_lists_every_api_in_order_with_its_versions() -> None:
    written = [(name, key, versions, flexible) for name, key, versions, flexible, *_ in rows()]
    assert written == [
        (
            api.request.__name__.removesuffix("Request"),
            str(int(api.key)),
            f"{api.min_version}-{api.max_version}",
            "never" if api.first_flexible == NEVER else str(api.first_flexible),
        )
        for api in sorted(API.values(), key=lambda api: api.key)
    ]


def test_the_page_lists_every_api_with_its_users() -> None:
    assert all(len(row) == 7 and all(row) for row in rows())


def test_a_key_is_named_as_its_module_and_its_messages_are() -> None:
    for key, api in API.items():
        assert api.key is key
        assert ApiKey[api.request.__module__.rpartition(".")[2].upper()] is key
        assert api.response.__name__ == api.request.__name__.replace("Request", "Response")
