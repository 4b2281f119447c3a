"""A museum of famous replication bugs of Apache Kafka.

    exhibit.py       what an exhibit is, and how its switch is thrown for the time of one run
    truncation.py    where two logs diverge, and where a follower truncates
    fetching.py      what a fetch says, and which responses a follower uses
    in_sync.py       who is in sync, and what that lets a leader commit
    replicas.py      the replicas of a broker, their roles and their logs
    coordinators.py  coordinators, their markers, and transactions
    catalogue.py     all exhibits
    visit.py         the run of a story with the bug and without it

A switch replaces one rule or function of the product by what Apache Kafka's code did before the
fix. It is thrown for one run and taken back after it; the product itself has no branch for it.
"""
