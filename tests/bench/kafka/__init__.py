"""The same work on our brokers and on Apache Kafka's, on one machine, in one run.

    sides        what a measure may ask of a cluster, and how either is started
    asking       a request to a broker over a blocking socket, until it answers as wished
    processes    what the kernel has counted for them: processor time, memory, bytes
    clients      producers (librdkafka's), each in a process of its own
    start_up  idle  latency  throughput  catch_up  mirror  failover  controllers
    warm_up      until Java's compiler has seen enough
    comparison   sizes, rounds of both, and how many times better ours are
    report       the table and the plot of docs/benchmarks.md

Rounds of both sides take turns, on clusters that both live while either works: what an idle
cluster takes from the other is a line of the table itself. A round before the first does not
count. Both sides get the same configuration and otherwise keep their defaults.
"""
