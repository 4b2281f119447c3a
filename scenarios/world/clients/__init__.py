"""Our own clients (`replication.client`) as programs of a simulated world.

    machine      one life of a program: started, asked to end, killed
    sending      a producer, with transactions or without
    reading      a consumer, by itself or in a group
    copying      a loop that reads, writes and commits in transactions
    witness      what all of them were told
    accounts     what they may never have been told: the checks

Each runs on a machine of its own, so that links to it can be cut and it can be paused. What
it draws, retries and back-offs included, comes from the chance of that machine.
"""
