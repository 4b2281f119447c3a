"""Our own clients (`replication.client`) as programs of a simulated world.

    machine      one life of a program: started, asked to end, killed
    sending      a producer, with transactions or without
    reading      a consumer, by itself or in a group
    copying      a loop that reads, writes and commits in transactions
    witness      what all of them did and received; `checkers/client_accounts` judges it

Each runs on a machine of its own, so that its links can be cut and it can be paused. The chance of
that machine decides what it draws, retries and back-offs included.
"""
