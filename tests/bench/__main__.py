"""`make bench` runs every benchmark; `make bench ARGS=catch_up` one of them."""

import importlib
import sys

BENCHMARKS = (
    *("start_up", "plugin", "catch_up", "wire", "columnar", "cleaner"),
    *(
        "append",
        "read",
        "timestamp",
        "many_partitions",
        "fetch_rounds",
        "acks",
        "proxy",
        "record_calls",
    ),
    *(
        "recovery",
        "clients",
        "client_records",
        "stalls",
        "swarm_speed",
        "spark",
        "spark_audit",
        "spark_starts",
    ),
)


def main(names: list[str]) -> int:
    unknown = set(names) - set(BENCHMARKS)
    if unknown:
        print(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
        return 2
    for name in names or BENCHMARKS:
        for figure in importlib.import_module(f"tests.bench.{name}").run():
            print(figure, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
