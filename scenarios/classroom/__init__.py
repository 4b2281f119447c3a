"""Stories in the live page: choose one, change it, run it, and step through what happened.

    browser ── POST stories/run {text, seed, bug} ──> routes ──stdin──> worker, a process of its own
            <─ answers, differences, logs, causes ──        <─stdout──    the simulator

    routes.py    the page's files, the list of stories, and the queue of runs
    worker.py    the process: one story, within its limits of memory and time
    lesson.py    a run as the page shows it: each command, its answer, and the logs after it

Rule 1: a story runs in a process of its own, one at a time, and up to MOST_WAITING wait. The loop of
the brokers only waits for it. It ends with the request: when the browser leaves, the process dies.

Rule 2: a run has limits: LONGEST_VIRTUAL_SECONDS of the story's own time, then MOST_CPU_SECONDS of
the processor's, each of which ends it with what it has so far; then RUN_SECONDS of the wall's clock,
after which the process is killed, MOST_MEMORY_BYTES, and MOST_RESULT_BYTES of its result.

Rule 3: nothing is written to a disk: a world's disks are in memory, and an edited story is kept by
the browser, in its link or in the file that it saves.

Rule 4: a name in a request selects one of our stories or exhibits, and is never a path.

This room lies above `replication.observe`, whose page knows only that it has another tab.
"""
